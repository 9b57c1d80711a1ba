/** Test reports that a sandbox wrote, read into bounded records. Untrusted: the formats' own readers are beside this. */
import { PetriError } from '../../protocol/errors';
import type { TestCase, TestReport } from '../../protocol/records';
import { shorten, visible } from '../../protocol/text';
import { formatBytes } from '../../protocol/units';

export { parseJUnit } from './junit';
export { parseTap } from './tap';

/** Bound of a report, bytes. */
export const maxReportBytes = 16 * 1024 * 1024;
/** How many cases are kept; all are counted. */
export const maxCases = 20_000;
/** Characters of one case's failure, and of all of them together. */
export const maxMessage = 2000;
const maxMessages = 4 * 1024 * 1024;
const maxName = 500;

/** The error for a report that can't be read. `what` says why and ends without a full stop. */
export function unreadable(format: 'JUnit' | 'TAP', what: string): PetriError {
  return new PetriError('untrusted-data', `The ${format} report can't be read: ${what}.`, {
    hint: `Look at what the check wrote, or take \`report\` out of it so that its exit code alone counts.`,
  });
}

/** Throws when a report is larger than is read. */
export function checkSize(format: 'JUnit' | 'TAP', bytes: number): void {
  if (bytes > maxReportBytes) {
    throw unreadable(format, `it has ${formatBytes(bytes)}, and at most ${formatBytes(maxReportBytes)} are read`);
  }
}

/** A failure's text as it is kept: visible, its first lines, no blank edges; null when nothing is left. */
export function failureText(text: string): string | null {
  const trimmed = visible(text.slice(0, 2 * maxMessage).replace(/\r\n?/g, '\n')).replace(/^\s*\n|\s+$/g, '');
  if (trimmed === '') return null;
  return trimmed.length <= maxMessage ? trimmed : `${trimmed.slice(0, maxMessage - 1)}…`;
}

/** Collects cases within the bounds. Failed ones are kept before others. */
export class CaseCollector {
  private readonly counts = { passed: 0, failed: 0, skipped: 0 };
  private readonly cases: TestCase[] = [];
  private messages = 0;
  private cut = false;
  private replaceable = maxCases - 1;

  get total(): number {
    return this.counts.passed + this.counts.failed + this.counts.skipped;
  }

  /** `name` and `message` may be raw. */
  add(raw: { name: string; outcome: TestCase['outcome']; message?: string | null; durationMs?: number | null }): void {
    this.counts[raw.outcome]++;
    let at = this.cases.length;
    if (at >= maxCases) {
      this.cut = true;
      if (raw.outcome !== 'failed') return;
      while (this.replaceable >= 0 && this.cases[this.replaceable]?.outcome === 'failed') this.replaceable--;
      if (this.replaceable < 0) return;
      at = this.replaceable--;
    }
    let message = raw.message ? failureText(raw.message) : null;
    this.messages += message?.length ?? 0;
    if (this.messages > maxMessages) message = null;
    const { durationMs = null } = raw;
    this.cases[at] = {
      name: shorten(raw.name.slice(0, 4 * maxName), maxName) || '(no name)',
      outcome: raw.outcome,
      message,
      durationMs: durationMs !== null && Number.isFinite(durationMs) && durationMs >= 0 ? durationMs : null,
    };
  }

  report(): TestReport {
    return { ...this.counts, cases: this.cases, cut: this.cut };
  }
}
