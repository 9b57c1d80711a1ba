/** What is kept of a sandbox's work: the tree in the store, the patch and the names in the data folder. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { SandboxRecord } from '../../protocol/records';
import type { Oid, WorkspaceStore } from '../workspace/store';

/** Longest patch file, bytes; the tree in the store is whole whatever its size. */
const maxPatchBytes = 64 * 1024 * 1024;

/** Writes `changes.patch` into `folder` when there is a difference. */
export async function saveWork(
  store: WorkspaceStore,
  base: Oid,
  tree: Oid,
  folder: string,
): Promise<NonNullable<SandboxRecord['saved']>> {
  const { stat } = await store.diff(base, tree);
  let patch: string | null = null;
  if (base !== tree) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    patch = path.join(folder, 'changes.patch');
    writeFileSync(patch, (await store.patch(base, tree, { maxBytes: maxPatchBytes })).text, { mode: 0o600 });
  }
  return { tree, diff: stat, patch, at: new Date().toISOString() };
}
