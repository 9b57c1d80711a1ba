/** NUL-separated byte output of git as byte paths, and byte paths as what git and the file system take. */
import type { BytePath } from '../../protocol/text';

/** Every field of a `-z` output. */
export function fields(output: Buffer): string[] {
  if (output.length === 0) return [];
  const list = output.toString('latin1').split('\0');
  if (list[list.length - 1] === '') list.pop();
  return list;
}

/** Paths joined by NUL for a `-z --stdin`. */
export function zero(paths: Iterable<string>): Buffer {
  const parts: string[] = [];
  for (const path of paths) parts.push(path, '\0');
  return Buffer.from(parts.join(''), 'latin1');
}

export function toBytes(path: string): Buffer {
  return Buffer.from(path, 'latin1');
}

/** The byte path of a file system name given as text. */
export function fromText(text: string): BytePath {
  return Buffer.from(text, 'utf8').toString('latin1') as BytePath;
}

/** A folder given as text and a byte path in it, as the file system takes it. */
export function inFolder(folder: string, path: string): Buffer {
  return Buffer.concat([Buffer.from(folder, 'utf8'), Buffer.from('/'), toBytes(path)]);
}

/** The text of a byte path when it is valid UTF-8: what may go into an argument; undefined otherwise. */
export function asArgument(path: string): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(toBytes(path));
  } catch {
    return undefined;
  }
}
