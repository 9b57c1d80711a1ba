/** Tests × approaches and files × approaches: a mark per approach, differences first, what is equal everywhere folded. */
import type { DiffFile, ExperimentRecord, RunRecord, TestCase } from '../../protocol/records';
import { inOrder } from './comparison';
import { blank, fitLine, line, paragraph, pathSpan, t, type Line, type Span } from './text';
import { plural } from '../../protocol/words';
import { statusLetters } from './words';
import { fit } from './width';
import type { View } from './sandbox';

/** Rows shown of one matrix before the rest is only counted. */
const maxRows = 60;

/** Says which column is which approach, as a staircase: it needs two columns an approach, however long the names. */
function staircase(runs: readonly RunRecord[], view: View): Line[] {
  return runs.map((r, i) =>
    fitLine(
      line('  ', t('│ '.repeat(i), 'dim'), t('┌ ', 'dim'), t(fit(r.name, 40), r.rank === 1 ? 'strong' : 'plain')),
      view.width,
    ),
  );
}

function row(marks: readonly Span[], label: Span, view: View): Line {
  return fitLine([t('  '), ...marks.flatMap((m) => [m, t(' ')]), t(' '), label], view.width);
}

const testMarks: Record<TestCase['outcome'], Span> = {
  passed: t('✓', 'good'),
  failed: t('✗', 'bad'),
  skipped: t('~', 'dim'),
};
const missing = t('·', 'dim');

interface TestRow {
  label: string;
  outcomes: (TestCase['outcome'] | null)[];
  messages: (string | null)[];
}

/** One row for each test that any approach ran, in the order in which they first appear. */
function testRows(runs: readonly RunRecord[]): TestRow[] {
  const rows = new Map<string, TestRow>();
  const checks = new Set(runs.flatMap((r) => r.checks.filter((c) => c.tests !== null).map((c) => c.name)));
  runs.forEach((run, i) => {
    for (const check of run.checks) {
      const seen = new Map<string, number>();
      for (const test of check.tests?.cases ?? []) {
        const nth = (seen.get(test.name) ?? 0) + 1;
        seen.set(test.name, nth);
        const key = JSON.stringify([check.name, test.name, nth]);
        const found = rows.get(key) ?? {
          label: `${checks.size > 1 ? `${check.name}: ` : ''}${test.name}${nth > 1 ? ` (${nth})` : ''}`,
          outcomes: runs.map(() => null),
          messages: runs.map(() => null),
        };
        found.outcomes[i] = test.outcome;
        found.messages[i] = test.message;
        rows.set(key, found);
      }
    }
  });
  return [...rows.values()];
}

/** Tests × approaches: failing first; those with the same outcome everywhere only as a number. */
export function testMatrix(record: ExperimentRecord, view: View): Line[] {
  const runs = inOrder(record.runs);
  const rows = testRows(runs);
  if (rows.length === 0) return [];
  const failing = (r: TestRow): number => r.outcomes.filter((o) => o === 'failed').length;
  // Who did not get as far as any test says nothing about a single one.
  const reported = runs.map((_, i) => rows.some((r) => r.outcomes[i] !== null));
  const common = (r: TestRow): TestCase['outcome'] | null => {
    const outcomes = new Set(r.outcomes.filter((_, i) => reported[i]));
    const [only = null] = outcomes;
    return outcomes.size === 1 ? only : null;
  };
  const equal = (r: TestRow): boolean => common(r) !== null;
  const different = rows.filter((r) => !equal(r)).sort((a, b) => failing(b) - failing(a));
  const failEverywhere = rows.filter((r) => common(r) === 'failed');
  const shown = [...different, ...failEverywhere];
  const out: Line[] = [line(t('TESTS', 'title'), t(`  ${rows.length.toLocaleString('en')}`, 'dim'))];
  if (shown.length > 0) {
    out.push(...staircase(runs, view));
    for (const r of shown.slice(0, maxRows)) {
      out.push(
        row(
          r.outcomes.map((o) => (o === null ? missing : testMarks[o])),
          t(r.label),
          view,
        ),
      );
      const message = r.messages.find((m) => m !== null && m.trim() !== '');
      if (message) out.push(fitLine(line(' '.repeat(2 * runs.length + 5), t(firstLine(message), 'dim')), view.width));
    }
    if (shown.length > maxRows) out.push(line(t(`  … ${shown.length - maxRows} more that differ or fail`, 'dim')));
  }
  for (const [outcome, words] of [
    ['passed', runs.length > 1 ? 'pass everywhere' : 'pass'],
    ['skipped', runs.length > 1 ? 'are skipped everywhere' : 'are skipped'],
  ] as const) {
    const n = rows.filter((r) => common(r) === outcome).length;
    if (n > 0) out.push(line('  ', testMarks[outcome], t(`  ${plural(n, 'test')} ${words}`, 'dim')));
  }
  if (runs.some((r) => r.checks.some((c) => c.tests?.cut)))
    out.push(...paragraph('The reports had more tests than are kept; see the logs.', view.width, line('  '), 'warn'));
  return out;
}

function firstLine(message: string): string {
  return (
    message
      .split('\n')
      .map((l) => l.trim())
      .find((l) => l !== '') ?? ''
  );
}

/** Files × approaches: who touched what, and how. */
export function fileMatrix(record: ExperimentRecord, view: View): Line[] {
  const runs = inOrder(record.runs);
  const rows = new Map<string, (DiffFile | null)[]>();
  runs.forEach((run, i) => {
    for (const file of run.files) {
      const cells = rows.get(file.path) ?? runs.map(() => null);
      cells[i] = file;
      rows.set(file.path, cells);
    }
  });
  if (rows.size === 0) return [];
  const touched = (cells: (DiffFile | null)[]): number => cells.filter((c) => c !== null).length;
  const sorted = [...rows].sort(([a, x], [b, y]) => touched(y) - touched(x) || (a < b ? -1 : 1));
  const out: Line[] = [
    line(t('FILES', 'title'), t(`  ${rows.size.toLocaleString('en')}`, 'dim')),
    ...staircase(runs, view),
  ];
  for (const [path, cells] of sorted.slice(0, maxRows)) {
    const sensitive = cells.find((c) => c?.sensitive)?.sensitive;
    const marks = cells.map((c) => {
      if (c === null) return missing;
      const [letter, tone] = statusLetters[c.status];
      return t(letter, tone);
    });
    const l = row(marks, pathSpan(path), { ...view, width: sensitive ? view.width - 13 : view.width });
    out.push(sensitive ? [...l, t('  ⚠ sensitive', 'warn')] : l);
  }
  if (sorted.length > maxRows) out.push(line(t(`  … ${sorted.length - maxRows} more`, 'dim')));
  return out;
}

/** Both, each after an empty line. */
export function matrices(record: ExperimentRecord, view: View): Line[] {
  return [testMatrix(record, view), fileMatrix(record, view)].flatMap((m) => (m.length === 0 ? [] : [blank, ...m]));
}
