/** Which paths and modes may be in a tree of the store. Everything that comes out of a sandbox passes through here. */
import { PetriError } from '../../protocol/errors';
import { pathText, shorten, type BytePath } from '../../protocol/text';

const maxPath = 4096;
const maxName = 255;
/** Modes of files; trees are `040000`. */
const fileModes = new Set(['100644', '100755', '120000']);

/** Code points that HFS+ leaves out when it compares names. */
const hfsIgnored = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/g;

/** True for `.git` in any spelling that some file system takes for it: case, HFS+ ignorables, NTFS short names, streams, trailing dots. */
export function isDotGit(name: string): boolean {
  const text = Buffer.from(name, 'latin1').toString('utf8');
  const folded = text.replace(hfsIgnored, '').normalize('NFKD').toLowerCase();
  const ntfs = (folded.split(/[:\\]/)[0] ?? '').replace(/[. ]+$/, '');
  return ntfs === '.git' || ntfs === 'git~1' || folded === '.git';
}

/** Why a path may not be in a tree, or null. */
export function unsafePath(path: string): string | null {
  if (path.length === 0) return 'it is empty';
  if (path.length > maxPath) return `it is longer than ${maxPath} bytes`;
  if (path.includes('\0')) return 'it has a NUL byte';
  for (const name of path.split('/')) {
    if (name === '') return 'it has an empty component';
    if (name === '.' || name === '..') return 'it has a "." or ".." component';
    if (name.length > maxName) return `a name in it is longer than ${maxName} bytes`;
    if (isDotGit(name) || (name.includes('\\') && name.split('\\').some((part) => isDotGit(part) || part === '..')))
      return 'it names a git folder';
    if (process.platform === 'win32' && /[\\:]/.test(name)) return 'it has a backslash or a colon';
  }
  return null;
}

/** Throws untrusted-data for a path or a file mode that may not be in a tree. */
export function requireSafe(path: string, mode: string): void {
  const reason = unsafePath(path) ?? (fileModes.has(mode) ? null : `its mode is ${shorten(mode, 10)}`);
  if (reason !== null) throw untrusted(`The path ${shorten(pathText(path as BytePath), 200)} is refused: ${reason}.`);
}

export function untrusted(message: string, cause?: unknown): PetriError {
  return new PetriError('untrusted-data', message, {
    hint: 'Nothing of it was taken over. Look at what ran in the sandbox.',
    cause,
  });
}
