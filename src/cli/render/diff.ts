/** What changed, for people: the stat, the files, a coloured patch. */
import { visible } from '../../protocol/text';
import type { DiffFile, DiffStat } from '../../protocol/records';
import { table, type Cell } from './table';
import { blank, line, pathSpan, t, type Line } from './text';
import { lines, statLine, statusLetters } from './words';
import type { View } from './sandbox';

/** A note on the mode, where it is part of what changed. */
function modeNote(file: DiffFile): string {
  const link = file.newMode === '120000' ? 'link' : '';
  if (file.status === 'added') return file.newMode === '100755' ? 'executable' : link;
  if (file.status !== 'modified' || file.oldMode === file.newMode) return link;
  if (file.newMode === '100755') return 'now executable';
  return file.oldMode === '100755' ? 'no longer executable' : link;
}

/** A row per file; sensitive ones say why. At most `max` rows, and how many more there are. */
export function fileRows(files: readonly DiffFile[], view: View, max = Infinity): Line[] {
  const shown = files.slice(0, max);
  const rows = shown.map((f): Cell[] => {
    const [letter, tone] = statusLetters[f.status];
    const mode = modeNote(f);
    return [
      t(letter, tone),
      pathSpan(f.path),
      lines(f),
      f.sensitive === null ? t(mode, 'dim') : t(`⚠ ${f.sensitive}`, 'warn'),
    ];
  });
  const out = table(
    [{ title: '' }, { title: '', min: 20 }, { title: '', align: 'right' }, { title: '', min: 10 }],
    rows,
    view.width - 2,
  ).map((l): Line => [t('  '), ...l]);
  if (files.length > shown.length) out.push(line(t(`  … ${files.length - shown.length} more`, 'dim')));
  return out;
}

export function diffSummary(stat: DiffStat, files: readonly DiffFile[], view: View): Line[] {
  if (files.length === 0) return [statLine(stat)];
  return [statLine(stat), blank, ...fileRows(files, view)];
}

/** A unified diff for a terminal: colours by line, control characters made visible. */
export function patchText(patch: string, color: boolean): string {
  let inHeader = false;
  return visible(patch)
    .split('\n')
    .map((l) => {
      if (l.startsWith('diff --git ')) inHeader = true;
      else if (l.startsWith('@@')) inHeader = false;
      if (!color || l === '') return l;
      const code = inHeader
        ? '1'
        : l.startsWith('@@')
          ? '36'
          : l.startsWith('+')
            ? '32'
            : l.startsWith('-')
              ? '31'
              : '';
      return code === '' ? l : `\x1b[${code}m${l}\x1b[0m`;
    })
    .join('\n');
}
