/**
 * Runs git with raw bytes in and out. simple-git serves the plain text queries (see repository.ts and gitStore.ts); it can
 * carry neither bytes that are not UTF-8 nor a stdin stream nor bounded output, hence this runner.
 */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { devNull } from 'node:os';
import { PassThrough, type Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { simpleGit } from 'simple-git';
import { cancelled, messageOf, PetriError } from '../../protocol/errors';
import { shorten } from '../../protocol/text';

/** Output that one git process may give before it is stopped, bytes. */
const defaultMaxOutput = 1024 ** 3;
const maxStderr = 64 * 1024;

export interface GitRun {
  code: number;
  stdout: Buffer;
  stderr: string;
}

export interface RunOptions {
  input?: Buffer | string | Readable;
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  signal?: AbortSignal | undefined;
  /** Bytes of stdout; more is the error too-large. */
  maxOutput?: number;
  /** Exit codes that are answers, not failures. Default: 0. */
  ok?: number[];
}

/** glibc gives every freed buffer back to the kernel by default; hashing many files is three times faster when it doesn't. */
const allocator = { MALLOC_TOP_PAD_: '67108864', MALLOC_TRIM_THRESHOLD_: '268435456' };

/** The caller's environment without anything that steers git, and with messages in English for reading errors. */
function plainEnv(): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {};
  for (const [name, value] of Object.entries(process.env)) if (!/^GIT_/i.test(name)) env[name] = value;
  return { ...env, ...allocator, LC_ALL: 'C', LANGUAGE: 'C', GIT_TERMINAL_PROMPT: '0', GIT_PAGER: 'cat' };
}

/** For the workspace's own repository: the user's configuration counts, nothing is ever locked or fetched. */
export function userEnv(): NodeJS.ProcessEnv {
  return { ...plainEnv(), GIT_OPTIONAL_LOCKS: '0', GIT_NO_LAZY_FETCH: '1', GIT_ALLOW_PROTOCOL: 'none' };
}

/** For repositories of ours: no configuration but their own, a fixed identity and date. */
export function ownEnv(gitDir: string): NodeJS.ProcessEnv {
  const who = { NAME: 'Petri', EMAIL: 'petri@localhost', DATE: '1700000000 +0000' };
  const identity = Object.entries(who).flatMap(([key, value]) => [
    [`GIT_AUTHOR_${key}`, value],
    [`GIT_COMMITTER_${key}`, value],
  ]);
  return {
    ...plainEnv(),
    ...(Object.fromEntries(identity) as NodeJS.ProcessEnv),
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: devNull,
    GIT_ATTR_NOSYSTEM: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
    GIT_DIR: gitDir,
  };
}

/** What every call on the workspace's own repository begins with: nothing of its configuration may start a process. */
export const readOnlyArgs = ['-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=' + devNull];

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** A git command line with an environment and a folder to work in. */
export class Git {
  constructor(
    private readonly env: NodeJS.ProcessEnv,
    private readonly cwd: string,
    private readonly firstArgs: string[] = [],
  ) {}

  /** The same with more environment, another folder or more arguments in front. */
  with(change: { env?: NodeJS.ProcessEnv; cwd?: string; args?: string[] }): Git {
    return new Git({ ...this.env, ...change.env }, change.cwd ?? this.cwd, [...this.firstArgs, ...(change.args ?? [])]);
  }

  /** Runs to the end and gives stdout. Errors: git-failed, disk-full, too-large, workspace-missing, cancelled. */
  async run(args: string[], options: RunOptions = {}): Promise<GitRun> {
    const { child, done, stop } = await this.start(args, options);
    const limit = options.maxOutput ?? defaultMaxOutput;
    const chunks: Buffer[] = [];
    let size = 0;
    let over = false;
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) {
        over = true;
        chunks.length = 0;
        stop();
      } else chunks.push(chunk);
    });
    const end = await done;
    if (over) throw new PetriError('too-large', `git ${args[0] ?? ''} gave more than ${limit} bytes.`);
    if (!(options.ok ?? [0]).includes(end.code)) throw gitError(args, end.code, end.stderr);
    return { ...end, stdout: Buffer.concat(chunks) };
  }

  /** Standard output as text, trimmed of the last newline. */
  async text(args: string[], options: RunOptions = {}): Promise<string> {
    return (await this.run(args, options)).stdout.toString('utf8').replace(/\n$/, '');
  }

  /** Standard output as a stream, which fails with the same errors as {@link run}. Destroying it ends the process. */
  stream(args: string[], options: RunOptions = {}): Readable {
    const out = new PassThrough({ highWaterMark: 256 * 1024 });
    void this.start(args, options).then(
      async ({ child, done, stop }) => {
        out.once('close', stop);
        child.stdout.on('error', () => stop());
        child.stdout.pipe(out, { end: false });
        const drained = new Promise<void>((resolve) => child.stdout.once('close', resolve));
        await done.then(
          async (end) => {
            await drained;
            if ((options.ok ?? [0]).includes(end.code)) out.end();
            else out.destroy(gitError(args, end.code, end.stderr));
          },
          (error: unknown) => out.destroy(error as Error),
        );
      },
      (error: unknown) => out.destroy(error as Error),
    );
    return out;
  }

  private async start(args: string[], options: RunOptions) {
    if (options.signal?.aborted) throw cancelled();
    const cwd = options.cwd ?? this.cwd;
    const child: Child = spawn('git', [...this.firstArgs, ...args], {
      cwd,
      env: { ...this.env, ...options.env },
      stdio: ['pipe', 'pipe', 'pipe'],
      windowsHide: true,
    });
    const stop = (): void => {
      child.kill('SIGKILL');
    };
    options.signal?.addEventListener('abort', stop, { once: true });
    let stderr = '';
    child.stderr.setEncoding('utf8');
    child.stderr.on('data', (text: string) => {
      if (stderr.length < maxStderr) stderr += text.slice(0, maxStderr - stderr.length);
    });
    const fed = feed(child.stdin, options.input);
    // Its failure is reported when the process has ended; until then it is no unhandled one.
    fed.catch(() => undefined);
    const done = new Promise<{ code: number; stderr: string }>((resolve, reject) => {
      child.once('error', (error) => {
        void explainSpawn(error, cwd).then(reject);
      });
      child.once('close', (code, signal) => {
        options.signal?.removeEventListener('abort', stop);
        if (options.signal?.aborted) reject(cancelled());
        else
          fed.then(
            () => resolve({ code: code ?? 128, stderr: stderr + (signal ? `\nended by ${signal}` : '') }),
            (error: unknown) => reject(error as Error),
          );
      });
    });
    return { child, done, stop };
  }
}

/** Writes the input. A git that ends before it read all is judged by its exit code, not by the broken pipe. */
async function feed(stdin: Writable, input: RunOptions['input']): Promise<void> {
  stdin.on('error', () => undefined);
  if (input === undefined || typeof input === 'string' || Buffer.isBuffer(input)) {
    stdin.end(input ?? '');
    return;
  }
  try {
    await pipeline(input, stdin);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== 'EPIPE' && code !== 'ERR_STREAM_PREMATURE_CLOSE' && code !== 'ECONNRESET') throw error;
  }
}

async function explainSpawn(error: Error, cwd: string): Promise<PetriError> {
  const there = await stat(cwd).then(
    (s) => s.isDirectory(),
    () => false,
  );
  if (!there) return workspaceMissing(cwd, error);
  return new PetriError('git-failed', `git could not be started: ${error.message}`, {
    hint: 'Install git 2.38 or newer and make sure it is on PATH.',
    cause: error,
  });
}

/** The error for a workspace folder that is not there any more. */
export function workspaceMissing(folder: string, cause?: unknown): PetriError {
  return new PetriError('workspace-missing', `The workspace folder ${shorten(folder, 300)} is not there.`, {
    hint: 'It was deleted, moved or never existed. Put it back or give its new place.',
    cause,
  });
}

/** True for texts and errors that mean that a disk or a quota is full. */
export function isDiskFull(thrown: unknown): boolean {
  const code = typeof thrown === 'object' && thrown !== null && 'code' in thrown ? thrown.code : '';
  if (code === 'ENOSPC' || code === 'EDQUOT' || code === 'disk-full') return true;
  return typeof thrown === 'string' && /No space left on device|Disk quota exceeded|ENOSPC/i.test(thrown);
}

export function diskFull(cause: unknown): PetriError {
  return new PetriError('disk-full', 'The disk is full.', { hint: 'Free some space and try again.', cause });
}

/** The error for a git that failed: what it said last, made safe to show. */
export function gitError(args: string[], code: number, stderr: string): PetriError {
  if (isDiskFull(stderr)) return diskFull(stderr.trim());
  const lines = stderr.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('hint:'));
  const unreadable = /open\("(.*)"\): Permission denied|could not open directory '(.*)': Permission denied/.exec(
    stderr,
  );
  if (unreadable) {
    const path = unreadable[1] ?? unreadable[2] ?? '';
    return new PetriError('git-failed', `${shorten(path, 300)} can't be read: permission denied.`, {
      hint: 'Make it readable, or have git ignore it.',
      data: { path, stderr },
    });
  }
  if (/dubious ownership/.test(stderr))
    return new PetriError('git-failed', 'Git refuses the repository because somebody else owns its folder.', {
      hint: 'If you trust it: git config --global --add safe.directory FOLDER',
      data: { stderr },
    });
  const said = shorten(lines.slice(-3).join(' · ') || `exit code ${code}`, 600);
  return new PetriError('git-failed', `git ${args[0] ?? ''} failed: ${said}`, {
    data: { exitCode: code, stderr: stderr.slice(0, 4000) },
  });
}

/** The oldest git that has `merge-tree --write-tree`. */
const oldestGit = [2, 38] as const;

/** The version of the git on PATH, "2.39.5". Errors: git-failed when it is missing or too old. */
export async function gitVersion(): Promise<string> {
  const hint = `Install git ${oldestGit.join('.')} or newer and make sure it is on PATH.`;
  const found = await simpleGit()
    .version()
    .catch((error: unknown) => {
      throw new PetriError('git-failed', `git could not be started: ${messageOf(error)}`, { hint, cause: error });
    });
  if (!found.installed) throw new PetriError('git-failed', 'git is not installed.', { hint });
  const version = `${found.major}.${found.minor}.${found.patch}`;
  if (found.major < oldestGit[0] || (found.major === oldestGit[0] && found.minor < oldestGit[1]))
    throw new PetriError('git-failed', `git ${version} is too old.`, { hint });
  return version;
}
