/** TAP 12–14, as node's test runner, mocha, node-tap, prove and others write it. Untrusted; may be mixed with other output. */
import { Parser, type Result } from 'tap-parser';
import { messageOf } from '../../protocol/errors';
import type { TestReport } from '../../protocol/records';
import { CaseCollector, checkSize, maxMessage, unreadable } from './reports';

/** Subtests nested deeper than this are left out. */
const maxDepth = 32;
const maxLine = 2000;
/** A test can be one short line, so their number bounds the time that reading takes (seconds at worst). */
const maxPoints = 250_000;
const maxKeptLines = 750_000;
const maxNotes = 30_000;

/** Lines that mean something to TAP, without their indentation. */
const meaningful = /^(?:(?:not )?ok\b|\d+\.\.\d+|#\s*Subtest|bail out!|TAP version \d|[{}]\s*$)/i;

/**
 * Reads a TAP report. Only leaves count: a subtest's own test point repeats what is in it, unless it fails although
 * everything inside passed. `# SKIP` and `# TODO` are skipped. A bail-out, a plan that doesn't fit, and the lack of a
 * plan (output that was cut off) are failed cases of their own. Errors: untrusted-data.
 */
export function parseTap(text: string): TestReport {
  checkSize('TAP', Buffer.byteLength(text));
  const cases = new CaseCollector();
  const { lines, notes, points } = filter(text);
  if (points === 0 && !lines.some((line) => /^\s*(?:\d+\.\.\d+|bail out!)/i.test(line))) {
    throw unreadable('TAP', 'it has no test and no plan');
  }
  const root = new Parser({ omitVersion: true });
  let bailout: string | undefined;
  root.on('bailout', (reason: unknown) => (bailout ??= typeof reason === 'string' ? reason : ''));
  const tally = walk(root, [], cases, notes);
  try {
    for (const line of lines) root.write(line);
    root.end();
  } catch (error) {
    throw unreadable('TAP', messageOf(error).slice(0, 200));
  }
  if (bailout !== undefined)
    cases.add({ name: 'Bail out!', outcome: 'failed', message: bailout || 'The tests stopped.' });
  else if (tally.plan === 'missing') {
    cases.add({ name: 'plan', outcome: 'failed', message: 'The report has no plan; the tests may have been cut off.' });
  }
  return cases.report();
}

/** What one level of subtests came to. */
interface Tally {
  leaves: number;
  failed: number;
  plan: 'open' | 'fits' | 'missing';
}

function walk(parser: Parser, path: string[], cases: CaseCollector, notes: Note[]): Tally {
  const tally: Tally = { leaves: 0, failed: 0, plan: 'open' };
  let inner: Tally | undefined;
  const leaf = (result: Result): void => {
    const skipped = result.skip !== false || result.todo !== false;
    const outcome = skipped ? 'skipped' : result.ok ? 'passed' : 'failed';
    const diag: unknown = result.diag;
    const note = typeof diag === 'object' && diag !== null && 'note' in diag ? notes[Number(diag.note)] : undefined;
    const reason = result.skip !== false ? result.skip : result.todo;
    tally.leaves++;
    if (outcome === 'failed') tally.failed++;
    cases.add({
      name: [...path, result.name || `test ${result.id || tally.leaves}`].join(' › '),
      outcome,
      message:
        outcome === 'failed' ? (note?.text ?? null) : typeof reason === 'string' && reason !== '-' ? reason : null,
      durationMs: note?.durationMs ?? result.time,
    });
  };
  parser.on('child', (child: Parser) => {
    inner = walk(child, child.name === '' ? path : [...path, child.name], cases, notes);
  });
  parser.on('assert', (result: Result) => {
    const children = inner;
    inner = undefined;
    if (children) {
      tally.leaves += children.leaves;
      tally.failed += children.failed;
    }
    const repeats = children !== undefined && children.leaves > 0;
    if (!repeats || (!result.ok && result.todo === false && children.failed === 0)) leaf(result);
  });
  parser.on('complete', () => {
    const { planStart, planEnd, count, bailedOut } = parser;
    if (planStart === -1) tally.plan = count > 0 ? 'missing' : 'fits';
    else tally.plan = 'fits';
    const planned = Math.max(0, planEnd - planStart + 1);
    if (planStart === -1 || bailedOut !== false || planned === count) return;
    tally.failed++;
    tally.leaves++;
    cases.add({
      name: [...path, 'plan'].join(' › '),
      outcome: 'failed',
      message: `The plan says ${planned}, ran ${count}.`,
    });
  });
  return tally;
}

/** What stands in the block under a test point. */
interface Note {
  durationMs: number | null;
  text: string;
}

/**
 * Keeps the lines that mean something, each cut to a bound, and takes the blocks of diagnostics out: they are never read as
 * YAML, each becomes a number by which its text is found again.
 */
function filter(text: string): { lines: string[]; notes: Note[]; points: number } {
  const lines: string[] = [];
  const notes: Note[] = [];
  let points = 0;
  /** The indentation of the block that is open, and its lines; undefined outside of one. */
  let block: { indent: string; body: string[]; size: number } | undefined;
  /** The indentation of the last test point, while a block or free lines may belong to it. */
  let point: string | undefined;
  let loose: string[] = [];

  const note = (indent: string, body: string[]): void => {
    if (body.length === 0 || notes.length >= maxNotes) return;
    lines.push(`${indent}---\n`, `${indent}note: ${notes.length}\n`, `${indent}...\n`);
    notes.push(readNote(body));
  };
  const closePoint = (): void => {
    if (point !== undefined) note(`${point}  `, loose);
    point = undefined;
    loose = [];
  };

  for (let at = 0; at < text.length;) {
    const stop = text.indexOf('\n', at);
    const end = stop === -1 ? text.length : stop;
    const line = text.slice(at, Math.min(end, at + maxLine)).replace(/\r$/, '');
    at = end + 1;
    if (block) {
      if (line === `${block.indent}...`) {
        note(block.indent, block.body);
        block = undefined;
        point = undefined;
        continue;
      }
      if (line === '' || line.startsWith(block.indent)) {
        if (block.size < 2 * maxMessage) {
          block.body.push(line.slice(block.indent.length));
          block.size += line.length;
        }
        continue;
      }
      note(block.indent, block.body);
      block = undefined;
      point = undefined;
    }
    const indent = /^ */.exec(line)?.[0] ?? '';
    const rest = line.slice(indent.length);
    if (point !== undefined && rest === '---' && indent.length > point.length && indent.length < point.length + 4) {
      block = { indent, body: [], size: 0 };
      loose = [];
      continue;
    }
    if (indent.length % 4 === 0 && indent.length <= 4 * maxDepth && meaningful.test(rest)) {
      closePoint();
      if (lines.length >= maxKeptLines) throw unreadable('TAP', `it has more than ${maxKeptLines} lines of TAP`);
      lines.push(`${line}\n`);
      if (/^(?:not )?ok\b/i.test(rest)) {
        if (++points > maxPoints) throw unreadable('TAP', `it has more than ${maxPoints} tests`);
        point = /^ok\b/.test(rest) ? undefined : indent;
        if (point === undefined && text.startsWith(`${indent}  ---`, at)) point = indent;
      }
    } else if (point !== undefined && indent.length >= point.length + 2 && loose.length < 60) {
      // mocha writes the failure as plain lines, indented by two, under the test point.
      loose.push(line.slice(point.length + 2));
    } else if (point !== undefined && line.trim() !== '' && !rest.startsWith('#')) {
      closePoint();
    }
  }
  if (block) note(block.indent, block.body);
  closePoint();
  return { lines, notes, points };
}

/** A block's time, and what a person wants to see of the rest. */
function readNote(body: string[]): Note {
  const time = body
    .map((line) => /^duration_ms: *(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*$/i.exec(line)?.[1])
    .find((found) => found !== undefined);
  const kept = body.filter((line) => !/^(?:duration_ms|type|location|failureType|code|name|operator): /.test(line));
  return { durationMs: time === undefined ? null : Number(time), text: dedent(kept).join('\n') };
}

/** Unfolds `error: |-` and the like: the key's line goes, its text stays, less indented. */
function dedent(lines: string[]): string[] {
  const out: string[] = [];
  /** Indentation of the key whose text we are in. */
  let key: number | undefined;
  for (const line of lines) {
    const indent = line.search(/\S/);
    if (key !== undefined && indent !== -1 && indent <= key) key = undefined;
    const folded = /^( *)(?:error|message|stack): *[|>][-+]?$/.exec(line);
    if (folded) key = folded[1]?.length ?? 0;
    else if (key !== undefined) out.push(line.slice(key + 2));
    else out.push(line.replace(/^ *(?:error|message): +(?:'(.*)'|"(.*)")$/, '$1$2'));
  }
  return out;
}
