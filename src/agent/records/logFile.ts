/**
 * A log on disk with a cap: the first part goes straight to the file, of what comes after it the last part is kept in memory
 * and written at the end, with a line between them that says how much was cut. Memory is bounded by the tail.
 */
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';

export interface LogCaps {
  headBytes: number;
  tailBytes: number;
}

/** 7 MiB of the beginning and 1 MiB of the end. */
export const defaultLogCaps: LogCaps = { headBytes: 7 * 1024 * 1024, tailBytes: 1024 * 1024 };

export class LogFile {
  private fd: number | undefined;
  private written = 0;
  private dropped = 0;
  private tail: Buffer[] = [];
  private tailSize = 0;

  constructor(
    readonly file: string,
    private readonly caps: LogCaps = defaultLogCaps,
  ) {
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    this.fd = openSync(file, 'a', 0o600);
  }

  /** True when some of the middle was not kept. */
  get cut(): boolean {
    return this.dropped > 0;
  }

  write(data: Uint8Array): void {
    if (this.fd === undefined) return;
    let rest = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    const room = this.caps.headBytes - this.written;
    if (room > 0) {
      const head = rest.subarray(0, room);
      writeSync(this.fd, head);
      this.written += head.length;
      rest = rest.subarray(head.length);
    }
    if (rest.length > 0) this.keepTail(Buffer.from(rest));
  }

  /** Writes the kept end and closes; a second call does nothing. */
  close(): void {
    if (this.fd === undefined) return;
    if (this.dropped > 0) writeSync(this.fd, `\n[petri: ${this.dropped} bytes cut here]\n`);
    for (const part of this.tail) writeSync(this.fd, part);
    closeSync(this.fd);
    this.fd = undefined;
    this.tail = [];
  }

  private keepTail(data: Buffer): void {
    const part = data.length > this.caps.tailBytes ? data.subarray(data.length - this.caps.tailBytes) : data;
    this.dropped += data.length - part.length;
    this.tail.push(part);
    this.tailSize += part.length;
    while (this.tailSize > this.caps.tailBytes) {
      const first = this.tail[0];
      if (!first) break;
      const excess = this.tailSize - this.caps.tailBytes;
      if (first.length <= excess) {
        this.tail.shift();
        this.tailSize -= first.length;
        this.dropped += first.length;
      } else {
        this.tail[0] = first.subarray(excess);
        this.tailSize -= excess;
        this.dropped += excess;
      }
    }
  }
}
