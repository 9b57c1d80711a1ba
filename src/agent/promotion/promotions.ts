/**
 * Promotion: one diff up the ladder. *sandbox*: there is a diff. *verified*: in a clean room. *local*: merged onto the real workspace as it is
 * then. Each write to the workspace is journaled before it begins; undo is the same merge the other way round.
 */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { messageOf, PetriError } from '../../protocol/errors';
import type { CheckInput } from '../../protocol/files';
import type { PromotionRecord, StageName, StageResult } from '../../protocol/records';
import type { Engine } from '../engine/engine';
import type { Environments } from '../environment/environments';
import { readPetriFile } from '../experiment/files';
import { mergeLimits } from '../experiment/experiments';
import { newId } from '../records/ids';
import { KeyedMutex } from '../records/mutex';
import type { Records } from '../records/records';
import type { Sandboxes } from '../sandbox/sandboxes';
import { planApply, recoverApply, runApply } from '../workspace/apply';
import type { Oid, WorkspaceStore } from '../workspace/store';
import { findSource, type Source } from './source';
import { verifyInCleanRoom } from './verified';

export interface PromotionContext {
  engine: Engine;
  environments: Environments;
  sandboxes: Sandboxes;
  records: Records;
  home: string;
  openStore(workspace: string): Promise<WorkspaceStore>;
}

export interface PromoteOptions {
  to: StageName;
  dryRun: boolean;
  allowSensitive: boolean;
  signal: AbortSignal;
  progress(message: string): void;
}

/** The stages in order. Those after `local` come with their own gates. */
const ladder: StageName[] = ['sandbox', 'verified', 'local', 'tested', 'staging', 'production'];
const reachable: StageName[] = ['sandbox', 'verified', 'local'];

export class Promotions {
  private readonly locks = new KeyedMutex();

  constructor(private readonly context: PromotionContext) {}

  /**
   * Climbs to the asked stage or the first gate that refuses; refusals and conflicts are in the record, not thrown. A dry run
   * does not verify and touches nothing: it tells the files and the conflicts. Errors: not-found, ambiguous, unsupported, sensitive-paths, busy.
   */
  async promote(ref: string, options: PromoteOptions): Promise<PromotionRecord> {
    if (!reachable.includes(options.to)) {
      throw new PetriError('unsupported', `The stage "${options.to}" is not there yet.`, {
        hint: `Promote to ${reachable.join(', ')}.`,
      });
    }
    const source = await findSource(this.context, ref, options.signal);
    const store = await this.context.openStore(source.workspace);
    const { files } = await store.diff(source.baseTree, source.tree);
    const record: PromotionRecord = {
      id: newId('p'),
      source: { kind: source.kind, id: source.id, name: source.name },
      workspace: source.workspace,
      state: 'running',
      dryRun: options.dryRun,
      baseTree: source.baseTree,
      resultTree: source.tree,
      environment: source.environment,
      files,
      stages: [],
      conflicts: [],
      undo: null,
      writing: null,
      problem: null,
      createdAt: new Date().toISOString(),
      endedAt: null,
    };
    await store.keep(`promotion/${record.id}/base`, source.baseTree);
    await store.keep(`promotion/${record.id}/result`, source.tree);
    const climb = new Climb(this.context, this.locks, store, source, record, options);
    return climb.climb();
  }

  /** Takes a promotion back: three-way, so that later edits elsewhere stay. Conflicts touch nothing. */
  async undo(ref: string): Promise<PromotionRecord> {
    const { records } = this.context;
    const found = records.findPromotion(ref);
    return this.locks.run(found.workspace, async () => {
      const record = records.findPromotion(found.id);
      if (record.state !== 'done' || !record.undo) {
        throw new PetriError('state', `Promotion ${record.id} has nothing to undo: it is ${record.state}.`, {
          data: { id: record.id, state: record.state },
        });
      }
      const store = await this.context.openStore(record.workspace);
      const now = (await store.capture({ include: (await readPetriFile(record.workspace)).environment.include })).tree;
      const merged = await store.merge(record.undo.after, now, record.undo.before);
      if (merged.tree === null) throw undoConflict(record.id, merged.conflicts);
      const plan = await planApply(store, now, merged.tree);
      if (plan.conflicts.length > 0) throw undoConflict(record.id, plan.conflicts);
      await store.keep(`promotion/${record.id}/undone`, now);
      const target = merged.tree;
      await runApply(store, plan.changes, {
        began: async () =>
          void records.putPromotion({ ...record, writing: { before: now, after: target, purpose: 'undo' } }),
        ended: async () => void records.putPromotion(asUndone(record)),
      });
      return records.findPromotion(record.id);
    });
  }

  /** After a crash: a write that had begun is finished or taken back; what was only being checked is marked. */
  async recover(): Promise<void> {
    const { records } = this.context;
    for (const record of records.allPromotions()) {
      if (record.writing) await this.locks.run(record.workspace, () => this.finishWriting(record));
      else if (record.state === 'running') {
        const stages = record.stages.map((s): StageResult =>
          s.state === 'running'
            ? { ...s, state: 'refused', detail: 'The agent ended in the middle.', endedAt: new Date().toISOString() }
            : s,
        );
        records.putPromotion({
          ...record,
          state: 'interrupted',
          stages,
          problem: 'The agent ended in the middle; nothing was written.',
          endedAt: new Date().toISOString(),
        });
      }
    }
  }

  private async finishWriting(record: PromotionRecord): Promise<void> {
    const { writing } = record;
    if (!writing) return;
    const { records } = this.context;
    try {
      const store = await this.context.openStore(record.workspace);
      const outcome = await recoverApply(store, await store.changes(writing.before, writing.after));
      const complete = outcome.state === 'after';
      if (writing.purpose === 'undo') {
        records.putPromotion(
          complete
            ? asUndone(record)
            : { ...record, writing: null, problem: `An undo was cut off and taken back. ${outcome.detail}`.trim() },
        );
      } else if (complete) {
        records.putPromotion(asApplied(record, 'Finished after the agent was restarted.'));
      } else {
        const stages = record.stages.map((s): StageResult =>
          s.state === 'running'
            ? { ...s, state: 'refused', detail: outcome.detail, endedAt: new Date().toISOString() }
            : s,
        );
        records.putPromotion({
          ...record,
          state: 'interrupted',
          writing: null,
          undo: null,
          stages,
          problem: `Cut off and taken back. ${outcome.detail}`.trim(),
          endedAt: new Date().toISOString(),
        });
      }
    } catch (error) {
      // The marker stays: the next start tries again.
      records.putPromotion({
        ...record,
        problem: `A write that was cut off could not be finished: ${messageOf(error)}`,
      });
    }
  }
}

/** One way up the ladder. */
class Climb {
  constructor(
    private readonly context: PromotionContext,
    private readonly locks: KeyedMutex,
    private readonly store: WorkspaceStore,
    private readonly source: Source,
    private record: PromotionRecord,
    private readonly options: PromoteOptions,
  ) {}

  async climb(): Promise<PromotionRecord> {
    this.put({});
    try {
      const last = ladder.indexOf(this.options.to);
      for (const stage of ladder.slice(0, last + 1)) {
        if (this.record.state !== 'running') break;
        if (stage === 'sandbox') this.sandbox();
        else if (stage === 'verified' && !this.options.dryRun) await this.verified();
        else if (stage === 'local') await this.locks.run(this.record.workspace, () => this.local());
      }
      if (this.record.state === 'running') this.put({ state: 'done', endedAt: new Date().toISOString() });
      return this.record;
    } catch (error) {
      if (this.record.writing === null) {
        const stages = this.record.stages.map((s): StageResult =>
          s.state === 'running'
            ? { ...s, state: 'refused', detail: messageOf(error), endedAt: new Date().toISOString() }
            : s,
        );
        this.put({ state: 'refused', stages, problem: messageOf(error), endedAt: new Date().toISOString() });
      }
      throw error;
    }
  }

  private sandbox(): void {
    this.begin('sandbox');
    if (this.source.baseTree === this.source.tree) return this.refuse('There is no diff: nothing to promote.');
    this.pass(`${this.record.files.length} ${this.record.files.length === 1 ? 'file' : 'files'} changed`);
  }

  private async verified(): Promise<void> {
    this.begin('verified');
    const settings = await readPetriFile(this.source.workspace);
    const checks: CheckInput[] = this.source.checks ?? settings.checks;
    this.options.progress('Verifying in a clean room');
    const folder = path.join(this.context.home, 'records', 'promotions', this.record.id, 'verified');
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const outcome = await verifyInCleanRoom(this.context, {
      source: this.source,
      settings,
      checks,
      limits: this.source.limits ?? mergeLimits(settings.limits),
      network: this.source.network ?? settings.network,
      store: this.store,
      promotion: this.record.id,
      folder,
      signal: this.options.signal,
      progress: this.options.progress,
    });
    this.changeStage({ checks: outcome.checks });
    if (outcome.refusal !== null) return this.refuse(outcome.refusal);
    this.pass(
      checks.length === 0
        ? 'the diff applies to a clean base; no checks are declared'
        : `${checks.length} ${checks.length === 1 ? 'check' : 'checks'} passed in a clean room`,
    );
  }

  private async local(): Promise<void> {
    this.begin('local');
    const { store, record } = this;
    const sensitive = record.files.filter((f) => f.sensitive !== null);
    if (sensitive.length > 0 && !this.options.allowSensitive && !this.options.dryRun) {
      throw new PetriError(
        'sensitive-paths',
        `The diff touches what runs by itself later: ${sensitive.map((f) => `${f.path} (${f.sensitive ?? ''})`).join(', ')}.`,
        {
          hint: 'Look at these files; then promote with --allow-sensitive.',
          data: { paths: sensitive.map((f) => f.path) },
        },
      );
    }
    this.options.progress('Merging with the workspace');
    const settings = await readPetriFile(this.source.workspace);
    const before = (await store.capture({ include: settings.environment.include, signal: this.options.signal })).tree;
    const merged = await store.merge(record.baseTree, before, record.resultTree);
    if (merged.tree === null) return this.conflict(merged.conflicts);
    const after: Oid = merged.tree;
    const plan = await planApply(store, before, after);
    if (plan.conflicts.length > 0) return this.conflict(plan.conflicts);
    if (this.options.dryRun)
      return this.pass(`${plan.changes.length} ${plan.changes.length === 1 ? 'file' : 'files'} would be written`);
    if (plan.changes.length === 0) return this.pass('the workspace has these changes already');
    await store.keep(`promotion/${record.id}/before`, before);
    await store.keep(`promotion/${record.id}/after`, after);
    if (this.options.signal.aborted)
      throw new PetriError('cancelled', 'The promotion was cancelled; nothing was written.');
    await runApply(store, plan.changes, {
      began: async () => this.put({ undo: { before, after }, writing: { before, after, purpose: 'apply' } }),
      ended: async () => {
        this.record = this.context.records.putPromotion(
          asApplied(this.record, `${plan.changes.length} ${plan.changes.length === 1 ? 'file' : 'files'} written`),
        );
      },
    }).catch((error: unknown) => {
      // The writer took back what it had written before it threw.
      this.put({ undo: null, writing: null });
      throw error;
    });
  }

  private begin(stage: StageName): void {
    const result: StageResult = {
      stage,
      state: 'running',
      startedAt: new Date().toISOString(),
      endedAt: null,
      detail: '',
      checks: [],
    };
    this.put({ stages: [...this.record.stages, result] });
  }

  private pass(detail: string): void {
    this.changeStage({ state: 'passed', detail, endedAt: new Date().toISOString() });
  }

  private refuse(detail: string): void {
    this.changeStage({ state: 'refused', detail, endedAt: new Date().toISOString() });
    this.put({ state: 'refused', problem: detail, endedAt: new Date().toISOString() });
  }

  private conflict(conflicts: PromotionRecord['conflicts']): void {
    this.changeStage({
      state: 'refused',
      detail: `${conflicts.length} ${conflicts.length === 1 ? 'conflict' : 'conflicts'}; no file was touched`,
      endedAt: new Date().toISOString(),
    });
    this.put({ state: 'conflict', conflicts, endedAt: new Date().toISOString() });
  }

  private changeStage(change: Partial<StageResult>): void {
    this.put({ stages: this.record.stages.map((s, i, all) => (i === all.length - 1 ? { ...s, ...change } : s)) });
  }

  private put(change: Partial<PromotionRecord>): void {
    this.record = this.context.records.putPromotion({ ...this.record, ...change });
  }
}

function asApplied(record: PromotionRecord, detail: string): PromotionRecord {
  const now = new Date().toISOString();
  return {
    ...record,
    state: 'done',
    writing: null,
    endedAt: now,
    stages: record.stages.map((s): StageResult =>
      s.stage === 'local' && s.state === 'running' ? { ...s, state: 'passed', detail, endedAt: now } : s,
    ),
  };
}

function asUndone(record: PromotionRecord): PromotionRecord {
  return {
    ...record,
    state: 'undone',
    writing: null,
    endedAt: new Date().toISOString(),
    stages: record.stages.map((s): StageResult =>
      s.stage === 'local' ? { ...s, state: 'undone', detail: 'undone' } : s,
    ),
  };
}

function undoConflict(id: string, conflicts: { path: string; reason: string }[]): PetriError {
  return new PetriError(
    'conflict',
    `Promotion ${id} can't be undone without losing later edits: ${conflicts.map((c) => `${c.path} (${c.reason})`).join(', ')}.`,
    {
      hint: 'No file was touched. Save or commit your later edits elsewhere, or undo by hand.',
      data: { conflicts },
    },
  );
}
