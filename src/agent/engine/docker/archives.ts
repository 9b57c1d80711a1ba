/** Tar streams into and out of a box. */
import { Readable } from 'node:stream';
import { PetriError } from '../../../protocol/errors';
import type { Client } from './client';
import { statusOf, reasonOf } from './errors';

export async function putArchive(client: Client, id: string, path: string, tar: Readable): Promise<void> {
  try {
    await client.docker.getContainer(id).putArchive(tar, { path, copyUIDGID: false });
  } catch (error) {
    // What broke the stream says more than that it broke.
    if (tar.errored) throw client.error(tar.errored, 'unpacking an archive');
    throw notFound(error, path) ?? client.error(error, 'unpacking an archive');
  } finally {
    tar.destroy();
  }
}

export async function getArchive(client: Client, id: string, path: string): Promise<Readable> {
  let answer: Readable;
  try {
    answer = (await client.docker.getContainer(id).getArchive({ path })) as Readable;
  } catch (error) {
    throw notFound(error, path) ?? client.error(error, 'reading an archive');
  }
  return Readable.from(inOurErrors(client, answer), { objectMode: false, highWaterMark: 256 * 1024 });
}

async function* inOurErrors(client: Client, answer: Readable): AsyncGenerator<Buffer> {
  try {
    yield* answer as AsyncIterable<Buffer>;
  } catch (error) {
    throw client.error(error, 'reading an archive');
  } finally {
    answer.destroy();
  }
}

function notFound(error: unknown, path: string): PetriError | undefined {
  if (statusOf(error) !== 404) return undefined;
  const what = /no such container/i.test(reasonOf(error))
    ? 'The container is not there any more.'
    : `There is no ${path} in the container.`;
  return new PetriError('not-found', what);
}
