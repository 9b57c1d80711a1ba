/** Reads a number to compare by, from a check's output or from a JSON file that it wrote. Both are untrusted. */
import { Worker } from 'node:worker_threads';
import { messageOf } from '../../protocol/errors';
import type { MetricSource } from '../../protocol/files';
import { shorten } from '../../protocol/text';
import { formatBytes, formatDuration } from '../../protocol/units';

/** A finite number, or in words why there is none. */
export type MetricReading = { value: number; problem: null } | { value: null; problem: string };

/** Only this much of the end of the output is searched, characters. */
export const outputTail = 1024 * 1024;
/** How long one pattern may search, milliseconds. */
export const matchTime = 1000;
/** How long its thread may take to start on a busy machine, milliseconds. */
const startTime = 15_000;
/** Bound of a metrics file, bytes. */
export const maxMetricFile = 4 * 1024 * 1024;

/**
 * Reads one metric. `output` is what the check printed, `readFile` reads a file of the sandbox's workspace.
 * Never throws: whatever is wrong is said in `problem`.
 */
export async function readMetric(
  source: MetricSource,
  output: string,
  readFile: (path: string) => Promise<Buffer>,
): Promise<MetricReading> {
  return 'pattern' in source ? matchNumber(source.pattern, output) : pointNumber(source.file, source.pointer, readFile);
}

const none = (problem: string): MetricReading => ({ value: null, problem });
const decimal = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i;

async function matchNumber(pattern: string, output: string): Promise<MetricReading> {
  const shown = `\`${shorten(pattern, 80)}\``;
  let match: string | null;
  try {
    match = await lastMatch(pattern, output.slice(-outputTail));
  } catch (error) {
    return none(`The pattern ${shown} ${messageOf(error)}.`);
  }
  if (match === null) return none(`The output has nothing that matches ${shown}.`);
  const text = match.trim();
  const value = decimal.test(text) ? Number(text) : NaN;
  if (!Number.isFinite(value)) return none(`The pattern ${shown} found "${shorten(text, 40)}", which is not a number.`);
  return { value, problem: null };
}

/** Runs in a thread of its own, because a pattern can take for ever on a text that was made for it. */
const search = `
const { parentPort, workerData } = require('node:worker_threads');
parentPort.postMessage({ ready: true });
try {
  let last = null;
  for (const match of workerData.text.matchAll(new RegExp(workerData.pattern, 'gm'))) last = match;
  parentPort.postMessage({ text: last === null ? null : String(last.length > 1 ? (last[1] ?? '') : last[0]).slice(0, 1000) });
} catch (error) {
  parentPort.postMessage({ problem: error instanceof SyntaxError ? 'is not a regular expression' : 'could not be searched for' });
}`;

/** The first group of the last match (the whole match where there is no group). Rejects with words that follow "The pattern x". */
function lastMatch(pattern: string, text: string): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(search, {
      eval: true,
      workerData: { pattern, text },
      env: {},
      execArgv: [],
      stdin: false,
      resourceLimits: { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32 },
    });
    let timer = setTimeout(
      () => end(() => reject(new Error('could not be searched for: its thread did not start'))),
      startTime,
    );
    const end = (settle: () => void): void => {
      clearTimeout(timer);
      worker.removeAllListeners();
      worker.on('error', () => undefined); // a late one, on the way down
      settle();
      void worker.terminate();
    };
    worker.on('message', (message: { ready?: true; text?: string | null; problem?: string }) => {
      if (message.ready) {
        clearTimeout(timer);
        timer = setTimeout(
          () =>
            end(() =>
              reject(new Error(`took longer than ${formatDuration(matchTime)} on the output; make it simpler`)),
            ),
          matchTime,
        );
      } else if (message.problem !== undefined) {
        const { problem } = message;
        end(() => reject(new Error(problem)));
      } else {
        end(() => resolve(message.text ?? null));
      }
    });
    worker.on('error', (error) =>
      end(() => reject(new Error(`could not be searched for: ${shorten(messageOf(error), 200)}`))),
    );
    worker.on('exit', () => end(() => reject(new Error('could not be searched for: its thread ended'))));
  });
}

async function pointNumber(
  file: string,
  pointer: string,
  readFile: (path: string) => Promise<Buffer>,
): Promise<MetricReading> {
  const shown = `"${shorten(file, 120)}"`;
  let data: Buffer;
  try {
    data = await readFile(file);
  } catch (error) {
    return none(`The metrics file ${shown} can't be read: ${shorten(messageOf(error), 200)}`);
  }
  if (data.length > maxMetricFile)
    return none(
      `The metrics file ${shown} has ${formatBytes(data.length)}; at most ${formatBytes(maxMetricFile)} are read.`,
    );
  let value: unknown;
  try {
    value = JSON.parse(data.toString('utf8').replace(/^\ufeff/, ''));
  } catch {
    return none(`The metrics file ${shown} is not JSON.`);
  }
  const found = resolvePointer(value, pointer);
  const at = pointer === '' ? 'at its top' : `at ${shorten(pointer, 80)}`;
  if (found === undefined) return none(`The metrics file ${shown} has nothing ${at}.`);
  if (typeof found !== 'number')
    return none(`The metrics file ${shown} has ${kindOf(found)} ${at}; expected a number.`);
  if (!Number.isFinite(found)) return none(`The metrics file ${shown} has a number ${at} that is too large.`);
  return { value: found, problem: null };
}

/** RFC 6901. Undefined when there is nothing (or the pointer is no pointer). Reads own properties only. */
export function resolvePointer(root: unknown, pointer: string): unknown {
  if (pointer === '') return root;
  if (!pointer.startsWith('/') || /~(?![01])/.test(pointer)) return undefined;
  let value = root;
  for (const part of pointer.slice(1).split('/')) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(value)) {
      if (!/^(?:0|[1-9]\d*)$/.test(key)) return undefined;
      value = (value as unknown[])[Number(key)];
    } else if (typeof value === 'object' && value !== null && Object.hasOwn(value, key)) {
      value = (value as Record<string, unknown>)[key];
    } else {
      return undefined;
    }
  }
  return value;
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
