/** The workspace store on git: a private bare repository per workspace. Each subject has a file of its own; this joins them. */
import { appendFile, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { devNull } from 'node:os';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { simpleGit } from 'simple-git';
import { messageOf, PetriError } from '../../protocol/errors';
import type { BytePath } from '../../protocol/text';
import { capture } from './capture';
import { diffTrees, patchBetween } from './diff';
import { diskFull, Git, gitVersion, isDiskFull, ownEnv } from './git';
import { mergeTrees } from './merge';
import { describeObjects, readObjects, requireOid, storeBlob } from './objects';
import { packOfAll, packOfTrees, takePack } from './pack';
import { WorkspaceRepository } from './repository';
import { Serial } from './serial';
import type {
  Capture,
  CaptureOptions,
  DiffResult,
  MergeResult,
  Oid,
  TreeChange,
  TreeEntry,
  WorkspaceStore,
} from './store';
import { changeTree, compareTrees, listTree, patchTree } from './trees';

/** Outranks every `.gitattributes`: what is on disk is what is stored. */
const attributes = '* -text -eol -filter -ident -working-tree-encoding -export-ignore -export-subst\n';

/** Appended to the repository's configuration; one file is written faster than fifteen settings are set. */
const settings: [string, string][] = [
  ['core.autocrlf', 'false'],
  ['core.safecrlf', 'false'],
  ['core.fileMode', process.platform === 'win32' ? 'false' : 'true'],
  ['core.symlinks', process.platform === 'win32' ? 'false' : 'true'],
  ['core.ignoreCase', 'false'],
  ['core.excludesFile', devNull],
  ['core.attributesFile', devNull],
  ['core.quotePath', 'true'],
  ['core.untrackedCache', 'false'],
  ['core.splitIndex', 'false'],
  ['index.version', '2'],
  ['index.skipHash', 'false'],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
];

export interface StoreOptions {
  /** The user's folder. */
  workspace: string;
  /** Where the store is, or is made. */
  dir: string;
}

/** Opens the store of a workspace, making it if it is not there. Errors: git-failed (also for a git that is too old), disk-full. */
export async function openStore({ workspace, dir }: StoreOptions): Promise<WorkspaceStore> {
  await gitVersion();
  try {
    await prepare(dir);
  } catch (error) {
    if (isDiskFull(error) || isDiskFull(messageOf(error))) throw diskFull(error);
    if (error instanceof PetriError) throw error;
    throw new PetriError('git-failed', `The store ${dir} can't be opened: ${messageOf(error)}`, { cause: error });
  }
  return new GitWorkspaceStore(path.resolve(workspace), path.resolve(dir));
}

/** Makes the repository or finishes one that was half made. The marker comes last. */
async function prepare(dir: string): Promise<void> {
  const marker = path.join(dir, 'petri-store');
  await mkdir(dir, { recursive: true, mode: 0o700 });
  if (await stat(marker).catch(() => undefined)) {
    await rm(path.join(dir, 'incoming'), { recursive: true, force: true });
    return;
  }
  // simple-git refuses an environment with an editor or a pager in it: it gets only what git needs to run.
  const needed = [
    'PATH',
    'Path',
    'PATHEXT',
    'SystemRoot',
    'HOME',
    'TMPDIR',
    'TEMP',
    'LC_ALL',
    'GIT_DIR',
    'GIT_CONFIG_NOSYSTEM',
    'GIT_CONFIG_GLOBAL',
  ];
  const env = Object.fromEntries(Object.entries(ownEnv(dir)).filter(([name]) => needed.includes(name)));
  const git = simpleGit({
    baseDir: dir,
    allowEnvironment: needed.filter((name) => name.startsWith('GIT_')),
    unsafe: { allowUnsafeConfigPaths: true, allowUnsafeTemplateDir: true },
  }).env(env);
  await git.raw(['init', '-q', '--bare', '--template=', '--object-format=sha1', '--initial-branch=petri', dir]);
  await appendFile(path.join(dir, 'config'), settings.map(configLines).join(''));
  await mkdir(path.join(dir, 'info'), { recursive: true });
  await rm(path.join(dir, 'hooks'), { recursive: true, force: true });
  await writeFile(path.join(dir, 'info/attributes'), attributes);
  await writeFile(path.join(dir, 'info/exclude'), '');
  await writeFile(marker, '1\n');
}

function configLines([key, value]: [string, string]): string {
  const [section = '', name = ''] = key.split('.');
  return `[${section}]\n\t${name} = ${JSON.stringify(value)}\n`;
}

class GitWorkspaceStore implements WorkspaceStore {
  private readonly git: Git;
  private readonly repository: WorkspaceRepository;
  /** The index is one; everything that uses it waits its turn. */
  private readonly serial = new Serial();
  /** Where temporary files are; emptied when the store is opened. */
  private readonly incoming: string;
  /** The newest tree that is known to be safe, so that the next one is only walked where it differs. */
  private knownSafe: Oid | null = null;

  constructor(
    readonly workspace: string,
    readonly gitDir: string,
  ) {
    this.git = new Git(ownEnv(gitDir), gitDir);
    this.repository = new WorkspaceRepository(workspace);
    this.incoming = path.join(gitDir, 'incoming');
  }

  async capture(options: CaptureOptions): Promise<Capture> {
    const result = await this.serial.run(() =>
      capture({ workspace: this.workspace, gitDir: this.gitDir, git: this.git }, options),
    );
    this.knownSafe = result.tree;
    return result;
  }

  importCommit(revision: string): Promise<{ tree: Oid; commit: string }> {
    return this.repository.importCommit(this.git, this.incoming, revision);
  }

  exportRepository(into: string, depth: number | 'full'): Promise<boolean> {
    return this.repository.export(into, depth, this.incoming);
  }

  entries(tree: Oid): Promise<TreeEntry[]> {
    return listTree(this.git, tree);
  }

  changes(before: Oid, after: Oid): Promise<TreeChange[]> {
    return compareTrees(this.git, before, after);
  }

  diff(before: Oid, after: Oid): Promise<DiffResult> {
    return diffTrees(this.git, before, after);
  }

  patch(
    before: Oid,
    after: Oid,
    options?: { paths?: string[]; maxBytes?: number },
  ): Promise<{ text: string; cut: boolean }> {
    return patchBetween(this.git, this.incoming, before, after, options);
  }

  readBlobs(oids: Oid[]): AsyncIterable<{ oid: Oid; data: Buffer }> {
    return readObjects(this.git, oids);
  }

  async blobSizes(oids: Oid[]): Promise<Map<Oid, number>> {
    const unique = [...new Set(oids)];
    const found = await describeObjects(this.git, unique);
    return new Map(
      unique.map((oid, i): [Oid, number] => {
        const size = found[i]?.size;
        if (size === undefined) throw new PetriError('not-found', `The object ${oid} is not in the store.`);
        return [oid, size];
      }),
    );
  }

  openBlob(oid: Oid): Readable {
    requireOid(oid);
    return this.git.stream(['cat-file', 'blob', oid]);
  }

  writeBlob(data: Readable | Buffer, maxBytes = Number.MAX_SAFE_INTEGER): Promise<Oid> {
    return storeBlob(this.git, this.incoming, data, maxBytes);
  }

  editTree(base: Oid, changes: { path: BytePath; entry: { mode: string; oid: Oid } | null }[]): Promise<Oid> {
    return changeTree(this.git, this.incoming, base, changes);
  }

  applyPatch(base: Oid, patch: Buffer): Promise<Oid> {
    return patchTree(this.git, this.incoming, base, patch);
  }

  async importPack(pack: Readable, tree: Oid, options: { maxBytes: number; signal?: AbortSignal }): Promise<void> {
    const context = { git: this.git, gitDir: this.gitDir, incoming: this.incoming, known: this.knownSafe };
    await takePack(context, pack, tree, options);
    this.knownSafe = tree;
  }

  packAll(tree: Oid): Readable {
    return packOfAll(this.git, tree);
  }

  ignoreRules(): Promise<string> {
    return this.repository.ignoreRules();
  }

  packTrees(tree: Oid): Promise<Buffer> {
    return packOfTrees(this.git, tree);
  }

  merge(base: Oid, ours: Oid, theirs: Oid): Promise<MergeResult> {
    return mergeTrees(this.git, base, ours, theirs);
  }

  async keep(name: string, tree: Oid | null): Promise<void> {
    const ref = `refs/petri/${name}`;
    if ((await this.git.run(['check-ref-format', ref], { ok: [0, 1] })).code !== 0)
      throw new PetriError('internal', 'Not a name to keep a tree by.');
    if (tree !== null) requireOid(tree);
    await this.git.run(tree === null ? ['update-ref', '-d', ref] : ['update-ref', ref, tree]);
  }
}
