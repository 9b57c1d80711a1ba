/** The engine `docker`: Docker, and whatever serves its API. The parts are in the files beside this one. */
import type { Readable } from 'node:stream';
import { PetriError } from '../../../protocol/errors';
import type { EngineReport } from '../../../protocol/operations';
import type { Progress } from '../../../protocol/wire';
import type {
  Box,
  BoxSpec,
  BoxStats,
  Engine,
  EngineEvent,
  ExecHandle,
  ExecSpec,
  Image,
  Labels,
  LayerSpec,
} from '../engine';
import { getArchive, putArchive } from './archives';
import * as boxes from './boxes';
import { readCapabilities, reportOf, type Capabilities } from './capabilities';
import { Client } from './client';
import type { Endpoint } from './endpoint';
import { startExec, type ExecHost } from './exec';
import * as images from './images';
import { killProcesses } from './killAll';
import { Layers } from './layers';
import { readStats } from './stats';
import { watchEvents } from './watch';

/** How long an engine may take to say that it is there, and then to tell what it can do, ms. Ssh has to connect first. */
const pingDeadlineMs = 5000;
const sshPingDeadlineMs = 15_000;
const tellDeadlineMs = 30_000;

/** Opens an engine once it has answered. Errors: engine-gone, unsupported (Windows containers), engine-failed. */
export async function openDockerEngine(endpoint: Endpoint): Promise<Engine> {
  const client = await Client.open(endpoint);
  try {
    const ping = client.call('asking whether it is there', (docker) => docker.ping() as Promise<unknown>);
    await within(endpoint.kind === 'ssh' ? sshPingDeadlineMs : pingDeadlineMs, endpoint, ping);
    return new DockerEngine(client, await within(tellDeadlineMs, endpoint, readCapabilities(client)));
  } catch (error) {
    client.close();
    throw error;
  }
}

async function within<T>(ms: number, endpoint: Endpoint, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const message = `The engine at ${endpoint.text} did not answer within ${ms / 1000} s.`;
      reject(new PetriError('engine-gone', message, { hint: 'Is it still starting, or hanging?' }));
    }, ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    work.catch(() => undefined);
  }
}

class DockerEngine implements Engine {
  readonly kind = 'docker';
  private readonly layers: Layers;
  /** Where commands start in each box; asked for once. */
  private readonly workdirs = new Map<string, string>();
  /** Boxes that we kill only to start them again. */
  private readonly restarting = new Set<string>();
  private readonly watches = new Set<{ dispose(): void }>();

  constructor(
    private readonly client: Client,
    private readonly capabilities: Capabilities,
  ) {
    this.layers = new Layers({ client, capabilities });
  }

  async report(): Promise<EngineReport> {
    return reportOf(await readCapabilities(this.client), this.client);
  }

  findImage(ref: string): Promise<Image | undefined> {
    return images.findImage(this.client, ref);
  }

  pullImage(ref: string, options: { signal?: AbortSignal; progress?(p: Progress): void }): Promise<Image> {
    return images.pullImage(this.client, ref, options);
  }

  listImages(labels: Labels): Promise<Image[]> {
    return images.listImages(this.client, labels);
  }

  removeImage(id: string): Promise<boolean> {
    return images.removeImage(this.client, id);
  }

  addLayer(spec: LayerSpec): Promise<Image> {
    return this.layers.add(spec);
  }

  async createBox(spec: BoxSpec): Promise<Box> {
    const box = await boxes.createBox(this.client, this.capabilities, spec);
    this.workdirs.set(box.id, spec.workdir);
    return box;
  }

  listBoxes(labels: Labels): Promise<Box[]> {
    return boxes.listBoxes(this.client, labels);
  }

  findBox(id: string): Promise<Box | undefined> {
    return boxes.findBox(this.client, id);
  }

  commitBox(id: string, options: { tag: string; labels: Labels }): Promise<Image> {
    return boxes.commitBox(this.client, id, options);
  }

  killBox(id: string): Promise<void> {
    return boxes.killBox(this.client, id);
  }

  startBox(id: string): Promise<void> {
    return boxes.startBox(this.client, id);
  }

  async removeBox(id: string): Promise<void> {
    await boxes.removeBox(this.client, id);
    this.workdirs.delete(id);
  }

  async killProcesses(id: string): Promise<void> {
    const host = await this.host(id);
    await killProcesses(host, this.capabilities.hasInit, async (work) => {
      this.restarting.add(id);
      try {
        return await work();
      } finally {
        // The event of its end may come after the answer.
        setTimeout(() => this.restarting.delete(id), 2000).unref();
      }
    });
  }

  async exec(id: string, spec: ExecSpec): Promise<ExecHandle> {
    return startExec(await this.host(id), spec);
  }

  async stats(id: string): Promise<BoxStats> {
    return readStats(await this.host(id), this.capabilities.api);
  }

  putArchive(id: string, path: string, tar: Readable): Promise<void> {
    return putArchive(this.client, id, path, tar);
  }

  getArchive(id: string, path: string): Promise<Readable> {
    return getArchive(this.client, id, path);
  }

  watch(owner: string, onEvent: (e: EngineEvent) => void): { dispose(): void } {
    const watch = watchEvents(this.client, owner, (id) => this.restarting.has(id), onEvent);
    this.watches.add(watch);
    return {
      dispose: () => {
        watch.dispose();
        this.watches.delete(watch);
      },
    };
  }

  dispose(): void {
    for (const watch of this.watches) watch.dispose();
    this.watches.clear();
    this.client.close();
  }

  private async host(id: string): Promise<ExecHost> {
    let workdir = this.workdirs.get(id);
    if (workdir === undefined) {
      const info = await boxes.inspectBox(this.client, id);
      if (!info)
        throw new PetriError('not-found', 'The container is not there any more.', {
          hint: 'It was removed; create a new sandbox.',
        });
      workdir = info.Config.WorkingDir || '/';
      this.workdirs.set(id, workdir);
    }
    return {
      client: this.client,
      boxId: id,
      workdir: workdir || '/',
      explain: (error) => boxes.whyNotRunning(this.client, id, error),
      killAll: () => this.killProcesses(id),
    };
  }
}
