/** Experiments for people: the list, one in full, its progress while it runs, the result. */
import type { ExperimentRecord, RunRecord } from '../../protocol/records';
import { facts, table, type Cell } from './table';
import { blank, fitLine, line, paragraph, pathSpan, t, type Line, type Tone } from './text';
import { comparisonTable, inOrder } from './comparison';
import { matrices } from './matrix';
import { ago, checkCell, duration, elapsed, ended, limitsText, runSymbol, runTone, statLine } from './words';
import { breachSentence, networkWords, plural } from '../../protocol/words';
import { fileRows } from './diff';
import { shortId, type View } from './sandbox';

const states: Record<ExperimentRecord['state'], [string, Tone]> = {
  running: ['◌', 'accent'],
  done: ['✓', 'good'],
  cancelled: ['–', 'dim'],
  interrupted: ['–', 'warn'],
  failed: ['✗', 'bad'],
};

export function experimentList(records: readonly ExperimentRecord[], view: View, everywhere: boolean): Line[] {
  if (records.length === 0) {
    return [
      line(`There are no experiments${everywhere ? '' : ' of this workspace'}.`),
      line('  ', t('Run one: petri experiment run FILE', 'dim')),
    ];
  }
  const rows = records.map((r): Cell[] => {
    const [symbol, tone] = states[r.state];
    const over = r.runs.filter((run) => ended(run.state)).length;
    return [
      t(r.id, 'accent'),
      t(r.name, 'strong'),
      t(`${symbol} ${r.state}`, tone),
      r.state === 'running'
        ? t(`${over} of ${r.runs.length} done`)
        : r.winner === null
          ? t('no winner', 'dim')
          : line(t('★ ', 'good'), r.winner),
      t(ago(r.createdAt, view.now), 'dim'),
      t(r.task, 'dim'),
    ];
  });
  return table(
    [
      { title: 'id' },
      { title: 'name', min: 10 },
      { title: 'state' },
      { title: 'winner', min: 10 },
      { title: 'when' },
      { title: 'task', min: 8 },
    ],
    rows,
    view.width,
  );
}

function baseWords(record: ExperimentRecord): string {
  const { kind, ref } = record.base;
  return kind === 'workspace' ? 'the workspace as it was' : `${kind} ${ref ?? ''}`;
}

/** Title and one line of what was compared under which conditions. */
export function experimentHead(record: ExperimentRecord, view: View): Line[] {
  const took = elapsed(record.createdAt, record.endedAt, view.now);
  const about = [
    `base: ${baseWords(record)}`,
    plural(record.runs.length, 'approach', 'approaches'),
    ...(record.endedAt === null ? [] : [duration(took)]),
    networkWords[record.network],
    ...(limitsText(record.limits) === 'none' ? [] : [limitsText(record.limits)]),
  ]
    // A line may break between the facts, not inside one.
    .map((fact) => fact.replaceAll(' ', '\u00a0'))
    .join(' · ');
  return [
    fitLine(line(t(record.name, 'title'), '  ', record.task, '  ', t(record.id, 'dim')), view.width),
    ...paragraph(about, view.width, [], 'dim'),
  ];
}

/** The result in words, and what to do next. */
function conclusion(record: ExperimentRecord, view: View, closer: 'compare' | 'show' | null): Line[] {
  const winner = record.runs.find((r) => r.name === record.winner);
  const reason = record.reason !== '' ? record.reason : (record.problem ?? '');
  const out: Line[] = [];
  if (record.state === 'running') {
    out.push(
      line(t('◌ ', 'accent'), 'It is still running.'),
      line('  ', t(`Stop it: petri experiment cancel ${record.id}`, 'dim')),
    );
    return out;
  }
  const [symbol, tone] = winner ? (['★', 'good'] as const) : states[record.state === 'done' ? 'failed' : record.state];
  out.push(
    ...paragraph(
      reason !== '' ? reason : `The experiment is ${record.state}.`,
      view.width,
      line(t(`${symbol} `, tone)),
      'strong',
    ),
  );
  if (record.problem !== null && record.problem !== reason)
    out.push(...paragraph(record.problem, view.width, line('  '), 'warn'));
  if (winner) {
    out.push(
      ...facts(
        [
          ['take it over', `petri promote ${winner.id}`],
          ['look closer', closer === null ? undefined : `petri experiment ${closer} ${record.id}`],
        ],
        view.width,
      ),
    );
  } else if (closer !== null) {
    out.push(...facts([['see why', `petri experiment show ${record.id}`]], view.width));
  }
  return out;
}

/** The breaches that occurred, each with the limit to raise. */
function advice(record: ExperimentRecord, view: View): Line[] {
  return record.runs.flatMap((r) => {
    const check = r.checks.find((c) => c.breach !== null);
    const breach = r.breach ?? check?.breach;
    if (!breach) return [];
    const at = { name: r.name, limits: record.limits, ...(check ? { command: check.name } : {}) };
    return paragraph(breachSentence(breach, at), view.width, line(t('! ', 'warn')));
  });
}

/** What `experiment run` ends with. */
export function experimentResult(record: ExperimentRecord, view: View): Line[] {
  const hints = advice(record, view);
  return [
    ...experimentHead(record, view),
    blank,
    ...comparisonTable(record, view),
    ...(hints.length > 0 ? [blank, ...hints] : []),
    blank,
    ...conclusion(record, view, 'compare'),
  ];
}

/** `experiment compare`: the result with what differs in tests and files. */
export function experimentComparison(record: ExperimentRecord, view: View): Line[] {
  return [
    ...experimentHead(record, view),
    blank,
    ...comparisonTable(record, view),
    ...matrices(record, view),
    blank,
    ...conclusion(record, view, 'show'),
  ];
}

function runDetail(run: RunRecord, record: ExperimentRecord, view: View): Line[] {
  const out: Line[] = [
    fitLine(
      line(
        runSymbol(run.state),
        ' ',
        t(run.name, 'strong'),
        '  ',
        t(run.id, 'accent'),
        '  ',
        t(run.state, runTone(run.state)),
        run.name === record.winner ? t('  ★ winner', 'good') : '',
      ),
      view.width,
    ),
    ...(run.verdict === '' ? [] : paragraph(run.verdict, view.width, line('  '))),
    ...(run.problem === null || run.problem === run.verdict
      ? []
      : paragraph(run.problem, view.width, line('  '), 'warn')),
    ...facts(
      [
        ['exit code', run.exitCode === null ? undefined : String(run.exitCode)],
        ['diff', run.diff === null ? undefined : statLine(run.diff)],
        ['cost', `${duration(run.wallMs)} · ${run.cpuSeconds === null ? '–' : duration(run.cpuSeconds * 1000)} CPU`],
        ['sandbox', run.sandbox === null ? undefined : t(run.sandbox, 'accent')],
        ['log', run.log === null ? undefined : line(pathSpan(run.log), t(run.logCut ? '  cut' : '', 'warn'))],
        ['patch', run.patch === null ? undefined : pathSpan(run.patch)],
        ...run.checks.map((c): [string, Cell] => [
          `check ${c.name}`,
          line(
            checkCell(c),
            t(`  ${duration(c.durationMs)}`, 'dim'),
            c.log === null ? '' : '  ',
            c.log === null ? '' : pathSpan(c.log, 'dim'),
            t(c.logCut ? '  cut' : '', 'warn'),
          ),
        ]),
        ...run.artifacts.map((a): [string, Cell] => [
          'artifact',
          line(pathSpan(a.path), '  ', pathSpan(a.file, 'dim')),
        ]),
      ],
      view.width,
      4,
    ),
    ...run.checks.flatMap((c) =>
      c.problems.flatMap((p) => paragraph(`${c.name}: ${p}`, view.width, line('    ', t('! ', 'warn')))),
    ),
  ];
  if (run.files.length > 0)
    out.push(...fileRows(run.files, { ...view, width: view.width - 2 }, 12).map((l): Line => [t('  '), ...l]));
  return out;
}

/** `experiment show`: everything that is kept, with where it is kept. */
export function experimentDetail(record: ExperimentRecord, view: View): Line[] {
  return [
    ...experimentHead(record, view),
    ...facts(
      [
        ['state', line(t(record.state, states[record.state][1]), t(`  ${ago(record.createdAt, view.now)}`, 'dim'))],
        ['file', record.file === null ? undefined : pathSpan(record.file)],
        ['workspace', pathSpan(record.workspace)],
        [
          'image',
          record.environment === null
            ? undefined
            : line(record.environment.image, '  ', t(shortId(record.environment.imageDigest), 'dim')),
        ],
      ],
      view.width,
    ),
    ...inOrder(record.runs).flatMap((r) => [blank, ...runDetail(r, record, view)]),
    blank,
    ...conclusion(record, view, null),
  ];
}
