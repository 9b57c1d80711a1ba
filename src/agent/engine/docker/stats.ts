/** What a box uses: from the engine, and what the engine doesn't say, or not soon enough, from the kernel's files inside. */
import { z } from 'zod';
import type { BoxStats } from '../engine';
import { runForOutput, type ExecHost } from './exec';

const count = z.number().nonnegative().nullish();
const statsInput = z.object({
  cpu_stats: z.object({ cpu_usage: z.object({ total_usage: count }).nullish() }).nullish(),
  memory_stats: z
    .object({ usage: count, max_usage: count, stats: z.record(z.string(), z.number()).nullish() })
    .nullish(),
  pids_stats: z.object({ current: count, limit: z.number().nullish() }).nullish(),
});

/** Built-ins only. The files of cgroup v2, then those of v1; the kernel writes them, the box can't. */
const probe = `cd /sys/fs/cgroup || exit 1
for f in cpu.stat memory.current memory.events memory.peak memory.stat pids.current pids.events pids.max \\
  cpuacct/cpuacct.usage memory/memory.usage_in_bytes memory/memory.oom_control memory/memory.max_usage_in_bytes memory/memory.stat \\
  pids/pids.current pids/pids.events pids/pids.max; do
  [ -r "$f" ] || continue
  echo "=\${f##*/}"
  while read -r line; do echo "$line"; done < "$f"
done 2>/dev/null`;
const maxProbeBytes = 16 * 1024;

/**
 * Engines take their figures once a second and let callers wait for the next. One that doesn't answer in this time isn't waited for: then the
 * box's own figures have to do, ms.
 */
const patienceMs = 150;

export async function readStats(host: ExecHost, api: number): Promise<BoxStats> {
  const abort = new AbortController();
  const outside = engineStats(host, api, abort.signal);
  outside.catch(() => undefined);
  const began = Date.now();
  const inside = await probeInside(host);
  const complete = inside.cpuSeconds !== null && inside.memoryBytes !== null && inside.pids !== null;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    if (complete) timer = setTimeout(() => resolve(undefined), Math.max(0, patienceMs - (Date.now() - began)));
  });
  try {
    return merge(await Promise.race([outside, late]), inside);
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

/** How many tasks it takes to start a command in a box: runtimes come with several threads. */
const startNeeds = 12;

function merge(told: z.infer<typeof statsInput> | undefined, inside: Probe): BoxStats {
  const memory = told?.memory_stats;
  const cache = memory?.stats?.['inactive_file'] ?? memory?.stats?.['total_inactive_file'] ?? 0;
  const pids = told?.pids_stats?.current ?? inside.pids ?? 0;
  const limit = told?.pids_stats?.limit ?? inside.pidsLimit ?? 0;
  const peaks = [memory?.max_usage, inside.peak].filter((n) => typeof n === 'number');
  // Near its limit nothing can be started in there to look, which is itself the answer.
  const full = inside.pids === null && limit > 0 && limit < 2 ** 31 && limit - pids < startNeeds ? 1 : null;
  return {
    cpuSeconds: told?.cpu_stats?.cpu_usage?.total_usage
      ? told.cpu_stats.cpu_usage.total_usage / 1e9
      : (inside.cpuSeconds ?? 0),
    memoryBytes: memory?.usage
      ? Math.max(0, memory.usage - cache)
      : Math.max(0, (inside.memoryBytes ?? 0) - (inside.inactiveFile ?? 0)),
    peakMemoryBytes: peaks.length > 0 ? Math.max(...peaks) : null,
    pids,
    oomKills: inside.oomKills,
    pidsDenied: inside.pidsDenied ?? full,
  };
}

async function engineStats(host: ExecHost, api: number, signal: AbortSignal): Promise<z.infer<typeof statsInput>> {
  const told = await host.client.call('reading what a container uses', async (docker) => {
    const container = docker.getContainer(host.boxId);
    const once = { stream: false as const, 'one-shot': true, abortSignal: signal };
    if (api >= 41) return await container.stats(once);
    // Older engines wait for a second sample unless they stream; the first of a stream comes at once.
    const streamed = { stream: true as const, abortSignal: signal };
    const stream = await container.stats(streamed);
    let text = '';
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      text += chunk.toString();
      if (text.includes('\n') || text.length > 1024 * 1024) break;
    }
    return JSON.parse(text.split('\n')[0] ?? '{}') as unknown;
  });
  const parsed = statsInput.safeParse(told);
  return parsed.success ? parsed.data : {};
}

/** What the files inside say; null for what they don't. */
export interface Probe {
  cpuSeconds: number | null;
  memoryBytes: number | null;
  inactiveFile: number | null;
  peak: number | null;
  oomKills: number | null;
  pids: number | null;
  pidsLimit: number | null;
  pidsDenied: number | null;
}

async function probeInside(host: ExecHost): Promise<Probe> {
  try {
    const { stdout } = await runForOutput(host, ['/bin/sh', '-c', probe], maxProbeBytes);
    return parseProbe(stdout.toString('latin1'));
  } catch {
    // The box is stopped, or nothing can be started in it: the engine's own figures have to do.
    return parseProbe('');
  }
}

/** File and key (empty for a number alone) to what it means; v2 first, then v1 where it differs. */
const meanings: Record<string, [field: keyof Probe, unit: number]> = {
  'cpu.stat usage_usec': ['cpuSeconds', 1e-6],
  'cpuacct.usage ': ['cpuSeconds', 1e-9],
  'memory.current ': ['memoryBytes', 1],
  'memory.usage_in_bytes ': ['memoryBytes', 1],
  'memory.stat inactive_file': ['inactiveFile', 1],
  'memory.stat total_inactive_file': ['inactiveFile', 1],
  'memory.peak ': ['peak', 1],
  'memory.max_usage_in_bytes ': ['peak', 1],
  'memory.events oom_kill': ['oomKills', 1],
  'memory.oom_control oom_kill': ['oomKills', 1],
  'pids.current ': ['pids', 1],
  'pids.max ': ['pidsLimit', 1],
  'pids.events max': ['pidsDenied', 1],
};

/** Reads the probe's output, which may be anything. */
export function parseProbe(text: string): Probe {
  const out: Probe = {
    cpuSeconds: null,
    memoryBytes: null,
    inactiveFile: null,
    peak: null,
    oomKills: null,
    pids: null,
    pidsLimit: null,
    pidsDenied: null,
  };
  let file = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('=')) {
      file = line.slice(1);
      continue;
    }
    const m = /^(?:([a-z_]+) )?(\d{1,16})$/.exec(line);
    const key = `${file} ${m?.[1] ?? ''}`;
    const meaning = m && Object.hasOwn(meanings, key) ? meanings[key] : undefined;
    const value = Number(m?.[2]);
    if (meaning && Number.isSafeInteger(value)) out[meaning[0]] = value * meaning[1];
  }
  return out;
}
