/**
 * Environments: base image → dependency layer → workspace layer. A workspace's first state is baked whole; later states are
 * small layers on it. Layers are found again by content keys in their labels, so a restarted agent is as warm as before.
 */
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { cancelled, isCancelled, PetriError } from '../../protocol/errors';
import type { PetriFile } from '../../protocol/files';
import type { EnvironmentIdentity } from '../../protocol/records';
import type { BytePath } from '../../protocol/text';
import type { Progress } from '../../protocol/wire';
import { label, type Engine, type Image } from '../engine/engine';
import { KeyedMutex } from '../records/mutex';
import { packTar, type TarEntry } from '../tar/pack';
import { repositoryFingerprint } from '../workspace/fingerprint';
import type { Oid, WorkspaceStore } from '../workspace/store';
import { bookkeepingEntries, folderEntries, treeEntries, type FileToWrite, type Owner } from './content';
import { Dependencies } from './dependencies';
import { chooseImage, Images } from './images';
import { contentKey, layerLabels, layerTag, readMeta, type LayerMeta } from './layers';
import { settle } from './settle';
import { Shared } from './shared';
import { workspacePrefix } from './layout';

export interface EnvironmentRequest {
  workspace: string;
  settings: PetriFile;
  /** Overrides the settings' image. */
  image?: string;
  /** A state other than the workspace's present one. */
  state?: { tree: Oid; commit: string | null };
  signal?: AbortSignal;
  progress?(p: Progress): void;
}

export interface Environment {
  /** What sandboxes are started from. */
  image: Image;
  identity: EnvironmentIdentity;
  /** The state that the bookkeeping inside knows. */
  knownTree: Oid;
  store: WorkspaceStore;
  include: string[];
  /** Default user of the image. */
  user: string;
  fileOwner: Owner;
}

/** Files whose content pins the packages of a workspace. */
const lockfiles =
  /^(package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|poetry\.lock|uv\.lock|Pipfile\.lock|requirements.*\.txt|Cargo\.lock|go\.sum|Gemfile\.lock|composer\.lock|gradle\.lockfile)$/;

/** Small layers on a full one before the next is full again; a part of the engines' bound of layers. */
const maxDepth = 24;
/** A change of more files than this part of the workspace (and more than the floor) is baked whole. */
const maxChangedPart = 0.25;
const maxChangedFloor = 50;
/** Layers in an image beyond which nothing is put on top. */
const maxLayers = 100;

export class Environments {
  private readonly images: Images;
  private readonly dependencies: Dependencies;
  private readonly baking = new KeyedMutex();
  private readonly settling = new Map<string, Promise<void>>();
  private readonly captures = new Map<string, Shared<WorkspaceState>>();
  private readonly fingerprints = new Map<string, { seen: string; repository: string | null }>();
  /** Image id of the layer last used, by workspace. */
  private readonly last = new Map<string, string>();
  private readonly guesses = new Map<string, Guess>();
  private readonly abort = new AbortController();

  constructor(
    private readonly engine: Engine,
    private readonly owner: string,
    private readonly openStore: (workspace: string) => Promise<WorkspaceStore>,
  ) {
    this.images = new Images(engine, owner);
    this.dependencies = new Dependencies(engine, owner, this.images);
  }

  /**
   * What {@link prepare} gave for the same request before, when it is likely to give it again: the workspace did not change between the last two.
   * Whoever starts from it must compare it with what `prepare` really gives.
   */
  guess(request: EnvironmentRequest): Environment | undefined {
    const guess = request.state ? undefined : this.guesses.get(guessKey(request));
    return guess?.steady ? guess.environment : undefined;
  }

  /** The image for a state of a workspace, baked when it is new. Errors: image-missing, workspace-missing, cancelled, disk-full. */
  async prepare(request: EnvironmentRequest): Promise<Environment> {
    const { settings, signal, progress } = request;
    const store = await this.openStore(request.workspace);
    const ref = request.image ?? settings.environment.image ?? chooseImage(request.workspace);
    const [base, { state, repository }] = await Promise.all([
      this.images.get(ref, { ...(signal ? { signal } : {}), ...(progress ? { progress } : {}) }),
      this.present(store, request),
    ]);
    if (signal?.aborted) throw cancelled();
    const setup = settings.environment.setup;
    const below =
      setup === undefined
        ? { image: base, key: null }
        : await this.dependencies.layer(base, store, state.tree, settings, request);
    const image = await this.workspaceLayer(store, below.image, state.tree, repository, request);
    const meta = readMeta(image);
    const environment: Environment = {
      image,
      identity: {
        image: ref,
        imageDigest: base.id,
        tree: state.tree,
        commit: state.commit,
        lockfiles: hashLockfiles(request.workspace),
        dependencies: below.key,
      },
      knownTree: meta?.known ?? state.tree,
      store,
      include: settings.environment.include,
      user: base.user,
      fileOwner: await this.images.userOf(base),
    };
    if (!request.state) {
      const key = guessKey(request);
      const before = this.guesses.get(key)?.environment.image.id;
      this.guesses.set(key, { environment, steady: before === undefined || before === image.id });
    }
    return environment;
  }

  /** The state to bake, and what its `.git` depends on. Callers at the same time share one capture that began after they asked. */
  private async present(store: WorkspaceStore, request: EnvironmentRequest): Promise<WorkspaceState> {
    const { include, history } = request.settings.environment;
    const fingerprint = (): Promise<string | null> =>
      history === 0 ? Promise.resolve(null) : repositoryFingerprint(request.workspace);
    if (request.state) return { state: request.state, repository: await fingerprint() };
    const key = contentKey(request.workspace, include, history === 0);
    let shared = this.captures.get(key);
    if (!shared) {
      shared = new Shared(async () => {
        const state = await store.capture({ include });
        // What the fingerprint is made from is in the listing, HEAD and its branch: the same ones, the same fingerprint.
        const head = await readFile(path.join(request.workspace, '.git', 'HEAD'), 'utf8').catch(() => null);
        const seen = contentKey(state.listing, state.commit, head);
        const known = this.fingerprints.get(key);
        if (known && head !== null && known.seen === seen) return { state, repository: known.repository };
        const repository = await fingerprint();
        this.fingerprints.set(key, { seen, repository });
        return { state, repository };
      });
      this.captures.set(key, shared);
    }
    return shared.get();
  }

  /** Waits until no layer is being settled. */
  async settledAll(): Promise<void> {
    await Promise.allSettled(this.settling.values());
  }

  /** Waits until background work on layers has ended; aborts it first. */
  async stop(): Promise<void> {
    this.abort.abort();
    await Promise.allSettled(this.settling.values());
  }

  /** The baked image of a state: cached, or a small layer on a cached one, or a full one. */
  private async workspaceLayer(
    store: WorkspaceStore,
    below: Image,
    tree: Oid,
    repository: string | null,
    request: EnvironmentRequest,
  ): Promise<Image> {
    const owner = await this.images.userOf(below);
    const key = contentKey('workspace', 1, below.id, tree, repository, request.settings.environment.history, owner);
    const tag = layerTag(this.owner, key);
    const cached = await this.cached(tag, key);
    if (cached) {
      this.last.set(request.workspace, cached.id);
      return cached;
    }
    return this.baking.run(request.workspace, async () => {
      const again = await this.cached(tag, key);
      if (again) return again;
      if (request.signal?.aborted) throw cancelled('Baking');
      const make = { store, below, tree, repository, owner, key, tag, request };
      return (await this.addSmallLayer(make)) ?? (await this.addFullLayer(make));
    });
  }

  private async cached(tag: string, key: string): Promise<Image | undefined> {
    const image = await this.engine.findImage(tag);
    return image?.labels[label.key] === key && readMeta(image) ? image : undefined;
  }

  /** The new state as a layer on the nearest earlier one; undefined when none is near enough. */
  private async addSmallLayer(make: Making): Promise<Image | undefined> {
    const { store, below, tree, repository, owner, request } = make;
    const fits = ({ image, meta }: Candidate): boolean =>
      meta.below === below.id &&
      meta.repository === repository &&
      meta.depth < maxDepth &&
      image.layers < maxLayers &&
      meta.uid === owner.uid &&
      meta.gid === owner.gid;
    const last = await this.lastLayer(request.workspace);
    const candidates =
      last && last.meta.settled && fits(last)
        ? [last]
        : (await this.layersOf(request.workspace)).filter(fits).slice(0, 4);
    for (const { image, meta } of candidates) {
      let changes;
      try {
        changes = await store.changes(meta.tree, tree);
      } catch {
        continue; // The store no longer has that state.
      }
      if (changes.length > Math.max(maxChangedFloor, meta.files * maxChangedPart)) continue;
      const files: FileToWrite[] = changes.flatMap((c) => (c.after ? [{ path: c.path, ...c.after }] : []));
      const gone = changes.filter((c) => !c.after).map((c) => c.path);
      const removals =
        gone.length > 0 ? withEmptyFolders(gone, new Set((await store.entries(tree)).map((e) => e.path))) : [];
      const added = changes.filter((c) => !c.before).length;
      const small = await this.engine.addLayer({
        parent: image,
        tag: make.tag,
        labels: layerLabels(this.owner, request.workspace, make.key, {
          ...meta,
          tree,
          depth: meta.depth + 1,
          files: meta.files + added - gone.length,
        }),
        open: () => packTar(treeEntries(store, files, workspacePrefix, owner)),
        removals: notReplaced(removals, files).map((p) => `${workspacePrefix}/${p}` as BytePath),
        sizeHint: 0,
        owner,
        ...optional(request),
      });
      this.last.set(request.workspace, small.id);
      return small;
    }
    return undefined;
  }

  /** The layer that was last used for a workspace, when it is still there. */
  private async lastLayer(workspace: string): Promise<Candidate | undefined> {
    const id = this.last.get(workspace);
    const image = id === undefined ? undefined : await this.engine.findImage(id);
    const meta = image && readMeta(image);
    return image && meta ? { image, meta } : undefined;
  }

  /** All layers of a workspace, settled ones and then newer ones first. */
  private async layersOf(workspace: string): Promise<Candidate[]> {
    const labels = { [label.owner]: this.owner, [label.role]: 'layer', [label.workspace]: workspace };
    const found: Candidate[] = [];
    for (const image of await this.engine.listImages(labels)) {
      const meta = readMeta(image);
      if (meta) found.push({ image, meta });
    }
    return found.sort(
      (a, b) => Number(b.meta.settled) - Number(a.meta.settled) || b.image.createdAt.localeCompare(a.image.createdAt),
    );
  }

  private async addFullLayer(make: Making): Promise<Image> {
    const { store, below, tree, repository, owner, key, tag, request } = make;
    const scratch = mkdtempSync(path.join(tmpdir(), 'petri-bake-'));
    try {
      request.progress?.({ message: 'Baking the workspace' });
      const history = request.settings.environment.history;
      const hasRepository = repository !== null && (await store.exportRepository(scratch, history));
      const files = await store.entries(tree);
      const bookkeeping = await bookkeepingEntries(store, tree);
      const meta: LayerMeta = {
        v: 1,
        tree,
        known: tree,
        repository,
        below: below.id,
        depth: 0,
        settled: false,
        files: files.length,
        ...owner,
      };
      const image = await this.engine.addLayer({
        parent: below,
        tag,
        labels: layerLabels(this.owner, request.workspace, key, meta),
        open: () =>
          packTar(
            (async function* (): AsyncGenerator<TarEntry> {
              yield* treeEntries(store, files, workspacePrefix, owner, (done) => {
                if (done % 500 === 0)
                  request.progress?.({ message: 'Baking the workspace', done, total: files.length });
              });
              if (hasRepository) yield* folderEntries(scratch, `${workspacePrefix}/.git`, owner);
              yield* bookkeeping;
            })(),
          ),
        removals: [],
        sizeHint: 0,
        owner,
        ...optional(request),
      });
      this.settleLater(image, meta, key, tag, request.workspace);
      return image;
    } catch (error) {
      if (request.signal?.aborted && !isCancelled(error)) throw cancelled('Baking');
      throw error;
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  }

  /** In the background: makes the layer's index right once, so that the first diff of each later sandbox reads only what changed. */
  private settleLater(image: Image, meta: LayerMeta, key: string, tag: string, workspace: string): void {
    const labels = layerLabels(this.owner, workspace, key, { ...meta, settled: true });
    const work = settle(this.engine, this.owner, image, { tree: meta.tree, tag, labels, signal: this.abort.signal })
      .catch((error: unknown) => console.error('settling a layer failed:', error))
      .finally(() => this.settling.delete(key));
    this.settling.set(key, work);
  }
}

interface WorkspaceState {
  state: { tree: Oid; commit: string | null };
  repository: string | null;
}

interface Guess {
  environment: Environment;
  /** Whether the last two requests got the same image. */
  steady: boolean;
}

interface Candidate {
  image: Image;
  meta: LayerMeta;
}

interface Making {
  store: WorkspaceStore;
  below: Image;
  tree: Oid;
  repository: string | null;
  owner: Owner;
  key: string;
  tag: string;
  request: EnvironmentRequest;
}

const guessKey = (request: EnvironmentRequest): string =>
  contentKey(request.workspace, request.image ?? null, request.settings.environment);

function optional(request: EnvironmentRequest): { signal?: AbortSignal; progress?(p: Progress): void } {
  return {
    ...(request.signal ? { signal: request.signal } : {}),
    ...(request.progress ? { progress: request.progress } : {}),
  };
}

/** The removed paths, each raised to the highest folder that holds nothing any more. */
export function withEmptyFolders(gone: BytePath[], left: Set<string>): BytePath[] {
  const folders = new Set<string>();
  for (const p of left) for (let at = p.indexOf('/'); at >= 0; at = p.indexOf('/', at + 1)) folders.add(p.slice(0, at));
  const out = new Set<string>();
  for (const p of gone) {
    let top: string = p;
    for (let at = p.lastIndexOf('/'); at >= 0; at = top.lastIndexOf('/')) {
      const above = top.slice(0, at);
      if (folders.has(above)) break;
      top = above;
    }
    out.add(top);
  }
  return [...out] as BytePath[];
}

/** Removals that no written path replaces: a folder written over a file, or a file over a folder, hides it anyway. */
export function notReplaced(removals: BytePath[], files: { path: BytePath }[]): BytePath[] {
  const written = new Set<string>();
  for (const { path: p } of files) {
    written.add(p);
    for (let at = p.indexOf('/'); at >= 0; at = p.indexOf('/', at + 1)) written.add(p.slice(0, at));
  }
  const filesOnly = new Set<string>(files.map((f) => f.path));
  return removals.filter((p) => {
    if (written.has(p)) return false;
    for (let at = p.indexOf('/'); at >= 0; at = p.indexOf('/', at + 1)) if (filesOnly.has(p.slice(0, at))) return false;
    return true;
  });
}

function hashLockfiles(workspace: string): Record<string, string> {
  const out: Record<string, string> = {};
  for (const name of readdirSync(workspace).sort()) {
    const file = path.join(workspace, name);
    if (lockfiles.test(name) && statSync(file, { throwIfNoEntry: false })?.isFile()) {
      out[name] = createHash('sha256').update(readFileSync(file)).digest('hex');
    }
  }
  return out;
}

/** The real path of a workspace folder. Errors: workspace-missing. */
export function workspaceFolder(folder: string): string {
  try {
    const real = realpathSync(folder);
    if (statSync(real).isDirectory()) return real;
  } catch {
    // Told below.
  }
  throw new PetriError('workspace-missing', `The workspace folder ${folder} does not exist.`, {
    hint: 'Name an existing folder with --workspace.',
  });
}
