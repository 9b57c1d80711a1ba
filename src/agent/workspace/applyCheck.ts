/** Everything that could stand against writing changes to the workspace, found before anything is written. */
import { randomUUID } from 'node:crypto';
import { lstat, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pathText, type BytePath } from '../../protocol/text';
import type { Disk } from './disk';
import { unsafePath } from './safePath';
import type { TreeChange } from './store';

export interface ApplyConflict {
  /** As `pathText`. */
  path: string;
  reason: string;
}

/** Conflicts of changes against the workspace as it is on disk. Empty: every path is in its `before` state and can be written. */
export async function checkChanges(disk: Disk, changes: TreeChange[]): Promise<ApplyConflict[]> {
  const conflicts: ApplyConflict[] = [];
  const removed = new Set<string>(changes.filter((c) => c.after === null).map((c) => c.path));
  const clashes = await caseClashes(disk, changes);
  for (let i = 0; i < changes.length; i += 16) {
    const reasons = await Promise.all(
      changes
        .slice(i, i + 16)
        .map(async (c) => ({ c, reason: clashes.get(c.path) ?? (await conflictOf(disk, c, removed)) })),
    );
    for (const { c, reason } of reasons) if (reason !== null) conflicts.push({ path: pathText(c.path), reason });
  }
  return conflicts;
}

async function conflictOf(
  disk: Disk,
  { path: p, before, after }: TreeChange,
  removed: Set<string>,
): Promise<string | null> {
  const unsafe = unsafePath(p);
  if (unsafe !== null) return `the path is refused: ${unsafe}`;
  const found = await disk.find(p);
  if (found.kind === 'blocked') {
    const at = pathText(found.at as BytePath);
    if (found.link) return `${at} is a symbolic link`;
    if (before === null && removed.has(found.at)) return null;
    return before === null ? `${at} is a file, where a folder is needed` : 'it was deleted';
  }
  if (found.kind === 'absent') return before === null ? null : 'it was deleted';
  if (found.kind === 'other') return 'it is neither a file nor a link';
  if (found.kind === 'folder') {
    if (before !== null) return 'a folder is in its place';
    const { files } = await disk.below(p);
    const stranger = files.find((f) => !removed.has(f));
    return stranger === undefined || after === null
      ? null
      : `a folder is in its place, with ${pathText(stranger as BytePath)} in it`;
  }
  if (before === null) return 'exists in the workspace but is not part of its captured state';
  return (await disk.matches(p, before)) ? null : 'it changed since it was captured';
}

/** On a file system that takes names for equal which differ in case: paths that would land on each other. */
async function caseClashes(disk: Disk, changes: TreeChange[]): Promise<Map<string, string>> {
  const clashes = new Map<string, string>();
  const names = new Map<string, string>();
  const fold = (p: string): string => Buffer.from(p, 'latin1').toString('utf8').normalize('NFC').toLowerCase();
  for (const { path: p, after } of changes) {
    if (after === null) continue;
    // Each folder on the way counts too: Src/a and src/b are one folder there.
    for (let at = p.indexOf('/'); ; at = p.indexOf('/', at + 1)) {
      const part = at < 0 ? p : p.slice(0, at);
      const other = names.get(fold(part));
      if (other !== undefined && other !== part)
        clashes.set(p, `differs only in case from ${pathText(other as BytePath)}`);
      else names.set(fold(part), part);
      if (at < 0) break;
    }
  }
  return clashes.size > 0 && (await foldsCase(disk.workspace)) ? clashes : new Map();
}

/** Asks the file system itself. */
async function foldsCase(folder: string): Promise<boolean> {
  const name = `.petri-${randomUUID().replaceAll('-', '').slice(0, 16)}.tmp`;
  const file = path.join(folder, name);
  await writeFile(file, '', { flag: 'wx' });
  try {
    return await lstat(path.join(folder, name.toUpperCase())).then(
      () => true,
      () => false,
    );
  } finally {
    await rm(file, { force: true });
  }
}
