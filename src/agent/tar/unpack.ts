/**
 * Reading tar that may be hostile: ustar, GNU long names, and of pax what bears on names and sizes. Names are bytes, never decoded. Everything
 * is bounded, nothing is followed: what to do with a path or a link is the reader's decision.
 */
import { Readable } from 'node:stream';
import { PetriError } from '../../protocol/errors';
import type { BytePath } from '../../protocol/text';
import { block, parseHeader, parsePax, untilNul, type Header } from './header';
import { ByteReader } from './reader';

export interface UnpackedEntry {
  /** As in the archive, whatever it says: absolute, with `..`, with a trailing slash. */
  path: BytePath;
  /** `hardlink` names an earlier path of the same archive in `link`; `other` is a device, a pipe or something unknown (see `flag`). */
  type: 'file' | 'dir' | 'symlink' | 'hardlink' | 'other';
  /** The type byte of the header. */
  flag: string;
  /** Permission bits, 0–0o7777. */
  mode: number;
  uid: number;
  gid: number;
  mtimeMs: number;
  /** Bytes of `content`. */
  size: number;
  /** Target of a symlink or hardlink, else empty. */
  link: BytePath;
  /** To be read before the next entry is asked for; what is left then is skipped. */
  content: Readable;
  /** Reads past the content. */
  skip(): Promise<void>;
}

export interface UnpackOptions {
  /** Most bytes of content in all. */
  maxBytes: number;
  /** Most entries; default two million. */
  maxEntries?: number;
  /** Most bytes of one extended header or long name; default 1 MiB. */
  maxHeaderBytes?: number;
}

/** The entries of an archive. Errors: untrusted-data (not a sound archive, or cut off), too-large, and those of the stream itself. */
export async function* unpackTar(tar: Readable, options: UnpackOptions): AsyncGenerator<UnpackedEntry> {
  const reader = new ByteReader(tar);
  const maxEntries = options.maxEntries ?? 2_000_000;
  const maxHeader = options.maxHeaderBytes ?? 1024 * 1024;
  let total = 0;
  let headers = 0;
  let count = 0;
  /** What extended headers said about the next entry. */
  let next: Partial<Pick<Header, 'path' | 'link' | 'size'>> = {};
  let pending: string[] = [];
  try {
    for (;;) {
      const raw = await reader.exactly(block);
      if (raw.length < block) throw bad('it is cut off');
      const header = parseHeader(raw);
      if (!header) {
        const second = await reader.exactly(block);
        if (second.length > 0 && (second.length < block || parseHeader(second)))
          throw bad('something follows its end mark');
        if (pending.length > 0) throw bad('it ends after an extended header');
        return;
      }
      if (++headers > maxEntries * 4) throw tooLarge(`more than ${maxEntries} entries`);
      if (header.flag === 'S') throw bad('it holds a sparse file of an old format');
      if ('LKxg'.includes(header.flag)) {
        if (header.size > maxHeader) throw bad(`an extended header has ${header.size} bytes`);
        if (pending.includes(header.flag)) throw bad('an extended header is given twice');
        const data = await reader.exactly(header.size);
        await skip(reader, padding(header.size));
        if (data.length < header.size) throw bad('it is cut off');
        if (header.flag === 'g') {
          if (parsePax(data).some(([key]) => bearsOnEntry(key))) throw bad('a global header changes names or sizes');
          continue;
        }
        pending.push(header.flag);
        if (header.flag === 'L') next = { path: untilNul(data), ...next };
        else if (header.flag === 'K') next = { link: untilNul(data), ...next };
        else next = { ...next, ...paxFields(data) };
        continue;
      }
      if (++count > maxEntries) throw tooLarge(`more than ${maxEntries} entries`);
      const fields = { ...header, ...next };
      next = {};
      pending = [];
      if (fields.path === '') throw bad('an entry has no name');
      const type = typeOf(fields.flag, fields.path);
      const size = type === 'file' || type === 'other' ? (isHeaderOnly(fields.flag) ? 0 : fields.size) : 0;
      total += size;
      if (total > options.maxBytes) throw tooLarge(`more than ${options.maxBytes} bytes`);
      const body = new Body(reader, size);
      yield {
        path: fields.path,
        type,
        flag: fields.flag,
        mode: fields.mode,
        uid: fields.uid,
        gid: fields.gid,
        mtimeMs: fields.mtime * 1000,
        size,
        link: type === 'symlink' || type === 'hardlink' ? fields.link : ('' as BytePath),
        content: body.stream,
        skip: () => body.skip(),
      };
      await body.skip();
    }
  } finally {
    await reader.close();
    tar.destroy();
  }
}

function bad(why: string): PetriError {
  return new PetriError('untrusted-data', `The archive is refused: ${why}.`);
}

function tooLarge(what: string): PetriError {
  return new PetriError('too-large', `The archive holds ${what}.`);
}

const padding = (size: number): number => (block - (size % block)) % block;

async function skip(reader: ByteReader, n: number): Promise<void> {
  for (let left = n; left > 0;) {
    const part = await reader.some(left);
    if (!part) throw bad('it is cut off');
    left -= part.length;
  }
}

const bearsOnEntry = (key: string): boolean =>
  key === 'path' || key === 'linkpath' || key === 'size' || key.startsWith('GNU.sparse');

function paxFields(data: Buffer): Partial<Pick<Header, 'path' | 'link' | 'size'>> {
  const out: Partial<Pick<Header, 'path' | 'link' | 'size'>> = {};
  for (const [key, value] of parsePax(data)) {
    if (key.startsWith('GNU.sparse')) throw bad('it holds a sparse file');
    if ((key === 'path' || key === 'linkpath') && value.includes('\0')) throw bad('a name holds a NUL byte');
    if (key === 'path') out.path = value as BytePath;
    else if (key === 'linkpath') out.link = value as BytePath;
    else if (key === 'size') {
      if (!/^\d{1,15}$/.test(value)) throw bad('a size is no number');
      out.size = Number(value);
    }
  }
  return out;
}

function typeOf(flag: string, path: string): UnpackedEntry['type'] {
  if (flag === '0' || flag === '\0' || flag === '7') return path.endsWith('/') ? 'dir' : 'file';
  return flag === '5' ? 'dir' : flag === '2' ? 'symlink' : flag === '1' ? 'hardlink' : 'other';
}

/** Devices and pipes: what their size field says is never followed by data. */
const isHeaderOnly = (flag: string): boolean => flag === '3' || flag === '4' || flag === '6';

/** The content of one entry: read by its stream, by skipping, or first the one and then the other. */
class Body {
  readonly stream: Readable;
  private left: number;
  private pad: number;
  private reading: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly reader: ByteReader,
    size: number,
  ) {
    this.left = size;
    this.pad = padding(size);
    const read = async (): Promise<void> => {
      try {
        if (this.left === 0) {
          this.stream.push(null);
          return;
        }
        const part = await this.reader.some(this.left);
        if (!part) throw bad('it is cut off');
        this.left -= part.length;
        this.stream.push(part);
        if (this.left === 0) this.stream.push(null);
      } catch (error) {
        this.stream.destroy(error as Error);
        // Whoever asks for the next entry gets the error too, even if nobody listens to the stream.
        throw error;
      }
    };
    this.stream = new Readable({
      highWaterMark: 256 * 1024,
      read: () => {
        this.reading = read();
        this.reading.catch(() => undefined);
      },
    });
  }

  async skip(): Promise<void> {
    await this.reading;
    if (this.left > 0 && !this.stream.destroyed) this.stream.destroy();
    const n = this.left + this.pad;
    this.left = 0;
    this.pad = 0;
    await skip(this.reader, n);
  }
}
