/** Real folders, a real git and a home of their own for the tests of the workspace store. */
import { execFileSync, type ExecFileSyncOptions } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore } from '../../src/agent/workspace/gitStore';
import type { Oid, WorkspaceStore } from '../../src/agent/workspace/store';
import type { BytePath } from '../../src/protocol/text';

export interface Place {
  root: string;
  home: string;
  workspace: string;
}

const saved: NodeJS.ProcessEnv = {};
const steered = ['HOME', 'XDG_CONFIG_HOME', 'GIT_CONFIG_NOSYSTEM', 'GIT_CONFIG_GLOBAL'];

/** A temporary folder with a home, an empty workspace and nothing of this machine's git configuration. */
export function makePlace(): Place {
  const root = mkdtempSync(path.join(tmpdir(), 'petri-test-'));
  const place = { root, home: path.join(root, 'home'), workspace: path.join(root, 'ws') };
  mkdirSync(place.home);
  mkdirSync(place.workspace);
  for (const name of steered) saved[name] = process.env[name];
  process.env['HOME'] = place.home;
  process.env['XDG_CONFIG_HOME'] = path.join(place.home, '.config');
  process.env['GIT_CONFIG_NOSYSTEM'] = '1';
  delete process.env['GIT_CONFIG_GLOBAL'];
  writeFileSync(
    path.join(place.home, '.gitconfig'),
    '[user]\n\tname = T\n\temail = t@example.org\n[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n',
  );
  return place;
}

export function removePlace(place: Place): void {
  for (const name of steered) {
    if (saved[name] === undefined) delete process.env[name];
    else process.env[name] = saved[name];
  }
  rmSync(place.root, { recursive: true, force: true });
}

export function git(cwd: string, args: string[], options: ExecFileSyncOptions = {}): string {
  return execFileSync('git', args, { cwd, stdio: ['pipe', 'pipe', 'pipe'], maxBuffer: 1 << 30, ...options }).toString(
    'latin1',
  );
}

/** A git call on a store's repository. */
export function storeGit(
  store: WorkspaceStore,
  args: string[],
  input?: string | Buffer,
  env: NodeJS.ProcessEnv = {},
): string {
  return execFileSync('git', ['--git-dir', store.gitDir, ...args], {
    input,
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
    maxBuffer: 1 << 30,
  })
    .toString('latin1')
    .trim();
}

export function open(place: Place, name = 'store'): Promise<WorkspaceStore> {
  return openStore({ workspace: place.workspace, dir: path.join(place.root, name) });
}

/** Writes a file below a folder, with the folders it needs. */
export function put(folder: string, name: string, content: string | Buffer = ''): void {
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, content);
}

export function bytePath(text: string): BytePath {
  return Buffer.from(text).toString('latin1') as BytePath;
}

export async function captureTree(store: WorkspaceStore, include: string[] = []): Promise<Oid> {
  return (await store.capture({ include })).tree;
}

/** Path → "mode content" of a tree. */
export async function treeFiles(store: WorkspaceStore, tree: Oid): Promise<Map<string, string>> {
  const entries = await store.entries(tree);
  const files = new Map<string, string>();
  let i = 0;
  for await (const { data } of store.readBlobs(entries.map((e) => e.oid))) {
    const e = entries[i++];
    if (e) files.set(e.path, `${e.mode} ${data.toString('latin1')}`);
  }
  return files;
}

/** Path → "mode content" of everything on disk that is no folder, without any `.git`. Paths have one char per byte. */
export function diskFiles(folder: string, prefix = '', into = new Map<string, string>()): Map<string, string> {
  const at = Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(prefix, 'latin1')]);
  for (const entry of readdirSync(at, { withFileTypes: true, encoding: 'buffer' })) {
    const name = prefix + entry.name.toString('latin1');
    const full = Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name, 'latin1')]);
    if (entry.name.toString() === '.git') continue;
    if (entry.isDirectory()) diskFiles(folder, `${name}/`, into);
    else if (entry.isSymbolicLink())
      into.set(name, `120000 ${readlinkSync(full, { encoding: 'buffer' }).toString('latin1')}`);
    else if (entry.isFile())
      into.set(name, `${lstatSync(full).mode & 0o100 ? '100755' : '100644'} ${readFileSync(full).toString('latin1')}`);
  }
  return into;
}

/** A fingerprint of every file and folder, contents included; times too, but for names that match `timeless`. */
export function fingerprint(folder: string, timeless?: RegExp): string {
  const sum = createHash('sha1');
  const visit = (at: string): void => {
    if (!existsSync(at)) return;
    const s = lstatSync(at, { bigint: true });
    sum.update(`${at} ${s.mode} ${s.size} ${timeless?.test(at) ? '' : s.mtimeNs} ${s.ino}\n`);
    if (s.isDirectory())
      readdirSync(at)
        .sort()
        .forEach((name) => visit(path.join(at, name)));
    else if (s.isFile()) sum.update(readFileSync(at));
  };
  visit(folder);
  return sum.digest('hex');
}

export function sorted<T>(map: Map<string, T>): [string, T][] {
  return [...map].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** The code of what a promise fails with. */
export async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    return typeof error === 'object' && error !== null && 'code' in error
      ? String(error.code)
      : `no code: ${String(error)}`;
  }
  return 'none';
}
