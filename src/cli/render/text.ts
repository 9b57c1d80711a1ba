/**
 * What is shown is made of lines of spans. A span's text can only be made by {@link t}, which makes hostile characters
 * visible: so nothing from a sandbox reaches the terminal as a control code, whoever forgets to think of it.
 */
import { visible } from '../../protocol/text';
import { displayWidth, fit, fitMiddle, wrap } from './width';

/** What a span means; {@link paint} gives it a colour. Meaning never hangs on colour alone. */
export type Tone = 'plain' | 'strong' | 'dim' | 'good' | 'bad' | 'warn' | 'accent' | 'title';

export type SafeText = string & { readonly __safe: unique symbol };

export interface Span {
  readonly text: SafeText;
  readonly tone: Tone;
  /** Cut in the middle rather than at the end when space is short. */
  readonly middle?: boolean;
}
export type Line = readonly Span[];

/** A span of one line of text. */
export function t(text: string, tone: Tone = 'plain'): Span {
  return { text: visible(text, true) as SafeText, tone };
}

/** A path: what is cut of it is in the middle. */
export function pathSpan(text: string, tone: Tone = 'plain'): Span {
  return { ...t(text, tone), middle: true };
}

/** A line from texts and spans. */
export function line(...parts: (string | Span)[]): Line {
  return parts.map((p) => (typeof p === 'string' ? t(p) : p));
}

export const blank: Line = [];

export function lineWidth(l: Line): number {
  return l.reduce((sum, span) => sum + displayWidth(span.text), 0);
}

/** The line cut to `max` columns: spans marked `middle` give way first. */
export function fitLine(l: Line, max: number): Line {
  let over = lineWidth(l) - max;
  if (over <= 0) return l;
  const shrunk = l.map((span) => {
    if (!span.middle || over <= 0) return span;
    const width = displayWidth(span.text);
    const target = Math.max(8, width - over);
    if (target >= width) return span;
    const text = fitMiddle(span.text, target) as SafeText;
    over -= width - displayWidth(text);
    return { ...span, text };
  });
  if (over <= 0) return shrunk;
  const out: Span[] = [];
  let left = max;
  for (const span of shrunk) {
    const width = displayWidth(span.text);
    if (width > left) {
      out.push({ ...span, text: fit(span.text, left) as SafeText });
      break;
    }
    out.push(span);
    left -= width;
  }
  return out;
}

/** Text as a paragraph: wrapped to `width`, the first line after `first`, the rest under it; a long `first` stands alone. */
export function paragraph(text: string, width: number, first: Line = [], tone: Tone = 'plain'): Line[] {
  const indent = lineWidth(first);
  if (indent > width / 2) return [fitLine(first, width), ...paragraph(text, width, [t('    ')], tone)];
  return wrap(visible(text, true), Math.max(1, width - indent)).map((l, i) => [
    ...(i === 0 ? first : [t(' '.repeat(indent))]),
    t(l, tone),
  ]);
}

const codes: Record<Tone, string> = {
  plain: '',
  strong: '1',
  dim: '2',
  good: '32',
  bad: '31',
  warn: '33',
  accent: '36',
  title: '1',
};

/** One line as the terminal takes it, without an end of line. */
export function paintLine(l: Line, color: boolean): string {
  const text = l
    .map((s) => (!color || s.tone === 'plain' || s.text === '' ? s.text : `\x1b[${codes[s.tone]}m${s.text}\x1b[0m`))
    .join('');
  return color ? text : text.trimEnd();
}

/** Lines as the terminal takes them, each with its end of line. */
export function paint(lines: readonly Line[], color: boolean): string {
  return lines.map((l) => `${paintLine(l, color)}\n`).join('');
}
