/** Which files belong to the workspace: asks the user's git, read only, and goes into submodules and nested repositories. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { isCancelled, PetriError } from '../../protocol/errors';
import { asArgument, fields, inFolder } from './bytes';
import { Git, gitError, readOnlyArgs, userEnv } from './git';

export interface Listing {
  /** Paths, one char per byte; some may not exist on disk. Not sorted, no doubles. */
  readonly paths: Set<string>;
  /** A hash of everything the listing was made from: equal ones give equal paths. */
  key: string;
  /** HEAD of the workspace's repository, null without one or without commits. */
  commit: string | null;
}

export interface ListingContext {
  workspace: string;
  include: string[];
  signal: AbortSignal | undefined;
  /** Git of an empty repository, for folders that are in none: it only applies the ignore files. */
  plain: Git;
}

/** How deep repositories may nest. */
const maxNesting = 32;

/** Names of files that an apply is about to put in place. */
export const temporaryName = /^\.petri-[0-9a-f]{16}\.tmp$/;

/** Errors: git-failed, workspace-missing, cancelled. */
export async function listWorkspace(context: ListingContext): Promise<Listing> {
  const hash = createHash('sha1');
  const paths = new Set<string>();
  // Reading the lists apart is left until somebody asks: when nothing changed, nobody does.
  const later: (() => void)[] = [];
  let read = false;
  const commit = await listFolder(context, '', context.include, 0, paths, hash, later);
  return {
    get paths() {
      if (!read) {
        read = true;
        for (const take of later) take();
        for (const p of paths) if (temporaryName.test(p.slice(p.lastIndexOf('/') + 1))) paths.delete(p);
      }
      return paths;
    },
    key: hash.digest('hex'),
    commit,
  };
}

/** Whether a list names a submodule (mode 160000) or a nested repository (a name that ends in a slash). May say so falsely. */
const mayNest = (list: RawList): boolean =>
  list.output.includes('/\0') || (list.tagged && list.output.includes('160000 '));

/** Adds the files under `prefix` (empty or ending in a slash). Gives HEAD when the folder is in a repository. */
async function listFolder(
  context: ListingContext,
  prefix: string,
  include: string[],
  depth: number,
  paths: Set<string>,
  hash: ReturnType<typeof createHash>,
  later: (() => void)[],
): Promise<string | null> {
  const text = asArgument(prefix);
  if (depth > maxNesting) throw new PetriError('git-failed', `Repositories are nested more than ${maxNesting} deep.`);
  if (text === undefined) {
    for (const p of await walk(context.workspace, prefix)) paths.add(p);
    hash.update(`walked ${prefix}\0`);
    return null;
  }
  const folder = path.join(context.workspace, text);
  // A nested folder whose own .git is broken must not be taken for a part of the repository around it.
  const env = depth > 0 ? { ...userEnv(), GIT_CEILING_DIRECTORIES: path.dirname(folder) } : userEnv();
  const user = new Git(env, folder, readOnlyArgs);
  const { lists, commit } = await ask(context, user, folder, include, depth);
  hash.update(`folder ${prefix}\0`);
  const nested = new Map<string, string>();
  const take = (list: RawList): void => {
    for (const field of fields(list.output)) {
      if (list.tagged && !field.startsWith('? ')) {
        const tab = field.indexOf('\t');
        const name = field.slice(tab + 1);
        if (field.startsWith('160000', 2)) nested.set(`${name}/`, name);
        else paths.add(prefix + name);
      } else {
        const name = list.tagged ? field.slice(2) : field;
        if (name.endsWith('/')) nested.set(name, name.slice(0, -1));
        else paths.add(prefix + name);
      }
    }
  };
  for (const list of lists) {
    hash.update(list.output).update('\0\0');
    if (mayNest(list)) take(list);
    else later.push(() => take(list));
  }
  for (const name of nested.keys()) {
    const there = await readdir(inFolder(context.workspace, prefix + name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
      throw unreadable(prefix + name, error);
    });
    if (there === undefined) {
      // A file or link stands where the index has a submodule.
      paths.add(prefix + name.slice(0, -1));
      continue;
    }
    await listFolder(context, prefix + name, inside(include, name), depth + 1, paths, hash, later);
  }
  return commit;
}

interface RawList {
  output: Buffer;
  /** Lines carry a tag (`ls-files -t`) and tracked ones their mode and object. */
  tagged: boolean;
}

async function ask(
  context: ListingContext,
  user: Git,
  folder: string,
  include: string[],
  depth: number,
): Promise<{ lists: RawList[]; commit: string | null }> {
  const { signal } = context;
  const all = ['ls-files', '-t', '-s', '-o', '--exclude-standard', '-z'];
  const included = ['ls-files', '-o', '-i', '--exclude-standard', '-z', '--', ...include];
  const head = await looseHead(folder);
  if (head !== undefined) {
    // The usual repository: what rev-parse would say is known, and a process is saved.
    const env = { GIT_WORK_TREE: folder };
    const outputs = await Promise.all([
      user.run(all, { signal, env }),
      ...(include.length > 0 ? [user.run(included, { signal, env })] : []),
    ]).catch((error: unknown) => {
      if (isCancelled(error)) throw error;
      // Whatever is wrong, the long way below says it.
      return undefined;
    });
    if (outputs) return { lists: outputs.map(({ stdout }, i) => ({ output: stdout, tagged: i === 0 })), commit: head };
  }
  // The longest goes first.
  const [listed, where, extra] = await Promise.allSettled([
    user.run(all, { signal }),
    user.run(['rev-parse', '--is-inside-work-tree', '--show-cdup', 'HEAD'], { signal, ok: [0, 128] }),
    include.length > 0 ? user.run(included, { signal }) : undefined,
  ]);
  if (where.status === 'rejected') throw where.reason;
  const [inWorkTree, up, commit = ''] = where.value.stdout.toString('utf8').split('\n');
  const noRepository = where.value.code !== 0 && /not a git repository/.test(where.value.stderr);
  if (inWorkTree !== 'true' && inWorkTree !== 'false' && !noRepository)
    throw gitError(['rev-parse'], where.value.code, where.value.stderr);
  if (inWorkTree === 'true') {
    if (listed.status === 'rejected') throw listed.reason;
    if (extra.status === 'rejected') throw extra.reason;
    const ignoredWhole =
      depth === 0 && up !== '' && listed.value.stdout.length === 0 && (await isIgnored(user, signal));
    if (!ignoredWhole) {
      const lists = [{ output: listed.value.stdout, tagged: true }];
      if (extra.value) lists.push({ output: extra.value.stdout, tagged: false });
      return { lists, commit: objectId.test(commit) ? commit : null };
    }
  }
  for (const r of [listed, extra]) if (r.status === 'rejected' && isCancelled(r.reason)) throw r.reason;
  const plain = context.plain.with({ cwd: folder, env: { GIT_WORK_TREE: folder } });
  const others = await plain.run(['ls-files', '-o', '--exclude-standard', '-z'], { signal });
  const lists = [{ output: others.stdout, tagged: false }];
  if (include.length > 0) lists.push({ output: (await plain.run(included, { signal })).stdout, tagged: false });
  return { lists, commit: null };
}

const objectId = /^[0-9a-f]{40}([0-9a-f]{24})?$/;

/**
 * HEAD of a repository whose `.git` is a folder right here, when HEAD or its branch is a plain file with an object id (which wins
 * over a packed one). Undefined for everything else: worktrees, submodules, packed or other refs, no commits.
 */
async function looseHead(folder: string): Promise<string | undefined> {
  const read = async (name: string): Promise<string> => {
    const text = await readFile(path.join(folder, '.git', name), 'latin1').catch(() => '');
    return text.length < 4096 ? text.trim() : '';
  };
  const head = await read('HEAD');
  if (objectId.test(head)) return head;
  const branch = /^ref: (refs\/heads\/[^\0]+)$/.exec(head)?.[1];
  if (branch === undefined || branch.split('/').includes('..')) return undefined;
  const commit = await read(branch);
  return objectId.test(commit) ? commit : undefined;
}

/** True when the folder as a whole is ignored by the repository around it: it is a workspace of its own then. */
async function isIgnored(user: Git, signal: AbortSignal | undefined): Promise<boolean> {
  return (await user.run(['check-ignore', '-q', '.'], { signal, ok: [0, 1, 128] })).code === 0;
}

/** The include patterns as they are seen from inside a nested repository. */
function inside(include: string[], nested: string): string[] {
  const name = asArgument(nested);
  return include.flatMap((pattern) => {
    if (/^(:\(glob\))?\*\*\//.test(pattern)) return [pattern];
    if (name !== undefined && pattern.startsWith(name) && pattern.length > name.length)
      return [pattern.slice(name.length)];
    return [];
  });
}

/** Every file under a folder whose name git can't be given as an argument; `.git` left out. */
async function walk(workspace: string, prefix: string): Promise<string[]> {
  const found: string[] = [];
  const open = [prefix];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    const entries = await readdir(inFolder(workspace, at), { withFileTypes: true, encoding: 'buffer' });
    for (const entry of entries) {
      const name = entry.name.toString('latin1');
      if (name.toLowerCase() === '.git') continue;
      if (entry.isDirectory()) open.push(`${at}${name}/`);
      else found.push(at + name);
    }
  }
  return found;
}

function unreadable(name: string, error: NodeJS.ErrnoException): PetriError {
  return new PetriError('git-failed', `The folder ${asArgument(name) ?? name} can't be read: ${error.message}`, {
    hint: 'Make it readable, or have git ignore it.',
    cause: error,
  });
}
