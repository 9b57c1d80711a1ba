/** `petri sandbox exec` and `shell`: a command in a sandbox, its streams joined to ours. */
import { InvalidArgumentError } from 'commander';
import { PetriError } from '../../protocol/errors';
import type { ExecRecord } from '../../protocol/records';
import type { ExecSession } from '../../client/client';
import { action, arg, durationOption, subcommand, type PetriCommand, type Session } from '../command';
import type { Context } from '../context';
import { surface, type Host } from '../host';
import { line, paragraph, t } from '../render/text';
import { breachSentence } from '../../protocol/words';

interface ExecOptions {
  tty?: boolean;
  interactive?: boolean;
  env?: Record<string, string | null>;
  cwd?: string;
  timeout?: number;
}

interface ExecRequest {
  sandbox: string;
  command: string[];
  tty: boolean;
  stdin: boolean;
  env: Record<string, string>;
  cwd?: string;
  timeoutMs?: number;
}

/** How much output goes into the JSON value, bytes per stream: its end, since that is where errors stand. */
const jsonOutputBytes = 256 * 1024;

/** Bash where there is one. */
const shell = ['/bin/sh', '-c', 'if [ -x /bin/bash ]; then exec /bin/bash; else exec /bin/sh; fi'];

export function addExec(session: Session, group: PetriCommand): void {
  const exec = subcommand(group, 'exec <id> <command...>', 'run a command in a sandbox; write -- before it')
    .option('-t, --tty', 'give the command a terminal')
    .option('-i, --interactive', 'pass standard input on; happens by itself when it is a pipe or a file')
    .option('--env <name=value>', 'set a variable; a name alone takes its value from here; may be repeated', variable)
    .option('--cwd <dir>', 'folder to run in, relative to the workspace inside')
    .option('--timeout <time>', 'stop the command after this time, such as 30s or 5m', durationOption)
    .usage('<id> [options] -- COMMAND [ARGUMENTS…]');
  action<ExecOptions>(session, exec, async (context, options, args) => {
    const { host } = context;
    const [, ...command] = args;
    return execute(context, {
      sandbox: arg(args),
      command,
      tty: options.tty === true,
      stdin: options.interactive === true || host.stdinPiped || (options.tty === true && host.stdin.isTTY === true),
      env: variables(options.env ?? {}, host.env),
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
    });
  });

  const open = subcommand(group, 'shell <id>', 'open a shell in a sandbox')
    .option('--env <name=value>', 'set a variable; a name alone takes its value from here; may be repeated', variable)
    .option('--cwd <dir>', 'folder to start in, relative to the workspace inside');
  action<ExecOptions>(session, open, async (context, options, args) => {
    const { host } = context;
    return execute(context, {
      sandbox: arg(args),
      command: shell,
      tty: host.stdin.isTTY === true && host.stdout.isTTY === true && !context.json,
      stdin: host.stdin.isTTY === true || host.stdinPiped,
      env: variables(options.env ?? {}, host.env),
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    });
  });
}

/** Collects `--env A=1 --env B`; null stands for "take it from the environment". */
function variable(text: string, before: Record<string, string | null> | undefined): Record<string, string | null> {
  const [, name, value] = /^([^=\0]+)(?:=([^\0]*))?$/s.exec(text) ?? [];
  if (name === undefined) throw new InvalidArgumentError('Expected NAME=VALUE or NAME.');
  return { ...before, [name]: value ?? null };
}

function variables(asked: Record<string, string | null>, env: NodeJS.ProcessEnv): Record<string, string> {
  const out: Record<string, string> = {};
  for (const [name, value] of Object.entries(asked)) {
    const found = value ?? env[name];
    if (found === undefined)
      throw new PetriError('usage', `The variable ${name} is not set here.`, {
        hint: `Give it a value: --env ${name}=VALUE.`,
      });
    out[name] = found;
  }
  return out;
}

/** The end of a stream, bounded. */
class Tail {
  private chunks: Buffer[] = [];
  private size = 0;
  cut = false;

  add(data: Uint8Array): void {
    this.chunks.push(Buffer.from(data));
    this.size += data.length;
    if (this.size > 2 * jsonOutputBytes) this.trim();
  }

  text(): string {
    if (this.size > jsonOutputBytes) this.trim();
    return Buffer.concat(this.chunks).toString('utf8');
  }

  private trim(): void {
    const end = Buffer.concat(this.chunks).subarray(-jsonOutputBytes);
    this.chunks = [Buffer.from(end)];
    this.size = end.length;
    this.cut = true;
  }
}

/** Runs the command and gives its exit code. */
async function execute(context: Context, request: ExecRequest): Promise<number> {
  const { host } = context;
  const client = await context.client();
  const size =
    host.stdout.isTTY === true && host.stdout.columns && host.stdout.rows
      ? { columns: host.stdout.columns, rows: host.stdout.rows }
      : undefined;
  const env = request.tty && host.env['TERM'] ? { TERM: host.env['TERM'], ...request.env } : request.env;
  const out = new Tail();
  const err = new Tail();
  const run = client.exec(
    { ...request, env, ...(request.tty && size ? { size } : {}) },
    context.json
      ? { stdout: (d) => out.add(d), stderr: (d) => err.add(d) }
      : { stdout: (d) => context.write(d), stderr: (d) => writeTo(host.stderr, d) },
    { signal: context.signal },
  );
  const joined = join(host, run, request);
  let record: ExecRecord;
  try {
    record = await run.result;
  } catch (error) {
    // The command's last line is still open on the terminal.
    if (request.tty) host.stderr.write('\r\n');
    throw error;
  } finally {
    joined.dispose();
  }
  if (context.json) {
    await context.print({ ...record, stdout: out.text(), stderr: err.text(), outputCut: out.cut || err.cut }, () => []);
  } else if (record.breach !== null) {
    const sandbox = await client.call('sandbox.show', { sandbox: request.sandbox });
    // A time limit of this one command is not the sandbox's.
    const timeoutMs = record.breach === 'timeout' ? request.timeoutMs : undefined;
    const sentence = breachSentence(record.breach, {
      name: sandbox.name,
      limits: sandbox.limits,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    });
    context.say({}, [
      ...paragraph(sentence, surface(host.stderr, host.env).columns, line(t('! ', 'warn'))),
      line('  ', t(record.log, 'dim')),
    ]);
  } else if (record.state === 'interrupted') {
    context.say({}, [line(t('! ', 'warn'), 'The command was interrupted.'), line('  ', t(record.log, 'dim'))]);
  }
  return record.exitCode ?? 1;
}

function writeTo(stream: Host['stderr'], data: Uint8Array): Promise<void> {
  if (stream.destroyed) return Promise.resolve();
  return new Promise((resolve) => void stream.write(data, () => resolve()));
}

/** Joins standard input and the terminal's size to the command; disposing lets go of both and restores the terminal. */
function join(host: Host, run: ExecSession, request: Pick<ExecRequest, 'stdin' | 'tty'>): { dispose(): void } {
  const { stdin, stdout } = host;
  const undo: (() => void)[] = [];
  if (request.tty && stdout.isTTY === true) {
    const resize = (): void => {
      if (stdout.columns && stdout.rows) run.resize(stdout.columns, stdout.rows);
    };
    stdout.on('resize', resize);
    undo.push(() => stdout.off('resize', resize));
  }
  if (request.stdin) {
    if (request.tty && stdin.isTTY === true && stdin.setRawMode) {
      const cooked = (): void => void stdin.setRawMode?.(false);
      const guard = host.atExit(cooked);
      stdin.setRawMode(true);
      undo.push(() => {
        cooked();
        guard.dispose();
      });
    }
    const data = (chunk: Buffer | string): void => {
      stdin.pause();
      // The command may have ended meanwhile: then nobody wants the rest.
      run.write(Buffer.from(chunk)).then(
        () => (open ? void stdin.resume() : undefined),
        () => undefined,
      );
    };
    let open = true;
    const end = (): void => run.end();
    stdin.on('data', data);
    stdin.once('end', end);
    stdin.once('error', end);
    undo.push(() => {
      open = false;
      stdin.off('data', data);
      stdin.off('end', end);
      stdin.off('error', end);
      stdin.pause();
    });
  }
  return { dispose: () => undo.reverse().forEach((f) => f()) };
}
