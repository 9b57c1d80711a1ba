/**
 * Running commands in a box. A small shell in front tells its process id on the first line of stdout (which is taken off again), goes to
 * the folder and becomes the command: so nothing is written into the box, and the command's whole process group can be signalled.
 */
import type { Duplex } from 'node:stream';
import { PetriError } from '../../../protocol/errors';
import type { ExecHandle, ExecSpec } from '../engine';
import type { Client } from './client';
import { Demux, taken } from './demux';
import { statusOf } from './errors';

/** `$1` is the folder, the rest the command. A shell's own exit codes: 126 can't be entered or run, 127 not found. */
const wrapper = 'echo "$$"; cd -- "$1" || exit 126; shift; exec "$@"';

/**
 * Signals a process group; for KILL the whole session, since shells with job control put their jobs into groups of their own. Built-ins
 * only: the image may have no tools. `$1` the signal, `$2` the process id.
 */
const killer = `kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2" 2>/dev/null
[ "$1" = KILL ] || exit 0
for f in /proc/[0-9]*/stat; do
  { read -r line < "$f"; } 2>/dev/null || continue
  rest=\${line##*) }
  set -- "$1" "$2" $rest
  [ "$6" = "$2" ] && { p=\${f#/proc/}; kill -s KILL "\${p%/stat}" 2>/dev/null; }
done
exit 0`;

/** How long an ended execution may be shown as running, ms. */
const settleMs = 5000;

export interface ExecHost {
  client: Client;
  boxId: string;
  /** The folder that commands start in by default. */
  workdir: string;
  /** Why commands can't be run, when the engine says that the box isn't running. */
  explain(error: PetriError): Promise<PetriError>;
  /** Kills everything in the box when a command's group can't be signalled from inside. */
  killAll(): Promise<void>;
}

/** Starts a command. Errors: not-found, state (the box isn't running), engine-gone, engine-failed. */
export async function startExec(host: ExecHost, spec: ExecSpec): Promise<ExecHandle> {
  const { exec, socket } = await begin(host, {
    command: [
      '/bin/sh',
      '-c',
      wrapper,
      'petri',
      spec.cwd === undefined || spec.cwd === '' ? host.workdir : inside(host.workdir, spec.cwd),
      ...spec.command,
    ],
    tty: spec.tty ?? false,
    stdin: spec.stdin ?? false,
    env: spec.env ?? {},
    user: spec.user,
    size: spec.size,
  });
  const demux = new Demux(socket, !spec.tty);
  const exit = finish(host, exec, socket, demux);
  exit.catch(() => undefined);
  return {
    stdout: demux.stdout,
    stderr: demux.stderr,
    exit,
    write: async (data) => {
      // A terminal echoes what it gets: nothing may come before the line with the process id.
      if (spec.tty) await demux.pid;
      if (!spec.stdin || socket.destroyed || socket.writableEnded) return;
      await new Promise<void>((resolve) => {
        socket.write(data, () => resolve());
      });
    },
    closeStdin: () => {
      if (!spec.stdin) return;
      if (spec.tty) void demux.pid.then(() => socket.end());
      else socket.end();
    },
    resize: async (columns, rows) => {
      try {
        await host.client.call('resizing a terminal', () => exec.resize({ w: columns, h: rows }));
      } catch (error) {
        if (
          error instanceof PetriError &&
          (error.code === 'engine-failed' || error.code === 'not-found' || error.code === 'state')
        )
          return; // It has ended.
        throw error;
      }
    },
    kill: async (signal) => {
      if (!/^[A-Z][A-Z0-9]{0,11}$/.test(signal)) throw new PetriError('usage', `"${signal}" is no signal.`);
      const ended = demux.ended.then(
        () => true,
        () => true,
      );
      const pid = await demux.pid;
      if (pid === undefined || (await Promise.race([ended, Promise.resolve(false)]))) return;
      const code = await runQuietly(host, ['/bin/sh', '-c', killer, 'petri', signal, String(pid)]).catch(
        (error: unknown) => {
          if (error instanceof PetriError && (error.code === 'not-found' || error.code === 'state')) return 0; // Box and command are gone.
          throw error;
        },
      );
      // No process can be started in there (limit of pids): the command alone can't be reached.
      if (code !== 0 && signal === 'KILL') await host.killAll();
    },
  };
}

interface Begin {
  command: string[];
  tty: boolean;
  stdin: boolean;
  env: Record<string, string>;
  user: string | undefined;
  size: ExecSpec['size'];
}

async function begin(host: ExecHost, what: Begin): Promise<{ exec: Exec; socket: Duplex }> {
  try {
    return await host.client.call('running a command', async (docker) => {
      const exec = await docker.getContainer(host.boxId).exec({
        AttachStdin: what.stdin,
        AttachStdout: true,
        AttachStderr: true,
        Tty: what.tty,
        Cmd: what.command,
        Env: Object.entries(what.env).map(([name, value]) => `${name}=${value}`),
        // The box's own folder may be gone by now, and the runtime refuses to start in it then.
        WorkingDir: '/',
        ...(what.user ? { User: what.user } : {}),
      });
      const socket = await exec.start({ hijack: true, stdin: what.stdin, Tty: what.tty });
      if (what.tty && what.size) {
        await exec.resize({ w: what.size.columns, h: what.size.rows }).catch(() => undefined); // It may have ended already.
      }
      return { exec, socket };
    });
  } catch (error) {
    if (error instanceof PetriError && (error.code === 'state' || error.code === 'engine-failed'))
      throw await host.explain(error);
    throw error;
  }
}

type Exec = Awaited<ReturnType<ReturnType<Client['docker']['getContainer']>['exec']>>;

/** Waits for the end, asks for the exit code, and only then ends the streams: output that was cut off never looks whole. */
async function finish(host: ExecHost, exec: Exec, socket: Duplex, demux: Demux): Promise<number> {
  try {
    await demux.ended.catch((error: unknown) => {
      throw host.client.error(error, 'reading the output of a command');
    });
    const code = await exitCode(host, exec);
    demux.finish();
    await Promise.all([taken(demux.stdout), taken(demux.stderr)]);
    return code;
  } catch (error) {
    demux.finish(error as Error);
    throw error;
  } finally {
    socket.destroy();
  }
}

async function exitCode(host: ExecHost, exec: Exec): Promise<number> {
  const ended = (): PetriError =>
    new PetriError('state', 'The container ended while the command ran.', { hint: '`petri sandbox show` tells why.' });
  const deadline = Date.now() + settleMs;
  for (let wait = 2; ; wait = Math.min(wait * 2, 200)) {
    const info = await host.client.call('reading an exit code', async () => {
      try {
        return await exec.inspect();
      } catch (error) {
        if (statusOf(error) === 404) throw ended();
        throw error;
      }
    });
    if (!info.Running && typeof info.ExitCode === 'number') return info.ExitCode;
    if (Date.now() > deadline) throw ended();
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** The exit code of a command of our own, run as root; its output is thrown away. */
export async function runQuietly(host: ExecHost, command: string[]): Promise<number> {
  const { code } = await runForOutput(host, command, 0);
  return code;
}

/** Runs a short command of our own as root, without the wrapper. At most `maxBytes` of its stdout, the rest is dropped. */
export async function runForOutput(
  host: ExecHost,
  command: string[],
  maxBytes: number,
  stdin?: Buffer,
): Promise<{ code: number; stdout: Buffer }> {
  const { exec, socket } = await begin(host, {
    command,
    tty: false,
    stdin: stdin !== undefined,
    env: {},
    user: '0',
    size: undefined,
  });
  const demux = new Demux(socket, true, false);
  const parts: Buffer[] = [];
  let room = maxBytes;
  demux.stdout.on('data', (data: Buffer) => {
    if (room > 0) parts.push(data.subarray(0, room));
    room -= data.length;
  });
  demux.stderr.resume();
  if (stdin) socket.end(stdin);
  const code = await finish(host, exec, socket, demux);
  return { code, stdout: Buffer.concat(parts) };
}

function inside(workdir: string, cwd: string): string {
  return cwd.startsWith('/') ? cwd : `${workdir.replace(/\/$/, '')}/${cwd}`;
}
