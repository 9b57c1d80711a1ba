/** How an experiment goes on while it runs: drawn in place, or a line for each new state. */
import type { ExperimentRecord, RunRecord } from '../../protocol/records';
import type { View } from './sandbox';
import { fitLine, line, t, type Line, type Span } from './text';
import { displayWidth, fit } from './width';
import { checkCell, duration, elapsed, ended, runSymbol, runTone } from './words';

const spinner = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/** The turning symbol of what is at work; `tick` counts the drawings. */
export function spin(tick: number): Span {
  return t(spinner[tick % spinner.length] ?? '◌', 'accent');
}

/** A line per approach, for drawing in place. At most `rows` lines: what is over is counted. */
export function experimentProgress(
  record: ExperimentRecord,
  note: string,
  tick: number,
  rows: number,
  view: View,
): Line[] {
  const names = Math.min(24, Math.max(8, ...record.runs.map((r) => displayWidth(t(r.name).text))));
  const space = Math.max(1, rows - 2);
  const active = record.runs.filter((r) => !ended(r.state) && r.state !== 'waiting');
  const shown =
    record.runs.length <= space
      ? record.runs
      : [...active, ...record.runs.filter((r) => !active.includes(r))].slice(0, space);
  const over = record.runs.filter((r) => ended(r.state)).length;
  const head = line(
    over === record.runs.length ? t('✓', 'good') : spin(tick),
    ' ',
    t(record.name, 'title'),
    t(`  ${over} of ${record.runs.length} done`, 'dim'),
    t(note === '' ? '' : `  ${note}`, 'dim'),
  );
  const lines = shown.map((r) => {
    const name = fit(t(r.name).text, names);
    const time = r.wallMs ?? elapsed(r.startedAt, r.endedAt, view.now);
    return line(
      '  ',
      ended(r.state) || r.state === 'waiting' ? runSymbol(r.state) : spin(tick),
      ' ',
      t(name, ended(r.state) ? 'plain' : 'strong'),
      ' '.repeat(names - displayWidth(name) + 2),
      t(r.state.padEnd(11), runTone(r.state)),
      t((time === null ? '' : duration(time)).padStart(10), 'dim'),
      '  ',
      ...(ended(r.state) ? progressEnd(r) : [t(stepOf(r), 'dim')]),
    );
  });
  const more = record.runs.length - shown.length;
  return [head, ...lines, ...(more > 0 ? [line(t(`  … ${more} more`, 'dim'))] : [])].map((l) => fitLine(l, view.width));
}

function progressEnd(run: RunRecord): Line {
  const cells = run.checks.flatMap((c): Span[] => [t(`${c.name} `, 'dim'), checkCell(c), t('  ')]);
  if (cells.length > 0) return cells;
  return [t(run.problem ?? run.verdict, 'dim')];
}

/** What a run is at, unless its state says it already. */
function stepOf(run: RunRecord): string {
  return run.step === run.state ? '' : run.step;
}

/** The same for a place where lines can only be appended: one line for each new state of a run. */
export function experimentStep(run: RunRecord): Line {
  if (!ended(run.state)) return line(runSymbol(run.state), ` ${run.name}: ${run.state}`);
  return line(
    runSymbol(run.state),
    ` ${run.name}: ${run.state}${run.wallMs === null ? '' : ` after ${duration(run.wallMs)}`}  `,
    ...progressEnd(run),
  );
}
