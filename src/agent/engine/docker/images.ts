/** Images: finding, listing, getting, removing. */
import type { Readable } from 'node:stream';
import { cancelled, PetriError } from '../../../protocol/errors';
import { shorten } from '../../../protocol/text';
import type { Progress } from '../../../protocol/wire';
import { label, type Image, type Labels } from '../engine';
import type { Client } from './client';
import { reasonOf, statusOf } from './errors';
import { labelFilter, readLabels } from './labels';
import { jsonLines } from './jsonLines';

export type ImageInspect = Awaited<ReturnType<ReturnType<Client['docker']['getImage']>['inspect']>>;

/** Tags that we may take away. */
const ourTags = 'petri/';
/** Inspections under way at once when many images are listed. */
const atOnce = 8;

/** Names and ids of images. What else is asked for would be part of a request's path and ask for something else. */
const reference = /^[A-Za-z0-9](?:[A-Za-z0-9_@:+-]|\.(?!\.)|\/(?![./])){0,254}$/;

export async function inspectImage(client: Client, ref: string): Promise<ImageInspect | undefined> {
  if (!reference.test(ref)) return undefined;
  return client.call('looking for an image', async (docker) => {
    try {
      return await docker.getImage(ref).inspect();
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      // A name that can't be one is not here either.
      if ([400, 500].includes(statusOf(error) ?? 0) && /invalid reference|repository name/i.test(reasonOf(error)))
        return undefined;
      throw error;
    }
  });
}

export function toImage(ref: string, data: ImageInspect): Image {
  return {
    id: withAlgorithm(data.Id),
    ref,
    labels: readLabels(data.Config?.Labels),
    user: data.Config?.User ?? '',
    env: data.Config?.Env ?? [],
    workdir: data.Config?.WorkingDir ?? '',
    sizeBytes: data.Size ?? 0,
    layers: data.RootFS?.Layers?.length ?? 0,
    createdAt: data.Created ?? '',
  };
}

/** Podman gives bare digests. */
export const withAlgorithm = (id: string): string => (/^[0-9a-f]{64}$/.test(id) ? `sha256:${id}` : id);

export async function findImage(client: Client, ref: string): Promise<Image | undefined> {
  const data = await inspectImage(client, ref);
  return data && toImage(ref, data);
}

export async function listImages(client: Client, labels: Labels): Promise<Image[]> {
  const found = await client.call('listing images', (docker) =>
    docker.listImages({ filters: { label: labelFilter(labels) } }),
  );
  const out: Image[] = [];
  for (let at = 0; at < found.length; at += atOnce) {
    const part = await Promise.all(
      found.slice(at, at + atOnce).map(async (summary) => {
        const data = await inspectImage(client, summary.Id);
        return data && toImage(summary.RepoTags?.find((t) => t !== '<none>:<none>') ?? withAlgorithm(summary.Id), data);
      }),
    );
    out.push(...part.filter((image) => image !== undefined));
  }
  return out;
}

export async function pullImage(
  client: Client,
  ref: string,
  options: { signal?: AbortSignal; progress?(p: Progress): void },
): Promise<Image> {
  const { signal } = options;
  if (signal?.aborted) throw cancelled('Getting the image');
  if (/^sha256:|^[0-9a-f]{64}$/.test(ref))
    throw missing(ref, 'an image that is named by its id alone can not be got from anywhere');
  // Without a tag the engine would get all of them.
  const named = /[@]|:[^/]*$/.test(ref) ? ref : `${ref}:latest`;
  try {
    const stream = (await client.docker.createImage({
      fromImage: named,
      ...(signal ? { abortSignal: signal } : {}),
    })) as Readable;
    const stop = (): void => void stream.destroy(cancelled('Getting the image'));
    signal?.addEventListener('abort', stop, { once: true });
    try {
      const layers = new Map<string, [number, number]>();
      for await (const line of jsonLines(stream)) {
        if (typeof line['error'] === 'string') throw pullError(named, line['error']);
        const detail = line['progressDetail'] as { current?: unknown; total?: unknown } | undefined;
        if (typeof line['id'] === 'string' && typeof detail?.current === 'number' && typeof detail.total === 'number') {
          layers.set(`${line['id']} ${String(line['status'])}`, [detail.current, detail.total]);
          if (layers.size > 1000) layers.clear();
        }
        const [done, total] = [...layers.values()].reduce(([a, b], [c, t]) => [a + c, b + t], [0, 0]);
        options.progress?.({
          message: `Getting the image ${shorten(named, 100)}`,
          ...(total > 0 ? { done, total } : {}),
        });
      }
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  } catch (error) {
    if (signal?.aborted) throw cancelled('Getting the image');
    if (statusOf(error) !== undefined) throw pullError(named, reasonOf(error));
    throw client.error(error, 'getting an image');
  }
  const image = await findImage(client, ref);
  if (!image) throw missing(ref, 'the engine got it and does not have it');
  return image;
}

function pullError(ref: string, reason: string): PetriError {
  if (/no space left/i.test(reason)) {
    return new PetriError('disk-full', `The engine's disk is full (while getting ${shorten(ref, 200)}).`, {
      hint: 'Make room: `petri prune`, `docker system df`.',
    });
  }
  if (
    /not found|unknown|denied|no such|does not exist|invalid reference|unauthorized|authentication required|short-name/i.test(
      reason,
    )
  )
    return missing(ref, reason);
  return new PetriError('engine-failed', `The image ${shorten(ref, 200)} could not be got: ${shorten(reason, 500)}`, {
    hint: 'Is the registry reachable from the engine? Try `docker pull` with the same name.',
  });
}

function missing(ref: string, reason: string): PetriError {
  return new PetriError('image-missing', `There is no image ${shorten(ref, 200)}: ${shorten(reason, 500)}`, {
    hint: 'Check its name; if it needs a login, get it with `docker pull` first; or name another one (`environment.image` in petri.json).',
  });
}

/**
 * Removes an image that carries our label: our tags, then the image, then those below it that are ours and that nothing names any more.
 * True when it is not there any more. Tags of others, and images that aren't ours, stay.
 */
export async function removeImage(client: Client, id: string): Promise<boolean> {
  const data = await inspectImage(client, id);
  if (!data) return true;
  if (!readLabels(data.Config?.Labels)[label.owner]) return false;
  const tags = data.RepoTags ?? [];
  const own = tags.filter((tag) => tag.replace(/^localhost\//, '').startsWith(ourTags));
  const names = tags.length > own.length ? own : own.length > 0 ? own : [data.Id];
  for (const name of names) {
    if (!(await removeName(client, name))) return false;
  }
  if (tags.length > own.length) return false;
  const below = data.Parent ? await inspectImage(client, data.Parent) : undefined;
  if (below && (below.RepoTags ?? []).length === 0) await removeImage(client, below.Id);
  return true;
}

/** False when something still uses it. */
function removeName(client: Client, name: string): Promise<boolean> {
  return client.call('removing an image', async (docker) => {
    try {
      // Its parents may be someone else's.
      await docker.getImage(name).remove({ noprune: true });
      return true;
    } catch (error) {
      if (statusOf(error) === 404) return true;
      if (statusOf(error) === 409 || (statusOf(error) === 500 && /in use|used by/i.test(reasonOf(error)))) return false;
      throw error;
    }
  });
}
