// Clocks: interleaved repetitions of ours and the baseline, and what is made of their times.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Milliseconds that `work` takes. */
export async function time(work) {
  const began = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - began) / 1e6;
}

/**
 * Measures every side `times` times, interleaved, the order turned round each time, after `warmUp` rounds that don't count.
 * A side is a function or `{ prepare, work }`; `prepare(i)` runs outside the clock. What `work(i)` gives back, if it is a
 * function, cleans up outside the clock. Gives a list of milliseconds per side.
 */
export async function interleave(times, sides, { warmUp = 1 } = {}) {
  const entries = Object.entries(sides);
  const out = Object.fromEntries(entries.map(([name]) => [name, []]));
  for (let i = -warmUp; i < times; i++) {
    for (const [name, side] of i % 2 === 0 ? entries : [...entries].reverse()) {
      const { prepare, work } = typeof side === 'function' ? { work: side } : side;
      await prepare?.(i);
      let after;
      const ms = await time(async () => (after = await work(i)));
      if (typeof after === 'function') await after();
      if (i >= 0) out[name].push(ms);
    }
  }
  return out;
}
