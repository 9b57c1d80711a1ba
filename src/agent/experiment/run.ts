/** One run: an approach executed in a sandbox of its own, its diff taken before the checks, the checks, the figures. */
import { appendFileSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { isCancelled, messageOf, PetriError } from '../../protocol/errors';
import type { ApproachInput, CheckInput, PetriFile } from '../../protocol/files';
import type { ExperimentRecord, RunRecord, SandboxRecord } from '../../protocol/records';
import type { BoxStats, Engine } from '../engine/engine';
import type { Environment } from '../environment/environments';
import type { Records } from '../records/records';
import type { Sandboxes } from '../sandbox/sandboxes';
import { saveWork } from '../sandbox/saved';
import { writeChanges } from '../sandbox/transfer';
import { runChecks } from './checks';
import { collectArtifacts } from './collect';

export interface RunPlan {
  run: RunRecord;
  approach: ApproachInput;
  /** Content of the patch file, when the approach is one. */
  patch: Buffer | undefined;
  experiment: ExperimentRecord;
  environment: Environment;
  settings: PetriFile;
  checks: CheckInput[];
  artifacts: string[];
  keep: boolean;
  folder: string;
  signal: AbortSignal;
}

interface Context {
  engine: Engine;
  sandboxes: Sandboxes;
  records: Records;
}

/** How often memory is looked at where the engine keeps no peak, ms. */
const sampleEveryMs = 250;

/** Executes a run to its record. Whatever the approach does is a result; only an engine that is gone is thrown. */
export async function executeRun(context: Context, plan: RunPlan): Promise<void> {
  const run = new Conduct(context, plan);
  await run.execute();
}

class Conduct {
  private run: RunRecord;
  private sandbox: SandboxRecord | undefined;
  private peak = 0;
  private extractionCpu = 0;

  constructor(
    private readonly context: Context,
    private readonly plan: RunPlan,
  ) {
    this.run = plan.run;
  }

  async execute(): Promise<void> {
    const { plan, context } = this;
    if (plan.signal.aborted) return this.end({ state: 'cancelled', verdict: 'cancelled' });
    mkdirSync(plan.folder, { recursive: true, mode: 0o700 });
    try {
      this.note({ state: 'preparing', step: 'creating the sandbox', startedAt: new Date().toISOString() });
      const { limits, network } = plan.experiment;
      this.sandbox = await context.sandboxes.create({
        workspace: plan.experiment.workspace,
        settings: plan.settings,
        name: `${plan.experiment.name.slice(0, 30)}/${plan.run.name.slice(0, 20)}-${plan.run.id.slice(1, 5)}`,
        limits,
        network,
        owner: { kind: 'experiment', id: plan.experiment.id },
        environment: plan.environment,
        signal: plan.signal,
      });
      this.note({ sandbox: this.sandbox.id });
      this.sampler = setInterval(() => void this.sample(), sampleEveryMs);
      await this.work(this.sandbox);
    } catch (error) {
      if (plan.signal.aborted || isCancelled(error)) this.end({ state: 'cancelled', verdict: 'cancelled' });
      else if (error instanceof PetriError && error.code !== 'engine-gone')
        this.end({ state: 'failed', problem: messageOf(error) });
      else {
        this.end({ state: 'failed', problem: messageOf(error) });
        throw error;
      }
    } finally {
      clearInterval(this.sampler);
      await this.cleanUp();
    }
  }

  private async work(sandbox: SandboxRecord): Promise<void> {
    const { plan, context } = this;
    const began = Date.now();
    const limit = plan.experiment.limits.timeoutMs;
    const timeLeft = (): number | undefined => (limit === undefined ? undefined : limit - (Date.now() - began));
    const store = plan.environment.store;
    this.note({ state: 'running', step: 'patch' in plan.approach ? 'applying the patch' : 'running' });
    await this.approach(sandbox, timeLeft);
    if (this.run.breach === 'timeout' && sandbox.containerId) await context.engine.killProcesses(sandbox.containerId);

    const worked = Date.now() - began;
    this.note({ step: 'taking the diff' }, false);
    const before = await this.stats();
    const tree = await context.sandboxes.tree(sandbox.id, plan.signal);
    await store.keep(`run/${plan.run.id}`, tree);
    const saved = await saveWork(store, plan.run.baseTree, tree, plan.folder);
    const { files, stat } = await store.diff(plan.run.baseTree, tree);
    const after = await this.stats();
    this.extractionCpu = Math.max(0, (after?.cpuSeconds ?? 0) - (before?.cpuSeconds ?? 0));
    this.note({ tree, diff: stat, files, patch: saved.patch });

    const checksBegan = Date.now();
    if (this.run.problem === null && this.run.breach === null) {
      this.note({ state: 'checking' });
      const left = limit === undefined ? undefined : limit - worked;
      const checks = await runChecks(plan.checks, {
        engine: context.engine,
        sandboxes: context.sandboxes,
        sandbox,
        logs: plan.folder,
        signal: plan.signal,
        timeLeft: () => (left === undefined ? undefined : left - (Date.now() - checksBegan)),
        step: (step) => this.note({ step }, false),
      });
      this.note({ checks, metrics: Object.assign({}, ...checks.map((c) => c.metrics)) as Record<string, number> });
    }
    const wallMs = worked + (Date.now() - checksBegan);
    const figures = await this.stats();
    const { kept, problems } = await collectArtifacts(
      context.engine,
      sandbox.containerId ?? '',
      plan.artifacts,
      path.join(plan.folder, 'artifacts'),
    );
    const failed = this.run.checks.some((c) => !c.passed);
    const breach = this.run.breach ?? this.run.checks.find((c) => c.breach !== null)?.breach ?? null;
    this.end({
      state: this.run.problem !== null || breach !== null || failed ? 'failed' : 'passed',
      breach,
      artifacts: kept,
      problem: this.run.problem ?? (problems.length > 0 && !failed ? null : this.run.problem),
      wallMs,
      cpuSeconds: figures ? Math.max(0, Math.round((figures.cpuSeconds - this.extractionCpu) * 1000) / 1000) : null,
      peakMemoryBytes: Math.max(this.peak, figures?.peakMemoryBytes ?? 0) || null,
    });
  }

  /** The approach's own work. Its failing is noted, not thrown. */
  private async approach(sandbox: SandboxRecord, timeLeft: () => number | undefined): Promise<void> {
    const { plan, context } = this;
    const { approach } = plan;
    if ('patch' in approach) {
      try {
        const store = plan.environment.store;
        const tree = await store.applyPatch(plan.run.baseTree, plan.patch ?? Buffer.alloc(0));
        await writeChanges(context.engine, sandbox, store, plan.run.baseTree, tree);
      } catch (error) {
        if (!(error instanceof PetriError) || error.code === 'engine-gone' || error.code === 'cancelled') throw error;
        this.note({ problem: `The patch does not apply: ${error.message}` });
      }
      return;
    }
    const log = path.join(plan.folder, 'approach.log');
    this.note({ log }, false);
    for (const command of [approach.run].flat()) {
      const left = timeLeft();
      if (left !== undefined && left <= 0) return this.note({ breach: 'timeout' });
      appendFileSync(log, `$ ${command}\n`, { mode: 0o600 });
      const exec = await context.sandboxes.exec(sandbox.id, {
        command: ['/bin/sh', '-c', command],
        logFile: log,
        signal: plan.signal,
        ...(left === undefined ? {} : { timeoutMs: left }),
        output: (_, data) => this.lastLine(data),
      });
      this.note({ exitCode: exec.exitCode, breach: exec.breach, logCut: this.run.logCut || exec.logCut });
      if (exec.breach !== null) return;
      if (exec.exitCode !== 0) return this.note({ problem: `\`${command}\` ended with exit code ${exec.exitCode}.` });
    }
  }

  private told = 0;

  /** The last line of output as the step at hand, at most ten times a second. */
  private lastLine(data: Buffer): void {
    const now = Date.now();
    if (now - this.told < 100) return;
    this.told = now;
    const line = data.toString('utf8').trim().split('\n').pop()?.slice(0, 200);
    if (line) this.note({ step: line }, false);
  }

  private async stats(): Promise<BoxStats | undefined> {
    return this.sandbox?.containerId
      ? this.context.engine.stats(this.sandbox.containerId).catch(() => undefined)
      : undefined;
  }

  private sampler: NodeJS.Timeout | undefined;
  private sampling = false;

  private async sample(): Promise<void> {
    if (this.sampling) return;
    this.sampling = true;
    const stats = await this.stats();
    this.peak = Math.max(this.peak, stats?.memoryBytes ?? 0);
    // An engine that keeps the peak itself need not be asked again before the end.
    if (stats && stats.peakMemoryBytes !== null) clearInterval(this.sampler);
    this.sampling = false;
  }

  private async cleanUp(): Promise<void> {
    if (!this.sandbox) return;
    const { sandboxes } = this.context;
    if (this.plan.keep && !this.plan.signal.aborted) return;
    // The run's own record holds the diff; after a cancel what is there is saved first.
    const discard = this.run.tree !== null;
    try {
      await sandboxes.destroy(this.sandbox.id, { discard });
    } catch (error) {
      if (!discard) await sandboxes.destroy(this.sandbox.id, { discard: true });
      else throw error;
    }
  }

  private note(change: Partial<RunRecord>, keep = true): void {
    this.run = { ...this.run, ...change };
    this.context.records.putRun(this.run, keep);
  }

  private end(change: Partial<RunRecord>): void {
    this.note({ step: '', endedAt: new Date().toISOString(), ...change });
  }
}
