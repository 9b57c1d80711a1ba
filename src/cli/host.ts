/** What surrounds the command: its streams, signals, environment and the way to the agent. Tests give their own. */
import type { Readable, Writable } from 'node:stream';
import type { ConnectOptions, PetriClient } from '../client/client';

/** Standard input: a terminal when it can be raw. */
export type InputStream = Readable & { isTTY?: boolean; setRawMode?(on: boolean): unknown };
/** Standard output or error. */
export type OutputStream = Writable & { isTTY?: boolean; columns?: number; rows?: number };

export interface Host {
  stdin: InputStream;
  /** True when standard input is a pipe, a file or a socket: something that somebody means to be read. */
  stdinPiped: boolean;
  stdout: OutputStream;
  stderr: OutputStream;
  env: NodeJS.ProcessEnv;
  cwd: string;
  connect(options: ConnectOptions): Promise<PetriClient>;
  /** Calls back at SIGINT, SIGTERM and SIGHUP until disposed. */
  onSignal(listener: (signal: NodeJS.Signals) => void): { dispose(): void };
  /** Ends the process at once. What {@link atExit} was given runs first. */
  leave(code: number): void;
  /** Something to put right whichever way the process ends, such as the terminal's mode. Disposing forgets it. */
  atExit(restore: () => void): { dispose(): void };
  /** The present, ms. */
  now(): number;
}

/** How a stream may be drawn on. */
export interface Surface {
  color: boolean;
  /** May lines be drawn over. */
  inPlace: boolean;
  columns: number;
  rows: number;
}

/** Width of text that goes to no terminal and where nobody said how wide it should be. */
const pipeColumns = 140;

/** Honours NO_COLOR, FORCE_COLOR, TERM=dumb, CI and COLUMNS. */
export function surface(stream: OutputStream, env: NodeJS.ProcessEnv): Surface {
  const tty = stream.isTTY === true;
  const dumb = env['TERM'] === 'dumb';
  const ci = env['CI'] !== undefined && env['CI'] !== '' && env['CI'] !== 'false' && env['CI'] !== '0';
  const noColor = env['NO_COLOR'] !== undefined && env['NO_COLOR'] !== '';
  const forced = env['FORCE_COLOR'] !== undefined && env['FORCE_COLOR'] !== '' && env['FORCE_COLOR'] !== '0';
  const asked = Number(env['COLUMNS']);
  const columns =
    tty && stream.columns ? stream.columns : Number.isInteger(asked) && asked > 0 ? asked : tty ? 80 : pipeColumns;
  return {
    color: !noColor && (forced || (tty && !dumb)),
    inPlace: tty && !dumb && !ci,
    columns: Math.max(40, columns),
    rows: stream.rows ?? 24,
  };
}
