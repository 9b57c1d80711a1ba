/** What runs are compared by, and the order that comes of it. Pure. */
import type { MetricDeclaration, RunRecord } from '../../protocol/records';

/** What two runs can differ in. `metric` carries its declaration. */
export type Criterion =
  | { kind: 'standing' | 'checks' | 'tests-failed' | 'tests-passed' | 'lines' | 'files' | 'time' | 'name' }
  | { kind: 'metric'; metric: MetricDeclaration };

/** A run with the numbers it is compared by. */
export interface Standing {
  run: RunRecord;
  /** 0: can win. 1: passed but changed nothing. 2: did not pass. */
  standing: 0 | 1 | 2;
  checks: { passed: number; total: number };
  tests: { passed: number; failed: number; skipped: number };
  /** Milliseconds that it counts for: the least of those that are close to it and equal in all else. */
  countedMs: number;
}

export function measure(run: RunRecord): Standing {
  const tests = { passed: 0, failed: 0, skipped: 0 };
  for (const check of run.checks) {
    tests.passed += check.tests?.passed ?? 0;
    tests.failed += check.tests?.failed ?? 0;
    tests.skipped += check.tests?.skipped ?? 0;
  }
  const passed = run.checks.filter((check) => check.passed).length;
  const passes = run.state === 'passed' && passed === run.checks.length;
  return {
    run,
    standing: !passes ? 2 : (run.diff?.files ?? 0) > 0 ? 0 : 1,
    checks: { passed, total: run.checks.length },
    tests,
    countedMs: run.wallMs ?? Infinity,
  };
}

/** Every criterion, the first that differs decides. */
export function criteriaOf(metrics: MetricDeclaration[]): Criterion[] {
  return [
    { kind: 'standing' },
    { kind: 'checks' },
    { kind: 'tests-failed' },
    { kind: 'tests-passed' },
    ...metrics.map((metric): Criterion => ({ kind: 'metric', metric })),
    { kind: 'lines' },
    { kind: 'files' },
    { kind: 'time' },
    { kind: 'name' },
  ];
}

/** The number that counts, less is better; a missing one is worst. */
function costOf(s: Standing, criterion: Criterion): number {
  const { tests, run } = s;
  switch (criterion.kind) {
    case 'standing':
      return s.standing;
    case 'checks':
      return -s.checks.passed;
    case 'tests-failed':
      return tests.passed + tests.failed + tests.skipped === 0 ? Infinity : tests.failed;
    case 'tests-passed':
      return -tests.passed;
    case 'metric': {
      const value = metricOf(run, criterion.metric.name);
      return value === undefined ? Infinity : criterion.metric.better === 'lower' ? value : -value;
    }
    case 'lines':
      return run.diff === null ? Infinity : run.diff.added + run.diff.removed;
    case 'files':
      return run.diff === null ? Infinity : run.diff.files;
    case 'time':
      return s.countedMs;
    case 'name':
      return 0;
  }
}

/** A run's own finite value of a metric. */
export function metricOf(run: RunRecord, name: string): number | undefined {
  const value = Object.hasOwn(run.metrics, name) ? run.metrics[name] : undefined;
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

/** Negative when `a` stands before `b` by this criterion alone. */
export function compareBy(a: Standing, b: Standing, criterion: Criterion): number {
  if (criterion.kind === 'name') return compareText(a.run.name, b.run.name) || compareText(a.run.id, b.run.id);
  const [x, y] = [costOf(a, criterion), costOf(b, criterion)];
  return x === y ? 0 : x < y ? -1 : 1;
}

function compareText(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

function compareAll(a: Standing, b: Standing, criteria: Criterion[]): number {
  for (const criterion of criteria) {
    const order = compareBy(a, b, criterion);
    if (order !== 0) return order;
  }
  return 0;
}

/**
 * "Nearly equal" is not transitive, so times can't be compared two by two. Instead, runs that are equal in all that comes
 * before are taken from the fastest on, and each that is close to the first of its cluster counts for that one's time.
 */
export function sortAll(standings: Standing[], criteria: Criterion[]): Standing[] {
  const before = criteria.filter(({ kind }) => kind !== 'time' && kind !== 'name');
  const byTime = [...standings].sort((a, b) => compareAll(a, b, criteria));
  let head: Standing | undefined;
  for (const s of byTime) {
    const same = head !== undefined && compareAll(head, s, before) === 0 && close(head.countedMs, s.countedMs);
    if (same && head) s.countedMs = head.countedMs;
    else head = s;
  }
  return byTime.sort((a, b) => compareAll(a, b, criteria));
}

function close(least: number, ms: number): boolean {
  return ms === least || ms - least < Math.max(100, least / 10);
}
