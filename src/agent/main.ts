/** Composition root of the agent: the lock, the records, the server, the services, and the idle exit. */
import { messageOf } from '../protocol/errors';
import type { AgentStatus } from '../protocol/operations';
import { engineVariables, protocolVersion } from '../protocol/wire';
import { buildCore, ownerOf, Stores, type Core } from './core';
import { createHandlers } from './handlers';
import { Records } from './records/records';
import { isLive } from './sandbox/sandboxes';
import { acquireLock } from './server/lock';
import { AgentServer } from './server/server';

declare const PETRI_VERSION: string;

/** Without clients, live sandboxes and running experiments the agent ends after this, ms. */
const idleMs = Number(process.env['PETRI_IDLE_MS'] ?? 5 * 60_000);

async function main(): Promise<void> {
  const home = process.env['PETRI_HOME'];
  if (!home) throw new Error('PETRI_HOME must name the data folder.');
  process.umask(0o077);
  const held = await acquireLock(home, PETRI_VERSION);
  if (!held) return; // Another agent serves this folder.
  const { lock, publish, release } = held;
  const records = new Records(home);
  const stores = new Stores(home);
  let core: Promise<Core> | undefined;
  let ready: Core | undefined;
  /** The newest caller's way to the engine, until one is found. */
  let engineEnv: NodeJS.ProcessEnv = process.env;
  const getCore = (): Promise<Core> => {
    core ??= buildCore(home, records, stores, engineEnv).then(
      (built) => (ready = built),
      (error: unknown) => {
        core = undefined;
        throw error;
      },
    );
    return core;
  };

  const liveSandboxes = (): number => records.allSandboxes().filter(isLive).length;
  const status = (): AgentStatus => ({
    id: ownerOf(home),
    state: 'running',
    pid: process.pid,
    version: PETRI_VERSION,
    protocol: protocolVersion,
    home,
    clients: server.clientCount,
    sandboxes: liveSandboxes(),
    experiments: ready?.experiments.running ?? 0,
    rssBytes: process.memoryUsage.rss(),
    startedAt: lock.startedAt,
  });

  let stopping = false;
  const stop = (): void => {
    if (stopping) return;
    stopping = true;
    // A moment for the answer to go out; then everything in order.
    setTimeout(() => {
      void (async () => {
        server.close();
        await ready?.stop();
        records.close();
        release();
        process.exit(0);
      })();
    }, 20);
  };

  let idle: NodeJS.Timeout | undefined;
  const onActivity = (): void => {
    clearTimeout(idle);
    idle = setTimeout(() => {
      if (server.clientCount === 0 && liveSandboxes() === 0 && (ready?.experiments.running ?? 0) === 0) stop();
      else onActivity();
    }, idleMs);
  };

  const handlers = createHandlers({
    home,
    version: PETRI_VERSION,
    records,
    core: getCore,
    status,
    stop,
    engineEnv: () => engineEnv,
  });
  const server = new AgentServer(lock, handlers, onActivity, ({ engine }) => {
    if (!ready) engineEnv = { ...withoutEngine(process.env), ...engine };
  });
  records.watch((event) => server.broadcast(event));
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, stop);
  process.on('unhandledRejection', (reason) => console.error('unhandled:', reason));
  await server.listen();
  publish();
  onActivity();
  // What an ended agent left is taken up without waiting for a caller; without an engine it waits for one.
  if (
    liveSandboxes() > 0 ||
    records.allExperiments().some((e) => e.state === 'running') ||
    records.allPromotions().some((p) => p.writing !== null)
  ) {
    getCore().catch((error: unknown) => console.error(messageOf(error)));
  }
}

/** The environment without what says which engine is meant. */
function withoutEngine(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !engineVariables.some((v) => v === name)));
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
