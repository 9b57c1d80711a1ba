/** Boxes: the create request, and everything that is done to a container as a whole. */
import * as z from 'zod';
import { cancelled, isCancelled, messageOf, PetriError } from '../../../protocol/errors';
import { shorten } from '../../../protocol/text';
import type { Box, BoxSpec, Image, Labels } from '../engine';
import { runtimeFor, type Capabilities } from './capabilities';
import type { Client } from './client';
import { reasonOf, statusOf } from './errors';
import { inspectImage, toImage, withAlgorithm } from './images';
import { labelFilter, labelsOver, readLabels } from './labels';

/** Longest time `sleep` everywhere takes. */
const foreverSeconds = 2_147_483_647;

/** Of the usual capabilities those that neither builds nor package installs need. */
const dropped = ['NET_RAW', 'MKNOD', 'SETPCAP'];

/** The request that makes a box. Nothing of the host is mounted. Errors: unsupported. */
export function createRequest(c: Capabilities, spec: BoxSpec): Record<string, unknown> {
  const runtime = runtimeFor(c, spec);
  const seconds =
    spec.lifetimeMs === undefined
      ? foreverSeconds
      : Math.min(foreverSeconds, Math.max(1, Math.ceil(spec.lifetimeMs / 1000)));
  return {
    Image: spec.image.id,
    Labels: labelsOver(spec.labels, spec.image.labels),
    Entrypoint: ['/bin/sh', '-c', `exec sleep ${seconds}`],
    Cmd: [],
    Env: Object.entries(spec.env).map(([name, value]) => `${name}=${value}`),
    WorkingDir: spec.workdir,
    User: spec.user,
    Healthcheck: { Test: ['NONE'] },
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    OpenStdin: false,
    Tty: false,
    StopSignal: 'SIGKILL',
    NetworkDisabled: spec.network === 'none',
    HostConfig: {
      ...(c.hasInit ? { Init: true } : {}),
      ...(runtime === undefined ? {} : { Runtime: runtime }),
      Binds: [],
      Privileged: false,
      SecurityOpt: ['no-new-privileges'],
      CapDrop: dropped,
      NetworkMode: spec.network === 'none' ? 'none' : c.podman && c.rootless ? 'default' : 'bridge',
      LogConfig: { Type: 'none' },
      RestartPolicy: { Name: 'no' },
      AutoRemove: false,
      ...(spec.memoryBytes === undefined
        ? {}
        : { Memory: spec.memoryBytes, ...(c.swap ? { MemorySwap: spec.memoryBytes } : {}) }),
      ...(spec.cpus === undefined ? {} : { NanoCpus: Math.round(spec.cpus * 1e9) }),
      ...(spec.pids === undefined ? {} : { PidsLimit: spec.pids }),
    },
  };
}

/** Creates and starts; whatever fails, or when it is cancelled, no container stays. */
export async function createBox(client: Client, c: Capabilities, spec: BoxSpec): Promise<Box> {
  const hadInit = c.hasInit;
  try {
    return await createOnce(client, c, spec);
  } catch (error) {
    if (!hadInit || !/init binary not found|exec: \\?"(docker-init|catatonit)/i.test(messageOf(error))) throw error;
    c.hasInit = false;
    return createOnce(client, c, spec);
  }
}

async function createOnce(client: Client, c: Capabilities, spec: BoxSpec): Promise<Box> {
  const request = createRequest(c, spec);
  if (spec.signal?.aborted) throw cancelled('Creating the container');
  let id: string | undefined;
  try {
    const created = createdAnswer.parse(
      await client.request('creating a container', 'POST', '/containers/create', {
        query: { name: spec.name },
        body: request,
      }),
    );
    id = created.Id;
    const box = client.docker.getContainer(created.Id);
    const refused = refusedIn(created.Warnings ?? []);
    if (refused) {
      throw new PetriError('unsupported', `This engine does not enforce what was asked for: ${refused}`, {
        hint: 'Leave the limit out, or use an engine that has it.',
      });
    }
    if (spec.signal?.aborted) throw cancelled('Creating the container');
    await client.call('starting a container', () => box.start());
    if (spec.signal?.aborted) throw cancelled('Creating the container');
    return {
      id: created.Id,
      name: spec.name,
      labels: spec.labels,
      state: 'running',
      imageId: spec.image.id,
      createdAt: new Date().toISOString(),
    };
  } catch (error) {
    if (id !== undefined) await removeBox(client, id);
    if (isCancelled(error)) throw error;
    throw clearer(error, spec);
  }
}

const createdAnswer = z.object({ Id: z.string(), Warnings: z.array(z.string()).nullish() });

/** Of the engine's warnings on a create request those that mean "I leave that out". */
function refusedIn(warnings: string[]): string | undefined {
  const refused = warnings.filter((w) => /discarded|not supported|does not support/i.test(w));
  return refused.length > 0 ? shorten(refused.join(' '), 400) : undefined;
}

function clearer(error: unknown, spec: BoxSpec): unknown {
  if (!(error instanceof PetriError)) return error;
  const text = messageOf(error);
  if (error.code === 'not-found' || error.code === 'image-missing') {
    return new PetriError('image-missing', `The engine no longer has the image ${shorten(spec.image.ref, 200)}.`, {
      hint: 'It was removed meanwhile; try again.',
      cause: error,
    });
  }
  if (/exec.*\/bin\/sh.*(no such file|not found)/i.test(text)) return noShell(spec.image);
  if (spec.user !== '' && /unable to find user|no matching entries in passwd/i.test(text)) {
    return new PetriError(
      'engine-failed',
      `The image ${shorten(spec.image.ref, 200)} has no user "${shorten(spec.user, 60)}".`,
      { hint: 'Name one that it has, or a number.', cause: error },
    );
  }
  return error;
}

function noShell(image: Pick<Image, 'ref'>): PetriError {
  return new PetriError(
    'command-missing',
    `The image ${shorten(image.ref, 200)} has no /bin/sh or no \`sleep\`: nothing can be run in it.`,
    {
      hint: 'Use an image with a shell and coreutils or busybox.',
    },
  );
}

/** Why a box isn't running: its image lacks what keeps it alive, or it ended. */
export async function whyNotRunning(client: Client, id: string, error: PetriError): Promise<PetriError> {
  const info = await inspectBox(client, id).catch(() => undefined);
  if (!info || info.State.Running) return error;
  const lived = Date.parse(info.State.FinishedAt) - Date.parse(info.State.StartedAt);
  if ((info.State.ExitCode === 127 || info.State.ExitCode === 126) && lived < 2000)
    return noShell({ ref: info.Config.Image });
  const why = info.State.OOMKilled ? ': it ran out of memory' : info.State.ExitCode === 0 ? ': its time was over' : '';
  return new PetriError('state', `The container is not running${why}.`, {
    hint: 'It can be started again or destroyed; its files are still there.',
    data: { exitCode: info.State.ExitCode, oom: info.State.OOMKilled },
    cause: error,
  });
}

export type BoxInspect = Awaited<ReturnType<ReturnType<Client['docker']['getContainer']>['inspect']>>;

export function inspectBox(client: Client, id: string): Promise<BoxInspect | undefined> {
  return client.call('looking for a container', async (docker) => {
    try {
      return await docker.getContainer(id).inspect();
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw error;
    }
  });
}

const stateOf = (status: string): Box['state'] =>
  status === 'running' ? 'running' : status === 'paused' ? 'paused' : 'stopped';

export async function findBox(client: Client, id: string): Promise<Box | undefined> {
  const info = await inspectBox(client, id);
  return (
    info && {
      id: info.Id,
      name: info.Name.replace(/^\//, ''),
      labels: readLabels(info.Config.Labels),
      state: stateOf(info.State.Status),
      imageId: withAlgorithm(info.Image),
      createdAt: info.Created,
    }
  );
}

export async function listBoxes(client: Client, labels: Labels): Promise<Box[]> {
  const found = await client.call('listing containers', (docker) =>
    docker.listContainers({ all: true, filters: { label: labelFilter(labels) } }),
  );
  return found.map((box) => ({
    id: box.Id,
    name: (box.Names[0] ?? '').replace(/^\//, ''),
    labels: readLabels(box.Labels),
    state: stateOf(box.State),
    imageId: withAlgorithm(box.ImageID),
    createdAt: new Date(box.Created * 1000).toISOString(),
  }));
}

/** Saves a box as an image with the configuration of the image it was made from; only labels are new. */
export async function commitBox(client: Client, id: string, options: { tag: string; labels: Labels }): Promise<Image> {
  const box = await inspectBox(client, id);
  if (!box) throw new PetriError('not-found', 'The container to save is not there any more.');
  const from = await inspectImage(client, box.Image);
  const { repo, tag } = splitTag(options.tag);
  const config = from?.Config;
  const made: unknown = await client.call('saving a container', (docker) =>
    docker.getContainer(id).commit({
      repo,
      tag,
      pause: true,
      _body: {
        Labels: labelsOver(options.labels, box.Config.Labels ?? {}),
        // What is left out is taken from the container: the command that keeps it alive, its user.
        User: config?.User ? config.User : '0',
        WorkingDir: config?.WorkingDir ? config.WorkingDir : '/',
        Entrypoint: config?.Entrypoint ?? [],
        Cmd: config?.Cmd ?? ['/bin/sh'],
        Env: config?.Env ?? [],
      },
      _query: { container: id, repo, tag, pause: true },
    }),
  );
  const image = await inspectImage(client, (made as { Id: string }).Id);
  if (!image) throw new PetriError('engine-failed', 'The engine saved a container and does not have the image.');
  return toImage(options.tag, image);
}

/** The parts of `repository:tag`; a registry's port is no tag. */
export function splitTag(name: string): { repo: string; tag: string } {
  const m = /^(.*?)(?::([^/:]+))?$/.exec(name);
  return { repo: m?.[1] ?? name, tag: m?.[2] ?? 'latest' };
}

export function killBox(client: Client, id: string): Promise<void> {
  return client.call('stopping a container', async (docker) => {
    try {
      await docker.getContainer(id).kill({ signal: 'SIGKILL' });
    } catch (error) {
      // 404: not there. 409, and 500 from some: not running.
      if (statusOf(error) === 404 || statusOf(error) === 409) return;
      if (statusOf(error) === 500 && /not running|already stopped/i.test(reasonOf(error))) return;
      throw error;
    }
  });
}

export function startBox(client: Client, id: string): Promise<void> {
  return client.call('starting a container', async (docker) => {
    try {
      await docker.getContainer(id).start();
    } catch (error) {
      if (statusOf(error) !== 304) throw error;
    }
  });
}

/** Asks again when another removal of the same box is under way, and returns when it is gone. */
export function removeBox(client: Client, id: string): Promise<void> {
  return client.call('removing a container', async (docker) => {
    try {
      await docker.getContainer(id).remove({ force: true, v: true });
    } catch (error) {
      if (statusOf(error) === 404) return;
      if (statusOf(error) !== 409 || !/already in progress/i.test(reasonOf(error))) throw error;
      const deadline = Date.now() + 30_000;
      while ((await inspectBox(client, id)) && Date.now() < deadline)
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
}
