/**
 * Packs between a sandbox and the store. One that comes in is hostile until proved: git checks every object strictly in a
 * quarantine folder, its size is bounded packed and unpacked, and what the tree adds is walked before anything enters the store.
 */
import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { chmod, mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { isCancelled, PetriError } from '../../protocol/errors';
import { shorten } from '../../protocol/text';
import { formatBytes } from '../../protocol/units';
import { diskFull, isDiskFull, type Git } from './git';
import { bounded, describeObjects, requireOid } from './objects';
import { untrusted } from './safePath';
import type { Oid } from './store';
import { requireSafeDiff } from './trees';

/** Objects that are deltas, trees and commits are held whole in memory; no single one may be larger than this. */
const maxInMemory = 512 * 1024 ** 2;

export interface PackContext {
  git: Git;
  gitDir: string;
  /** Folder for what is under way. */
  incoming: string;
  /** A tree known to be safe and near, so that only the difference is walked; null for none. */
  known: Oid | null;
}

/** Errors: untrusted-data, too-large, disk-full, cancelled. */
export async function takePack(
  { git, gitDir, incoming, known }: PackContext,
  pack: Readable,
  tree: Oid,
  { maxBytes, signal }: { maxBytes: number; signal?: AbortSignal | undefined },
): Promise<void> {
  if (!/^[0-9a-f]{40}$/.test(tree)) throw untrusted('The sandbox gave something that is no tree id.');
  const quarantine = path.join(incoming, `pack-${randomUUID()}`);
  const packs = path.join(quarantine, 'pack');
  await mkdir(packs, { recursive: true, mode: 0o700 });
  const limits = { GIT_ALLOC_LIMIT: String(Math.max(1024 ** 2, Math.min(maxInMemory, maxBytes + 1024 ** 2))) };
  const own = git.with({
    env: {
      GIT_OBJECT_DIRECTORY: quarantine,
      GIT_ALTERNATE_OBJECT_DIRECTORIES: path.join(gitDir, 'objects'),
      ...limits,
    },
  });
  try {
    const entries = await index(own, pack, packs, maxBytes, signal);
    await requireSmall(own, packs, entries, maxBytes);
    const found = (await describeObjects(own, [tree]))[0];
    if (found?.type !== 'tree') throw untrusted('The pack does not hold the tree that it was sent for.');
    await requireSafeDiff(own, known, tree, signal);
    await release(packs, path.join(gitDir, 'objects', 'pack'), entries);
  } catch (error) {
    if (isDiskFull(error)) throw diskFull(error);
    throw error;
  } finally {
    pack.destroy();
    await rm(quarantine, { recursive: true, force: true });
  }
}

/** Lets git read and check the pack. Gives the names of the files that it made. */
async function index(
  own: Git,
  pack: Readable,
  packs: string,
  maxBytes: number,
  signal: AbortSignal | undefined,
): Promise<string[]> {
  // A larger blob is streamed instead of held; the limit on allocations stops what can't be.
  const settings = ['-c', 'core.bigFileThreshold=4m', '-c', 'pack.threads=2', '-c', 'core.fsync=none'];
  const input = bounded(maxBytes, 'What the sandbox sent');
  let inputError: unknown;
  const pumped = pipeline(pack, input).catch((error: unknown) => {
    inputError = error;
  });
  try {
    await own.run(
      [
        ...settings,
        'index-pack',
        '--strict=badFilemode=error',
        '--stdin',
        '--fix-thin',
        `--max-input-size=${maxBytes}`,
      ],
      { input, signal },
    );
  } catch (error) {
    if (isCancelled(error) || isDiskFull(error)) throw error;
    if (inputError instanceof PetriError && inputError.code === 'too-large') throw inputError;
    const said = error instanceof PetriError && typeof error.data['stderr'] === 'string' ? error.data['stderr'] : '';
    if (/exceeds maximum allowed size|over limit/.test(said)) throw tooLarge(maxBytes);
    throw untrusted(
      `The objects from the sandbox are refused: ${shorten(lastLine(said) || 'the stream broke off', 300)}.`,
      error,
    );
  } finally {
    input.destroy();
    await pumped;
  }
  return readdir(packs);
}

function lastLine(text: string): string {
  const lines = text.split('\n').filter((line) => /^(error|fatal):/.test(line));
  return (lines.find((line) => line.startsWith('error:')) ?? lines[0] ?? '').replace(/^(error|fatal): /, '');
}

function tooLarge(maxBytes: number): PetriError {
  return new PetriError('too-large', `What the sandbox sent is larger than ${formatBytes(maxBytes)}.`, {
    hint: 'Have git in the sandbox ignore what is not part of the work, for example build output.',
    data: { maxBytes },
  });
}

/** Small when packed may be huge when unpacked: adds up the real sizes. */
async function requireSmall(own: Git, packs: string, entries: string[], maxBytes: number): Promise<void> {
  let total = 0;
  for (const idx of entries.filter((name) => name.endsWith('.idx'))) {
    const text = await own.text(['show-index'], { input: createReadStream(path.join(packs, idx)) });
    const oids = text.split('\n').flatMap((line) => line.split(' ')[1] ?? []);
    for (const d of await describeObjects(own, oids)) total += d?.size ?? 0;
    if (total > maxBytes) throw tooLarge(maxBytes);
  }
}

/** Moves the checked pack into the store; the index last, because only with it git sees the pack. */
async function release(from: string, to: string, entries: string[]): Promise<void> {
  await mkdir(to, { recursive: true });
  const ordered = entries
    .filter((name) => /^pack-[0-9a-f]+\.(pack|rev|idx)$/.test(name))
    .sort((a, b) => Number(a.endsWith('.idx')) - Number(b.endsWith('.idx')));
  for (const name of ordered) {
    await chmod(path.join(from, name), 0o444);
    await rename(path.join(from, name), path.join(to, name));
  }
}

/** A pack of all trees that `tree` consists of, without blobs. */
export async function packOfTrees(git: Git, tree: Oid): Promise<Buffer> {
  requireOid(tree);
  const args = ['pack-objects', '--revs', '--filter=blob:none', '--stdout', '-q', '--window=0'];
  return (await git.run(args, { input: `${tree}\n` })).stdout;
}

/** A pack of everything that `tree` consists of. */
export function packOfAll(git: Git, tree: Oid): Readable {
  requireOid(tree);
  return git.stream(['pack-objects', '--revs', '--stdout', '-q', '--window=0'], { input: `${tree}\n` });
}
