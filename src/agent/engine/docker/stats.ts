/** What a box uses: from the engine, and what the engine doesn't say from the kernel's files inside. */
import * as z from 'zod';
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
const probe = `for f in memory.events memory.peak pids.events memory/memory.oom_control memory/memory.max_usage_in_bytes pids/pids.events; do
  [ -r "/sys/fs/cgroup/$f" ] || continue
  echo "=$f"
  while read -r line; do echo "$line"; done < "/sys/fs/cgroup/$f"
done 2>/dev/null`;
const maxProbeBytes = 8192;

export async function readStats(host: ExecHost, api: number): Promise<BoxStats> {
  const [told, inside] = await Promise.all([engineStats(host, api), probeInside(host)]);
  const current = told.pids_stats?.current ?? 0;
  const limit = told.pids_stats?.limit ?? 0;
  const cache = told.memory_stats?.stats?.['inactive_file'] ?? told.memory_stats?.stats?.['total_inactive_file'] ?? 0;
  const peaks = [told.memory_stats?.max_usage, inside.peak].filter((n) => typeof n === 'number');
  // At its limit nothing can be started in there to look, which is itself the answer.
  const full = limit > 0 && limit < 2 ** 31 && current >= limit ? 1 : null;
  return {
    cpuSeconds: (told.cpu_stats?.cpu_usage?.total_usage ?? 0) / 1e9,
    memoryBytes: Math.max(0, (told.memory_stats?.usage ?? 0) - cache),
    peakMemoryBytes: peaks.length > 0 ? Math.max(...peaks) : null,
    pids: current,
    oomKills: inside.oomKills,
    pidsDenied: inside.pidsDenied ?? full,
  };
}

async function engineStats(host: ExecHost, api: number): Promise<z.infer<typeof statsInput>> {
  const told = await host.client.call('reading what a container uses', async (docker) => {
    const container = docker.getContainer(host.boxId);
    if (api >= 41) return (await container.stats({ stream: false, 'one-shot': true })) as unknown;
    // Older engines wait for a second sample unless they stream; the first of a stream comes at once.
    const stream = await container.stats({ stream: true });
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

interface Probe {
  oomKills: number | null;
  pidsDenied: number | null;
  peak: number | null;
}

async function probeInside(host: ExecHost): Promise<Probe> {
  try {
    const { code, stdout } = await runForOutput(host, ['/bin/sh', '-c', probe], maxProbeBytes);
    if (code === 0) return parseProbe(stdout.toString('latin1'));
  } catch {
    // The box is stopped, or nothing can be started in it: the engine's own figures have to do.
  }
  return { oomKills: null, pidsDenied: null, peak: null };
}

/** Reads the probe's output, which may be anything. */
export function parseProbe(text: string): Probe {
  const out: Probe = { oomKills: null, pidsDenied: null, peak: null };
  let file = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('=')) file = line.slice(1);
    const m = /^(?:([a-z_]+) )?(\d{1,16})$/.exec(line);
    if (!m) continue;
    const value = Number(m[2]);
    if (!Number.isSafeInteger(value)) continue;
    if ((file === 'memory.events' || file === 'memory/memory.oom_control') && m[1] === 'oom_kill') out.oomKills = value;
    else if ((file === 'pids.events' || file === 'pids/pids.events') && m[1] === 'max') out.pidsDenied = value;
    else if ((file === 'memory.peak' || file === 'memory/memory.max_usage_in_bytes') && m[1] === undefined)
      out.peak = value;
  }
  return out;
}
