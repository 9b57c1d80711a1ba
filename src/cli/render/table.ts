/** Tables that fit the terminal: columns give way by their rules, and where that is not enough the rest goes below. */
import { displayWidth, fit } from './width';
import { blank, fitLine, line, lineWidth, t, type Line, type Span } from './text';

export interface Column {
  title: string;
  align?: 'left' | 'right';
  /** Least width that the column may be cut to; absent: it is never cut. */
  min?: number;
  /** Goes below together with the column before it, where there is room for both. */
  joined?: boolean;
}

export type Cell = string | Span | Line;

const gap = 2;

function spans(cell: Cell): Line {
  if (typeof cell === 'string') return [t(cell)];
  return Array.isArray(cell) ? (cell as Line) : [cell as Span];
}

function pad(l: Line, width: number, align: 'left' | 'right'): Line {
  const cut = fitLine(l, width);
  const space = t(' '.repeat(Math.max(0, width - lineWidth(cut))));
  return align === 'right' ? [space, ...cut] : [...cut, space];
}

/** Natural width of each column. */
function naturalWidths(columns: readonly Column[], rows: readonly (readonly Line[])[]): number[] {
  return columns.map((c, i) => Math.max(displayWidth(c.title), ...rows.map((r) => lineWidth(r[i] ?? []))));
}

/** Takes what is over `available` from the columns that may be cut, the widest first. */
function shrink(columns: readonly Column[], natural: readonly number[], available: number): number[] {
  const widths = [...natural];
  let over = widths.reduce((a, b) => a + b, 0) + gap * (columns.length - 1) - available;
  while (over > 0) {
    let widest = -1;
    columns.forEach((c, i) => {
      const width = widths[i] ?? 0;
      if (c.min !== undefined && width > c.min && (widest < 0 || width > (widths[widest] ?? 0))) widest = i;
    });
    if (widest < 0) break;
    widths[widest] = (widths[widest] ?? 0) - 1;
    over -= 1;
  }
  return widths;
}

function draw(
  columns: readonly Column[],
  rows: readonly (readonly Line[])[],
  widths: readonly number[],
  width: number,
): Line[] {
  const row = (cells: readonly Line[]): Line => {
    const out: Span[] = [];
    columns.forEach((c, i) => {
      if (i > 0) out.push(t(' '.repeat(gap)));
      out.push(...pad(cells[i] ?? [], widths[i] ?? 0, c.align ?? 'left'));
    });
    return fitLine(out, width);
  };
  const head = row(columns.map((c, i) => [t(fit(c.title, widths[i] ?? 0), 'dim')]));
  return columns.some((c) => c.title !== '') ? [head, ...rows.map(row)] : rows.map(row);
}

/** Which columns stand side by side: as many as fit, and columns that belong together not torn apart where that can be had. */
function inBands(columns: readonly Column[], least: readonly number[], width: number, keep: number): number[][] {
  const kept = columns.map((_, i) => i).slice(0, keep);
  const used = (band: readonly number[]): number =>
    band.reduce((sum, i) => sum + (least[i] ?? 0), 0) + gap * (band.length - 1);
  const bands: number[][] = [];
  let band = [...kept];
  for (let i = keep; i < columns.length; i++) {
    if (keep > 0 && band.length > keep && used([...band, i]) > width) {
      let first = i;
      while (columns[first]?.joined && band.includes(first - 1) && first - 1 > keep) first -= 1;
      const moved = columns.map((_, n) => n).slice(first, i);
      if (columns[first]?.joined || used([...kept, ...moved, i]) > width) moved.length = 0;
      bands.push(band.filter((n) => !moved.includes(n)));
      band = [...kept, ...moved];
    }
    band.push(i);
  }
  return [...bands, band];
}

/**
 * Draws a table no wider than `width`. The first `keep` columns stand at the left of every band: when the columns don't fit
 * side by side even after cutting, the rest of them follows in further bands below.
 */
export function table(
  columns: readonly Column[],
  cells: readonly (readonly Cell[])[],
  width: number,
  keep = 0,
): Line[] {
  const rows = cells.map((r) => r.map(spans));
  const natural = naturalWidths(columns, rows);
  const least = columns.map((c, i) => Math.min(natural[i] ?? 0, c.min ?? Infinity));
  const bands = inBands(columns, least, width, keep);
  const out: Line[] = [];
  bands.forEach((indices, n) => {
    if (n > 0) out.push(blank);
    const some = <T>(list: readonly T[]): T[] => indices.flatMap((i) => list.slice(i, i + 1));
    const cols = some(columns);
    out.push(...draw(cols, rows.map(some), shrink(cols, some(natural), width), width));
  });
  return out;
}

/** Two columns of "what: value", without heads. Empty values are left out. */
export function facts(pairs: readonly (readonly [string, Cell | undefined])[], width: number, indent = 2): Line[] {
  const shown = pairs.filter((p): p is readonly [string, Cell] => p[1] !== undefined);
  const left = Math.max(0, ...shown.map(([k]) => displayWidth(k)));
  return shown.map(([k, v]) =>
    fitLine([...line(' '.repeat(indent), t(k.padEnd(left), 'dim'), '  '), ...spans(v)], width),
  );
}
