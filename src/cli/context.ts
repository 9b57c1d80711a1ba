/** What every subcommand works with: its options, the agent, cancellation, and the two ways of printing a result. */
import path from 'node:path';
import { PetriError } from '../protocol/errors';
import type { Input, OperationName, Output } from '../protocol/operations';
import type { Progress } from '../protocol/wire';
import { formatBytes } from '../protocol/units';
import type { PetriClient } from '../client/client';
import type { Host } from './host';
import { surface } from './host';
import { append, LiveBlock } from './live';
import { spin } from './render/progress';
import { fitLine, line, paint, t, type Line } from './render/text';
import type { View } from './render/sandbox';
import { version } from './version';

/** The options that every subcommand has. */
export interface CommonOptions {
  workspace?: string;
  json?: boolean;
  home?: string;
}

/** Exit code where the reader of the output went away, as shells give it for SIGPIPE. */
export const brokenPipe = 141;

export class Context {
  /** True while the work goes on in the agent without us: then a terminal that is closed stops nothing. */
  outlives = false;
  private clientPromise: Promise<PetriClient> | undefined;
  private pipeBroken = false;
  private wroteJson = false;
  private readonly abort = new AbortController();

  constructor(
    readonly host: Host,
    readonly options: CommonOptions,
  ) {
    host.stdout.on('error', this.outputFailed);
  }

  /** Aborts when the user asked to stop, or when nobody reads the output any more. */
  get signal(): AbortSignal {
    return this.abort.signal;
  }

  get json(): boolean {
    return this.options.json === true;
  }

  /** True when the reader of standard output went away. */
  get outputGone(): boolean {
    return this.pipeBroken;
  }

  /** The user's folder, absolute. */
  get workspace(): string {
    return path.resolve(this.host.cwd, this.options.workspace ?? '.');
  }

  /** The data folder as asked for on the command line; undefined for the default. */
  get home(): string | undefined {
    return this.options.home === undefined ? undefined : path.resolve(this.host.cwd, this.options.home);
  }

  get view(): View {
    return { width: surface(this.host.stdout, this.host.env).columns, now: this.host.now() };
  }

  stop(): void {
    this.abort.abort();
  }

  /** The agent; started when none runs, unless told otherwise. */
  client(start = true): Promise<PetriClient> {
    const home = this.home;
    this.clientPromise ??= this.host.connect({
      client: { name: 'petri-cli', version },
      start,
      ...(home === undefined ? {} : { home }),
    });
    return this.clientPromise;
  }

  async dispose(): Promise<void> {
    this.host.stdout.off('error', this.outputFailed);
    // A connection that never came about needs no end.
    await this.clientPromise?.then(
      (client) => client.dispose(),
      () => undefined,
    );
  }

  /** One operation, cancelled by the user's signal, with its progress on standard error. */
  async call<N extends OperationName>(name: N, input: Input<N>): Promise<Output<N>> {
    const client = await this.client();
    if (this.signal.aborted) throw new PetriError('cancelled', 'It was cancelled.');
    const progress = this.progress();
    try {
      return await client.call(name, input, { signal: this.signal, progress: progress.report });
    } finally {
      progress.end();
    }
  }

  /** Prints a result: one JSON value, or what `people` draws. Nothing else goes to standard output. */
  async print(value: unknown, people: (view: View) => readonly Line[]): Promise<void> {
    if (this.json) {
      if (this.wroteJson) throw new PetriError('internal', 'Two JSON values were about to be printed.');
      this.wroteJson = true;
      await this.write(`${JSON.stringify(value, null, 2)}\n`);
    } else await this.write(paint(people(this.view), surface(this.host.stdout, this.host.env).color));
  }

  /** Writes to standard output and waits until it is taken: what is read slowly is not kept in memory. */
  write(data: string | Uint8Array): Promise<void> {
    if (this.pipeBroken || this.host.stdout.destroyed) return Promise.resolve();
    return new Promise((resolve) => void this.host.stdout.write(data, () => resolve()));
  }

  /** A line for people on standard error; a JSON line with `--json`. */
  say(event: Record<string, unknown>, lines: readonly Line[]): void {
    if (this.json) this.host.stderr.write(`${JSON.stringify(event)}\n`);
    else append(this.host, lines);
  }

  /** Shows one operation's progress: in place where that works, else a line for each new message. */
  private progress(): { report: (p: Progress) => void; end: () => void } {
    const { host } = this;
    let block: LiveBlock | undefined;
    let last = '';
    let current: Progress = { message: '' };
    const inPlace = !this.json && surface(host.stderr, host.env).inPlace;
    return {
      report: (p) => {
        current = p;
        if (inPlace) {
          block ??= new LiveBlock(host);
          block.show((tick, s) => [progressLine(current, tick, s.columns)]);
        } else if (last !== p.message) {
          last = p.message;
          this.say({ event: 'progress', ...p }, [line(t('  '), p.message)]);
        }
      },
      end: () => block?.clear(),
    };
  }

  private readonly outputFailed = (error: NodeJS.ErrnoException): void => {
    if (error.code !== 'EPIPE' && error.code !== 'ERR_STREAM_DESTROYED')
      this.host.stderr.write(`petri: cannot write: ${error.message}\n`);
    this.pipeBroken = true;
    this.abort.abort();
  };
}

function progressLine(p: Progress, tick: number, width: number): Line {
  const share =
    p.total !== undefined && p.total > 0 && p.done !== undefined ? Math.min(1, p.done / p.total) : undefined;
  const cells = 20;
  const full = Math.round((share ?? 0) * cells);
  const amount =
    p.done === undefined
      ? ''
      : `  ${amountText(p.done)}${p.total === undefined || p.total === 0 ? '' : ` of ${amountText(p.total)}`}`;
  return fitLine(
    line(
      spin(tick),
      ' ',
      p.message,
      share === undefined ? '' : '  ',
      share === undefined ? '' : t('━'.repeat(full), 'accent'),
      share === undefined ? '' : t('━'.repeat(cells - full), 'dim'),
      t(amount, 'dim'),
    ),
    width,
  );
}

/** Units are the message's own; large numbers are bytes in practice and read better as such. */
function amountText(n: number): string {
  return n >= 100_000 ? formatBytes(n) : n.toLocaleString('en');
}
