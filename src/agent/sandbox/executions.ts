/** Running commands in a sandbox: streamed, logged to a cap, cancellable, with time bounds and typed breaches. */
import path from 'node:path';
import { PetriError } from '../../protocol/errors';
import type { Breach, ExecRecord } from '../../protocol/records';
import type { Engine, ExecHandle } from '../engine/engine';
import { LogFile } from '../records/logFile';
import { newId } from '../records/ids';

export interface ExecutionSpec {
  command: string[];
  tty?: boolean;
  stdin?: boolean;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  size?: { columns: number; rows: number };
  timeoutMs?: number;
  signal?: AbortSignal;
  /** Gets every byte; a promise holds the command back. */
  output?(channel: 'stdout' | 'stderr', data: Buffer): void | Promise<void>;
  /** Gets the handle once the command has begun, for input. */
  began?(handle: ExecHandle): void;
  /** Where the log goes, in place of the sandbox's own folder. */
  logFile?: string;
}

export interface ExecutionHost {
  boxId: string;
  /** Folder for logs. */
  logs: string;
  /** Told at the beginning and at the end. */
  record(exec: ExecRecord): void;
}

/** How long a command has between TERM and KILL, ms. */
const graceMs = 2000;

export class Executions {
  /** Boxes in which something ran out of memory, by count, as the engine told. */
  private readonly oomSeen = new Map<string, number>();

  constructor(private readonly engine: Engine) {}

  /** The engine told that something in this box was killed for want of memory. */
  noteOom(boxId: string): void {
    this.oomSeen.set(boxId, (this.oomSeen.get(boxId) ?? 0) + 1);
  }

  /**
   * Runs a command to its end. A command that fails, is killed or runs out of something is a result. Errors: engine-gone, state (the box is
   * not running), cancelled (after the command was ended).
   */
  async run(host: ExecutionHost, spec: ExecutionSpec): Promise<ExecRecord> {
    const id = newId('x');
    const log = new LogFile(spec.logFile ?? path.join(host.logs, `${id}.log`));
    const oomBefore = this.oomSeen.get(host.boxId) ?? 0;
    const exec: ExecRecord = {
      id,
      command: spec.command,
      state: 'running',
      exitCode: null,
      breach: null,
      startedAt: new Date().toISOString(),
      endedAt: null,
      log: log.file,
      logCut: false,
    };
    host.record(exec);
    let handle: ExecHandle | undefined;
    let stopped: 'timeout' | 'cancelled' | undefined;
    const timers: NodeJS.Timeout[] = [];
    const stop = (why: 'timeout' | 'cancelled'): void => {
      if (stopped || !handle) return;
      stopped = why;
      const running = handle;
      void running.kill('TERM').catch(() => undefined);
      timers.push(setTimeout(() => void running.kill('KILL').catch(() => undefined), graceMs));
    };
    const onAbort = (): void => stop('cancelled');
    try {
      handle = await this.engine.exec(host.boxId, {
        command: spec.command,
        ...(spec.tty ? { tty: true } : {}),
        ...(spec.stdin ? { stdin: true } : {}),
        ...(spec.env ? { env: spec.env } : {}),
        ...(spec.cwd === undefined ? {} : { cwd: spec.cwd }),
        ...(spec.user ? { user: spec.user } : {}),
        ...(spec.size ? { size: spec.size } : {}),
      });
      spec.began?.(handle);
      if (spec.timeoutMs !== undefined) timers.push(setTimeout(() => stop('timeout'), spec.timeoutMs));
      spec.signal?.addEventListener('abort', onAbort, { once: true });
      if (spec.signal?.aborted) onAbort();
      const take = async (channel: 'stdout' | 'stderr', stream: AsyncIterable<Buffer>): Promise<void> => {
        for await (const data of stream) {
          log.write(data);
          await spec.output?.(channel, data);
        }
      };
      const [exitCode] = await Promise.all([handle.exit, take('stdout', handle.stdout), take('stderr', handle.stderr)]);
      exec.exitCode = exitCode;
      exec.breach = stopped === 'timeout' ? 'timeout' : await this.breachOf(host.boxId, exitCode, oomBefore);
      exec.state = 'exited';
    } catch (error) {
      exec.state = 'interrupted';
      log.write(Buffer.from(`\n[petri: ${error instanceof Error ? error.message : String(error)}]\n`));
      throw error;
    } finally {
      for (const timer of timers) clearTimeout(timer);
      spec.signal?.removeEventListener('abort', onAbort);
      log.close();
      exec.logCut = log.cut;
      exec.endedAt = new Date().toISOString();
      if (stopped === 'cancelled') exec.state = 'interrupted';
      host.record({ ...exec });
    }
    if (stopped === 'cancelled')
      throw new PetriError('cancelled', 'The command was cancelled.', { data: { exec: id, log: log.file } });
    return { ...exec };
  }

  /** Why a command that did not end well was stopped by a limit; null when none did it. */
  private async breachOf(boxId: string, exitCode: number, oomBefore: number): Promise<Breach | null> {
    if (exitCode === 0) return null;
    const stats = await this.engine.stats(boxId).catch(() => undefined);
    const before = this.lastCounts.get(boxId) ?? { oom: 0, pids: 0 };
    const now = { oom: stats?.oomKills ?? before.oom, pids: stats?.pidsDenied ?? before.pids };
    this.lastCounts.set(boxId, now);
    if (now.oom > before.oom) return 'oom';
    // Where the counts can't be read the engine's own event is the word.
    if (typeof stats?.oomKills !== 'number' && (this.oomSeen.get(boxId) ?? 0) > oomBefore) return 'oom';
    return now.pids > before.pids ? 'pids' : null;
  }

  /** What the kernel had counted for a box when it was last asked. */
  private readonly lastCounts = new Map<string, { oom: number; pids: number }>();
}
