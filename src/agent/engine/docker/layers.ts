/**
 * Making an image of a parent and one layer. Docker's own store takes an archive that holds the new layer alone and names those below by
 * their ids: nothing is unpacked into a container and read out again. Other stores get a container, an upload and a commit.
 */
import { cancelled, isCancelled, PetriError } from '../../../protocol/errors';
import type { Image, LayerSpec } from '../engine';
import type { Capabilities } from './capabilities';
import type { Client } from './client';
import { inspectImage } from './images';
import { layerByContainer } from './layerByContainer';
import { layerByLoad } from './layerByLoad';

/** What both ways need. */
export interface LayerHost {
  client: Client;
  capabilities: Capabilities;
}

export class Layers {
  /** False once an engine that seemed to take single layers refused one. */
  private loads: boolean;

  constructor(private readonly host: LayerHost) {
    this.loads = host.capabilities.loadsLayers;
  }

  /** Errors: image-missing (the parent), disk-full, engine-gone, engine-failed, cancelled, and what `open()` gives. */
  async add(spec: LayerSpec): Promise<Image> {
    if (spec.signal?.aborted) throw cancelled('Making a layer');
    const parent = await inspectImage(this.host.client, spec.parent.id);
    if (!parent) {
      throw new PetriError('image-missing', 'The image below the new layer is not there any more.', {
        hint: 'Try again: it is made anew.',
      });
    }
    if (this.loads) {
      try {
        return await layerByLoad(this.host.client, parent, spec);
      } catch (error) {
        if (
          !(error instanceof PetriError) ||
          error.code !== 'engine-failed' ||
          isCancelled(error) ||
          spec.signal?.aborted
        )
          throw error;
        const image = await layerByContainer(this.host, parent, spec);
        this.loads = false;
        return image;
      }
    }
    return layerByContainer(this.host, parent, spec);
  }
}
