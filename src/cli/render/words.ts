/** The words, symbols and numbers that every screen shares. */
import type { CheckResult, DiffFile, DiffStat, Limits, RunRecord, SandboxRecord } from '../../protocol/records';
import { formatBytes, formatDuration } from '../../protocol/units';
import { breachWords, plural, sandboxStateWords } from '../../protocol/words';
import { t, type Line, type Span, type Tone } from './text';

/** "2 min ago", "in 14 min"; the clock is the caller's. */
export function ago(time: string | null, now: number): string {
  if (time === null) return '';
  const ms = now - Date.parse(time);
  if (!Number.isFinite(ms)) return '';
  if (Math.abs(ms) < 5000) return ms < 0 ? 'in a moment' : 'just now';
  return ms < 0 ? `in ${rough(-ms)}` : `${rough(ms)} ago`;
}

function rough(ms: number): string {
  const s = ms / 1000;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86_400) return `${Math.round(s / 3600)} h`;
  return plural(Math.round(s / 86_400), 'day');
}

/** "14 min left", "ended 2 min ago", or how old it is. */
export function lifeTime(record: Pick<SandboxRecord, 'createdAt' | 'expiresAt' | 'endedAt'>, now: number): string {
  if (record.endedAt !== null) return `ended ${ago(record.endedAt, now)}`;
  if (record.expiresAt === null) return `made ${ago(record.createdAt, now)}`;
  return `${rough(Math.max(0, Date.parse(record.expiresAt) - now))} left`;
}

/** A duration that may not be known. */
export function duration(ms: number | null): string {
  return ms === null ? '–' : formatDuration(ms).replace(/ 0 (s|min)$/, '');
}

export function elapsed(from: string | null, to: string | null, now: number): number | null {
  if (from === null) return null;
  const ms = (to === null ? now : Date.parse(to)) - Date.parse(from);
  return Number.isFinite(ms) ? Math.max(0, ms) : null;
}

export function limitsText(limits: Limits): string {
  const parts = [
    limits.cpus === undefined ? '' : `${limits.cpus} CPU`,
    limits.memoryBytes === undefined ? '' : formatBytes(limits.memoryBytes),
    limits.pids === undefined ? '' : `${limits.pids} processes`,
    limits.timeoutMs === undefined ? '' : duration(limits.timeoutMs),
  ].filter((p) => p !== '');
  return parts.length === 0 ? 'none' : parts.join(' · ');
}

const sandboxStates: Record<SandboxRecord['state'], [string, Tone]> = {
  creating: ['◌', 'accent'],
  ready: ['●', 'good'],
  stopped: ['◐', 'warn'],
  destroying: ['◌', 'dim'],
  destroyed: ['○', 'dim'],
  failed: ['✗', 'bad'],
};

/** A symbol, a colour and a word: never colour alone. */
export function sandboxState(state: SandboxRecord['state']): Span {
  const [symbol, tone] = sandboxStates[state];
  return t(`${symbol} ${sandboxStateWords[state]}`, tone);
}

const runStates: Record<RunRecord['state'], [string, Tone]> = {
  waiting: ['·', 'dim'],
  preparing: ['◌', 'accent'],
  running: ['◌', 'accent'],
  checking: ['◌', 'accent'],
  passed: ['✓', 'good'],
  failed: ['✗', 'bad'],
  cancelled: ['–', 'dim'],
  interrupted: ['–', 'warn'],
};

export function runSymbol(state: RunRecord['state']): Span {
  const [symbol, tone] = runStates[state];
  return t(symbol, tone);
}

export function runTone(state: RunRecord['state']): Tone {
  return runStates[state][1];
}

/** True once nothing more happens to the run. */
export function ended(state: RunRecord['state']): boolean {
  return state === 'passed' || state === 'failed' || state === 'cancelled' || state === 'interrupted';
}

export const statusLetters: Record<DiffFile['status'], [string, Tone]> = {
  added: ['A', 'good'],
  modified: ['M', 'accent'],
  deleted: ['D', 'bad'],
  'type-changed': ['T', 'warn'],
};

/** "+12 −3". */
export function lines(stat: { added: number | null; removed: number | null }): Line {
  if (stat.added === null || stat.removed === null) return [t('binary', 'dim')];
  return [t(`+${stat.added}`, 'good'), t(' '), t(`−${stat.removed}`, 'bad')];
}

/** "3 files +12 −3". */
export function statLine(stat: DiffStat): Line {
  if (stat.files === 0) return [t('no change', 'dim')];
  return [t(`${plural(stat.files, 'file')} `), ...lines(stat)];
}

/** "✓ 41/41", "✗ 39/41", "✗ exit 1", "✗ out of memory". */
export function checkCell(check: CheckResult | undefined, brief = false): Span {
  if (!check) return t('–', 'dim');
  const tone: Tone = check.passed ? 'good' : 'bad';
  return t(`${check.passed ? '✓' : '✗'} ${checkWords(check, brief)}`.trimEnd(), tone);
}

/** In words; `brief` leaves out the breach where counts say enough beside a verdict. */
export function checkWords(check: CheckResult, brief = false): string {
  const counts = check.tests ? `${check.tests.passed}/${check.tests.passed + check.tests.failed}` : '';
  if (check.breach !== null && !(brief && counts !== ''))
    return [counts, breachWords(check.breach)].filter((s) => s !== '').join(' ');
  if (counts !== '' && (check.passed || (check.tests?.failed ?? 0) > 0)) return counts;
  if (check.passed) return counts === '' && !brief ? 'passed' : counts;
  if (check.exitCode !== null && check.exitCode !== 0) return `${counts} exit ${check.exitCode}`.trimStart();
  return `${counts} ${check.problems.length > 0 ? 'problem' : check.exitCode === null ? 'did not end' : 'failed'}`.trimStart();
}
