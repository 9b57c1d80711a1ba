/** A layer by a container of the parent: upload, remove, commit. Works with every engine; everything is written and read once more. */
import { cancelled, PetriError } from '../../../protocol/errors';
import { label, type Image, type LayerSpec } from '../engine';
import { commitBox, createBox, removeBox, whyNotRunning } from './boxes';
import { runForOutput } from './exec';
import type { LayerHost } from './layers';
import { toImage, type ImageInspect } from './images';
import { putArchive } from './archives';

/** The box ends by itself after this time, whatever becomes of us, ms. */
const lifetimeMs = 3_600_000;

export async function layerByContainer(host: LayerHost, parent: ImageInspect, spec: LayerSpec): Promise<Image> {
  const { client, capabilities } = host;
  const owner = spec.labels[label.owner];
  const box = await createBox(client, capabilities, {
    name: `petri-layer-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`,
    image: toImage(spec.parent.ref, parent),
    labels: {
      ...(owner === undefined ? {} : { [label.owner]: owner }),
      [label.role]: 'bake',
      [label.expires]: new Date(Date.now() + lifetimeMs).toISOString(),
    },
    network: 'none',
    tier: 'container',
    env: {},
    workdir: '/',
    user: '0',
    lifetimeMs,
    ...(spec.signal ? { signal: spec.signal } : {}),
  });
  const source = spec.open();
  const stop = (): void => void source.destroy(cancelled('Making a layer'));
  spec.signal?.addEventListener('abort', stop, { once: true });
  try {
    if (spec.removals.length > 0) {
      const list = Buffer.from(spec.removals.map((p) => `/${p}\0`).join(''), 'latin1');
      const { code, stdout } = await runForOutput(
        {
          client,
          boxId: box.id,
          workdir: '/',
          explain: (error) => whyNotRunning(client, box.id, error),
          killAll: async () => undefined,
        },
        ['/bin/sh', '-c', 'xargs -0 rm -rf -- 2>&1'],
        2000,
        list,
      );
      if (code !== 0) {
        throw new PetriError('command-missing', 'Files could not be removed in a container of the image.', {
          hint: 'The image needs `xargs` and `rm`.',
          data: { output: stdout.toString() },
        });
      }
    }
    spec.progress?.({ message: 'Sending the layer' });
    await putArchive(client, box.id, '/', source);
    if (spec.signal?.aborted) throw cancelled('Making a layer');
    spec.progress?.({ message: 'Saving the layer' });
    const image = await commitBox(client, box.id, { tag: spec.tag, labels: spec.labels });
    return image;
  } catch (error) {
    throw spec.signal?.aborted ? cancelled('Making a layer') : error;
  } finally {
    spec.signal?.removeEventListener('abort', stop);
    source.destroy();
    await removeBox(client, box.id);
  }
}
