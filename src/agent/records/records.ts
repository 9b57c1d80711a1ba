/** Everything the agent remembers: the fold of the journal, with an event for every change. */
import path from 'node:path';
import type {
  AgentEvent,
  ExecRecord,
  ExperimentRecord,
  PromotionRecord,
  RunRecord,
  SandboxRecord,
} from '../../protocol/records';
import { resolveRef } from './ids';
import { Journal } from './journal';

/** An experiment as it is kept: its runs have lines of their own. */
type ExperimentHead = Omit<ExperimentRecord, 'runs'>;
type StoredSandbox = Omit<SandboxRecord, 'execs'>;
type StoredExec = ExecRecord & { sandbox: string };

/** How many executions a sandbox's record shows; all of them are in the journal and their logs on disk. */
const shownExecs = 50;

export class Records {
  private readonly sandboxes = new Map<string, StoredSandbox>();
  private readonly execs = new Map<string, StoredExec[]>();
  private readonly experiments = new Map<string, ExperimentHead>();
  private readonly runs = new Map<string, RunRecord>();
  private readonly promotions = new Map<string, PromotionRecord>();
  private readonly watchers = new Set<(event: AgentEvent) => void>();
  private readonly journal: Journal;

  constructor(home: string) {
    this.journal = Journal.open(path.join(home, 'journal.jsonl'), (line) => {
      switch (line.kind) {
        case 'sandbox':
          this.sandboxes.set(line.id, line.record as StoredSandbox);
          break;
        case 'exec':
          this.rememberExec(line.record as StoredExec);
          break;
        case 'experiment':
          this.experiments.set(line.id, line.record as ExperimentHead);
          break;
        case 'run':
          this.runs.set(line.id, line.record as RunRecord);
          break;
        case 'promotion':
          this.promotions.set(line.id, line.record as PromotionRecord);
          break;
        default:
          break;
      }
    });
  }

  /** Calls back on every change until disposed. */
  watch(listener: (event: AgentEvent) => void): { dispose(): void } {
    this.watchers.add(listener);
    return { dispose: () => this.watchers.delete(listener) };
  }

  allSandboxes(): SandboxRecord[] {
    return [...this.sandboxes.values()].map((s) => this.withExecs(s));
  }

  sandbox(id: string): SandboxRecord | undefined {
    const stored = this.sandboxes.get(id);
    return stored && this.withExecs(stored);
  }

  /** By id, prefix, or the name of a live one (else of the newest). Errors: not-found, ambiguous. */
  findSandbox(ref: string): SandboxRecord {
    const all = [...this.sandboxes.values()];
    const live = all.filter((s) => s.state !== 'destroyed' && s.state !== 'failed');
    const pool = live.some((s) => s.id.startsWith(ref) || s.name === ref) ? live : all;
    return this.withExecs(resolveRef(pool, ref, 'sandbox', (s) => s.name));
  }

  putSandbox(record: SandboxRecord): SandboxRecord {
    const { execs: _, ...stored } = record;
    this.journal.append('sandbox', record.id, stored);
    this.sandboxes.set(record.id, stored);
    const full = this.withExecs(stored);
    this.emit({ kind: 'sandbox', record: full });
    return full;
  }

  putExec(sandbox: string, exec: ExecRecord): void {
    const stored = { ...exec, sandbox };
    this.journal.append('exec', exec.id, stored);
    this.rememberExec(stored);
    const record = this.sandbox(sandbox);
    if (record) this.emit({ kind: 'sandbox', record });
  }

  allExecs(sandbox: string): ExecRecord[] {
    return this.execs.get(sandbox) ?? [];
  }

  allExperiments(): ExperimentRecord[] {
    return [...this.experiments.values()].map((e) => this.withRuns(e));
  }

  findExperiment(ref: string): ExperimentRecord {
    return this.withRuns(resolveRef(this.experiments.values(), ref, 'experiment', (e) => e.name));
  }

  /** Writes the experiment's own fields; runs are written by {@link putRun}. */
  putExperiment(record: ExperimentRecord): ExperimentRecord {
    const { runs: _, ...head } = record;
    this.journal.append('experiment', record.id, head);
    this.experiments.set(record.id, head);
    const full = this.withRuns(head);
    this.emit({ kind: 'experiment', record: full });
    return full;
  }

  allRuns(): RunRecord[] {
    return [...this.runs.values()];
  }

  /** Writes a run. With `note` false the change (a step's words) is told but not kept. */
  putRun(run: RunRecord, note = true): void {
    if (note) this.journal.append('run', run.id, run);
    this.runs.set(run.id, run);
    const head = this.experiments.get(run.experiment);
    if (head) this.emit({ kind: 'experiment', record: this.withRuns(head) });
  }

  allPromotions(): PromotionRecord[] {
    return [...this.promotions.values()];
  }

  findPromotion(ref: string): PromotionRecord {
    return resolveRef(this.promotions.values(), ref, 'promotion');
  }

  /** Promotions are what an undo depends on: on disk before anybody hears of them. */
  putPromotion(record: PromotionRecord): PromotionRecord {
    this.journal.append('promotion', record.id, record, true);
    this.promotions.set(record.id, record);
    this.emit({ kind: 'promotion', record });
    return record;
  }

  close(): void {
    this.journal.close();
  }

  private rememberExec(exec: StoredExec): void {
    const list = this.execs.get(exec.sandbox) ?? [];
    const at = list.findIndex((e) => e.id === exec.id);
    if (at >= 0) list[at] = exec;
    else list.push(exec);
    this.execs.set(exec.sandbox, list);
  }

  private withExecs(stored: StoredSandbox): SandboxRecord {
    return { ...stored, execs: (this.execs.get(stored.id) ?? []).slice(-shownExecs) };
  }

  private withRuns(head: ExperimentHead): ExperimentRecord {
    return { ...head, runs: [...this.runs.values()].filter((r) => r.experiment === head.id) };
  }

  private emit(event: AgentEvent): void {
    for (const listener of this.watchers) listener(event);
  }
}
