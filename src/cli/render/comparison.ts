/**
 * The comparison of an experiment's approaches. One row per approach, so that ten of them read as well as three. What is equal
 * everywhere folds into one line; the best value of each column is marked, and which way is better is written.
 */
import type { ExperimentRecord, RunRecord } from '../../protocol/records';
import { formatBytes } from '../../protocol/units';
import { table, type Cell, type Column } from './table';
import { blank, line, lineWidth, paragraph, pathSpan, t, type Line, type Span } from './text';
import { formatNumber } from '../../protocol/words';
import { checkCell, duration, ended, runSymbol, statLine } from './words';
import type { View } from './sandbox';

const bestMark = ' •';

/** Best first; those that can't win after them, in their own order. */
export function inOrder(runs: readonly RunRecord[]): RunRecord[] {
  return [...runs].sort((a, b) => (a.rank ?? Infinity) - (b.rank ?? Infinity) || 0);
}

/** Names of all checks, in the order in which they first appear. */
export function checkNames(runs: readonly RunRecord[]): string[] {
  return [...new Set(runs.flatMap((r) => r.checks.map((c) => c.name)))];
}

interface Measure {
  title: string;
  align: 'left' | 'right';
  cell: (run: RunRecord) => Line;
  /** What is compared, lower is better; absent for what nobody compares; null where it is not known. */
  value?: (run: RunRecord) => number | null;
  /** May fold away when it is the same everywhere. */
  folds: boolean;
  /** Columns that it may be cut to. */
  min?: number;
  /** Stands beside the one before it. */
  joined?: boolean;
}

function measures(record: ExperimentRecord): Measure[] {
  const { runs } = record;
  const checks = checkNames(runs).map((name): Measure => ({
    title: name,
    align: 'left',
    cell: (r) => [
      checkCell(
        r.checks.find((c) => c.name === name),
        true,
      ),
    ],
    folds: true,
  }));
  const metrics = record.metrics.map(({ name, better }): Measure => ({
    title: `${name} ${better === 'lower' ? '↓' : '↑'}`,
    align: 'right',
    cell: (r) => [r.metrics[name] === undefined ? t('–', 'dim') : t(formatNumber(r.metrics[name]))],
    value: (r) => (r.metrics[name] === undefined ? null : better === 'lower' ? r.metrics[name] : -r.metrics[name]),
    folds: true,
  }));
  const verdict: Measure = {
    title: 'verdict',
    align: 'left',
    cell: (r) => [t(r.verdict, r.rank === null ? 'dim' : 'plain')],
    folds: false,
    min: 30,
    joined: true,
  };
  const cost = (title: string, value: (r: RunRecord) => number | null, show: (n: number) => string): Measure => ({
    title,
    align: 'right',
    value,
    cell: (r) => {
      const v = value(r);
      return [v === null ? t('–', 'dim') : t(show(v))];
    },
    folds: false,
  });
  return [
    ...checks,
    ...metrics,
    {
      title: 'diff ↓',
      align: 'right',
      cell: (r) => (r.diff === null ? [t('–', 'dim')] : statLine(r.diff)),
      value: (r) => (r.diff === null ? null : r.diff.added + r.diff.removed),
      folds: true,
    },
    cost('time', (r) => r.wallMs, duration),
    { ...cost('CPU', (r) => (r.cpuSeconds === null ? null : r.cpuSeconds * 1000), duration), joined: true },
    { ...cost('memory', (r) => r.peakMemoryBytes, formatBytes), joined: true },
    ...(runs.some((r) => r.verdict !== '') ? [verdict] : []),
  ];
}

const text = (l: Line): string => l.map((s) => s.text).join('');

/** The runs that have the best value, where there is something to choose between. */
function bestOf(runs: readonly RunRecord[], measure: Measure): Set<string> {
  const { value } = measure;
  if (!value) return new Set();
  // Only those that can win count: a broken approach with the smallest diff is not the best at anything.
  const known = runs.flatMap((r) => {
    const v = r.rank === null ? null : value(r);
    return v === null ? [] : [{ id: r.id, v }];
  });
  if (known.length < 2) return new Set();
  const best = Math.min(...known.map((k) => k.v));
  const those = known.filter((k) => k.v === best);
  return those.length === known.length ? new Set() : new Set(those.map((k) => k.id));
}

/** What stands at the left of a run in every table. */
function marks(run: RunRecord, winner: string | null): Span {
  if (run.name === winner) return t('★', 'good');
  return runSymbol(run.state);
}

export function comparisonTable(record: ExperimentRecord, view: View): Line[] {
  const runs = inOrder(record.runs);
  const all = measures(record);
  const finished = runs.every((r) => ended(r.state));
  const same = (m: Measure): boolean =>
    m.folds && finished && runs.length > 1 && new Set(runs.map((r) => text(m.cell(r)))).size === 1;
  const folded = all.filter(same);
  const shown = all.filter((m) => !same(m));
  const best = new Map(shown.map((m) => [m, bestOf(runs, m)]));
  const marked = [...best.values()].some((b) => b.size > 0);
  const columns: Column[] = [
    { title: '', align: 'right' },
    { title: '' },
    { title: 'approach', min: 14 },
    ...shown.map((m) => ({
      title: m.value && (best.get(m)?.size ?? 0) > 0 ? m.title + '  ' : m.title,
      align: m.align,
      joined: m.joined === true,
      ...(m.min === undefined ? {} : { min: m.min }),
    })),
  ];
  const rows = runs.map((r): Cell[] => [
    t(r.rank === null ? '–' : String(r.rank), r.rank === null ? 'dim' : 'strong'),
    marks(r, record.winner),
    pathSpan(r.name, r.name === record.winner ? 'strong' : 'plain'),
    ...shown.map((m): Line => {
      const cell = m.cell(r);
      const winners = best.get(m);
      if (!winners || winners.size === 0) return cell;
      return winners.has(r.id)
        ? [...cell.map((s): Span => (s.tone === 'plain' ? { ...s, tone: 'good' } : s)), t(bestMark, 'good')]
        : [...cell, t('  ')];
    }),
  ]);
  const out = table(columns, rows, view.width, 3);
  const legend = [
    marked ? '• best of those that pass' : '',
    shown.some((m) => m.title.includes('↓')) ? '↓ lower is better' : '',
    shown.some((m) => m.title.includes('↑')) ? '↑ higher is better' : '',
  ].filter((s) => s !== '');
  if (folded.length > 0) {
    const cells = folded.flatMap((m, i): Span[] => [
      t(i === 0 ? '' : ' · ', 'dim'),
      t(`${m.title} `, 'dim'),
      ...m.cell(runs[0] as RunRecord),
    ]);
    const head = line(t('the same for all: ', 'dim'));
    if (lineWidth([...head, ...cells]) <= view.width) out.push(blank, [...head, ...cells]);
    else out.push(blank, ...paragraph(text(cells), view.width, head, 'dim'));
  }
  if (legend.length > 0) out.push(...(folded.length > 0 ? [] : [blank]), line(t(legend.join('   '), 'dim')));
  return out;
}
