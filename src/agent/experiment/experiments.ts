/** Experiments: several approaches from one base, each in a sandbox of its own, the same checks for each, then a ranking. */
import { readFile, stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { cancelled, isCancelled, messageOf, PetriError } from '../../protocol/errors';
import type { CheckInput, ExperimentFile, LimitsInput, PetriFile } from '../../protocol/files';
import type { ExperimentRecord, Limits, MetricDeclaration, RunRecord } from '../../protocol/records';
import type { Engine } from '../engine/engine';
import type { Environment, Environments } from '../environment/environments';
import { newId } from '../records/ids';
import type { Records } from '../records/records';
import type { Sandboxes } from '../sandbox/sandboxes';
import type { WorkspaceStore } from '../workspace/store';
import { readExperimentFile, readPetriFile } from './files';
import { rankRuns } from './ranking';
import { executeRun, type RunPlan } from './run';

interface Context {
  engine: Engine;
  environments: Environments;
  sandboxes: Sandboxes;
  records: Records;
  home: string;
  openStore(workspace: string): Promise<WorkspaceStore>;
}

/** Longest patch file that an approach may name, bytes. */
const maxPatchFileBytes = 64 * 1024 * 1024;

export class Experiments {
  private readonly active = new Map<string, { abort: AbortController; done: Promise<ExperimentRecord> }>();

  constructor(private readonly context: Context) {}

  get running(): number {
    return this.active.size;
  }

  /** Reads the file, captures the base and starts. Errors before anything is made: invalid-file, not-found, workspace-missing, usage. */
  async start(input: { workspace: string; file: string; keep: boolean }): Promise<ExperimentRecord> {
    const { records } = this.context;
    const [file, settings] = await Promise.all([readExperimentFile(input.file), readPetriFile(input.workspace)]);
    const patches = await readPatches(file, path.dirname(input.file));
    const checks = file.checks ?? settings.checks;
    const id = newId('e');
    const base =
      typeof file.base === 'string'
        ? { kind: 'workspace' as const, ref: null }
        : 'commit' in file.base
          ? { kind: 'commit' as const, ref: file.base.commit }
          : { kind: 'snapshot' as const, ref: file.base.snapshot };
    const experiment = records.putExperiment({
      id,
      name: path.basename(input.file).replace(/\.experiment\.jsonc?$|\.jsonc?$/, ''),
      task: file.task,
      state: 'running',
      workspace: input.workspace,
      file: input.file,
      base: { ...base, tree: '' },
      environment: null,
      metrics: declaredMetrics(checks),
      checks,
      limits: mergeLimits(settings.limits, file.limits),
      network: file.network ?? settings.network,
      winner: null,
      reason: '',
      runs: [],
      problem: null,
      createdAt: new Date().toISOString(),
      endedAt: null,
    });
    for (const approach of file.approaches) records.putRun(newRun(id, approach.name));
    const abort = new AbortController();
    const done = this.conduct(
      records.findExperiment(experiment.id),
      file,
      settings,
      checks,
      patches,
      input.keep,
      abort.signal,
    ).finally(() => this.active.delete(id));
    this.active.set(id, { abort, done });
    done.catch((error: unknown) => console.error(`experiment ${id}:`, error));
    return records.findExperiment(id);
  }

  /** Resolves when the experiment has ended; at once when it has. */
  async wait(ref: string): Promise<ExperimentRecord> {
    const { id } = this.context.records.findExperiment(ref);
    return (await this.active.get(id)?.done) ?? this.context.records.findExperiment(id);
  }

  /** Stops every run, destroys their sandboxes and waits for that. One that has ended stays as it is. */
  async cancel(ref: string): Promise<ExperimentRecord> {
    const { id } = this.context.records.findExperiment(ref);
    this.active.get(id)?.abort.abort();
    return this.wait(id);
  }

  /** What an agent that ended in the middle left: marked, so that nobody waits for it. Their sandboxes are reaped by their owner. */
  markInterrupted(): void {
    const { records } = this.context;
    for (const experiment of records.allExperiments()) {
      if (experiment.state !== 'running') continue;
      const now = new Date().toISOString();
      for (const run of experiment.runs) {
        if (run.endedAt === null)
          records.putRun({
            ...run,
            state: 'interrupted',
            endedAt: now,
            verdict: 'interrupted',
            problem: 'The agent ended while it ran.',
          });
      }
      const { runs, ...head } = records.findExperiment(experiment.id);
      const ranking = rankRuns(runs, head.metrics, { limits: head.limits });
      records.putExperiment({
        ...head,
        runs,
        state: 'interrupted',
        endedAt: now,
        problem: 'The agent ended while it ran.',
        reason: `Interrupted: the agent ended while it ran. ${ranking.reason}`,
      });
    }
  }

  /** Stops everything that runs, for the agent's own end. */
  async stop(): Promise<void> {
    for (const { abort } of this.active.values()) abort.abort();
    await Promise.allSettled([...this.active.values()].map((a) => a.done));
  }

  private async conduct(
    experiment: ExperimentRecord,
    file: ExperimentFile,
    settings: PetriFile,
    checks: CheckInput[],
    patches: Map<string, Buffer>,
    keep: boolean,
    signal: AbortSignal,
  ): Promise<ExperimentRecord> {
    const { records } = this.context;
    const { id } = experiment;
    try {
      const environment = await this.environment(experiment, file, settings, signal);
      await environment.store.keep(`experiment/${id}/base`, environment.identity.tree);
      records.putExperiment({
        ...experiment,
        environment: environment.identity,
        base: { ...experiment.base, tree: environment.identity.tree },
      });
      const plans: RunPlan[] = experiment.runs.map((run, i) => ({
        run: { ...run, baseTree: environment.identity.tree },
        approach: file.approaches[i] ?? { name: run.name, run: 'true' },
        patch: patches.get(run.name),
        experiment,
        environment,
        settings,
        checks,
        artifacts: file.artifacts,
        keep,
        folder: path.join(this.context.home, 'records', 'runs', run.id),
        signal,
      }));
      await inParallel(plans, file.concurrency ?? availableParallelism(), (plan) => executeRun(this.context, plan));
      return this.finish(id, signal.aborted ? 'cancelled' : 'done', null);
    } catch (error) {
      for (const run of records.findExperiment(id).runs) {
        if (run.endedAt === null) {
          records.putRun({
            ...run,
            state: isCancelled(error) ? 'cancelled' : 'failed',
            verdict: isCancelled(error) ? 'cancelled' : 'did not start',
            problem: messageOf(error),
            endedAt: new Date().toISOString(),
          });
        }
      }
      const problem = error instanceof PetriError && error.hint ? `${error.message} ${error.hint}` : messageOf(error);
      return this.finish(id, isCancelled(error) || signal.aborted ? 'cancelled' : 'failed', problem);
    }
  }

  private finish(id: string, state: ExperimentRecord['state'], problem: string | null): ExperimentRecord {
    const { records } = this.context;
    const experiment = records.findExperiment(id);
    const ranking = rankRuns(experiment.runs, experiment.metrics, { limits: experiment.limits });
    for (const run of experiment.runs) {
      records.putRun({
        ...run,
        rank: ranking.ranks.get(run.id) ?? null,
        verdict: ranking.verdicts.get(run.id) ?? run.verdict,
      });
    }
    return records.putExperiment({
      ...records.findExperiment(id),
      state,
      problem,
      winner: state === 'done' ? ranking.winner : null,
      reason: state === 'done' ? ranking.reason : state === 'cancelled' ? 'Cancelled.' : (problem ?? ''),
      endedAt: new Date().toISOString(),
    });
  }

  /** The one environment of all approaches. */
  private async environment(
    experiment: ExperimentRecord,
    file: ExperimentFile,
    settings: PetriFile,
    signal: AbortSignal,
  ): Promise<Environment> {
    const { environments, sandboxes, engine } = this.context;
    const store = await this.context.openStore(experiment.workspace);
    const request = {
      workspace: experiment.workspace,
      settings,
      signal,
      ...(file.image ? { image: file.image } : {}),
      progress: (p: { message: string; done?: number; total?: number }) => {
        const part = p.done !== undefined && p.total ? ` ${Math.round((p.done / p.total) * 100)} %` : '';
        for (const run of this.context.records.findExperiment(experiment.id).runs) {
          this.context.records.putRun({ ...run, state: 'preparing', step: `${p.message}${part}` }, false);
        }
      },
    };
    if (typeof file.base === 'string') return environments.prepare(request);
    if ('commit' in file.base)
      return environments.prepare({ ...request, state: await store.importCommit(file.base.commit) });
    const { snapshot, sandbox } = sandboxes.findSnapshot(file.base.snapshot);
    if (sandbox.workspace !== experiment.workspace) {
      throw new PetriError('usage', `Snapshot ${snapshot.id} is of another workspace (${sandbox.workspace}).`);
    }
    const image = await engine.findImage(snapshot.imageId);
    if (!image)
      throw new PetriError('state', `Snapshot ${snapshot.id} is no longer in the engine.`, {
        hint: 'Its sandbox was destroyed.',
      });
    return {
      image,
      identity: { ...sandbox.environment, tree: await sandboxes.snapshotTree(snapshot.id) },
      knownTree: sandbox.knownTree,
      store,
      include: sandbox.include,
      user: sandbox.user,
      fileOwner: sandbox.fileOwner,
    };
  }
}

/** Limits of the experiment over those of the workspace. */
export function mergeLimits(...inputs: (LimitsInput | undefined)[]): Limits {
  const out: Limits = {};
  for (const input of inputs) {
    if (input?.cpus !== undefined) out.cpus = input.cpus;
    if (input?.memory !== undefined) out.memoryBytes = input.memory;
    if (input?.pids !== undefined) out.pids = input.pids;
    if (input?.timeout !== undefined) out.timeoutMs = input.timeout;
  }
  return out;
}

function declaredMetrics(checks: CheckInput[]): MetricDeclaration[] {
  return checks.flatMap((c) =>
    Object.entries(c.metrics ?? {}).map(([name, source]) => ({ name, better: source.better })),
  );
}

/** Patch files are read before anything starts, so that a missing one is told at once. */
async function readPatches(file: ExperimentFile, folder: string): Promise<Map<string, Buffer>> {
  const out = new Map<string, Buffer>();
  for (const approach of file.approaches) {
    if (!('patch' in approach)) continue;
    const name = path.resolve(folder, approach.patch);
    const info = await stat(name).catch(() => undefined);
    if (!info?.isFile())
      throw new PetriError('not-found', `The patch file of "${approach.name}", ${approach.patch}, does not exist.`, {
        hint: 'Its path is relative to the experiment file.',
      });
    if (info.size > maxPatchFileBytes)
      throw new PetriError(
        'too-large',
        `The patch file ${approach.patch} has ${info.size} bytes; at most ${maxPatchFileBytes} are read.`,
      );
    out.set(approach.name, await readFile(name));
  }
  return out;
}

function newRun(experiment: string, name: string): RunRecord {
  return {
    id: newId('r'),
    experiment,
    name,
    state: 'waiting',
    rank: null,
    verdict: '',
    step: 'waiting',
    sandbox: null,
    baseTree: '',
    tree: null,
    exitCode: null,
    breach: null,
    problem: null,
    diff: null,
    files: [],
    patch: null,
    log: null,
    logCut: false,
    checks: [],
    metrics: {},
    artifacts: [],
    wallMs: null,
    cpuSeconds: null,
    peakMemoryBytes: null,
    startedAt: null,
    endedAt: null,
  };
}

/** Runs `task` for every item, at most `width` at once. The first failure is thrown when all have ended. */
async function inParallel<T>(items: T[], width: number, task: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const worker = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await task(item);
  };
  const results = await Promise.allSettled(Array.from({ length: Math.min(width, items.length) }, worker));
  const failed = results.find((r) => r.status === 'rejected');
  if (failed) throw failed.reason instanceof Error ? failed.reason : cancelled();
}
