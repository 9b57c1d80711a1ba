/**
 * Taking a sandbox's workspace out as a tree in the store. Git inside finds what changed and packs only that; where it is missing or
 * broken, the engine's archive and git on the host do it. Everything that arrives is hostile until the store has checked it.
 */
import {
  constants,
  copyFileSync,
  createWriteStream,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PassThrough, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { isCancelled, PetriError } from '../../protocol/errors';
import type { BytePath } from '../../protocol/text';
import type { Engine } from '../engine/engine';
import { bookkeepingEnv, extractScript, workdir } from '../environment/layout';
import { unpackTar } from '../tar/unpack';
import { openStore } from '../workspace/gitStore';
import type { Oid, WorkspaceStore } from '../workspace/store';

export interface ExtractOptions {
  /** The state that git inside knows. */
  known: Oid;
  /** The state that the sandbox started from. */
  base: Oid;
  include: string[];
  /** False when only the archive can work (the box is stopped). */
  running: boolean;
  signal?: AbortSignal;
}

/** Most bytes that are taken out of one sandbox at once. */
const maxBytes = 8 * 1024 ** 3;
/** The header line is `petri1 `, an object id and a newline. */
const header = /^petri1 ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n/;

/** The tree id of the sandbox's workspace now; the store has all of it. Errors: untrusted-data, too-large, engine-gone. */
export async function extractTree(
  engine: Engine,
  boxId: string,
  store: WorkspaceStore,
  options: ExtractOptions,
): Promise<Oid> {
  if (options.running) {
    const tree = await byGit(engine, boxId, store, options);
    if (tree) return tree;
  }
  return byArchive(engine, boxId, store, options);
}

/** Undefined when git inside can't do it. What it sends and the store refuses is an error, not a reason to try otherwise. */
async function byGit(
  engine: Engine,
  boxId: string,
  store: WorkspaceStore,
  options: ExtractOptions,
): Promise<Oid | undefined> {
  const handle = await engine.exec(boxId, {
    command: ['/bin/sh', '-c', extractScript, 'sh', options.known, ...options.include],
    env: bookkeepingEnv,
    user: '0',
    cwd: '/',
  });
  handle.stderr.resume();
  const first = await readHeader(handle.stdout);
  if (!first) {
    handle.stdout.resume();
    await handle.exit;
    return undefined;
  }
  const { tree, rest } = first;
  if (tree === options.known) {
    rest.resume();
    return (await handle.exit) === 0 ? tree : undefined;
  }
  try {
    await store.importPack(rest, tree, { maxBytes, ...(options.signal ? { signal: options.signal } : {}) });
  } catch (error) {
    rest.destroy();
    await handle.kill('KILL').catch(() => undefined);
    const code = await handle.exit.catch(() => 1);
    // A pack that git inside could not finish is git being broken; a finished one that is refused is refused.
    if (code !== 0 && !isCancelled(error) && !(error instanceof PetriError && error.code === 'too-large'))
      return undefined;
    throw error;
  }
  return (await handle.exit) === 0 ? tree : undefined;
}

/** Reads the header line; undefined when the stream ends or goes on without one. */
async function readHeader(stream: Readable): Promise<{ tree: Oid; rest: Readable } | undefined> {
  const rest = new PassThrough();
  let seen = Buffer.alloc(0);
  return new Promise((resolve) => {
    const onData = (chunk: Buffer): void => {
      seen = Buffer.concat([seen, chunk]);
      if (!seen.includes(0x0a) && seen.length < 100) return;
      stream.off('data', onData);
      stream.off('end', onEnd);
      stream.pause();
      const m = header.exec(seen.subarray(0, 100).toString('latin1'));
      if (!m?.[1]) return resolve(undefined);
      rest.write(seen.subarray(m[0].length));
      pipeline(stream, rest).catch(() => undefined);
      resolve({ tree: m[1], rest });
    };
    const onEnd = (): void => resolve(undefined);
    stream.on('data', onData);
    stream.once('end', onEnd);
    stream.once('error', onEnd);
  });
}

/** By archive: the files go into a private folder of the host, where the ignore rules are applied and the tree is made. */
async function byArchive(engine: Engine, boxId: string, store: WorkspaceStore, options: ExtractOptions): Promise<Oid> {
  const scratch = mkdtempSync(path.join(tmpdir(), 'petri-extract-'));
  try {
    const files = path.join(scratch, 'files');
    mkdirSync(files, { mode: 0o700 });
    const present = await unpackWorkspace(await engine.getArchive(boxId, workdir), files);
    const side = await openStore({ workspace: files, dir: path.join(scratch, 'store') });
    const capture = await side.capture({
      include: options.include,
      ...(options.signal ? { signal: options.signal } : {}),
    });
    await store.importPack(side.packAll(capture.tree), capture.tree, { maxBytes });
    // Files that the base has and an ignore rule hides from a first listing are part of the workspace all the same.
    const listed = new Set<string>((await store.entries(capture.tree)).map((e) => e.path));
    const hidden = (await store.entries(options.base)).filter((e) => !listed.has(e.path) && present.has(e.path));
    if (hidden.length === 0) return capture.tree;
    const again = await side.capture({
      include: [...options.include, ...hidden.map((e) => `:(literal)${Buffer.from(e.path, 'latin1').toString()}`)],
    });
    await store.importPack(side.packAll(again.tree), again.tree, { maxBytes });
    return again.tree;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/**
 * Writes an archive of the workspace below `into`. Only folders, files and links are made; a path is only ever written below folders that
 * were made here, so no link in the archive is ever followed. Gives the paths that were written.
 */
async function unpackWorkspace(tar: Readable, into: string): Promise<Set<string>> {
  const folders = new Set<string>(['']);
  const written = new Set<string>();
  const root = Buffer.from(`${into}/`);
  const onDisk = (p: string): Buffer => Buffer.concat([root, Buffer.from(p, 'latin1')]);
  for await (const entry of unpackTar(tar, { maxBytes })) {
    const p = inWorkspace(entry.path);
    const above = p?.includes('/') ? p.slice(0, p.lastIndexOf('/')) : '';
    if (p === undefined || p === '' || isGit(p) || !folders.has(above) || written.has(p) || folders.has(p)) {
      await entry.skip();
      continue;
    }
    if (entry.type === 'dir') {
      mkdirSync(onDisk(p), { mode: 0o700 });
      folders.add(p);
    } else if (entry.type === 'symlink') {
      symlinkSync(Buffer.from(entry.link, 'latin1'), onDisk(p));
      written.add(p);
    } else if (entry.type === 'file') {
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
      await pipeline(
        entry.content,
        createWriteStream(onDisk(p), { flags: flags as unknown as string, mode: entry.mode & 0o100 ? 0o755 : 0o644 }),
      );
      written.add(p);
      continue;
    } else if (entry.type === 'hardlink') {
      // Two names of one file: a copy of what was written here under the first.
      const first = inWorkspace(entry.link);
      if (first !== undefined && written.has(first) && lstatSync(onDisk(first)).isFile()) {
        copyFileSync(onDisk(first), onDisk(p), constants.COPYFILE_EXCL);
        written.add(p);
      }
    }
    await entry.skip();
  }
  return written;
}

/** The path below `workspace/`; '' for the folder itself; undefined for anything else or unsafe. */
function inWorkspace(p: BytePath): string | undefined {
  const parts = p.replace(/\/+$/, '').split('/');
  if (parts.shift() !== workdir.slice(1)) return undefined;
  return parts.some((part) => part === '' || part === '.' || part === '..') ? undefined : parts.join('/');
}

const isGit = (p: string): boolean => p.split('/').some((part) => part.toLowerCase() === '.git');
