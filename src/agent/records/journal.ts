/**
 * The append-only journal: one JSON line per change of a record, the last line of a record wins. A line is written by one
 * `write` call before anybody hears of the change, so a killed agent loses nothing that it told; a torn last line is skipped.
 */
import {
  closeSync,
  existsSync,
  fdatasyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  truncateSync,
  writeSync,
} from 'node:fs';
import path from 'node:path';

export interface JournalLine {
  /** ISO time. */
  at: string;
  kind: string;
  id: string;
  record: unknown;
}

export class Journal {
  private readonly fd: number;

  private constructor(file: string) {
    this.fd = openSync(file, 'a', 0o600);
  }

  /** Reads what is there and opens the file for appending. A torn tail is cut off; a damaged line in the middle is skipped. */
  static open(file: string, onLine: (line: JournalLine) => void): Journal {
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    if (existsSync(file)) {
      const data = readFileSync(file);
      const end = data.lastIndexOf(0x0a) + 1;
      for (const text of data.subarray(0, end).toString('utf8').split('\n')) {
        const line = parseLine(text);
        if (line) onLine(line);
      }
      if (end < data.length) truncateSync(file, end);
    }
    return new Journal(file);
  }

  /** Appends; `durable` waits for the disk too (what an undo depends on). */
  append(kind: string, id: string, record: unknown, durable = false): void {
    const line: JournalLine = { at: new Date().toISOString(), kind, id, record };
    writeSync(this.fd, `${JSON.stringify(line)}\n`);
    if (durable) fdatasyncSync(this.fd);
  }

  close(): void {
    closeSync(this.fd);
  }
}

function parseLine(text: string): JournalLine | undefined {
  if (text === '') return undefined;
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && 'kind' in value && 'id' in value && 'record' in value)
      return value as JournalLine;
  } catch {
    // A damaged line: the records before and after it stand.
  }
  return undefined;
}
