/** A layer by `docker load` of an archive with that layer alone. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, createWriteStream, openSync, closeSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { cancelled, PetriError } from '../../../protocol/errors';
import { formatBytes } from '../../../protocol/units';
import type { BytePath } from '../../../protocol/text';
import { packTar, tarEndBytes, type TarEntry } from '../../tar/pack';
import type { Image, Labels, LayerSpec } from '../engine';
import type { Client } from './client';
import { inspectImage, removeImage, toImage, type ImageInspect } from './images';
import { jsonLines } from './jsonLines';

const ours = 'dev.petri.';

/** Errors: engine-failed when this engine doesn't take such archives, and those of the engine and of `open()`. */
export async function layerByLoad(client: Client, parent: ImageInspect, spec: LayerSpec): Promise<Image> {
  const below = parent.RootFS?.Layers;
  if (!below || below.length === 0)
    throw new PetriError('engine-failed', 'The engine does not say which layers an image has.');
  const before = await whiteouts(spec.removals, spec.owner ?? { uid: 0, gid: 0 });
  const layer =
    spec.sizeBytes === undefined
      ? await onDisk(before, spec)
      : { size: before.length + spec.sizeBytes, open: () => spec.open(), close: () => undefined };
  const sent: Sent = { diffId: '', id: '' };
  try {
    const archive = packTar(archiveEntries(parent, below, spec, before, layer, sent));
    await load(client, archive, spec, sent);
  } finally {
    layer.close();
  }
  const made = await inspectImage(client, `sha256:${sent.id}`);
  const layers = made?.RootFS?.Layers ?? [];
  const sound =
    made &&
    layers.length === below.length + 1 &&
    layers.at(-1) === sent.diffId &&
    Object.entries(spec.labels).every(([k, v]) => made.Config?.Labels?.[k] === v);
  if (!sound) {
    if (made) await removeImage(client, made.Id);
    throw new PetriError('engine-failed', 'The engine took a layer and made another image of it than was asked for.');
  }
  return toImage(spec.tag, made);
}

interface Layer {
  size: number;
  open(): Readable;
  close(): void;
}

interface Sent {
  diffId: string;
  /** The configuration's digest, which is the image's id; known once the archive was read to its end. */
  id: string;
}

/** The layer first, for its digest is in what follows. */
async function* archiveEntries(
  parent: ImageInspect,
  below: string[],
  spec: LayerSpec,
  before: Buffer,
  layer: Layer,
  sent: Sent,
): AsyncGenerator<TarEntry> {
  const hash = createHash('sha256');
  yield entry('layer.tar', layer.size, Readable.from(hashed(before, layer.open(), hash, spec), { objectMode: false }));
  sent.diffId = `sha256:${hash.digest('hex')}`;
  const config = Buffer.from(JSON.stringify(configOf(parent, [...below, sent.diffId], spec.labels)));
  sent.id = createHash('sha256').update(config).digest('hex');
  yield entry(`${sent.id}.json`, config.length, config);
  // Layers that are there aren't looked for in the archive; the names only have to be there.
  const manifest = Buffer.from(
    JSON.stringify([
      {
        Config: `${sent.id}.json`,
        RepoTags: [spec.tag],
        Layers: [...below.map((_, i) => `below-${i}.tar`), 'layer.tar'],
      },
    ]),
  );
  yield entry('manifest.json', manifest.length, manifest);
}

function entry(name: string, size: number, content: Buffer | Readable): TarEntry {
  return { path: name as BytePath, type: 'file', mode: 0o644, uid: 0, gid: 0, mtimeMs: 0, size, content };
}

async function* hashed(
  before: Buffer,
  rest: Readable,
  hash: ReturnType<typeof createHash>,
  spec: LayerSpec,
): AsyncGenerator<Buffer> {
  const total = spec.sizeBytes ?? spec.sizeHint;
  let done = 0;
  let told = 0;
  if (before.length > 0) {
    hash.update(before);
    yield before;
  }
  for await (const chunk of rest as AsyncIterable<Buffer>) {
    hash.update(chunk);
    yield chunk;
    done += chunk.length;
    if (done - told > 16 * 1024 * 1024) {
      told = done;
      spec.progress?.({
        message: `Sending the layer (${formatBytes(done)})`,
        ...(total > 0 ? { done: Math.min(done, total), total } : {}),
      });
    }
  }
}

/**
 * The layer on disk, where its size isn't known before: tar says the size in front. The file has no name (where the platform allows), so
 * that nothing stays behind whatever happens.
 */
async function onDisk(before: Buffer, spec: LayerSpec): Promise<Layer> {
  const file = path.join(tmpdir(), `petri-layer-${process.pid}-${Math.random().toString(36).slice(2)}`);
  const fd = openSync(file, 'wx+', 0o600);
  const named = process.platform === 'win32';
  if (!named) rmSync(file, { force: true });
  const close = (): void => {
    closeSync(fd);
    if (named) rmSync(file, { force: true });
  };
  const source = spec.open();
  const stop = (): void => void source.destroy(cancelled('Making a layer'));
  spec.signal?.addEventListener('abort', stop, { once: true });
  const target = createWriteStream('', { fd, autoClose: false, highWaterMark: 1024 * 1024 });
  const written = finished(target);
  written.catch(() => undefined);
  try {
    let size = before.length;
    for await (const chunk of source as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (!target.write(chunk)) await Promise.race([once(target, 'drain'), written]);
    }
    target.end();
    await written;
    const bytes = size - before.length;
    return {
      size,
      close,
      open: () =>
        bytes === 0
          ? Readable.from([])
          : createReadStream('', { fd, start: 0, autoClose: false, highWaterMark: 512 * 1024 }),
    };
  } catch (error) {
    source.destroy();
    target.destroy();
    close();
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC') {
      throw new PetriError('disk-full', `The disk of ${tmpdir()} is full (while making a layer).`, {
        hint: 'Make room there, or set TMPDIR to a larger one.',
      });
    }
    throw error;
  } finally {
    spec.signal?.removeEventListener('abort', stop);
  }
}

/** Sends the archive. A cancelled one leaves nothing: the engine drops what is cut off, and what it had already is removed. */
async function load(client: Client, archive: Readable, spec: LayerSpec, sent: Sent): Promise<void> {
  const abort = new AbortController();
  let complete = false;
  archive.once('end', () => (complete = true));
  const stop = (): void => {
    // Once the engine has all of it, it finishes whether we stay or not.
    if (!complete) abort.abort();
  };
  spec.signal?.addEventListener('abort', stop, { once: true });
  if (spec.signal?.aborted) stop();
  try {
    const answer = (await client.docker.loadImage(archive, { quiet: true, abortSignal: abort.signal })) as Readable;
    for await (const line of jsonLines(answer)) {
      if (typeof line['error'] === 'string') throw Object.assign(new Error(line['error']), { statusCode: 500 });
    }
  } catch (error) {
    if (spec.signal?.aborted) throw cancelled('Making a layer');
    throw client.error(archive.errored ?? error, 'loading a layer');
  } finally {
    spec.signal?.removeEventListener('abort', stop);
    archive.destroy();
  }
  if (spec.signal?.aborted) {
    await removeImage(client, `sha256:${sent.id}`);
    throw cancelled('Making a layer');
  }
}

/** The new image's configuration: the parent's, with our labels in place of those it had of us. */
function configOf(parent: ImageInspect, diffIds: string[], labels: Labels): Record<string, unknown> {
  const { Volumes: _volumes, ...config } = parent.Config ?? {};
  const theirs = Object.fromEntries(Object.entries(config.Labels ?? {}).filter(([key]) => !key.startsWith(ours)));
  const created = new Date().toISOString();
  const variant = (parent as { Variant?: string }).Variant;
  return {
    architecture: parent.Architecture,
    ...(variant ? { variant } : {}),
    os: parent.Os,
    created,
    // A declared volume would be mounted over the files of the layer, empty of what a snapshot is to keep.
    config: { ...config, Labels: { ...theirs, ...labels } },
    rootfs: { type: 'layers', diff_ids: diffIds },
    history: diffIds.map((_, i) =>
      i < diffIds.length - 1 ? { created: parent.Created, comment: 'below' } : { created, created_by: 'petri' },
    ),
  };
}

/**
 * What a layer says to take paths away, with the folders above (a layer that leaves them out would have them made anew, owned by root),
 * without the archive's end mark.
 */
async function whiteouts(removals: BytePath[], owner: { uid: number; gid: number }): Promise<Buffer> {
  if (removals.length === 0) return Buffer.alloc(0);
  const mtimeMs = Date.now();
  const folders = new Set<string>();
  const entries: TarEntry[] = [];
  for (const removal of removals) {
    const parts = removal.replace(/\/+$/, '').split('/');
    if (parts.some((p) => p === '' || p === '.' || p === '..'))
      throw new PetriError('internal', 'A path to remove is not relative to /.');
    for (let i = 1; i < parts.length; i++) {
      const folder = parts.slice(0, i).join('/');
      if (folders.has(folder)) continue;
      folders.add(folder);
      entries.push({ path: folder as BytePath, type: 'dir', mode: 0o755, ...owner, mtimeMs, size: 0 });
    }
    const name = `.wh.${parts.at(-1) ?? ''}`;
    entries.push({
      path: [...parts.slice(0, -1), name].join('/') as BytePath,
      type: 'file',
      mode: 0o600,
      uid: 0,
      gid: 0,
      mtimeMs,
      size: 0,
    });
  }
  const chunks: Buffer[] = [];
  for await (const chunk of packTar(entries) as AsyncIterable<Buffer>) chunks.push(chunk);
  const whole = Buffer.concat(chunks);
  return whole.subarray(0, whole.length - tarEndBytes);
}
