/**
 * The services that need an engine, built once an engine was found: at the first operation that needs one. Before they answer, records and
 * engine are put in step.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { contentKey } from './environment/layers';
import { Environments } from './environment/environments';
import { Experiments } from './experiment/experiments';
import { discoverEngine } from './engine/discovery';
import type { Engine } from './engine/engine';
import { Promotions } from './promotion/promotions';
import type { Records } from './records/records';
import { reconcile, startReaper } from './sandbox/reaper';
import { Sandboxes } from './sandbox/sandboxes';
import { openStore } from './workspace/gitStore';
import type { WorkspaceStore } from './workspace/store';

export interface Core {
  engine: Engine;
  environments: Environments;
  sandboxes: Sandboxes;
  experiments: Experiments;
  promotions: Promotions;
  /** Ends background work; sandboxes stay. */
  stop(): Promise<void>;
}

/** Opens each workspace's store once. */
export class Stores {
  private readonly open = new Map<string, Promise<WorkspaceStore>>();

  constructor(private readonly home: string) {}

  get(workspace: string): Promise<WorkspaceStore> {
    const known = this.open.get(workspace);
    if (known) return known;
    const opened = openStore({ workspace, dir: path.join(this.home, 'stores', contentKey(workspace)) });
    this.open.set(workspace, opened);
    opened.catch(() => this.open.delete(workspace));
    return opened;
  }
}

/** The id of a data folder: whose objects are in the engine. Made once. */
export function ownerOf(home: string): string {
  const file = path.join(home, 'id');
  if (!existsSync(file)) {
    mkdirSync(home, { recursive: true, mode: 0o700 });
    writeFileSync(file, randomBytes(6).toString('hex'), { mode: 0o600, flag: 'wx' });
  }
  const id = readFileSync(file, 'utf8').trim();
  if (!/^[0-9a-f]{12}$/.test(id)) throw new Error(`${file} does not hold an id`);
  return id;
}

/** How the engine is looked for, from an environment. */
export function engineSearch(env: NodeJS.ProcessEnv): Parameters<typeof discoverEngine>[0] {
  return {
    ...(env['PETRI_ENGINE'] ? { setting: env['PETRI_ENGINE'] } : {}),
    env,
    home: env['HOME'] ?? env['USERPROFILE'] ?? '',
    platform: process.platform,
  };
}

/** Finds the engine and builds everything on it. Errors: no-engine. */
export async function buildCore(home: string, records: Records, stores: Stores, env: NodeJS.ProcessEnv): Promise<Core> {
  const { engine } = await discoverEngine(engineSearch(env));
  const owner = ownerOf(home);
  const open = (workspace: string): Promise<WorkspaceStore> => stores.get(workspace);
  const environments = new Environments(engine, owner, open);
  const sandboxes = new Sandboxes({ engine, environments, records, owner, home, openStore: open });
  const experiments = new Experiments({ engine, environments, sandboxes, records, home, openStore: open });
  const promotions = new Promotions({ engine, environments, sandboxes, records, home, openStore: open });
  experiments.markInterrupted();
  await promotions.recover();
  await reconcile({ engine, records, sandboxes, owner }, (s) =>
    s.owner.kind === 'user' ? null : `the ${s.owner.kind} it was made for was interrupted`,
  );
  const watch = engine.watch(owner, (event) => {
    if (event.kind === 'oom') sandboxes.executions.noteOom(event.boxId);
    if (event.kind === 'died') sandboxes.noteDeath(event.boxId);
  });
  const reaper = startReaper({ engine, records, sandboxes, owner });
  return {
    engine,
    environments,
    sandboxes,
    experiments,
    promotions,
    stop: async () => {
      reaper.dispose();
      await experiments.stop();
      await environments.stop();
      await sandboxes.quiet();
      watch.dispose();
      engine.dispose();
    },
  };
}
