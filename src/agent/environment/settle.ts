/**
 * Settling a layer: in a container of the very layer, git makes its index once and the small change is committed. Files of a committed
 * layer get new inodes and change times, so an index made anywhere else would have every file read again in each sandbox.
 */
import { label, type Engine, type Image, type Labels } from '../engine/engine';
import { bookkeepingEnv, settleScript, workdir } from './layout';

/** Replaces the tag by the settled image. Where the image has no git nothing is done: changes come out by archive there. */
export async function settle(
  engine: Engine,
  owner: string,
  image: Image,
  options: { tree: string; tag: string; labels: Labels; signal: AbortSignal },
): Promise<void> {
  if (options.signal.aborted) return;
  const box = await engine.createBox({
    name: `petri-settle-${image.id.slice(7, 19)}-${Date.now().toString(36)}`,
    image,
    labels: {
      [label.owner]: owner,
      [label.role]: 'bake',
      [label.expires]: new Date(Date.now() + 600_000).toISOString(),
    },
    network: 'none',
    tier: 'container',
    env: {},
    workdir,
    user: '0',
    lifetimeMs: 600_000,
    signal: options.signal,
  });
  try {
    const handle = await engine.exec(box.id, {
      command: ['/bin/sh', '-c', settleScript, 'sh', options.tree],
      env: bookkeepingEnv,
      user: '0',
      cwd: '/',
    });
    const stop = (): void => void engine.removeBox(box.id).catch(() => undefined);
    options.signal.addEventListener('abort', stop, { once: true });
    handle.stderr.resume();
    handle.stdout.resume();
    const code = await handle.exit.finally(() => options.signal.removeEventListener('abort', stop));
    if (code === 0 && !options.signal.aborted)
      await engine.commitBox(box.id, { tag: options.tag, labels: options.labels });
  } catch (error) {
    if (!options.signal.aborted) throw error;
  } finally {
    await engine.removeBox(box.id);
  }
}
