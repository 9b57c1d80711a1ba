/** Trees of the store: what is in them, how two differ, new ones made from old ones. */
import { randomUUID } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { PetriError } from '../../protocol/errors';
import { parsePathText, pathText, shorten, type BytePath } from '../../protocol/text';
import { fields } from './bytes';
import type { Git } from './git';
import { requireOid } from './objects';
import { requireSafe, unsafePath, untrusted } from './safePath';
import type { Oid, TreeChange, TreeEntry } from './store';

const noMode = '000000';
/** No renames, nothing of attributes, nothing started: two trees compared path by path. */
export const rawDiff = [
  'diff-tree',
  '-r',
  '-z',
  '--raw',
  '--no-renames',
  '--no-abbrev',
  '--no-ext-diff',
  '--no-textconv',
];

/** Every file of a tree. Errors: git-failed. */
export async function listTree(git: Git, tree: Oid): Promise<TreeEntry[]> {
  requireOid(tree);
  const { stdout } = await git.run(['ls-tree', '-r', '-z', '--full-tree', tree]);
  return fields(stdout).map((field) => {
    const tab = field.indexOf('\t');
    const [mode = '', , oid = ''] = field.slice(0, tab).split(' ');
    return { path: field.slice(tab + 1) as BytePath, mode, oid };
  });
}

/** The raw part of a `-z --raw` output: the changes, and how many fields they took. */
export function parseRaw(list: string[]): { changes: TreeChange[]; used: number } {
  const changes: TreeChange[] = [];
  let used = 0;
  while (list[used]?.startsWith(':')) {
    const [oldMode = '', newMode = '', oldOid = '', newOid = ''] = (list[used] ?? '').slice(1).split(' ');
    changes.push({
      path: (list[used + 1] ?? '') as BytePath,
      before: oldMode === noMode ? null : { mode: oldMode, oid: oldOid },
      after: newMode === noMode ? null : { mode: newMode, oid: newOid },
    });
    used += 2;
  }
  return { changes, used };
}

export async function compareTrees(git: Git, before: Oid, after: Oid): Promise<TreeChange[]> {
  [before, after].forEach(requireOid);
  if (before === after) return [];
  return parseRaw(fields((await git.run([...rawDiff, before, after])).stdout)).changes;
}

/** Runs work on an index of its own that holds `tree`, and takes it away again. */
async function withIndex<T>(git: Git, scratch: string, tree: Oid, work: (git: Git) => Promise<T>): Promise<T> {
  requireOid(tree);
  await mkdir(scratch, { recursive: true });
  const file = path.join(scratch, randomUUID());
  const own = git.with({ env: { GIT_INDEX_FILE: file } });
  try {
    await own.run(['read-tree', tree]);
    return await work(own);
  } finally {
    await Promise.all([rm(file, { force: true }), rm(`${file}.lock`, { force: true })]);
  }
}

/** `base` with paths set or removed. Errors: untrusted-data. */
export async function changeTree(
  git: Git,
  scratch: string,
  base: Oid,
  changes: { path: BytePath; entry: { mode: string; oid: Oid } | null }[],
): Promise<Oid> {
  const zeros = '0'.repeat(40);
  const removals: string[] = [];
  const additions: string[] = [];
  for (const { path: p, entry } of changes) {
    requireSafe(p, entry?.mode ?? '100644');
    if (entry) requireOid(entry.oid);
    if (entry) additions.push(`${entry.mode} ${entry.oid}\t${p}\0`);
    else removals.push(`0 ${zeros}\t${p}\0`);
  }
  return withIndex(git, scratch, base, async (own) => {
    const input = Buffer.from([...removals, ...additions].join(''), 'latin1');
    await own.run(['update-index', '--add', '--replace', '-z', '--index-info'], { input });
    return own.text(['write-tree']);
  });
}

/** `base` with a unified diff applied. Errors: conflict (names the hunk), untrusted-data, invalid-file. */
export async function patchTree(git: Git, scratch: string, base: Oid, patch: Buffer): Promise<Oid> {
  if (patch.length === 0) return base;
  return withIndex(git, scratch, base, async (own) => {
    const args = ['apply', '--cached', '--binary', '--whitespace=nowarn', '-'];
    const { code, stderr } = await own.run(args, { input: patch, ok: [0, 1, 128] });
    if (code !== 0) throw patchError(stderr);
    const tree = await own.text(['write-tree']);
    await requireSafeDiff(git, base, tree);
    return tree;
  });
}

function patchError(stderr: string): PetriError {
  const said = stderr
    .split('\n')
    .filter((line) => /^(error|fatal):/.test(line))
    .map((line) => shorten(line.replace(/^(error|fatal): /, ''), 200));
  const text = said.slice(0, 3).join('; ');
  if (/invalid path|beyond a symbolic link|invalid mode/i.test(stderr))
    return untrusted(`The patch is refused: ${text}.`);
  if (
    /corrupt|No valid patches|unrecognized|lacks filename|cannot apply binary patch|garbage|inconsistent|only garbage/i.test(
      stderr,
    )
  )
    return new PetriError('invalid-file', `The patch can't be read: ${text}.`, {
      hint: 'Make it with "git diff --binary".',
    });
  return new PetriError('conflict', `The patch does not apply: ${text}.`, {
    hint: 'It was made for another state. Make it anew from this base.',
    data: { conflicts: said },
  });
}

/** Most entries that the walk of an untrusted tree may show. */
const maxEntries = 2_000_000;

/**
 * Walks what `tree` has beyond `known` (null: all of it) and throws untrusted-data for any unsafe path, mode or number of
 * entries. `known` must have passed here or come from a capture.
 */
export async function requireSafeDiff(git: Git, known: Oid | null, tree: Oid, signal?: AbortSignal): Promise<void> {
  requireOid(tree);
  if (known === tree) return;
  const args = known === null ? ['ls-tree', '-r', '-t', '-z', '--full-tree', tree] : [...rawDiff, '-t', known, tree];
  const out = git.stream(args, { signal });
  let entries = 0;
  let rest = '';
  let mode = '';
  const check = (field: string): void => {
    if (known === null) {
      const tab = field.indexOf('\t');
      checkEntry(field.slice(0, 6), field.slice(tab + 1));
    } else if (mode === '') mode = field.slice(8, 14);
    else {
      if (mode !== noMode) checkEntry(mode, field);
      mode = '';
    }
    if (++entries > maxEntries) throw untrusted(`The tree has more than ${maxEntries} entries.`);
  };
  try {
    for await (const chunk of out as AsyncIterable<Buffer>) {
      const list = (rest + chunk.toString('latin1')).split('\0');
      rest = list.pop() ?? '';
      if (rest.length > 64 * 1024) throw untrusted('A path in the tree is far too long.');
      list.forEach(check);
    }
  } catch (error) {
    if (error instanceof PetriError && error.code === 'git-failed') throw untrusted('The tree can’t be walked.', error);
    throw error;
  } finally {
    out.destroy();
  }
}

function checkEntry(mode: string, p: string): void {
  if (mode !== '040000') return requireSafe(p, mode);
  const reason = unsafePath(p);
  if (reason !== null) throw untrusted(`The folder ${shorten(pathText(p as BytePath), 200)} is refused: ${reason}.`);
}

/** The changes at or under the given paths, which are as `pathText` writes them. */
export function under(changes: TreeChange[], paths: string[]): TreeChange[] {
  const wanted = paths.map((p) => parsePathText(p.replace(/^\.\/|\/+$/g, '')) as string);
  return changes.filter((c) => wanted.some((w) => w === '' || w === '.' || c.path === w || c.path.startsWith(`${w}/`)));
}
