/** The tar entries of workspace layers: files of a tree, a folder of the host, bookkeeping. */
import { execFile } from 'node:child_process';
import {
  createReadStream,
  lstatSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { BytePath } from '../../protocol/text';
import type { TarEntry } from '../tar/pack';
import type { Oid, WorkspaceStore } from '../workspace/store';
import { bookkeepingConfig, petriFolder, rawAttributes } from './layout';

const run = promisify(execFile);

export interface Owner {
  uid: number;
  gid: number;
}

export interface FileToWrite {
  path: BytePath;
  mode: string;
  oid: Oid;
}

const bytes = (text: string): BytePath => Buffer.from(text).toString('latin1') as BytePath;

function folder(p: string, owner: Owner, mtimeMs: number, mode = 0o755): TarEntry {
  return { path: p as BytePath, type: 'dir', mode, ...owner, mtimeMs, size: 0 };
}

/**
 * The files of a tree with the folders above them, below `prefix`. Times are those of the same paths on disk where they are there
 * (build tools compare them), else now. Blobs come from the store: exactly the captured bytes.
 */
export async function* treeEntries(
  store: WorkspaceStore,
  files: FileToWrite[],
  prefix: string,
  owner: Owner,
  onFile?: (done: number) => void,
): AsyncGenerator<TarEntry> {
  const now = Date.now();
  const made = new Set<string>();
  yield folder(prefix, owner, now);
  const root = Buffer.from(`${store.workspace}${path.sep}`);
  const sizes = await store.blobSizes(files.map((f) => f.oid));
  const small = files.filter((f) => (sizes.get(f.oid) ?? 0) <= maxBuffered);
  const blobs = store.readBlobs(small.map((f) => f.oid))[Symbol.asyncIterator]();
  let done = 0;
  for (const file of files) {
    for (let at = file.path.indexOf('/'); at >= 0; at = file.path.indexOf('/', at + 1)) {
      const above = file.path.slice(0, at);
      if (made.has(above)) continue;
      made.add(above);
      yield folder(`${prefix}/${above}`, owner, now);
    }
    const size = sizes.get(file.oid) ?? 0;
    let data: Buffer | undefined;
    if (size <= maxBuffered) {
      const next = await blobs.next();
      if (next.done || next.value.oid !== file.oid) throw new Error(`blob ${file.oid} is missing from the store`);
      data = next.value.data;
    }
    const base = { path: `${prefix}/${file.path}` as BytePath, ...owner, mtimeMs: diskTime(root, file.path) ?? now };
    if (file.mode === '120000') {
      yield {
        ...base,
        type: 'symlink',
        mode: 0o777,
        size: 0,
        link: (data ?? Buffer.alloc(0)).toString('latin1') as BytePath,
      };
    } else {
      yield {
        ...base,
        type: 'file',
        mode: file.mode === '100755' ? 0o755 : 0o644,
        size,
        content: data ?? store.openBlob(file.oid),
      };
    }
    onFile?.(++done);
  }
}

/** Blobs up to this size are read whole, larger ones streamed. */
const maxBuffered = 8 * 1024 * 1024;

function diskTime(root: Buffer, p: BytePath): number | undefined {
  try {
    return Math.floor(lstatSync(Buffer.concat([root, Buffer.from(p, 'latin1')])).mtimeMs / 1000) * 1000;
  } catch {
    return undefined;
  }
}

/** Everything in a folder of the host, below `prefix`. Only for folders that the agent itself made. */
export function* folderEntries(from: string, prefix: string, owner: Owner): Generator<TarEntry> {
  const now = Date.now();
  const stack: [string, string][] = [[from, prefix]];
  for (let next = stack.pop(); next; next = stack.pop()) {
    const [dir, name] = next;
    yield folder(name, owner, now);
    for (const entry of readdirSync(dir, { withFileTypes: true })) {
      const full = path.join(dir, entry.name);
      const inside = `${name}/${bytes(entry.name)}`;
      if (entry.isDirectory()) stack.push([full, inside]);
      else if (entry.isSymbolicLink()) {
        yield {
          path: inside as BytePath,
          type: 'symlink',
          mode: 0o777,
          ...owner,
          mtimeMs: now,
          size: 0,
          link: bytes(readlinkSync(full)),
        };
      } else if (entry.isFile()) {
        const stat = lstatSync(full);
        const content = stat.size <= maxBuffered ? readFileSync(full) : createReadStream(full);
        yield {
          path: inside as BytePath,
          type: 'file',
          mode: stat.mode & 0o777,
          ...owner,
          mtimeMs: now,
          size: stat.size,
          content,
        };
      }
    }
  }
}

/** The bookkeeping repository: configuration, ignore rules and the trees (no blobs) of the state in the layer. */
export async function bookkeepingEntries(store: WorkspaceStore, tree: Oid): Promise<TarEntry[]> {
  const now = Date.now();
  const owner = { uid: 0, gid: 0 };
  const at = `${petriFolder}/git`;
  const file = (name: string, content: Buffer): TarEntry => ({
    path: `${at}/${name}` as BytePath,
    type: 'file',
    mode: 0o644,
    ...owner,
    mtimeMs: now,
    size: content.length,
    content,
  });
  const scratch = mkdtempSync(path.join(tmpdir(), 'petri-pack-'));
  try {
    const pack = path.join(scratch, 'trees.pack');
    writeFileSync(pack, await store.packTrees(tree));
    await run('git', ['index-pack', pack], { cwd: scratch, env: { PATH: process.env['PATH'], GIT_DIR: scratch } });
    return [
      ...[petriFolder, at, `${at}/info`, `${at}/objects`, `${at}/objects/info`, `${at}/objects/pack`, `${at}/refs`].map(
        (f) => folder(f, owner, now, f === petriFolder ? 0o700 : 0o755),
      ),
      file('HEAD', Buffer.from('ref: refs/heads/petri\n')),
      file('config', Buffer.from(bookkeepingConfig)),
      file('info/attributes', Buffer.from(rawAttributes)),
      file('info/exclude', Buffer.from(await store.ignoreRules())),
      file('objects/pack/pack-trees.pack', readFileSync(pack)),
      file('objects/pack/pack-trees.idx', readFileSync(path.join(scratch, 'trees.idx'))),
    ];
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
