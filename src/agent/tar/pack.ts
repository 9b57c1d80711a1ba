/**
 * Writing tar, byte for byte. Our own, because the libraries of npm take names for UTF-8: a name that isn't would come out as another one.
 * Headers are ustar; names that don't fit use GNU's `L` and `K` records, since pax records are UTF-8 by definition.
 */
import { Readable } from 'node:stream';
import { PetriError } from '../../protocol/errors';
import { pathText, type BytePath } from '../../protocol/text';

export interface TarEntry {
  /** Relative to where the archive is unpacked; no leading slash. A folder's trailing slash is added here. */
  path: BytePath;
  type: 'file' | 'dir' | 'symlink';
  /** Permission bits, 0–0o7777. */
  mode: number;
  uid: number;
  gid: number;
  /** Milliseconds since the epoch; kept to the second. */
  mtimeMs: number;
  /** Bytes of `content`; 0 for what is no file. */
  size: number;
  /** Target of a symlink. */
  link?: BytePath;
  /** Exactly `size` bytes; may be left out when that is 0. */
  content?: Buffer | Readable | undefined;
}

const block = 512;
/** Small headers and files are handed on together in pieces of this size. */
const pieceSize = 256 * 1024;
const zeros = Buffer.alloc(2 * block);

/** A tar stream of the entries, which are asked for as the reader reads. It fails where an entry's content has not the size it says. */
export function packTar(entries: AsyncIterable<TarEntry> | Iterable<TarEntry>): Readable {
  return Readable.from(pieces(entries), { objectMode: false, highWaterMark: pieceSize });
}

/** How many bytes an entry takes in the archive: headers, content and padding. The archive ends with {@link tarEndBytes} more. */
export function packedSize(entry: TarEntry): number {
  return headerOf(entry).length + padded(entry.type === 'file' ? entry.size : 0);
}
export const tarEndBytes = 2 * block;

const padded = (size: number): number => Math.ceil(size / block) * block;

async function* pieces(entries: AsyncIterable<TarEntry> | Iterable<TarEntry>): AsyncGenerator<Buffer> {
  let piece = Buffer.allocUnsafe(pieceSize);
  let used = 0;
  for await (const entry of entries) {
    const header = headerOf(entry);
    const content = entry.type === 'file' ? entry.content : undefined;
    const size = entry.type === 'file' ? entry.size : 0;
    const isBuffer = Buffer.isBuffer(content);
    if (isBuffer || content === undefined) {
      if ((content?.length ?? 0) !== size) throw wrongSize(entry, content?.length ?? 0);
    }
    const inline = content === undefined || (isBuffer && size < pieceSize / 4);
    const needed = header.length + (inline ? padded(size) : 0);
    if (used + needed > pieceSize) {
      if (used > 0) yield piece.subarray(0, used);
      piece = Buffer.allocUnsafe(Math.max(pieceSize, needed));
      used = 0;
    }
    used += header.copy(piece, used);
    if (inline) {
      if (isBuffer) {
        used += content.copy(piece, used);
        const pad = padded(size) - size;
        piece.fill(0, used, used + pad);
        used += pad;
      }
      continue;
    }
    yield piece.subarray(0, used);
    piece = Buffer.allocUnsafe(pieceSize);
    used = 0;
    if (Buffer.isBuffer(content)) {
      yield content;
    } else {
      let seen = 0;
      for await (const chunk of content as AsyncIterable<Buffer>) {
        seen += chunk.length;
        if (seen > size) throw wrongSize(entry, seen);
        if (chunk.length > 0) yield chunk;
      }
      if (seen !== size) throw wrongSize(entry, seen);
    }
    if (size % block !== 0) yield zeros.subarray(0, padded(size) - size);
  }
  if (used > 0) yield piece.subarray(0, used);
  yield zeros;
}

function wrongSize(entry: TarEntry, seen: number): PetriError {
  return new PetriError(
    'workspace-changed',
    `${pathText(entry.path)} has ${seen} bytes and not ${entry.size}: it changed while it was read.`,
    {
      hint: 'Try again when nothing writes to it.',
    },
  );
}

const types = { file: '0', dir: '5', symlink: '2' } as const;

/** All header blocks of an entry, long names included. */
function headerOf(entry: TarEntry): Buffer {
  let path: string = entry.path;
  if (entry.type === 'dir' && !path.endsWith('/')) path += '/';
  const link = entry.type === 'symlink' ? (entry.link ?? '') : '';
  if (
    path === '' ||
    path === '/' ||
    path.includes('\0') ||
    link.includes('\0') ||
    (entry.type === 'symlink' && link === '')
  ) {
    throw new PetriError('internal', `An archive can't hold the path "${pathText(entry.path)}".`);
  }
  const parts: Buffer[] = [];
  if (link.length > 100) parts.push(longRecord('K', link));
  const split = splitName(path);
  if (!split) parts.push(longRecord('L', path));
  parts.push(
    headerBlock({
      name: split?.name ?? path.slice(0, 100),
      prefix: split?.prefix ?? '',
      type: types[entry.type],
      link: link.slice(0, 100),
      mode: entry.mode & 0o7777,
      uid: entry.uid,
      gid: entry.gid,
      mtime: Math.floor(entry.mtimeMs / 1000),
      size: entry.type === 'file' ? entry.size : 0,
    }),
  );
  return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
}

/** The ustar name and prefix of a path; undefined when it doesn't fit. */
function splitName(path: string): { name: string; prefix: string } | undefined {
  if (path.length <= 100) return { name: path, prefix: '' };
  if (path.length > 256) return undefined;
  // The slash between the two is not written; the name must not be empty.
  const at = path.indexOf('/', Math.max(1, path.length - 101));
  if (at < 0 || at > 155 || at === path.length - 1) return undefined;
  return { name: path.slice(at + 1), prefix: path.slice(0, at) };
}

function longRecord(type: 'K' | 'L', text: string): Buffer {
  const out = Buffer.alloc(block + padded(text.length + 1));
  headerBlock({
    name: '././@LongLink',
    prefix: '',
    type,
    link: '',
    mode: 0o644,
    uid: 0,
    gid: 0,
    mtime: 0,
    size: text.length + 1,
  }).copy(out);
  out.write(text, block, 'latin1');
  return out;
}

interface Fields {
  name: string;
  prefix: string;
  type: string;
  link: string;
  mode: number;
  uid: number;
  gid: number;
  /** Seconds. */
  mtime: number;
  size: number;
}

function headerBlock(f: Fields): Buffer {
  const h = Buffer.alloc(block);
  h.write(f.name, 0, 100, 'latin1');
  number(h, 100, 8, f.mode);
  number(h, 108, 8, f.uid);
  number(h, 116, 8, f.gid);
  number(h, 124, 12, f.size);
  number(h, 136, 12, f.mtime);
  h.fill(0x20, 148, 156);
  h.write(f.type, 156, 'latin1');
  h.write(f.link, 157, 100, 'latin1');
  h.write('ustar\x0000', 257, 'latin1');
  h.write(f.prefix, 345, 155, 'latin1');
  let sum = 0;
  for (const byte of h) sum += byte;
  h.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return h;
}

/** A numeric field: octal where it fits, else GNU's base-256 (sizes from 8 GiB, times before 1970). */
function number(h: Buffer, at: number, length: number, value: number): void {
  if (!Number.isSafeInteger(value)) throw new PetriError('internal', `An archive can't hold the number ${value}.`);
  const octal = value >= 0 ? value.toString(8) : '';
  if (octal !== '' && octal.length < length) {
    h.write(`${octal.padStart(length - 1, '0')}\0`, at, 'latin1');
    return;
  }
  let rest = BigInt(value);
  for (let i = at + length - 1; i >= at; i--) {
    h[i] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  // The first byte says what follows: 0x80 a positive number, 0xff a negative one.
  h[at] = value < 0 ? 0xff : (h[at] ?? 0) | 0x80;
}
