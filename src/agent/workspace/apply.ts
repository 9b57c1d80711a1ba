/**
 * Applying changes to the real workspace, all or nothing. Everything is checked before anything is written; every new content is
 * on disk as a temporary file before the first rename; a failure takes back what was done. After a crash `recoverApply` finishes it,
 * or takes it back when somebody changed one of the paths meanwhile.
 */
import { messageOf, PetriError } from '../../protocol/errors';
import { pathText } from '../../protocol/text';
import { checkChanges, type ApplyConflict } from './applyCheck';
import { applySteps, cleanTemporaries, stageAll, type Staged } from './applySteps';
import { Disk } from './disk';
import { diskFull, isDiskFull } from './git';
import type { Oid, TreeChange, WorkspaceStore } from './store';

export type { ApplyConflict } from './applyCheck';

export interface ApplyPlan {
  changes: TreeChange[];
  /** Paths that stand in the way, as `pathText`; any of them refuses the whole. */
  conflicts: ApplyConflict[];
}

export interface ApplyHooks {
  /** Before the first byte is written: from here on a crash needs {@link recoverApply}. */
  began(): Promise<void>;
  /** After the last. */
  ended(): Promise<void>;
}

export interface ApplyRecovery {
  /** `after`: finished. `before`: taken back. */
  state: 'after' | 'before';
  /** What was found, for people; empty when there is nothing to say. */
  detail: string;
  /** Paths that somebody changed meanwhile; they were left alone. */
  changed: string[];
}

/** What has to be written to get from one tree to the other, and what in the workspace is against it. Writes nothing. */
export async function planApply(store: WorkspaceStore, before: Oid, after: Oid): Promise<ApplyPlan> {
  const changes = await store.changes(before, after);
  return { changes, conflicts: await checkChanges(new Disk(store.workspace), changes) };
}

/** Writes the changes. When it throws, the workspace is as it was. Errors: workspace-changed, disk-full, git-failed, internal. */
export async function runApply(store: WorkspaceStore, changes: TreeChange[], hooks: ApplyHooks): Promise<void> {
  const disk = new Disk(store.workspace);
  const conflicts = await checkChanges(disk, changes);
  if (conflicts.length > 0) throw changedError(conflicts);
  await hooks.began();
  await write(store, disk, changes);
  await hooks.ended();
}

/** Stages, then does; takes back what was done when it fails. */
async function write(store: WorkspaceStore, disk: Disk, changes: TreeChange[]): Promise<void> {
  const done: TreeChange[] = [];
  let staged: Staged | undefined;
  try {
    await cleanTemporaries(disk, changes);
    staged = await stageAll(store, disk, changes);
    await applySteps(disk, changes, staged, done);
  } catch (error) {
    const notBack = await takeBack(store, disk, done);
    await cleanTemporaries(disk, changes);
    await removeMade(disk, staged);
    throw failure(error, notBack);
  }
}

/** Returns the paths that could not be taken back. */
async function takeBack(store: WorkspaceStore, disk: Disk, done: TreeChange[]): Promise<string[]> {
  const back = done.map(({ path, before, after }): TreeChange => ({ path, before: after, after: before })).reverse();
  if (back.length === 0) return [];
  const undone: TreeChange[] = [];
  try {
    await cleanTemporaries(disk, back);
    await applySteps(disk, back, await stageAll(store, disk, back), undone);
    return [];
  } catch {
    // The caller's own error is the one to report, together with what is left.
    await cleanTemporaries(disk, back);
    const ready = new Set(undone.map((c) => c.path));
    return back.filter((c) => !ready.has(c.path)).map((c) => pathText(c.path));
  }
}

/** Folders that were made for files that never came. */
async function removeMade(disk: Disk, staged: Staged | undefined): Promise<void> {
  for (const folder of [...(staged?.made ?? [])].reverse()) await disk.removeFolder(folder);
}

function failure(error: unknown, notBack: string[]): unknown {
  if (notBack.length > 0)
    return new PetriError(
      'internal',
      `Writing failed (${messageOf(error)}), and these paths could not be put back: ${notBack.slice(0, 20).join(', ')}`,
      {
        hint: 'Their former contents are in the store. Undo the promotion once the cause is gone.',
        data: { paths: notBack },
        cause: error,
      },
    );
  if (error instanceof PetriError) return error;
  if (isDiskFull(error)) return diskFull(error);
  const { code, path } = error as NodeJS.ErrnoException;
  if (code !== undefined)
    return new PetriError('workspace-changed', `The workspace can't be written: ${messageOf(error)}`, {
      hint: 'Nothing was changed. Give write permission and try again.',
      data: { code, path: path ?? null },
      cause: error,
    });
  return error;
}

function changedError(conflicts: ApplyConflict[]): PetriError {
  const first = conflicts
    .slice(0, 5)
    .map((c) => `${c.path} (${c.reason})`)
    .join(', ');
  const more = conflicts.length > 5 ? ` and ${conflicts.length - 5} more` : '';
  return new PetriError(
    'workspace-changed',
    `The workspace is not in the state that the change was made for: ${first}${more}.`,
    {
      hint: 'Nothing was written. Try again with the workspace as it is now.',
      data: { conflicts },
    },
  );
}

/** After a crash in the middle of {@link runApply} with the same changes. Errors: as there. */
export async function recoverApply(store: WorkspaceStore, changes: TreeChange[]): Promise<ApplyRecovery> {
  const disk = new Disk(store.workspace);
  await cleanTemporaries(disk, changes);
  const before: TreeChange[] = [];
  const after: TreeChange[] = [];
  const changed: TreeChange[] = [];
  for (const change of changes) {
    if (await disk.matches(change.path, change.after)) after.push(change);
    else if (await disk.matches(change.path, change.before)) before.push(change);
    else changed.push(change);
  }
  if (changed.length === 0) {
    const conflicts = await checkChanges(disk, before);
    if (conflicts.length === 0) {
      await write(store, disk, before);
      return { state: 'after', detail: '', changed: [] };
    }
    return giveUp(
      store,
      disk,
      after,
      conflicts.map((c) => c.path),
      conflicts.map((c) => `${c.path}: ${c.reason}`),
    );
  }
  const names = changed.map((c) => pathText(c.path));
  return giveUp(
    store,
    disk,
    after,
    names,
    names.map((n) => `${n}: changed by somebody else`),
  );
}

async function giveUp(
  store: WorkspaceStore,
  disk: Disk,
  after: TreeChange[],
  changed: string[],
  reasons: string[],
): Promise<ApplyRecovery> {
  const notBack = await takeBack(store, disk, after);
  if (notBack.length > 0)
    throw new PetriError(
      'workspace-changed',
      `A write was cut off, and these paths could not be put back: ${notBack.slice(0, 20).join(', ')}`,
      {
        hint: 'Their former contents are in the store.',
        data: { paths: notBack, changed },
      },
    );
  return { state: 'before', detail: `Left alone: ${reasons.slice(0, 10).join('; ')}.`, changed };
}
