/** The engine's progress and event streams: one JSON object after another, by lines. */
import { StringDecoder } from 'node:string_decoder';
import type { Readable } from 'node:stream';
import { PetriError } from '../../../protocol/errors';

/** Longest line that is taken for one. */
const maxLine = 1024 * 1024;

export async function* jsonLines(stream: Readable): AsyncGenerator<Record<string, unknown>> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    rest += decoder.write(chunk);
    for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
      const line = rest.slice(0, end);
      rest = rest.slice(end + 1);
      const value = parse(line);
      if (value) yield value;
    }
    if (rest.length > maxLine) throw new PetriError('engine-failed', 'The engine sent a line without end.');
  }
  const value = parse(rest);
  if (value) yield value;
}

function parse(line: string): Record<string, unknown> | undefined {
  if (line.trim() === '') return undefined;
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
