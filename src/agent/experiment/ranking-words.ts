/** Says in words why runs stand where they stand: what really decided, not what usually does. Pure. */
import type { Breach, CheckResult, Limits, RunRecord } from '../../protocol/records';
import { shorten } from '../../protocol/text';
import { formatDuration } from '../../protocol/units';
import { breachWords, diffWords, formatNumber, listWords, plural, quoted, runStateWords } from '../../protocol/words';
import { compareBy, metricOf, type Criterion, type Standing } from './ranking-criteria';

/** Everything that the words are about. */
export interface Field {
  /** All runs, best first. */
  sorted: Standing[];
  /** Those that can win. */
  able: Standing[];
  criteria: Criterion[];
  limits: Limits;
}

/** Others than the winner that are named one by one; the rest is counted. */
const maxNamed = 8;

/** One cell of a table: "passes, smallest", "2 tests fail; out of memory at 256 MB". */
export function verdictFor(s: Standing, field: Field): string {
  if (s.standing === 2)
    return shortcomings(s, field.limits)
      .map((c) => c.cell)
      .join('; ');
  if (s.standing === 1) return 'passes, changes nothing';
  const [winner, second] = field.able;
  if (winner === undefined || second === undefined) return field.sorted.length > 1 ? 'passes, the only one' : 'passes';
  if (s === winner) {
    const criterion = deciding(winner, second, field.criteria);
    return `passes, ${advantage(criterion, isBest(winner, criterion, field))}`;
  }
  return `passes, ${drawback(deciding(winner, s, field.criteria), s)}`;
}

/** `"sed" wins: all 41 tests pass, smallest diff (1 file, +1 −1). "rewrite" passes too, 12 files, +212 −88. "naive" fails 2 tests.` */
export function reasonFor(field: Field): string {
  const [winner] = field.able;
  if (winner === undefined) return noWinner(field);
  const others = field.sorted.filter((s) => s !== winner);
  const sentences = [
    `${quoted(winner.run.name)} wins: ${[passing(winner), ...whyFirst(winner, field)].filter((part) => part !== '').join(', ')}.`,
    ...(winner.checks.total === 0 ? ['No checks are declared, so the ranking rests on diff and time alone.'] : []),
    ...others.slice(0, maxNamed).map((s) => `${quoted(s.run.name)} ${whyNot(s, winner, field)}.`),
    ...(others.length > maxNamed
      ? [`${plural(others.length - maxNamed, 'other')} stand${others.length - maxNamed === 1 ? 's' : ''} behind.`]
      : []),
  ];
  return sentences.join(' ');
}

function noWinner({ sorted, limits }: Field): string {
  if (sorted.length === 0) return 'No winner: there are no runs.';
  const whys = sorted.map(
    (s) => `${quoted(s.run.name)} ${s.standing === 1 ? 'passes but changes nothing' : failing(s, limits)}`,
  );
  const named = whys.slice(0, maxNamed).join('; ');
  const rest = whys.length > maxNamed ? `; and ${whys.length - maxNamed} more` : '';
  const states = new Set(sorted.map((s) => s.run.state));
  const [only] = states;
  if (states.size === 1 && only === 'cancelled') return 'No winner: the experiment was cancelled.';
  const none = sorted.some((s) => s.standing === 1)
    ? 'no approach both passes and changes something'
    : 'no approach passes';
  return `No winner: ${none}: ${named}${rest}.`;
}

/** "all 41 tests pass", "both checks pass", "all 3 checks and all 41 tests pass"; empty without checks. */
function passing({ checks, tests }: Standing): string {
  const { passed, failed, skipped } = tests;
  const beside = skipped > 0 ? ` (${skipped} skipped)` : '';
  const count = passed === 1 ? 'its one test' : `all ${formatNumber(passed)} tests`;
  const ofTests = failed > 0 ? `${passed} of ${passed + failed} tests` : passed > 0 ? count : '';
  const ofChecks = checks.total > 2 ? `all ${checks.total} checks` : checks.total === 2 ? 'both checks' : 'its check';
  if (checks.total === 0) return '';
  if (ofTests === '') return `${ofChecks} ${checks.total === 1 ? 'passes' : 'pass'}`;
  if (checks.total > 1) return `${ofChecks} and ${ofTests} pass${beside}`;
  return `${ofTests} ${passed === 1 && failed === 0 ? 'passes' : 'pass'}${beside}`;
}

function whyFirst(winner: Standing, field: Field): string[] {
  const [, second] = field.able;
  if (second !== undefined) return [advantageOver(winner, second, field)];
  if (field.sorted.length === 1) return ['the only approach'];
  return [
    field.sorted.some((s) => s.standing === 1)
      ? 'the only one that passes and changes something'
      : 'the only one that passes',
  ];
}

/** The first criterion by which `a` stands before `b`. */
function deciding(a: Standing, b: Standing, criteria: Criterion[]): Criterion {
  return criteria.find((criterion) => compareBy(a, b, criterion) !== 0) ?? { kind: 'name' };
}

/** Whether nobody that can win is better by this criterion, so that "smallest" is true and not only "smaller". */
function isBest(winner: Standing, criterion: Criterion, { able }: Field): boolean {
  return able.every((other) => compareBy(winner, other, criterion) <= 0);
}

/** What the winner has by a criterion, for a cell. */
function advantage(criterion: Criterion, best: boolean): string {
  switch (criterion.kind) {
    case 'lines':
      return best ? 'smallest' : 'smaller';
    case 'files':
      return best ? 'fewest files' : 'fewer files';
    case 'time':
      return best ? 'fastest' : 'faster';
    case 'metric': {
      const { name, better } = criterion.metric;
      const word = better === 'lower' ? (best ? 'lowest' : 'lower') : best ? 'highest' : 'higher';
      return `${word} ${shorten(name, 40)}`;
    }
    case 'tests-failed':
      return best ? 'fewest tests fail' : 'fewer tests fail';
    case 'tests-passed':
    case 'checks':
    case 'standing':
      return best ? 'most tests pass' : 'more tests pass';
    case 'name':
      return 'first by name among equals';
  }
}

/** What decided between the winner and the second, with both their values: "smallest diff (1 file, +1 −1)". */
function advantageOver(winner: Standing, second: Standing, field: Field): string {
  const criterion = deciding(winner, second, field.criteria);
  const rival = quoted(second.run.name);
  if (criterion.kind === 'name') return `equal to ${rival} in everything that counts and first by name`;
  const best = isBest(winner, criterion, field);
  const word = advantage(criterion, best);
  const [own, theirs] = [amount(criterion, winner), amount(criterion, second)];
  if (criterion.kind === 'lines')
    return best ? `${word} diff (${own})` : `${word} diff than ${rival} (${own}; ${theirs})`;
  return `${best ? word : `${word} than ${rival}`} (${own}; ${best ? `${rival} ${theirs}` : theirs})`;
}

function amount(criterion: Criterion, { run, tests }: Standing): string {
  switch (criterion.kind) {
    case 'lines':
      return run.diff === null ? 'none' : diffWords(run.diff);
    case 'files':
      return String(run.diff?.files ?? 0);
    case 'time':
      return run.wallMs === null ? 'unknown' : formatDuration(run.wallMs);
    case 'metric': {
      const value = metricOf(run, criterion.metric.name);
      return value === undefined ? 'has none' : formatNumber(value);
    }
    case 'tests-failed':
      return tests.passed + tests.failed + tests.skipped === 0 ? 'reports none' : String(tests.failed);
    case 'tests-passed':
      return String(tests.passed);
    case 'checks':
    case 'standing':
    case 'name':
      return '';
  }
}

/** What a run that can win lacks against the winner, for a cell. */
function drawback(criterion: Criterion, s: Standing): string {
  switch (criterion.kind) {
    case 'lines':
      return 'larger';
    case 'files':
      return 'more files';
    case 'time':
      return 'slower';
    case 'metric': {
      const { name, better } = criterion.metric;
      const shown = shorten(name, 40);
      return metricOf(s.run, name) === undefined
        ? `no ${shown}`
        : `${better === 'lower' ? 'higher' : 'lower'} ${shown}`;
    }
    case 'tests-failed':
      return s.tests.failed === 0
        ? 'reports no tests'
        : `${plural(s.tests.failed, 'test')} fail${s.tests.failed === 1 ? 's' : ''}`;
    case 'tests-passed':
    case 'checks':
    case 'standing':
      return `only ${plural(s.tests.passed, 'test')}`;
    case 'name':
      return 'equal';
  }
}

/** The rest of a sentence that begins with the run's name. */
function whyNot(s: Standing, winner: Standing, field: Field): string {
  if (s.standing === 1) return 'passes but changes nothing';
  if (s.standing === 2) return failing(s, field.limits);
  const criterion = deciding(winner, s, field.criteria);
  if (criterion.kind === 'name') return 'passes too and is equal in everything that counts';
  const value = amount(criterion, s);
  switch (criterion.kind) {
    case 'lines':
      return `passes too, ${value}`;
    case 'time':
      return `passes too, in ${value}`;
    case 'files':
      return `passes too, ${plural(s.run.diff?.files ?? 0, 'file')}`;
    case 'metric': {
      const name = shorten(criterion.metric.name, 40);
      return metricOf(s.run, criterion.metric.name) === undefined
        ? `passes too, without ${name}`
        : `passes too, ${name} ${value}`;
    }
    case 'tests-failed':
    case 'tests-passed':
    case 'checks':
    case 'standing':
      return `passes too, ${drawback(criterion, s)}`;
  }
}

function failing(s: Standing, limits: Limits): string {
  return listWords(shortcomings(s, limits).map((c) => c.sentence));
}

/** One thing that went wrong, for a cell and for a sentence after the run's name. */
interface Shortcoming {
  cell: string;
  sentence: string;
}

function shortcomings({ run, tests }: Standing, limits: Limits): Shortcoming[] {
  const found: Shortcoming[] = [];
  const add = (cell: string, sentence: string): void => void found.push({ cell, sentence });
  if (['waiting', 'preparing', 'running', 'checking'].includes(run.state)) {
    add(runStateWords[run.state], 'has not ended');
    return found;
  }
  if (run.state === 'cancelled' || run.state === 'interrupted') add(runStateWords[run.state], `was ${run.state}`);
  if (tests.failed > 0) {
    const count = plural(tests.failed, 'test');
    add(`${count} fail${tests.failed === 1 ? 's' : ''}`, `fails ${count}`);
  }
  const ofChecks = run.checks.flatMap(({ breach, passed }) => (breach === null || passed ? [] : [breach]));
  const breaches = new Set<Breach>(run.breach === null ? ofChecks : [run.breach, ...ofChecks]);
  for (const breach of breaches) {
    // A check may have a time bound of its own, so the experiment's is not named then.
    const known = breach === 'timeout' && ofChecks.includes(breach) ? {} : { limits };
    const words = breachWords(breach, known);
    add(words, breach === 'timeout' ? words : breach === 'egress-denied' ? `was ${words}` : `ran ${words}`);
  }
  const plain = run.checks.filter((c) => !c.passed && (c.tests?.failed ?? 0) === 0 && c.breach === null);
  const [first] = plain;
  if (plain.length === 1 && first) {
    const why = whyCheckFails(first);
    add(`${shorten(first.name, 40)} fails${why}`, `fails the check ${quoted(first.name)}${why}`);
  } else if (plain.length > 1) add(`${plain.length} checks fail`, `fails ${plain.length} checks`);
  if (breaches.size === 0 && commandFailed(run))
    add(`exit code ${run.exitCode}`, `ended with exit code ${run.exitCode}`);
  if (found.length === 0) {
    const problem = run.problem === null ? '' : shorten(run.problem, 160).replace(/[.\s]+$/, '');
    add(problem || 'failed', problem === '' ? 'failed' : `failed: ${problem}`);
  }
  return found;
}

function commandFailed(run: RunRecord): boolean {
  return run.exitCode !== null && run.exitCode !== 0;
}

/** The exit code, or what else was wrong where the code alone would puzzle. */
function whyCheckFails({ exitCode, problems }: CheckResult): string {
  const [problem] = problems;
  if (exitCode === 0 && problem !== undefined) return ` (${shorten(problem, 100).replace(/[.\s]+$/, '')})`;
  return exitCode === null ? '' : ` (exit code ${exitCode})`;
}
