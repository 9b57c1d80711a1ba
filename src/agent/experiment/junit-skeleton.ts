/**
 * First pass over a JUnit report, linear in its size: checks that it is whole and well formed, refuses what a report
 * never needs, and gives a skeleton with only the elements that say something about tests, for the XML parser.
 */
import { unreadable } from './reports';

const wanted = new Set(['testsuites', 'testsuite', 'testcase', 'failure', 'error', 'skipped']);
/** Those whose text is kept. */
const withText = new Set(['failure', 'error', 'skipped']);

const maxDepth = 64;
const maxElements = 1_000_000;
const maxTag = 256 * 1024;
const maxText = 4000;

const tag = /^<(\/?)([^\s/>"'<=!?]+)([^"'<>]*(?:"[^"]*"[^"'<>]*|'[^']*'[^"'<>]*)*)>/;

/** Errors: untrusted-data, with the line. */
export function junitSkeleton(xml: string): string {
  const out: string[] = [];
  const open: string[] = [];
  /** How many of the open elements, from the innermost unwanted one on, are left out. */
  let skipping = 0;
  let text = 0;
  let elements = 0;
  let roots = 0;
  const fail = (what: string, at: number): never => {
    throw unreadable('JUnit', `${what} (line ${lineOf(xml, at)})`);
  };
  const keepText = (from: number, to: number, raw: boolean): void => {
    if (skipping > 0 || !withText.has(open.at(-1) ?? '') || text >= maxText) return;
    const piece = xml.slice(from, Math.min(to, from + maxText - text));
    text += piece.length;
    out.push(raw ? escapeXml(piece) : piece);
  };

  let at = xml.startsWith('\ufeff') ? 1 : 0;
  while (at < xml.length) {
    const next = xml.indexOf('<', at);
    const end = next === -1 ? xml.length : next;
    if (open.length === 0 && /\S/.test(xml.slice(at, Math.min(end, at + 4096)))) {
      fail(roots === 0 ? 'it is not XML' : 'there is text after its end', at);
    }
    keepText(at, end, false);
    if (next === -1) break;
    const skipTo = (from: number, close: string, what: string): number => {
      const stop = xml.indexOf(close, next + from);
      return stop === -1 ? fail(`${what} is not closed`, next) : stop;
    };
    if (xml.startsWith('<!--', next)) at = skipTo(4, '-->', 'a comment') + 3;
    else if (xml.startsWith('<?', next)) at = skipTo(2, '?>', 'a processing instruction') + 2;
    else if (xml.startsWith('<![CDATA[', next)) {
      const stop = skipTo(9, ']]>', 'a CDATA section');
      keepText(next + 9, stop, true);
      at = stop + 3;
    } else if (xml.startsWith('<!', next)) {
      fail('it has a document type or entity declaration, which is not allowed in a report', next);
    } else {
      const m = tag.exec(xml.slice(next, next + maxTag));
      if (!m) {
        const ends = xml.indexOf('>', next) === -1;
        const tooLong = xml.length - next > maxTag && !xml.slice(next + 1, next + maxTag).includes('<');
        return fail(
          ends ? 'it ends in the middle of a tag' : tooLong ? 'a tag is too long' : 'a tag is malformed',
          next,
        );
      }
      const [whole, slash = '', name = '', attributes = ''] = m;
      at = next + whole.length;
      if (slash !== '') {
        const expected = open.pop();
        if (expected !== name)
          fail(expected === undefined ? `</${name}> closes nothing` : `<${expected}> is closed by </${name}>`, next);
        if (skipping > 0) skipping--;
        else out.push(`</${name}>`);
        continue;
      }
      if (++elements > maxElements) fail(`it has more than ${maxElements} elements`, next);
      if (open.length === 0) {
        if (++roots > 1) fail('it has more than one root element', next);
        if (name !== 'testsuites' && name !== 'testsuite')
          fail(`expected <testsuites> or <testsuite>, found <${name.slice(0, 60)}>`, next);
      }
      if (open.length >= maxDepth) fail(`its elements are nested deeper than ${maxDepth}`, next);
      const keep = skipping === 0 && wanted.has(name);
      const empty = attributes.endsWith('/');
      if (keep) {
        out.push(whole);
        text = 0;
      }
      if (!empty) {
        open.push(name);
        if (!keep) skipping++;
      }
    }
  }
  if (roots === 0) throw unreadable('JUnit', 'it is empty');
  if (open.length > 0) throw unreadable('JUnit', `it ends before <${open.at(-1)}> is closed; was it cut off?`);
  return out.join('');
}

function lineOf(text: string, at: number): number {
  let line = 1;
  for (let i = text.indexOf('\n'); i !== -1 && i < at; i = text.indexOf('\n', i + 1)) line++;
  return line;
}

function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
