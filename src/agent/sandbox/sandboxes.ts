/** The life of sandboxes: create, execute, diff, snapshot, roll back, fork, destroy. One record each, journaled before it is told. */
import path from 'node:path';
import { isCancelled, messageOf, PetriError } from '../../protocol/errors';
import type { PetriFile } from '../../protocol/files';
import type { SandboxDiff } from '../../protocol/operations';
import type {
  DiffFile,
  DiffStat,
  ExecRecord,
  Limits,
  NetworkMode,
  SandboxRecord,
  SnapshotRecord,
  TrustTier,
} from '../../protocol/records';
import type { Progress } from '../../protocol/wire';
import { label, type Box, type Engine, type Image, type Labels } from '../engine/engine';
import type { Environment, EnvironmentRequest, Environments } from '../environment/environments';
import { workdir } from '../environment/layout';
import { newId, resolveRef } from '../records/ids';
import { KeyedMutex } from '../records/mutex';
import type { Records } from '../records/records';
import type { Oid, WorkspaceStore } from '../workspace/store';
import { Executions, type ExecutionSpec } from './executions';
import { extractTree } from './extract';
import { saveWork } from './saved';

export interface CreateSpec {
  workspace: string;
  settings: PetriFile;
  name?: string;
  image?: string;
  limits?: Limits;
  network?: NetworkMode;
  tier?: TrustTier;
  owner?: SandboxRecord['owner'];
  /** A prepared environment; made from the workspace's present state when absent. */
  environment?: Environment;
  signal?: AbortSignal;
  progress?(p: Progress): void;
}

interface Context {
  engine: Engine;
  environments: Environments;
  records: Records;
  /** The data folder's id. */
  owner: string;
  home: string;
  openStore(workspace: string): Promise<WorkspaceStore>;
}

/** A box outlives its sandbox's time by this, so that the work in it can still be taken out, ms. */
const lifetimeSlackMs = 3_600_000;
/** Without a wall-time limit a box still ends by itself after this, ms. */
const defaultLifetimeMs = 7 * 86_400_000;

export class Sandboxes {
  readonly executions: Executions;
  private readonly locks = new KeyedMutex();
  /** Work that goes on after its operation was answered; awaited before the sandbox is touched again. */
  private readonly background = new Map<string, Promise<void>>();

  constructor(private readonly context: Context) {
    this.executions = new Executions(context.engine);
  }

  /** Creates a sandbox. Errors: image-missing, unsupported, workspace-missing, cancelled, engine-failed. */
  async create(spec: CreateSpec): Promise<SandboxRecord> {
    const id = newId('s');
    const request: EnvironmentRequest = {
      workspace: spec.workspace,
      settings: spec.settings,
      ...(spec.image ? { image: spec.image } : {}),
      ...(spec.signal ? { signal: spec.signal } : {}),
      ...(spec.progress ? { progress: spec.progress } : {}),
    };
    if (spec.environment)
      return this.start(this.newRecord(id, spec, spec.environment), spec.environment.image, spec.signal);
    // While the workspace is captured, a box of the state it had last is already made. It is only used when that is still the state; else it
    // goes without ever having been anybody's.
    const guess = this.context.environments.guess(request);
    const early = guess && this.box(this.newRecord(id, spec, guess), guess.image).catch(() => undefined);
    const drop = async (): Promise<void> => {
      const box = await early;
      if (box) await this.context.engine.removeBox(box.id);
    };
    try {
      const environment = await this.context.environments.prepare(request);
      const record = this.newRecord(id, spec, environment);
      const box = guess?.image.id === environment.image.id ? await early : undefined;
      if (box) return await this.start(record, environment.image, spec.signal, box);
      await drop();
      return await this.start(record, environment.image, spec.signal);
    } catch (error) {
      await drop();
      throw error;
    }
  }

  private newRecord(id: string, spec: CreateSpec, environment: Environment): SandboxRecord {
    return {
      id,
      name: this.freeName(
        spec.name ??
          path
            .basename(spec.workspace)
            .replace(/[^A-Za-z0-9._-]+/g, '-')
            .slice(0, 40) +
            '-' +
            id.slice(1, 5),
      ),
      state: 'creating',
      workspace: spec.workspace,
      engine: this.context.engine.kind,
      tier: spec.tier ?? 'container',
      environment: environment.identity,
      limits: spec.limits ?? {},
      network: spec.network ?? 'none',
      user: environment.user,
      knownTree: environment.knownTree,
      fileOwner: environment.fileOwner,
      include: environment.include,
      startImage: environment.image.id,
      generation: 1,
      containerId: null,
      currentSnapshot: null,
      snapshots: [],
      execs: [],
      owner: spec.owner ?? { kind: 'user', id: null },
      forkedFrom: null,
      createdAt: new Date().toISOString(),
      expiresAt:
        spec.limits?.timeoutMs === undefined ? null : new Date(Date.now() + spec.limits.timeoutMs).toISOString(),
      endedAt: null,
      breach: null,
      saved: null,
      problem: null,
    };
  }

  list(filter: { workspace?: string; all: boolean }): SandboxRecord[] {
    return this.context.records
      .allSandboxes()
      .filter((s) => (filter.all || isLive(s)) && (filter.workspace === undefined || s.workspace === filter.workspace));
  }

  find(ref: string): SandboxRecord {
    return this.context.records.findSandbox(ref);
  }

  /** The folder for a sandbox's logs and evidence on this machine; it outlives the sandbox. */
  folder(id: string): string {
    return path.join(this.context.home, 'records', 'sandboxes', id);
  }

  /** Runs a command in a sandbox; see Executions. Errors: not-found, state, engine-gone, cancelled. */
  async exec(ref: string, spec: ExecutionSpec): Promise<ExecRecord> {
    const record = this.live(ref);
    await this.settled(record.id);
    const current = this.live(record.id);
    return this.executions.run(
      {
        boxId: boxOf(current),
        logs: path.join(this.folder(record.id), 'logs'),
        record: (exec) => this.context.records.putExec(record.id, exec),
      },
      {
        ...spec,
        user: spec.user ?? current.user,
        cwd: spec.cwd === undefined ? workdir : path.posix.resolve(workdir, spec.cwd),
      },
    );
  }

  /** The tree of the sandbox's workspace now, in the store. */
  async tree(ref: string, signal?: AbortSignal): Promise<Oid> {
    const record = this.live(ref, true);
    await this.settled(record.id);
    return this.locks.run(`extract/${record.id}`, () => this.extract(this.live(record.id, true), signal));
  }

  /** What a sandbox changed since its start; of a destroyed one, what was saved. */
  async diff(ref: string, options: { patch: boolean; paths?: string[]; signal?: AbortSignal }): Promise<SandboxDiff> {
    const record = this.find(ref);
    const store = await this.context.openStore(record.workspace);
    const base = record.environment.tree;
    if (!isLive(record) && !record.saved) {
      throw new PetriError('state', `Sandbox ${record.name} is gone and its work was not kept.`, {
        data: { id: record.id },
      });
    }
    const tree = record.saved && !isLive(record) ? record.saved.tree : await this.tree(record.id, options.signal);
    const whole = await store.diff(base, tree);
    const asked = options.paths
      ?.map((p) => p.replace(/^(\.\/+)+/, '').replace(/\/+$/, ''))
      .filter((p) => p !== '' && p !== '.');
    const narrow =
      asked !== undefined && asked.length > 0 && asked.length === options.paths?.length ? asked : undefined;
    const files = narrow
      ? whole.files.filter((f) => narrow.some((p) => f.path === p || f.path.startsWith(`${p}/`)))
      : whole.files;
    const stat = narrow ? statOf(files) : whole.stat;
    const wanted = narrow ? { paths: narrow } : {};
    const patch = options.patch ? await store.patch(base, tree, { ...wanted, maxBytes: maxPatchBytes }) : null;
    return {
      id: record.id,
      state: record.state,
      baseTree: base,
      tree,
      stat,
      files,
      patch: patch?.text ?? null,
      patchCut: patch?.cut ?? false,
    };
  }

  /** Saves the whole file system of a sandbox. */
  async snapshot(ref: string, message: string, automatic = false): Promise<SnapshotRecord> {
    const { id } = this.live(ref);
    await this.settled(id);
    return this.locks.run(id, async () => {
      const record = this.live(id);
      const snapshot = await this.commit(record, boxOf(record), message, automatic);
      this.context.records.putSandbox({
        ...this.live(id),
        currentSnapshot: snapshot.id,
        snapshots: [...record.snapshots, snapshot],
      });
      return snapshot;
    });
  }

  snapshots(ref: string): SnapshotRecord[] {
    return this.find(ref).snapshots;
  }

  /** Finds a snapshot of any sandbox. Errors: not-found, ambiguous. */
  findSnapshot(ref: string): { snapshot: SnapshotRecord; sandbox: SandboxRecord } {
    const all = this.context.records.allSandboxes();
    const snapshot = resolveRef(
      all.flatMap((s) => s.snapshots),
      ref,
      'snapshot',
    );
    const sandbox = all.find((s) => s.id === snapshot.sandbox);
    if (!sandbox) throw new PetriError('not-found', `The sandbox of snapshot ${ref} is not recorded.`);
    return { snapshot, sandbox };
  }

  /** The workspace tree of a snapshot; found out at the first question, in a container of the snapshot. */
  async snapshotTree(ref: string): Promise<Oid> {
    const { snapshot, sandbox } = this.findSnapshot(ref);
    if (snapshot.tree !== null) return snapshot.tree;
    const image = await this.snapshotImage(snapshot);
    const box = await this.box(
      sandbox,
      image,
      `petri-look-${snapshot.id}-${Date.now().toString(36)}`,
      { [label.role]: 'bake' },
      600_000,
    );
    try {
      const tree = await this.extract({ ...sandbox, containerId: box.id, state: 'ready' });
      const store = await this.context.openStore(sandbox.workspace);
      await store.keep(`sandbox/${sandbox.id}/${snapshot.id}`, tree);
      this.changeSnapshot(sandbox.id, snapshot.id, { tree });
      return tree;
    } finally {
      await this.context.engine.removeBox(box.id);
    }
  }

  /**
   * Returns a sandbox to one of its snapshots. What was there is saved as an automatic snapshot first, in the background, so that a
   * rollback can itself be taken back. Running commands end.
   */
  async rollback(ref: string, snapshotRef: string): Promise<SandboxRecord> {
    const { id } = this.live(ref, true);
    await this.settled(id);
    return this.locks.run(id, async () => {
      const record = this.live(id, true);
      const snapshot = resolveRef(record.snapshots, snapshotRef, 'snapshot');
      const image = await this.snapshotImage(snapshot);
      const old = boxOf(record);
      const generation = record.generation + 1;
      await this.context.engine.killBox(old);
      const box = await this.box({ ...record, generation }, image);
      const before: SnapshotRecord = this.newSnapshot(record, 'before rollback', true);
      const updated = this.context.records.putSandbox({
        ...record,
        state: 'ready',
        generation,
        containerId: box.id,
        startImage: image.id,
        currentSnapshot: snapshot.id,
        snapshots: [...record.snapshots, before],
      });
      this.inBackground(id, async () => {
        const saved = await this.commit(record, old, before.message, true, before);
        this.changeSnapshot(id, before.id, { imageId: saved.imageId, state: 'kept' });
        await this.context.engine.removeBox(old);
      });
      return updated;
    });
  }

  /** A new sandbox from a snapshot, or from the present state (which is then saved as a snapshot). */
  async fork(ref: string, options: { snapshot?: string; name?: string; signal?: AbortSignal }): Promise<SandboxRecord> {
    const source = options.snapshot === undefined ? this.live(ref) : this.find(ref);
    await this.settled(source.id);
    const snapshot =
      options.snapshot === undefined
        ? await this.snapshot(source.id, 'forked', true)
        : resolveRef(this.find(source.id).snapshots, options.snapshot, 'snapshot');
    const image = await this.snapshotImage(snapshot);
    const id = newId('s');
    const { timeoutMs } = source.limits;
    return this.start(
      {
        ...source,
        id,
        name: this.freeName(options.name ?? `${source.name.slice(0, 50)}-fork-${id.slice(1, 5)}`),
        state: 'creating',
        startImage: image.id,
        generation: 1,
        containerId: null,
        currentSnapshot: null,
        snapshots: [],
        execs: [],
        owner: { kind: 'user', id: null },
        forkedFrom: { sandbox: source.id, snapshot: snapshot.id },
        createdAt: new Date().toISOString(),
        expiresAt: timeoutMs === undefined ? null : new Date(Date.now() + timeoutMs).toISOString(),
        endedAt: null,
        breach: null,
        saved: null,
        problem: null,
      },
      image,
      options.signal,
    );
  }

  /**
   * Destroys a sandbox with its snapshots. Its diff and the trees of its snapshots are in the store first, unless `discard`. When they can't be
   * taken out the sandbox stays and the error says so.
   */
  async destroy(ref: string, options: { discard: boolean; breach?: SandboxRecord['breach'] }): Promise<SandboxRecord> {
    const { id } = this.find(ref);
    await this.settled(id);
    return this.locks.run(id, async () => {
      const record = this.find(id);
      if (!isLive(record)) return record;
      const keep =
        !options.discard &&
        record.containerId !== null &&
        (await this.context.engine.findBox(record.containerId)) !== undefined;
      const saved = keep ? await this.save(record) : null;
      this.context.records.putSandbox({ ...record, state: 'destroying', saved });
      return this.remove({ ...record, saved, breach: options.breach ?? record.breach });
    });
  }

  /** Ends a sandbox that is over its time: what runs in it is stopped, its work saved. */
  async expire(id: string): Promise<SandboxRecord> {
    const record = this.find(id);
    if (record.state === 'ready' && record.containerId !== null)
      await this.context.engine.killProcesses(record.containerId);
    return this.destroy(id, { discard: false, breach: 'timeout' });
  }

  /** Removes everything of a sandbox from the engine and marks it destroyed. Saves nothing: {@link destroy} does. */
  async remove(record: SandboxRecord): Promise<SandboxRecord> {
    const { engine, owner, records } = this.context;
    for (const box of await engine.listBoxes({ [label.owner]: owner, [label.sandbox]: record.id }))
      await engine.removeBox(box.id);
    const images = await engine.listImages({
      [label.owner]: owner,
      [label.role]: 'snapshot',
      [label.sandbox]: record.id,
    });
    const gone = new Set<string>();
    for (const image of images.reverse()) if (await engine.removeImage(image.id)) gone.add(image.id);
    return records.putSandbox({
      ...(records.sandbox(record.id) ?? record),
      state: 'destroyed',
      containerId: null,
      saved: record.saved,
      breach: record.breach,
      problem: record.problem,
      endedAt: new Date().toISOString(),
      snapshots: (records.sandbox(record.id)?.snapshots ?? record.snapshots).map((s) =>
        gone.has(s.imageId) || s.imageId === '' ? { ...s, state: 'removed' } : s,
      ),
    });
  }

  /** The engine told that a box ended. One that we did not end ourselves leaves its sandbox stopped, its work still in it. */
  noteDeath(boxId: string): void {
    const record = this.context.records.allSandboxes().find((s) => s.containerId === boxId && s.state === 'ready');
    if (!record || this.locks.busy(record.id)) return;
    this.context.records.putSandbox({ ...record, state: 'stopped', problem: 'its container ended' });
  }

  /** Waits for background work on every sandbox. */
  async quiet(): Promise<void> {
    await Promise.allSettled(this.background.values());
  }

  private async start(record: SandboxRecord, image: Image, signal?: AbortSignal, made?: Box): Promise<SandboxRecord> {
    const { records } = this.context;
    records.putSandbox(record);
    try {
      const store = await this.context.openStore(record.workspace);
      const [box] = await Promise.all([
        made ?? this.box(record, image, undefined, {}, undefined, signal),
        store.keep(`sandbox/${record.id}/base`, record.environment.tree),
      ]);
      return records.putSandbox({ ...record, state: 'ready', containerId: box.id });
    } catch (error) {
      const why = isCancelled(error) ? 'cancelled' : messageOf(error);
      records.putSandbox({ ...record, state: 'failed', problem: why, endedAt: new Date().toISOString() });
      throw error;
    }
  }

  private async box(
    record: SandboxRecord,
    image: Image,
    name?: string,
    labels: Labels = {},
    lifetimeMs?: number,
    signal?: AbortSignal,
  ): Promise<Box> {
    const { limits } = record;
    const left =
      record.expiresAt === null ? defaultLifetimeMs : Math.max(60_000, Date.parse(record.expiresAt) - Date.now());
    return this.context.engine.createBox({
      name: name ?? `petri-${record.id}-${record.generation}`,
      image,
      labels: {
        [label.owner]: this.context.owner,
        [label.role]: 'sandbox',
        [label.workspace]: record.workspace,
        [label.sandbox]: record.id,
        [label.generation]: String(record.generation),
        ...(record.expiresAt === null ? {} : { [label.expires]: record.expiresAt }),
        ...labels,
      },
      ...(limits.cpus === undefined ? {} : { cpus: limits.cpus }),
      ...(limits.memoryBytes === undefined ? {} : { memoryBytes: limits.memoryBytes }),
      ...(limits.pids === undefined ? {} : { pids: limits.pids }),
      network: record.network,
      tier: record.tier,
      env: {},
      workdir,
      user: record.user,
      lifetimeMs: lifetimeMs ?? left + lifetimeSlackMs,
      ...(signal ? { signal } : {}),
    });
  }

  private async extract(record: SandboxRecord, signal?: AbortSignal): Promise<Oid> {
    const { engine } = this.context;
    const box = await engine.findBox(boxOf(record));
    if (!box)
      throw new PetriError('state', `The container of sandbox ${record.name} is gone.`, {
        hint: 'Destroy it with --discard.',
      });
    const store = await this.context.openStore(record.workspace);
    return extractTree(engine, box.id, store, {
      known: record.knownTree,
      base: record.environment.tree,
      include: record.include,
      running: box.state === 'running',
      ...(signal ? { signal } : {}),
    });
  }

  private async save(record: SandboxRecord): Promise<SandboxRecord['saved']> {
    const store = await this.context.openStore(record.workspace);
    for (const s of record.snapshots)
      if (s.tree === null && s.state === 'kept' && s.imageId !== '') await this.snapshotTree(s.id);
    const tree = await this.locks.run(`extract/${record.id}`, () => this.extract(record));
    await store.keep(`sandbox/${record.id}/saved`, tree);
    return saveWork(store, record.environment.tree, tree, this.folder(record.id));
  }

  private newSnapshot(record: SandboxRecord, message: string, automatic: boolean): SnapshotRecord {
    return {
      id: newId('n'),
      sandbox: record.id,
      message,
      parent: record.currentSnapshot,
      imageId: '',
      tree: null,
      automatic,
      createdAt: new Date().toISOString(),
      state: 'kept',
    };
  }

  private async commit(
    record: SandboxRecord,
    box: string,
    message: string,
    automatic: boolean,
    planned?: SnapshotRecord,
  ): Promise<SnapshotRecord> {
    const snapshot = planned ?? this.newSnapshot(record, message, automatic);
    const image = await this.context.engine.commitBox(box, {
      tag: `petri/snapshot-${this.context.owner}:${snapshot.id}`,
      labels: {
        [label.owner]: this.context.owner,
        [label.role]: 'snapshot',
        [label.workspace]: record.workspace,
        [label.sandbox]: record.id,
        [label.snapshot]: snapshot.id,
      },
    });
    return { ...snapshot, imageId: image.id };
  }

  private async snapshotImage(snapshot: SnapshotRecord): Promise<Image> {
    const image =
      snapshot.state === 'kept' && snapshot.imageId !== ''
        ? await this.context.engine.findImage(snapshot.imageId)
        : undefined;
    if (image) return image;
    throw new PetriError('state', `Snapshot ${snapshot.id} is no longer in the engine.`, {
      hint: 'Its sandbox was destroyed, or the image was removed by hand.',
    });
  }

  private changeSnapshot(sandbox: string, id: string, change: Partial<SnapshotRecord>): void {
    const record = this.context.records.sandbox(sandbox);
    if (!record) return;
    this.context.records.putSandbox({
      ...record,
      snapshots: record.snapshots.map((s) => (s.id === id ? { ...s, ...change } : s)),
    });
  }

  /** A sandbox that can be worked with. Errors: not-found, ambiguous, state. */
  private live(ref: string, stoppedToo = false): SandboxRecord {
    const record = this.find(ref);
    if (record.state === 'ready' || (stoppedToo && record.state === 'stopped')) return record;
    throw new PetriError(
      'state',
      `Sandbox ${record.name} is ${record.state}${record.problem ? `: ${record.problem}` : ''}.`,
      {
        hint:
          record.state === 'stopped'
            ? 'Its work can still be seen (diff), rolled back, or destroyed.'
            : 'Create a new one.',
        data: { id: record.id, state: record.state },
      },
    );
  }

  /** Names are unique among the live, so that they can stand for ids. */
  private freeName(name: string): string {
    const taken = this.list({ all: false }).find((s) => s.name === name);
    if (taken)
      throw new PetriError('usage', `There is a live sandbox named "${name}" already (${taken.id}).`, {
        hint: 'Choose another name, or destroy that one.',
      });
    return name;
  }

  private inBackground(id: string, task: () => Promise<void>): void {
    const work = task()
      .catch((error: unknown) => console.error(`background work on sandbox ${id} failed:`, error))
      .finally(() => this.background.delete(id));
    this.background.set(id, work);
  }

  private async settled(id: string): Promise<void> {
    await this.background.get(id);
  }
}

function statOf(files: DiffFile[]): DiffStat {
  const sum = (side: 'added' | 'removed'): number => files.reduce((n, f) => n + (f[side] ?? 0), 0);
  return { files: files.length, added: sum('added'), removed: sum('removed') };
}

/** Longest patch that one answer carries, bytes. */
const maxPatchBytes = 16 * 1024 * 1024;

/** True until a sandbox has ended. */
export function isLive(record: SandboxRecord): boolean {
  return record.state !== 'destroyed' && record.state !== 'failed';
}

function boxOf(record: SandboxRecord): string {
  if (record.containerId === null) throw new PetriError('state', `Sandbox ${record.name} has no container yet.`);
  return record.containerId;
}
