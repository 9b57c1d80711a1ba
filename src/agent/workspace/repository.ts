/** The workspace's own repository, read only: a commit's tree into the store, a self-contained copy for a sandbox. */
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PetriError } from '../../protocol/errors';
import { shorten, type BytePath } from '../../protocol/text';
import { asArgument, fields } from './bytes';
import { Git, ownEnv, readOnlyArgs, userEnv } from './git';
import { describeObjects } from './objects';
import type { Oid, TreeChange } from './store';
import { changeTree, listTree, requireSafeDiff } from './trees';

/** Settings that say how files and index relate; with them `git status` in the copy says what it says in the workspace. */
const copiedSettings = [
  'core.autocrlf',
  'core.eol',
  'core.safecrlf',
  'core.filemode',
  'core.symlinks',
  'core.ignorecase',
  'core.precomposeunicode',
  'core.checkstat',
  'core.trustctime',
  'core.longpaths',
  'core.sparsecheckout',
  'core.sparsecheckoutcone',
  'core.whitespace',
  'core.quotepath',
  'core.commentchar',
  'status.showuntrackedfiles',
  'status.renames',
  'diff.renames',
  'init.defaultbranch',
];

export class WorkspaceRepository {
  private readonly user: Git;

  constructor(private readonly workspace: string) {
    this.user = new Git(userEnv(), workspace, readOnlyArgs);
  }

  /** The tree of a commit, in the store. Errors: not-found, unsupported, git-failed. */
  async importCommit(store: Git, scratch: string, revision: string): Promise<{ tree: Oid; commit: string }> {
    const missing = (): PetriError =>
      new PetriError('not-found', `The workspace has no commit ${shorten(revision, 100)}.`, {
        hint: 'See "git log" for those that are there.',
      });
    const ask = async (spec: string): Promise<string> => {
      const run = await this.user.run(['rev-parse', '--verify', '-q', '--end-of-options', spec], { ok: [0, 1, 128] });
      if (run.code !== 0) throw missing();
      return run.stdout.toString('utf8').trim();
    };
    const commit = await ask(`${revision}^{commit}`);
    if (commit.length !== 40)
      throw new PetriError('unsupported', 'The workspace’s repository uses SHA-256; commits can’t be a base yet.', {
        hint: 'Use the workspace as it is now instead.',
      });
    const prefix = (await this.user.text(['rev-parse', '--show-prefix'])).replace(/\/$/, '');
    if (prefix !== '') {
      const run = await this.user.run(['rev-parse', '--verify', '-q', '--end-of-options', `${commit}:${prefix}`], {
        ok: [0, 1, 128],
      });
      if (run.code !== 0)
        throw new PetriError('not-found', `The commit ${commit.slice(0, 12)} has no folder ${shorten(prefix, 200)}.`);
      return {
        tree: await this.importTree(store, scratch, this.user, run.stdout.toString('utf8').trim(), this.workspace),
        commit,
      };
    }
    return {
      tree: await this.importTree(store, scratch, this.user, await ask(`${commit}^{tree}`), this.workspace),
      commit,
    };
  }

  /** Copies a tree and puts the files of submodules in the place of their links, as far as their commits are here. */
  private async importTree(store: Git, scratch: string, from: Git, tree: Oid, folder: string): Promise<Oid> {
    if ((await describeObjects(store, [tree]))[0] === undefined) {
      const pack = from.stream(['pack-objects', '--revs', '--stdout', '-q'], { input: `${tree}\n` });
      await store.run(['-c', 'core.fsync=none', 'index-pack', '--stdin'], { input: pack });
    }
    const changes: { path: BytePath; entry: TreeChange['after'] }[] = [];
    for (const entry of await listTree(store, tree)) {
      if (entry.mode === '160000') {
        changes.push({ path: entry.path, entry: null });
        const name = asArgument(entry.path);
        if (name === undefined) continue;
        const at = path.join(folder, name);
        if (!(await hasOwnRepository(at))) continue;
        const sub = new Git({ ...userEnv(), GIT_CEILING_DIRECTORIES: path.dirname(at) }, at, readOnlyArgs);
        const run = await sub.run(['rev-parse', '--verify', '-q', `${entry.oid}^{tree}`], { ok: [0, 1, 128] });
        if (run.code !== 0) continue;
        const inner = await this.importTree(store, scratch, sub, run.stdout.toString('utf8').trim(), at);
        for (const e of await listTree(store, inner))
          changes.push({ path: `${entry.path}/${e.path}` as BytePath, entry: { mode: e.mode, oid: e.oid } });
      } else if (entry.mode === '100664') changes.push({ path: entry.path, entry: { mode: '100644', oid: entry.oid } });
    }
    const result = changes.length > 0 ? await changeTree(store, scratch, tree, changes) : tree;
    await requireSafeDiff(store, null, result);
    return result;
  }

  /** See `exportRepository` in store.ts. `scratch` is a folder for a settings file. */
  async export(into: string, depth: number | 'full', scratch: string): Promise<boolean> {
    if (depth === 0) return false;
    const where = await this.user.run(['rev-parse', '--is-inside-work-tree', '--show-cdup', '--show-object-format'], {
      ok: [0, 128],
    });
    const [inside, up, format] = where.stdout.toString('utf8').split('\n');
    if (inside !== 'true' || up !== '') return false;
    const head = (await this.user.run(['rev-parse', '--verify', '-q', 'HEAD'], { ok: [0, 1, 128] })).stdout
      .toString('utf8')
      .trim();
    const branch = (await this.user.run(['symbolic-ref', '-q', 'HEAD'], { ok: [0, 1] })).stdout.toString('utf8').trim();

    const copy = new Git(ownEnv(into), into);
    await copy.run(['init', '-q', '--bare', '--template=', `--object-format=${format ?? 'sha1'}`, into]);
    if (head !== '') await this.fetchHead(copy, head, depth, scratch);
    if (branch !== '') {
      await copy.run(['symbolic-ref', 'HEAD', branch]);
      if (head !== '') await copy.run(['update-ref', branch, head]);
    } else if (head !== '') await copy.run(['update-ref', '--no-deref', 'HEAD', head]);
    if (head !== '') await copy.run(['update-ref', '-d', 'refs/petri/head']);
    await this.copyIndex(copy, into);
    await this.copySettings(copy, into);
    return true;
  }

  /** History by git's own transport: it knows worktrees, alternates and shallow clones, and only reads. */
  private async fetchHead(copy: Git, head: string, depth: number | 'full', scratch: string): Promise<void> {
    // The user's git opened this repository already, so its owner is trusted; the serving side has to be told through a file.
    const settings = path.join(scratch, 'export.gitconfig');
    await mkdir(scratch, { recursive: true });
    await writeFile(settings, '[safe]\n\tdirectory = *\n[uploadpack]\n\tallowAnySHA1InWant = true\n');
    const bound = depth === 'full' ? [] : [`--depth=${depth}`];
    const args = [
      'fetch',
      '-q',
      '--no-tags',
      '--no-write-fetch-head',
      '--no-auto-gc',
      '--no-recurse-submodules',
      '--update-shallow',
    ];
    await copy.run(
      [
        '-c',
        'core.fsync=none',
        '-c',
        'protocol.file.allow=always',
        ...args,
        ...bound,
        '--',
        fileUrl(this.workspace),
        `${head}:refs/petri/head`,
      ],
      {
        env: { GIT_CONFIG_GLOBAL: settings, GIT_OPTIONAL_LOCKS: '0', GIT_NO_LAZY_FETCH: '1' },
      },
    );
  }

  /** The index byte for byte (flags and stages included), and the objects that only it names. */
  private async copyIndex(copy: Git, into: string): Promise<void> {
    const index = await this.gitPath('index');
    const shared = (await this.user.text(['rev-parse', '--shared-index-path'])).trim();
    try {
      if (shared !== '') await copyFile(path.resolve(this.workspace, shared), path.join(into, path.basename(shared)));
      await copyFile(index, path.join(into, 'index'));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      throw error;
    }
    const staged = fields((await this.user.run(['ls-files', '-s', '-z'])).stdout);
    const oids = new Set<Oid>();
    for (const line of staged) {
      const [mode, oid] = line.split(' ', 2);
      if (mode !== '160000' && oid !== undefined && !/^0+$/.test(oid)) oids.add(oid);
    }
    const list = [...oids];
    const found = await describeObjects(copy, list);
    const missing = list.filter((_, i) => found[i] === undefined);
    if (missing.length > 0) {
      const pack = this.user.stream(['pack-objects', '--stdout', '-q', '--window=0'], {
        input: `${missing.join('\n')}\n`,
      });
      await copy.run(['-c', 'core.fsync=none', 'index-pack', '--stdin'], { input: pack });
    }
    // Trees that the index remembers exist then too; an index in the middle of a merge has none.
    await copy.run(['write-tree'], { ok: [0, 128] });
  }

  private async copySettings(copy: Git, into: string): Promise<void> {
    const all = fields((await this.user.run(['config', '--list', '-z', '--includes'])).stdout);
    const wanted = new Map<string, string>();
    for (const line of all) {
      const [key = '', value = 'true'] = splitOnce(line, '\n');
      if (copiedSettings.includes(key)) wanted.set(key, Buffer.from(value, 'latin1').toString('utf8'));
    }
    wanted.set('core.bare', 'false');
    wanted.set('core.logallrefupdates', 'true');
    wanted.set('user.name', 'Petri sandbox');
    wanted.set('user.email', 'sandbox@petri.invalid');
    wanted.set('gc.auto', '0');
    for (const [key, value] of wanted) await copy.run(['config', key, value]);
    await mkdir(path.join(into, 'info'), { recursive: true });
    // Later lines win, and the repository's own come after the user's, as in git.
    const files: Record<string, string[]> = {
      'info/exclude': [await this.userFile('core.excludesFile', 'ignore'), await this.gitPath('info/exclude')],
      'info/attributes': [
        await this.userFile('core.attributesFile', 'attributes'),
        await this.gitPath('info/attributes'),
      ],
      'info/sparse-checkout':
        wanted.get('core.sparsecheckout') === 'true' ? [await this.gitPath('info/sparse-checkout')] : [],
    };
    for (const [name, sources] of Object.entries(files)) {
      const content = await this.joined(sources);
      if (content.length > 0) await writeFile(path.join(into, name), content);
    }
    await rm(path.join(into, 'hooks'), { recursive: true, force: true });
    if ((await readdir(into)).includes('description')) await rm(path.join(into, 'description'), { force: true });
  }

  /** See `ignoreRules` in store.ts. */
  async ignoreRules(): Promise<string> {
    const inside = await this.user.run(['rev-parse', '--is-inside-work-tree'], { ok: [0, 128] });
    if (inside.stdout.toString('utf8').trim() !== 'true') return '';
    const sources = [await this.userFile('core.excludesFile', 'ignore'), await this.gitPath('info/exclude')];
    return (await this.joined(sources)).toString('utf8');
  }

  /** A file of the user's that a setting names; git expands `~` in it. Without the setting, git's default place. */
  private async userFile(key: string, name: string): Promise<string> {
    const set = await this.user.run(['config', '--type=path', '--get', key], { ok: [0, 1] });
    if (set.code === 0) return set.stdout.toString('utf8').trim();
    const home =
      process.env['XDG_CONFIG_HOME'] ||
      path.join(process.env['HOME'] ?? process.env['USERPROFILE'] ?? '/nonexistent', '.config');
    return path.join(home, 'git', name);
  }

  private async joined(sources: string[]): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (const source of sources) {
      const data = await readFile(path.resolve(this.workspace, source)).catch((error: NodeJS.ErrnoException) => {
        if (['ENOENT', 'ENOTDIR', 'EISDIR', 'EACCES'].includes(error.code ?? '')) return undefined;
        throw error;
      });
      if (data) parts.push(data, Buffer.from('\n'));
    }
    return Buffer.concat(parts);
  }

  private async gitPath(name: string): Promise<string> {
    return path.resolve(this.workspace, await this.user.text(['rev-parse', '--git-path', name]));
  }
}

function splitOnce(text: string, mark: string): string[] {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function fileUrl(folder: string): string {
  return `file://${folder.replaceAll('\\', '/').replace(/^(?!\/)/, '/')}`;
}

async function hasOwnRepository(folder: string): Promise<boolean> {
  return readdir(folder).then(
    (names) => names.includes('.git'),
    () => false,
  );
}
