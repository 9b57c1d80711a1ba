/** How many columns a terminal gives to a text, and cutting and padding by that measure. */

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });
const plain = /^[\x20-\x7e]*$/;
const zero = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;
const emoji = /\p{Emoji_Presentation}|\ufe0f/u;

/** East Asian wide and fullwidth blocks, first and last code point (Unicode TR 11). */
const wide: readonly (readonly [number, number])[] = [
  [0x1100, 0x115f],
  [0x2e80, 0x303e],
  [0x3041, 0x33ff],
  [0x3400, 0x4dbf],
  [0x4e00, 0x9fff],
  [0xa000, 0xa4cf],
  [0xa960, 0xa97f],
  [0xac00, 0xd7a3],
  [0xf900, 0xfaff],
  [0xfe30, 0xfe6f],
  [0xff00, 0xff60],
  [0xffe0, 0xffe6],
  [0x1f300, 0x1f64f],
  [0x1f900, 0x1f9ff],
  [0x20000, 0x3fffd],
];

function graphemeWidth(grapheme: string): number {
  if (zero.test(grapheme)) return 0;
  if (emoji.test(grapheme)) return 2;
  const code = grapheme.codePointAt(0) ?? 0;
  return wide.some(([first, last]) => code >= first && code <= last) ? 2 : 1;
}

/** Columns of one line of visible text. */
export function displayWidth(text: string): number {
  if (plain.test(text)) return text.length;
  let width = 0;
  for (const { segment } of graphemes.segment(text)) width += graphemeWidth(segment);
  return width;
}

/** The text, cut to `max` columns; an ellipsis says that something was cut. Never cuts inside a character. */
export function fit(text: string, max: number): string {
  if (displayWidth(text) <= max) return text;
  if (max < 1) return '';
  let width = 0;
  let out = '';
  for (const { segment } of graphemes.segment(text)) {
    const next = graphemeWidth(segment);
    if (width + next > max - 1) break;
    width += next;
    out += segment;
  }
  return `${out}…`;
}

/** Like {@link fit}, but what is cut is in the middle: for paths, whose end says most. */
export function fitMiddle(text: string, max: number): string {
  if (displayWidth(text) <= max) return text;
  if (max < 8) return fit(text, max);
  const parts = Array.from(graphemes.segment(text), (s) => s.segment);
  const head = Math.floor((max - 1) / 3);
  let start = 0;
  let startWidth = 0;
  while (start < parts.length && startWidth + graphemeWidth(parts[start] ?? '') <= head)
    startWidth += graphemeWidth(parts[start++] ?? '');
  let end = parts.length;
  let endWidth = 0;
  while (end > start && startWidth + 1 + endWidth + graphemeWidth(parts[end - 1] ?? '') <= max)
    endWidth += graphemeWidth(parts[--end] ?? '');
  return `${parts.slice(0, start).join('')}…${parts.slice(end).join('')}`;
}

/** Breaks text into lines of at most `max` columns, at spaces where there are any. */
export function wrap(text: string, max: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (let word of text.split(' ')) {
    while (displayWidth(word) > max) {
      const space = line === '' ? max : max - displayWidth(line) - 1;
      const piece = space < 8 && line !== '' ? '' : take(word, space);
      if (piece !== '') {
        line = line === '' ? piece : `${line} ${piece}`;
        word = word.slice(piece.length);
      }
      lines.push(line);
      line = '';
    }
    if (line === '') line = word;
    else if (displayWidth(line) + 1 + displayWidth(word) <= max) line += ` ${word}`;
    else {
      lines.push(line);
      line = word;
    }
  }
  if (line !== '' || lines.length === 0) lines.push(line);
  return lines;
}

/** As much of the beginning of a word as `max` columns take; one character at least. */
function take(word: string, max: number): string {
  let width = 0;
  let out = '';
  for (const { segment } of graphemes.segment(word)) {
    width += graphemeWidth(segment);
    if (width > max && out !== '') break;
    out += segment;
  }
  return out;
}
