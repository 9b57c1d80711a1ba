/**
 * Capture: the workspace's exact bytes into the store's index and a tree. Only what changed is read; when nothing did, the last
 * tree is the answer. The store's index is ours alone, its git converts nothing (see info/attributes in gitStore.ts).
 */
import { lstatSync, type Stats } from 'node:fs';
import { readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { isCancelled, PetriError } from '../../protocol/errors';
import { pathText, type BytePath } from '../../protocol/text';
import { fields, inFolder, zero } from './bytes';
import { workspaceMissing, type Git } from './git';
import { indexSum, joinIndexes, trustUntil } from './indexFile';
import { listWorkspace, type Listing } from './listing';
import type { Capture, CaptureOptions, Oid } from './store';

/** From this many files on they are hashed by several processes into packs; fewer go loose, which costs no pack each time. */
const manyFiles = 500;
const maxProcesses = 4;
const attempts = 5;
/** How much older than the capture's begin a file must be for its stat data to be trusted, seconds. */
const margin = 2;

const quick = ['-c', 'core.fsync=none', '-c', 'core.compression=0'];
/** Blobs beyond the threshold are streamed straight into one pack per process. */
const packAll = [...quick, '-c', 'core.bigFileThreshold=1'];
/** Large single files are streamed too, so that no process holds one in memory. */
const packLarge = [...quick, '-c', 'core.bigFileThreshold=4m'];

export interface CaptureContext {
  workspace: string;
  gitDir: string;
  /** The store's git. */
  git: Git;
}

/** What the last capture knew, on disk beside the index so that a restarted agent is warm. */
interface Memory {
  listing: string;
  /** Checksum of the index it goes with. */
  index: string;
  tree: Oid;
  /** Listed paths that were not on disk, or were no file or link. */
  absent: string[];
}

/** Not to be run twice at once for one store. Errors: workspace-missing, git-failed, disk-full, cancelled. */
export async function capture(context: CaptureContext, options: CaptureOptions): Promise<Capture> {
  await requireFolder(context.workspace);
  // Only a killed process leaves a lock here: captures of a store run one at a time.
  await rm(path.join(context.gitDir, 'index.lock'), { force: true });
  for (let attempt = 1; ; attempt++) {
    try {
      return await captureOnce(context, options);
    } catch (error) {
      await requireFolder(context.workspace);
      if (isCancelled(error) || attempt >= attempts || !(await worthRetry(context, error))) throw error;
    }
  }
}

async function captureOnce(context: CaptureContext, { include, signal }: CaptureOptions): Promise<Capture> {
  const { git, gitDir, workspace } = context;
  const index = path.join(gitDir, 'index');
  const began = Math.floor(Date.now() / 1000) - margin;
  const work = git.with({ cwd: workspace, env: { GIT_WORK_TREE: workspace } });
  const plain = git.with({ env: { GIT_INDEX_FILE: path.join(gitDir, 'no-index') } });
  const [listing, modified, memory, sum] = await Promise.all([
    listWorkspace({ workspace, include, signal, plain }),
    changedOnDisk(work, signal),
    remember(gitDir),
    indexSum(index),
  ]);
  if (memory && memory.index === sum && memory.listing === listing.key && modified.length === 0) {
    const back = await classify(workspace, memory.absent);
    if (back.present.length === 0) {
      await trustUntil(index, began);
      return { tree: memory.tree, commit: listing.commit, files: 0, listing: listing.key };
    }
  }
  const { absent, moved } = await update(context, work, listing, modified, signal);
  await trustUntil(index, began);
  const tree = await work.text([...quick, 'write-tree'], { signal });
  await save(gitDir, { listing: listing.key, index: await indexSum(index), tree, absent });
  return { tree, commit: listing.commit, files: moved, listing: listing.key };
}

/** Brings the index to the state on disk. Gives the listed paths that are not there and how many files moved under our eyes. */
async function update(
  context: CaptureContext,
  work: Git,
  listing: Listing,
  modified: string[],
  signal: AbortSignal | undefined,
): Promise<{ absent: string[]; moved: number }> {
  const indexed = new Set(fields((await work.run(['ls-files', '-z'], { signal })).stdout));
  const look = new Set<string>();
  for (const p of listing.paths) if (!indexed.has(p)) look.add(p);
  for (const p of modified) if (listing.paths.has(p)) look.add(p);
  const { present, absent } = await classify(context.workspace, look);
  const gone = absent.filter((p) => indexed.has(p));
  for (const p of indexed) if (!listing.paths.has(p)) gone.push(p);

  if (present.length >= manyFiles) await addMany(context, work, present, gone, signal);
  else {
    if (gone.length > 0)
      await work.run(['update-index', '--force-remove', '-z', '--stdin'], { input: zero(gone), signal });
    if (present.length > 0) await add(work, packLarge, present, signal);
  }
  // What was written while it was read may be half old and half new: read it again until it holds still, or a few times.
  const moved = new Set<string>();
  for (let round = 0; round < attempts && present.length > 0; round++) {
    const again = (await changedOnDisk(work, signal)).filter((p) => listing.paths.has(p));
    if (again.length === 0) break;
    again.forEach((p) => moved.add(p));
    const now = await classify(context.workspace, again);
    if (now.absent.length > 0)
      await work.run(['update-index', '--force-remove', '-z', '--stdin'], { input: zero(now.absent), signal });
    absent.push(...now.absent);
    if (now.present.length > 0) await add(work, packLarge, now.present, signal);
  }
  return { absent, moved: moved.size };
}

async function add(
  work: Git,
  settings: string[],
  paths: string[],
  signal: AbortSignal | undefined,
  env: NodeJS.ProcessEnv = {},
) {
  await work.run([...settings, 'update-index', '--add', '--remove', '--replace', '-z', '--stdin'], {
    input: zero(paths),
    signal,
    env,
  });
}

/** The same for many: parts of the sorted paths, each with an index of its own, then joined. */
async function addMany(
  context: CaptureContext,
  work: Git,
  paths: string[],
  gone: string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const sorted = [...paths].sort();
  const count = Math.min(maxProcesses, Math.max(1, availableParallelism()));
  const size = Math.ceil(sorted.length / count);
  const parts = Array.from({ length: count }, (_, i) => path.join(context.gitDir, `index.part${i}`));
  const clean = (): Promise<unknown> =>
    Promise.all(parts.flatMap((p) => [rm(p, { force: true }), rm(`${p}.lock`, { force: true })]));
  await clean();
  try {
    const runs = parts.map((part, i) =>
      add(work, packAll, sorted.slice(i * size, (i + 1) * size), signal, { GIT_INDEX_FILE: part }),
    );
    const failed = (await Promise.allSettled(runs)).find((r) => r.status === 'rejected');
    if (failed) throw failed.reason;
    const made: string[] = [];
    for (const part of parts) if (await exists(part)) made.push(part);
    await joinIndexes(path.join(context.gitDir, 'index'), made, new Set([...gone, ...paths]));
  } finally {
    await clean();
  }
}

/** Indexed paths whose file differs from the index by stat data, or by content where those can't tell. */
async function changedOnDisk(work: Git, signal: AbortSignal | undefined): Promise<string[]> {
  return fields((await work.run(['diff-files', '-z', '--name-only', '--no-ext-diff'], { signal })).stdout);
}

/**
 * Parts paths into those that are files or links reached through real folders, and all others. The calls are synchronous, because
 * tens of thousands of asynchronous ones take six times as long; after each batch others get their turn.
 */
async function classify(workspace: string, paths: Iterable<string>): Promise<{ present: string[]; absent: string[] }> {
  const folders = new Map<string, boolean>([['', true]]);
  const isFolder = (folder: string): boolean => {
    let known = folders.get(folder);
    if (known === undefined) {
      known = isFolder(parentOf(folder)) && (look(workspace, folder)?.isDirectory() ?? false);
      folders.set(folder, known);
    }
    return known;
  };
  const present: string[] = [];
  const absent: string[] = [];
  let looked = 0;
  for (const p of paths) {
    const found = isFolder(parentOf(p)) ? look(workspace, p) : undefined;
    (found && (found.isFile() || found.isSymbolicLink()) ? present : absent).push(p);
    if (++looked % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  return { present, absent };
}

function parentOf(p: string): string {
  const slash = p.lastIndexOf('/');
  return slash < 0 ? '' : p.slice(0, slash);
}

function look(workspace: string, p: string): Stats | undefined {
  try {
    return lstatSync(inFolder(workspace, p), { throwIfNoEntry: false });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new PetriError('git-failed', `${pathText(p as BytePath)} can't be looked at: ${(error as Error).message}`, {
      hint: 'Make it readable, or have git ignore it.',
      cause: error,
    });
  }
}

/** Files that come and go make git fail; a damaged index of ours is thrown away. Both are worth another try. */
async function worthRetry(context: CaptureContext, error: unknown): Promise<boolean> {
  if (!(error instanceof PetriError) || error.code !== 'git-failed') return false;
  const said = `${error.message} ${typeof error.data['stderr'] === 'string' ? error.data['stderr'] : ''}`;
  if (
    /index file (corrupt|smaller)|bad index|bad signature|index uses|unknown index|unexpected form|invalid object .* for|error building trees/i.test(
      said,
    )
  ) {
    await rm(path.join(context.gitDir, 'index'), { force: true });
    return true;
  }
  if (/Permission denied/i.test(said)) return false;
  return /No such file or directory|Not a directory|unable to index file|short read|Unable to process path|beyond a symbolic link|read error|file changed/i.test(
    said,
  );
}

async function requireFolder(workspace: string): Promise<void> {
  const found = await stat(workspace).catch((error: unknown) => {
    throw workspaceMissing(workspace, error);
  });
  if (!found.isDirectory()) throw workspaceMissing(workspace);
}

async function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  );
}

const memoryFile = (gitDir: string): string => path.join(gitDir, 'petri-capture.json');

async function remember(gitDir: string): Promise<Memory | undefined> {
  try {
    const value = JSON.parse(await readFile(memoryFile(gitDir), 'utf8')) as Partial<Memory>;
    const { listing, index, tree, absent } = value;
    if (typeof listing !== 'string' || typeof index !== 'string' || typeof tree !== 'string' || !Array.isArray(absent))
      return undefined;
    return { listing, index, tree, absent };
  } catch {
    // Missing or damaged: the next capture works everything out again.
    return undefined;
  }
}

async function save(gitDir: string, memory: Memory): Promise<void> {
  const temporary = `${memoryFile(gitDir)}.new`;
  await writeFile(temporary, JSON.stringify(memory));
  await rename(temporary, memoryFile(gitDir));
}
