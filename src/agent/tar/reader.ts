/** Reading a byte stream by exact amounts, without holding more of it than one piece. */
import type { Readable } from 'node:stream';

export class ByteReader {
  private readonly source: AsyncIterator<Buffer>;
  private rest: Buffer = Buffer.alloc(0);
  private ended = false;

  constructor(stream: Readable) {
    this.source = (stream as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  }

  /** At least one and at most `max` bytes; undefined at the end. */
  async some(max: number): Promise<Buffer | undefined> {
    while (this.rest.length === 0) {
      if (this.ended) return undefined;
      const next = await this.source.next();
      if (next.done) {
        this.ended = true;
        return undefined;
      }
      this.rest = next.value;
    }
    const part = this.rest.subarray(0, max);
    this.rest = this.rest.subarray(part.length);
    return part;
  }

  /** `n` bytes, fewer only at the end. */
  async exactly(n: number): Promise<Buffer> {
    if (this.rest.length >= n) {
      const part = this.rest.subarray(0, n);
      this.rest = this.rest.subarray(n);
      return part;
    }
    const parts: Buffer[] = [];
    let have = 0;
    while (have < n) {
      const part = await this.some(n - have);
      if (!part) break;
      parts.push(part);
      have += part.length;
    }
    return Buffer.concat(parts);
  }

  /** Lets the stream go. */
  async close(): Promise<void> {
    this.ended = true;
    this.rest = Buffer.alloc(0);
    await this.source.return?.();
  }
}
