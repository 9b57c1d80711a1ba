/** The writing itself: temporary files for all new contents, then removals and renames in an order in which none is in the other's way. */
import { lstat, lchown, mkdir } from 'node:fs/promises';
import { PetriError } from '../../protocol/errors';
import { pathText, type BytePath } from '../../protocol/text';
import { foldersAbove, parentOf, temporaryFor, type Disk } from './disk';
import type { TreeChange, WorkspaceStore } from './store';

/** Contents up to this size are read from the store together, larger ones are streamed, bytes. */
const maxTogether = 8 * 1024 ** 2;

export interface Staged {
  /** Path → its temporary file. */
  temporary: Map<string, string>;
  /** Folders that were made, outer ones first. */
  made: string[];
}

/** Writes every new content beside its place, in the nearest folder that is there. */
export async function stageAll(store: WorkspaceStore, disk: Disk, changes: TreeChange[]): Promise<Staged> {
  const staged: Staged = { temporary: new Map(), made: [] };
  const writes = changes.flatMap((c) => (c.after ? [{ path: c.path, after: c.after }] : []));
  const sizes = await store.blobSizes(writes.map((w) => w.after.oid));
  const small = writes.filter((w) => w.after.mode === '120000' || (sizes.get(w.after.oid) ?? 0) <= maxTogether);
  const contents = store.readBlobs(small.map((w) => w.after.oid))[Symbol.asyncIterator]();
  try {
    for (const w of small) {
      const next = await contents.next();
      if (next.done) throw new PetriError('git-failed', 'The store gave fewer contents than it was asked for.');
      await stageOne(
        disk,
        staged,
        w.path,
        w.after.mode,
        w.after.mode === '120000' ? { link: next.value.data } : next.value.data,
        w.after.oid,
      );
    }
  } finally {
    await contents.return?.();
  }
  const together = new Set(small);
  for (const w of writes.filter((one) => !together.has(one)))
    await stageOne(disk, staged, w.path, w.after.mode, store.openBlob(w.after.oid), w.after.oid);
  return staged;
}

async function stageOne(
  disk: Disk,
  staged: Staged,
  p: BytePath,
  mode: string,
  content: Parameters<Disk['writeTemporary']>[1],
  oid: string,
): Promise<void> {
  const folder = await nearestFolder(disk, p);
  const temporary = folder === '' ? temporaryFor(p, oid) : `${folder}/${temporaryFor(p, oid)}`;
  const found = await disk.find(p);
  const existing = found.kind === 'file' ? found.stat : undefined;
  const executable = mode === '100755';
  // A file that exists keeps its permissions and owner; only whether it is executable is the tree's.
  const base = existing ? Number(existing.mode & 0o777n) : 0o666;
  const bits = executable ? base | ((base & 0o444) >> 2) : base & ~0o111;
  await disk.writeTemporary(temporary, content, {
    mode: bits,
    exact: existing !== undefined,
    owner: existing ? ownerOf(existing) : await ownerFor(disk, folder),
  });
  staged.temporary.set(p, temporary);
}

async function nearestFolder(disk: Disk, p: string): Promise<string> {
  let nearest = '';
  for (const folder of foldersAbove(p).slice(1)) {
    if ((await disk.find(folder)).kind !== 'folder') break;
    nearest = folder;
  }
  return nearest;
}

/** Only root can give files away, and must, or the user's workspace fills with root's files. */
async function ownerFor(disk: Disk, folder: string): Promise<{ uid: number; gid: number } | null> {
  if (process.getuid?.() !== 0) return null;
  return ownerOf(await lstat(disk.at(folder)));
}

function ownerOf(stat: { uid: number | bigint; gid: number | bigint }): { uid: number; gid: number } | null {
  return process.getuid?.() === 0 ? { uid: Number(stat.uid), gid: Number(stat.gid) } : null;
}

/**
 * Removals that make room, then writes, then the other removals. Every path is checked once more right before. Each change that is
 * done is added to `done`, so that the caller can take it back.
 */
export async function applySteps(disk: Disk, changes: TreeChange[], staged: Staged, done: TreeChange[]): Promise<void> {
  const writes = changes.filter((c) => c.after !== null);
  const removals = changes.filter((c) => c.after === null);
  const targets = new Set<string>(writes.map((c) => c.path));
  const needed = new Set<string>(writes.flatMap((c) => foldersAbove(c.path)));
  const inTheWay = (c: TreeChange): boolean => needed.has(c.path) || foldersAbove(c.path).some((f) => targets.has(f));
  const first = removals.filter(inTheWay);
  const last = removals.filter((c) => !inTheWay(c));
  const touched = new Set<string>();

  for (const c of first) await removeOne(disk, c, done, touched);
  for (const c of writes) {
    const temporary = staged.temporary.get(c.path);
    if (temporary === undefined) throw new PetriError('internal', 'A file was not staged.');
    await requireStill(disk, c);
    await makeFolders(disk, c.path, staged);
    await clearFolder(disk, c.path);
    await disk.move(temporary, c.path);
    done.push(c);
    touched.add(parentOf(c.path));
  }
  for (const c of last) await removeOne(disk, c, done, touched);
  for (const folder of touched) await disk.syncFolder(folder);
}

async function removeOne(disk: Disk, c: TreeChange, done: TreeChange[], touched: Set<string>): Promise<void> {
  await requireStill(disk, c);
  await disk.remove(c.path);
  done.push(c);
  let folder = parentOf(c.path);
  while (folder !== '' && (await disk.removeFolder(folder))) folder = parentOf(folder);
  touched.add(folder);
}

async function requireStill(disk: Disk, c: TreeChange): Promise<void> {
  if (await disk.matches(c.path, c.before)) return;
  throw new PetriError('workspace-changed', `${pathText(c.path)} was changed while the change was being written.`, {
    hint: 'Everything was taken back. Try again.',
    data: { conflicts: [{ path: pathText(c.path), reason: 'it changed meanwhile' }] },
  });
}

/** The folders above a path, one by one, so that none is ever made through a link. */
async function makeFolders(disk: Disk, p: string, staged: Staged): Promise<void> {
  for (const folder of foldersAbove(p).slice(1)) {
    const found = await disk.find(folder);
    if (found.kind === 'folder') continue;
    const owner = await ownerFor(disk, parentOf(folder));
    await mkdir(disk.at(folder));
    staged.made.push(folder);
    if (owner) await lchown(disk.at(folder), owner.uid, owner.gid);
  }
}

/** Where a file is to be, a folder may be left that holds nothing but empty folders. */
async function clearFolder(disk: Disk, p: string): Promise<void> {
  if ((await disk.find(p)).kind !== 'folder') return;
  const { folders } = await disk.below(p);
  for (const folder of [p, ...folders].sort((a, b) => b.length - a.length)) await disk.removeFolder(folder);
}

/** Removes the temporary files that these changes have, or had before a crash, in any folder above their paths. */
export async function cleanTemporaries(disk: Disk, changes: TreeChange[]): Promise<void> {
  const names = new Map<string, Set<string>>();
  for (const c of changes) {
    if (!c.after) continue;
    for (const folder of foldersAbove(c.path)) {
      const list = names.get(folder) ?? new Set<string>();
      names.set(folder, list.add(temporaryFor(c.path, c.after.oid)));
    }
  }
  for (const [folder, wanted] of names) {
    if ((await disk.find(folder)).kind !== 'folder') continue;
    for (const name of await disk.names(folder))
      if (wanted.has(name)) await disk.remove(folder === '' ? name : `${folder}/${name}`);
  }
}
