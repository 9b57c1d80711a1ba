/**
 * Git's index file (version 2, SHA-1), read and joined as bytes. Hashing many files is spread over several git processes, each
 * with an index of its own; this puts their entries, stat data included, into one. Format: gitformat-index(5).
 */
import { createHash } from 'node:crypto';
import { open, readFile, rename, utimes, writeFile } from 'node:fs/promises';
import { PetriError } from '../../protocol/errors';

const headerBytes = 12;
const sumBytes = 20;
/** Bytes of an entry before its name: stat data 40, object id 20, flags 2. */
const fixedBytes = 62;

interface IndexEntry {
  /** One char per byte. */
  name: string;
  raw: Buffer;
}

/** Sets the index's own time, by which git tells which entries are "racily clean". In whole seconds since the epoch. */
export async function trustUntil(file: string, seconds: number): Promise<void> {
  await utimes(file, seconds, seconds).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
}

/** The checksum at the end of an index, hex: the identity of its contents. Empty when there is no index. */
export async function indexSum(file: string): Promise<string> {
  let handle;
  try {
    handle = await open(file, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
  try {
    const { size } = await handle.stat();
    if (size < headerBytes + sumBytes) return '';
    const sum = Buffer.alloc(sumBytes);
    await handle.read(sum, 0, sumBytes, size - sumBytes);
    return sum.toString('hex');
  } finally {
    await handle.close();
  }
}

function parse(data: Buffer, file: string): IndexEntry[] {
  const bad = (): PetriError =>
    new PetriError('git-failed', `The index ${file} has an unexpected form.`, {
      hint: 'It is made anew by the next capture.',
    });
  if (data.length < headerBytes + sumBytes || data.toString('latin1', 0, 4) !== 'DIRC' || data.readUInt32BE(4) !== 2)
    throw bad();
  const count = data.readUInt32BE(8);
  const entries: IndexEntry[] = [];
  let at = headerBytes;
  for (let i = 0; i < count; i++) {
    const end = data.indexOf(0, at + fixedBytes);
    if (end < 0 || end > data.length - sumBytes) throw bad();
    const name = data.toString('latin1', at + fixedBytes, end);
    const length = (fixedBytes + name.length + 8) & ~7;
    entries.push({ name, raw: data.subarray(at, at + length) });
    at += length;
  }
  return entries;
}

/**
 * Writes into `target` the entries of `target` itself (if it exists) overlaid by those of `parts`, whose names must not overlap.
 * Names of `dropped` are left out of the old entries. All in git's order. The new index comes in by rename.
 */
export async function joinIndexes(target: string, parts: string[], dropped: ReadonlySet<string>): Promise<void> {
  const old = await readFile(target).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  const entries = new Map<string, Buffer>();
  if (old) for (const e of parse(old, target)) if (!dropped.has(e.name)) entries.set(e.name, e.raw);
  for (const part of parts) for (const e of parse(await readFile(part), part)) entries.set(e.name, e.raw);
  // One char is one byte, so the default order of strings is git's order of names.
  const names = [...entries.keys()].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const header = Buffer.alloc(headerBytes);
  header.write('DIRC', 0, 'latin1');
  header.writeUInt32BE(2, 4);
  header.writeUInt32BE(names.length, 8);
  const body = Buffer.concat([header, ...names.map((name) => entries.get(name) ?? Buffer.alloc(0))]);
  const temporary = `${target}.joined`;
  await writeFile(temporary, Buffer.concat([body, createHash('sha1').update(body).digest()]));
  await rename(temporary, target);
}
