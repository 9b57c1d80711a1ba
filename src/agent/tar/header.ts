/** The fixed block before each entry of a tar archive, and pax records, read from data that may be hostile. */
import { PetriError } from '../../protocol/errors';
import type { BytePath } from '../../protocol/text';

export const block = 512;

export interface Header {
  path: BytePath;
  flag: string;
  link: BytePath;
  mode: number;
  uid: number;
  gid: number;
  /** Seconds since the epoch. */
  mtime: number;
  size: number;
}

function bad(why: string): PetriError {
  return new PetriError('untrusted-data', `The archive is refused: ${why}.`);
}

/** The fields of a header block; undefined for a block of zeros. Errors: untrusted-data. */
export function parseHeader(raw: Buffer): Header | undefined {
  let sum = 0;
  let signed = 0;
  for (let i = 0; i < block; i++) {
    const byte = i >= 148 && i < 156 ? 0x20 : (raw[i] ?? 0);
    sum += byte;
    signed += byte > 127 ? byte - 256 : byte;
  }
  if (sum === 8 * 0x20 && raw.every((b) => b === 0)) return undefined;
  const stored = number(raw, 148, 8);
  if (stored !== sum && stored !== signed) throw bad('a checksum is wrong');
  const magic = raw.toString('latin1', 257, 265);
  const name = untilNul(raw.subarray(0, 100));
  // GNU's own format keeps other things where ustar has the prefix.
  const prefix = magic === 'ustar\x0000' ? untilNul(raw.subarray(345, 500)) : '';
  const size = number(raw, 124, 12);
  if (size < 0) throw bad('a size is negative');
  return {
    path: (prefix === '' ? name : `${prefix}/${name}`) as BytePath,
    flag: String.fromCharCode(raw[156] ?? 0),
    link: untilNul(raw.subarray(157, 257)),
    mode: number(raw, 100, 8) & 0o7777,
    uid: Math.max(0, number(raw, 108, 8)),
    gid: Math.max(0, number(raw, 116, 8)),
    mtime: number(raw, 136, 12),
    size,
  };
}

/** Bytes up to the first NUL. */
export function untilNul(data: Buffer): BytePath {
  const end = data.indexOf(0);
  return data.toString('latin1', 0, end < 0 ? data.length : end) as BytePath;
}

/** Octal text, or GNU's base-256 where the first bit is set. */
function number(raw: Buffer, at: number, length: number): number {
  const first = raw[at] ?? 0;
  if (first === 0x80 || first === 0xff) {
    let value = first === 0xff ? -1n : 0n;
    for (let i = at + 1; i < at + length; i++) value = (value << 8n) | BigInt(raw[i] ?? 0);
    if (value > BigInt(Number.MAX_SAFE_INTEGER) || value < BigInt(Number.MIN_SAFE_INTEGER))
      throw bad('a number is too large');
    return Number(value);
  }
  const text = raw
    .toString('latin1', at, at + length)
    .replace(/\0.*$/s, '')
    .trim();
  if (text === '') return 0;
  if (!/^[0-7]+$/.test(text)) throw bad('a number is malformed');
  return parseInt(text, 8);
}

/** The `length key=value` records of a pax header; values as bytes. Errors: untrusted-data. */
export function parsePax(data: Buffer): [key: string, value: string][] {
  const out: [string, string][] = [];
  let at = 0;
  while (at < data.length) {
    const space = data.indexOf(0x20, at);
    const digits = space < 0 || space - at > 10 ? '' : data.toString('latin1', at, space);
    const end = at + Number(digits);
    if (!/^[1-9]\d*$/.test(digits) || end > data.length || end <= space + 1 || data[end - 1] !== 0x0a)
      throw bad('a pax record is malformed');
    const record = data.toString('latin1', space + 1, end - 1);
    const equals = record.indexOf('=');
    if (equals < 1) throw bad('a pax record is malformed');
    out.push([record.slice(0, equals), record.slice(equals + 1)]);
    at = end;
  }
  return out;
}
