/** The engine's events for boxes of one owner. Goes on after the engine was away, and then tells of what ended meanwhile. */
import type { Readable } from 'node:stream';
import { label, type EngineEvent } from '../engine';
import type { Client } from './client';
import { jsonLines } from './jsonLines';
import { readLabels } from './labels';

const firstDelayMs = 250;
const longestDelayMs = 10_000;

/** `quiet` says for which boxes an end is our own doing and no news. */
export function watchEvents(
  client: Client,
  owner: string,
  quiet: (boxId: string) => boolean,
  onEvent: (e: EngineEvent) => void,
): { dispose(): void } {
  const abort = new AbortController();
  let stream: Readable | undefined;
  let timer: NodeJS.Timeout | undefined;
  let delay = firstDelayMs;
  let wasConnected = false;

  const tell = (kind: EngineEvent['kind'], boxId: string, labels: EngineEvent['labels']): void => {
    if (!abort.signal.aborted && !(kind === 'died' && quiet(boxId))) onEvent({ kind, boxId, labels });
  };

  const listen = async (): Promise<void> => {
    stream = (await client.docker.getEvents({
      filters: { type: ['container'], event: ['oom', 'die'], label: [`${label.owner}=${owner}`] },
      abortSignal: abort.signal,
    })) as Readable;
    delay = firstDelayMs;
    if (wasConnected) {
      const boxes = await client.docker.listContainers({
        all: true,
        filters: { label: [`${label.owner}=${owner}`], status: ['exited', 'dead'] },
      });
      for (const box of boxes) tell('died', box.Id, readLabels(box.Labels));
    }
    wasConnected = true;
    for await (const event of jsonLines(stream)) {
      const actor = event['Actor'] as { ID?: unknown; Attributes?: Record<string, string> } | undefined;
      const action = event['Action'] ?? event['status'];
      if (typeof actor?.ID !== 'string' || (action !== 'oom' && action !== 'die' && action !== 'died')) continue;
      tell(action === 'oom' ? 'oom' : 'died', actor.ID, labelsOf(actor.Attributes));
    }
  };

  const run = (): void => {
    listen()
      .catch(() => undefined) // The engine is away: every call tells that to its caller; here it is waited for.
      .finally(() => {
        stream?.destroy();
        if (abort.signal.aborted) return;
        timer = setTimeout(run, delay);
        timer.unref();
        delay = Math.min(delay * 2, longestDelayMs);
      });
  };
  run();
  return {
    dispose: () => {
      abort.abort();
      clearTimeout(timer);
      stream?.destroy();
    },
  };
}

/** An event's attributes are the labels and some facts beside them. */
function labelsOf(attributes: Record<string, string> | undefined): EngineEvent['labels'] {
  const {
    image: _image,
    name: _name,
    exitCode: _exitCode,
    signal: _signal,
    execID: _execID,
    ...labels
  } = attributes ?? {};
  return readLabels(labels);
}
