/** Promotions for people: the ladder, the files with the sensitive ones marked, conflicts, the way back. */
import type { PromotionRecord, StageResult } from '../../protocol/records';
import { table, type Cell } from './table';
import { blank, fitLine, line, paragraph, pathSpan, t, type Line, type Span, type Tone } from './text';
import { fileRows } from './diff';
import { plural, promotionStateWords } from '../../protocol/words';
import { ago, checkCell, duration, elapsed } from './words';
import type { View } from './sandbox';

const stageStates: Record<StageResult['state'], [string, Tone]> = {
  running: ['◌', 'accent'],
  passed: ['✓', 'good'],
  refused: ['✗', 'bad'],
  undone: ['↶', 'warn'],
};

const states: Record<PromotionRecord['state'], Tone> = {
  running: 'accent',
  done: 'good',
  refused: 'bad',
  conflict: 'bad',
  undone: 'warn',
  interrupted: 'warn',
};

/** Files shown before the rest is only counted. */
const maxFiles = 40;

/** `verified ✓ 6.0 s → local ✓`; `brief` leaves out the times. */
export function ladder(record: PromotionRecord, view: View, brief = false): Line {
  // That there is a diff is no news; that there is none is.
  const shown = record.stages.filter((s) => s.stage !== 'sandbox' || s.state === 'refused');
  const spans = shown.flatMap((s, i): Span[] => {
    const [symbol, tone] = stageStates[s.state];
    const time = elapsed(s.startedAt, s.endedAt, view.now);
    const slow = !brief && time !== null && time >= 1000 && s.state !== 'running' ? ` ${duration(time)}` : '';
    return [t(i === 0 ? '' : ' → ', 'dim'), t(`${s.stage} `, 'strong'), t(symbol, tone), t(slow, 'dim')];
  });
  return spans.length === 0 ? [t('no stage yet', 'dim')] : spans;
}

export function promotionList(records: readonly PromotionRecord[], view: View, everywhere: boolean): Line[] {
  if (records.length === 0) {
    return [
      line(`Nothing was promoted${everywhere ? '' : ' in this workspace'}.`),
      line('  ', t('Promote a run: petri promote RUN', 'dim')),
    ];
  }
  const rows = records.map((r): Cell[] => [
    t(r.id, 'accent'),
    t(r.source.name, 'strong'),
    t(r.dryRun && r.state === 'done' ? 'dry run' : promotionStateWords[r.state], r.dryRun ? 'dim' : states[r.state]),
    ladder(r, view, true),
    t(plural(r.files.length, 'file')),
    t(ago(r.createdAt, view.now), 'dim'),
  ]);
  return table(
    [
      { title: 'id' },
      { title: 'from', min: 10 },
      { title: 'state' },
      { title: 'stages' },
      { title: 'files', align: 'right' },
      { title: 'when' },
    ],
    rows,
    view.width,
  );
}

function stageLines(record: PromotionRecord, view: View): Line[] {
  const shown = record.stages.filter((s) => s.stage !== 'sandbox' || s.state === 'refused');
  const width = Math.max(0, ...shown.map((s) => s.stage.length));
  return shown.flatMap((s) => {
    const [symbol, tone] = stageStates[s.state];
    const head = line('  ', t(symbol, tone), ` ${s.stage.padEnd(width)}  `);
    return [
      ...paragraph(s.detail === '' ? s.state : s.detail, view.width, head, s.state === 'refused' ? 'plain' : 'dim'),
      ...s.checks
        .filter((c) => !c.passed || s.state === 'refused')
        .map((c) =>
          fitLine(
            line(
              ' '.repeat(width + 6),
              t(`${c.name} `, 'dim'),
              checkCell(c),
              c.log === null ? '' : '  ',
              c.log === null ? '' : pathSpan(c.log, 'dim'),
            ),
            view.width,
          ),
        ),
    ];
  });
}

/** Everything about one promotion; what to do next is left out where a question follows. */
export function promotionDetail(record: PromotionRecord, view: View, asking = false): Line[] {
  const sensitive = record.files.filter((f) => f.sensitive !== null).length;
  const out: Line[] = [
    fitLine(
      line(
        t(record.source.name, 'title'),
        '  ',
        t(record.id, 'accent'),
        '  ',
        t(promotionStateWords[record.state], states[record.state]),
        t(record.dryRun ? '  dry run, nothing was written' : '', 'warn'),
        t(`  ${ago(record.createdAt, view.now)}`, 'dim'),
      ),
      view.width,
    ),
    fitLine(ladder(record, view), view.width),
    ...stageLines(record, view),
  ];
  if (record.files.length > 0) {
    out.push(
      blank,
      line(
        t('FILES', 'title'),
        t(`  ${plural(record.files.length, 'file')}${sensitive > 0 ? `, ${sensitive} of them sensitive` : ''}`, 'dim'),
      ),
    );
    out.push(...fileRows(record.files, view, maxFiles));
  }
  if (record.conflicts.length > 0) {
    out.push(blank, line(t('CONFLICTS', 'title'), t(`  no file was touched`, 'dim')));
    for (const c of record.conflicts)
      out.push(...paragraph(c.reason, view.width, line('  ', t('✗ ', 'bad'), c.path, '  '), 'dim'));
  }
  if (record.problem !== null && !record.stages.some((s) => s.detail === record.problem))
    out.push(blank, ...paragraph(record.problem, view.width, line(t('✗ ', 'bad'))));
  const next = asking ? undefined : nextStep(record, sensitive);
  if (next) out.push(blank, ...paragraph(next[1], view.width, line(t(`${next[0]}  `, 'dim'))));
  return out;
}

function nextStep(record: PromotionRecord, sensitive: number): [string, string] | undefined {
  if (record.state === 'done' && record.undo !== null && !record.dryRun)
    return ['take it back', `petri promotion undo ${record.id}`];
  if (record.state === 'done' && record.dryRun)
    return ['apply it', `petri promote ${record.source.id}${sensitive > 0 ? ' --allow-sensitive' : ''}`];
  if (record.state === 'conflict')
    return ['then', `bring the workspace and the diff together, and promote again: petri promote ${record.source.id}`];
  return undefined;
}

/** The question before the workspace is touched. */
export function promotionQuestion(record: PromotionRecord): string {
  return `Verify and apply ${plural(record.files.length, 'file')} to ${t(record.workspace).text}?`;
}
