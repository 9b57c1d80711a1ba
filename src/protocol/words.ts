/** The sentences that editor, command line and MCP share: states, breaches and counts, said the same everywhere. */
import type {
  Breach,
  DiffStat,
  ExperimentRecord,
  Limits,
  NetworkMode,
  PromotionRecord,
  RunState,
  SandboxRecord,
  StageName,
  StageResult,
  TestReport,
} from './records';
import { shorten } from './text';
import { formatBytes, formatDuration } from './units';

const integers = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const decimals = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 6 });

/** "1 file", "12 files", "1,204 entries" (with `many`). */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${integers.format(count)} ${count === 1 ? one : many}`;
}

/** A name in quotes, safe to show, at most 60 characters. */
export function quoted(name: string): string {
  return `"${shorten(name, 60)}"`;
}

/** "a", "a and b", "a, b and c". */
export function listWords(items: string[], last = 'and'): string {
  if (items.length < 2) return items.join('');
  return `${items.slice(0, -1).join(', ')} ${last} ${items.at(-1) ?? ''}`;
}

/** A metric's value, six digits at most: "1,234.5". */
export function formatNumber(value: number): string {
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? integers.format(value) : decimals.format(value);
}

/** "+1 −1" with a real minus sign. */
export function lineCounts(stat: Pick<DiffStat, 'added' | 'removed'>): string {
  return `+${stat.added} −${stat.removed}`;
}

/** "1 file, +1 −1", or "nothing changed". */
export function diffWords(stat: DiffStat): string {
  return stat.files === 0 ? 'nothing changed' : `${plural(stat.files, 'file')}, ${lineCounts(stat)}`;
}

/** "41/41", skipped ones beside: "40/41, 2 skipped". */
export function testCounts(tests: Pick<TestReport, 'passed' | 'failed' | 'skipped'>): string {
  const counts = `${tests.passed}/${tests.passed + tests.failed}`;
  return tests.skipped > 0 ? `${counts}, ${tests.skipped} skipped` : counts;
}

/** What is known about where and at what bound a breach happened. */
export interface BreachContext {
  /** Who ran into it: a run's, sandbox's or check's name. */
  name?: string;
  /** The command that was running. */
  command?: string;
  /** The bounds it had. */
  limits?: Limits;
  /** The wall-time bound that ended it, where it is not `limits.timeoutMs` (a check's own). */
  timeoutMs?: number;
  /** The host that was denied, for `egress-denied`. */
  host?: string;
}

/** Short form for a table's cell: "out of memory at 256 MB", "timed out after 5 min 0 s". */
export function breachWords(breach: Breach, context: BreachContext = {}): string {
  const { memoryBytes, pids, timeoutMs } = context.limits ?? {};
  const time = context.timeoutMs ?? timeoutMs;
  switch (breach) {
    case 'oom':
      return memoryBytes === undefined ? 'out of memory' : `out of memory at ${formatBytes(memoryBytes)}`;
    case 'timeout':
      return time === undefined ? 'timed out' : `timed out after ${formatDuration(time)}`;
    case 'disk':
      return 'out of disk space';
    case 'pids':
      return pids === undefined ? 'out of processes' : `out of processes at ${integers.format(pids)}`;
    case 'egress-denied':
      return context.host === undefined
        ? 'denied access to the network'
        : `denied access to ${shorten(context.host, 80)}`;
  }
}

/**
 * What happened, then what to do:
 * "naive ran out of memory at 256 MB while running `npm test`. Raise `limits.memory` or see its log."
 */
export function breachSentence(breach: Breach, context: BreachContext = {}): string {
  const who = context.name === undefined ? 'It' : shorten(context.name, 60);
  const where = context.command === undefined ? '' : ` while running \`${shorten(context.command, 80)}\``;
  const words = breachWords(breach, context);
  switch (breach) {
    case 'oom':
      return `${who} ran ${words}${where}. Raise \`limits.memory\` or see its log.`;
    case 'timeout':
      return `${who} ${words}${where}. Raise \`${context.timeoutMs === undefined ? 'limits.timeout' : 'timeout'}\` or see its log.`;
    case 'disk':
      return `${who} ran ${words}${where}. Free space for the container engine or see its log.`;
    case 'pids':
      return `${who} ran ${words}${where}. Raise \`limits.pids\` or see its log.`;
    case 'egress-denied':
      return `${who} was ${words}${where}. Change \`network\` or see its log.`;
  }
}

export const runStateWords: Record<RunState, string> = {
  waiting: 'waiting',
  preparing: 'preparing',
  running: 'running',
  checking: 'checking',
  passed: 'passed',
  failed: 'failed',
  cancelled: 'cancelled',
  interrupted: 'interrupted',
};

export const sandboxStateWords: Record<SandboxRecord['state'], string> = {
  creating: 'being created',
  ready: 'ready',
  stopped: 'stopped',
  destroying: 'being destroyed',
  destroyed: 'destroyed',
  failed: 'failed',
};

export const experimentStateWords: Record<ExperimentRecord['state'], string> = {
  running: 'running',
  done: 'done',
  cancelled: 'cancelled',
  interrupted: 'interrupted',
  failed: 'failed',
};

export const promotionStateWords: Record<PromotionRecord['state'], string> = {
  running: 'running',
  done: 'done',
  refused: 'refused',
  conflict: 'in conflict',
  undone: 'undone',
  interrupted: 'interrupted',
};

/** What each rung of the ladder means, for tooltips and help. */
export const stageWords: Record<StageName, string> = {
  sandbox: 'in its sandbox',
  verified: 'verified in a fresh sandbox',
  local: 'in the workspace',
  tested: 'tested in the workspace',
  staging: 'in staging',
  production: 'in production',
};

export const networkWords: Record<NetworkMode, string> = { none: 'no network', open: 'open network' };

/** "verified ✓ 6 s": a stage of a ladder with its sign and, once ended, its time. */
export function stageLine(stage: Pick<StageResult, 'stage' | 'state' | 'startedAt' | 'endedAt'>): string {
  const sign = { running: '…', passed: '✓', refused: '✗', undone: '↶' }[stage.state];
  const ms = stage.endedAt === null ? NaN : Date.parse(stage.endedAt) - Date.parse(stage.startedAt);
  return `${stage.stage} ${sign}${Number.isFinite(ms) && ms >= 0 ? ` ${formatDuration(ms)}` : ''}`;
}
