/** Killing everything in a box but what keeps it alive. */
import { PetriError } from '../../../protocol/errors';
import { killBox, startBox } from './boxes';
import { runForOutput, type ExecHost } from './exec';

/**
 * First everything is stopped by one call of the kernel, so that nothing can fork away; then each is killed but the first process, this
 * shell, and the process that keeps the box alive: the earliest child of the first. Built-ins only. Says `done` and how many are left.
 */
const script = `kill -s STOP -- -1 2>/dev/null
keep= since=
for f in /proc/[0-9]*/stat; do
  { read -r line < "$f"; } 2>/dev/null || continue
  p=\${f#/proc/}; p=\${p%/stat}; set -- \${line##*) }
  [ "$2" = 1 ] || continue
  shift 9; shift 9
  [ "$p" != $$ ] || continue
  if [ -z "$since" ] || [ "$2" -lt "$since" ]; then keep=$p since=$2; fi
done
for d in /proc/[0-9]*; do
  p=\${d#/proc/}
  case $p in 1|$$|"$keep") ;; *) kill -s KILL "$p" 2>/dev/null ;; esac
done
[ -n "$keep" ] && kill -s CONT "$keep" 2>/dev/null
echo done`;

/** The same where the first process itself keeps the box alive: the kernel spares it and the caller. */
const scriptWithoutInit = 'kill -s KILL -- -1 2>/dev/null; echo done';

/** The init process and the one that keeps the box alive. */
const keepers = 2;

/** How long killed processes may take to be gone, ms. */
const goneWithinMs = 1000;

/**
 * Where nothing can be started inside any more (a limit of pids that is used up, a shell that was replaced), the box itself is killed and started
 * again: its files stay. `restarting` hears of that, so that it isn't taken for the box's end.
 */
export async function killProcesses(
  host: ExecHost,
  hasInit: boolean,
  restarting: <T>(work: () => Promise<T>) => Promise<T>,
): Promise<void> {
  if (await fromInside(host, hasInit)) return;
  await restarting(async () => {
    await killBox(host.client, host.boxId);
    await startBox(host.client, host.boxId);
  });
}

async function fromInside(host: ExecHost, hasInit: boolean): Promise<boolean> {
  try {
    const { stdout } = await runForOutput(host, ['/bin/sh', '-c', hasInit ? script : scriptWithoutInit], 100);
    if (stdout.toString('latin1').trim() !== 'done') return false;
  } catch (error) {
    if (error instanceof PetriError && error.code === 'engine-failed') return false;
    throw error;
  }
  return onlyKeepers(host);
}

/** What runs inside may have answered anything: the engine's own list tells whether it is true. */
async function onlyKeepers(host: ExecHost): Promise<boolean> {
  const deadline = Date.now() + goneWithinMs;
  for (let wait = 5; ; wait *= 2) {
    const list: unknown = await host.client.call('listing processes', (docker) =>
      docker.getContainer(host.boxId).top(),
    );
    const processes = (list as { Processes?: unknown }).Processes;
    if (Array.isArray(processes) && processes.length <= keepers) return true;
    if (Date.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
