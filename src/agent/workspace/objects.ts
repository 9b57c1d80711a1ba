/** Blobs of the store: many out through one git process, single ones as streams, new ones in. */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { PetriError } from '../../protocol/errors';
import { formatBytes } from '../../protocol/units';
import { diskFull, isDiskFull, type Git } from './git';
import type { Oid } from './store';

const oidForm = /^[0-9a-f]{40}([0-9a-f]{24})?$/;
/** Buffers up to this size go to git by pipe; anything larger by a file, which git streams. */
const smallBlob = 4 * 1024 ** 2;

/** Throws internal for what is no object id, so that no text from elsewhere becomes an argument. */
export function requireOid(oid: string): void {
  if (!oidForm.test(oid)) throw new PetriError('internal', 'Not an object id.');
}

/** Objects in order, by one `cat-file --batch`; each is whole in memory while it is yielded. */
export async function* readObjects(git: Git, oids: Oid[]): AsyncGenerator<{ oid: Oid; type: string; data: Buffer }> {
  if (oids.length === 0) return;
  oids.forEach(requireOid);
  const input = Readable.from(lines(oids));
  const out = git.stream(['cat-file', '--batch', '--buffer'], { input });
  const reader = new ByteReader(out);
  try {
    for (const oid of oids) {
      const head = (await reader.line()).split(' ');
      const size = Number(head[2]);
      if (head[0] !== oid || head[1] === 'missing' || !Number.isSafeInteger(size))
        throw new PetriError('not-found', `The object ${oid} is not in the store.`);
      const data = await reader.take(size);
      await reader.take(1);
      yield { oid, type: head[1] ?? '', data };
    }
  } finally {
    out.destroy();
  }
}

/** Types and sizes in order; undefined for an object that is not there. */
export async function describeObjects(
  git: Git,
  oids: Oid[],
  env: NodeJS.ProcessEnv = {},
): Promise<({ type: string; size: number } | undefined)[]> {
  if (oids.length === 0) return [];
  oids.forEach(requireOid);
  const text = await git.text(['cat-file', '--batch-check', '--buffer'], { input: Readable.from(lines(oids)), env });
  return text.split('\n').map((line) => {
    const [, type, size] = line.split(' ');
    return type === undefined || size === undefined ? undefined : { type, size: Number(size) };
  });
}

function* lines(oids: Oid[]): Generator<string> {
  for (let i = 0; i < oids.length; i += 1000) yield `${oids.slice(i, i + 1000).join('\n')}\n`;
}

/** Takes exact numbers of bytes and lines from a stream. */
class ByteReader {
  private readonly chunks: AsyncIterator<Buffer>;
  private held: Buffer = Buffer.alloc(0);

  constructor(stream: Readable) {
    this.chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  }

  async line(): Promise<string> {
    let end = this.held.indexOf(10);
    while (end < 0) {
      this.held = Buffer.concat([this.held, await this.more()]);
      end = this.held.indexOf(10);
    }
    const text = this.held.toString('latin1', 0, end);
    this.held = this.held.subarray(end + 1);
    return text;
  }

  async take(size: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    let missing = size;
    while (missing > 0) {
      if (this.held.length === 0) this.held = await this.more();
      const part = this.held.subarray(0, missing);
      parts.push(part);
      this.held = this.held.subarray(part.length);
      missing -= part.length;
    }
    return parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
  }

  private async more(): Promise<Buffer> {
    const next = await this.chunks.next();
    if (next.done) throw new PetriError('git-failed', 'git ended in the middle of an object.');
    return next.value;
  }
}

/** Counts what passes and fails with too-large beyond `max`. */
export function bounded(max: number, what: string): Transform {
  let size = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      size += chunk.length;
      if (size > max)
        done(new PetriError('too-large', `${what} is larger than ${formatBytes(max)}.`, { data: { maxBytes: max } }));
      else done(null, chunk);
    },
  });
}

/** Stores bytes as a blob; streams and large buffers go through a file in `incoming`. Errors: too-large, disk-full. */
export async function storeBlob(git: Git, incoming: string, data: Readable | Buffer, maxBytes: number): Promise<Oid> {
  const settings = ['-c', 'core.compression=0', '-c', 'core.bigFileThreshold=4m'];
  if (Buffer.isBuffer(data) && data.length <= Math.min(smallBlob, maxBytes))
    return git.text([...settings, 'hash-object', '-w', '--stdin'], { input: data });
  await mkdir(incoming, { recursive: true });
  const file = path.join(incoming, randomUUID());
  try {
    const source = Buffer.isBuffer(data) ? Readable.from([data]) : data;
    await pipeline(source, bounded(maxBytes, 'The file'), createWriteStream(file, { flags: 'wx', mode: 0o600 }));
    return await git.text([...settings, 'hash-object', '-w', '--no-filters', '--', file]);
  } catch (error) {
    throw isDiskFull(error) ? diskFull(error) : error;
  } finally {
    await rm(file, { force: true });
  }
}
