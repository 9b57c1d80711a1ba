/** Reads `petri.json` and experiment files from disk. What is wrong in one is said with its place and the expected form. */
import { constants, type Stats } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, PetriError } from '../../protocol/errors';
import { experimentFile, petriFile, type ExperimentFile, type PetriFile } from '../../protocol/files';
import { visible } from '../../protocol/text';
import { formatBytes } from '../../protocol/units';
import { checkDocument } from './files-check';

/** Bound of a file that people write, bytes. */
export const maxFileBytes = 1024 * 1024;

/**
 * Reads an experiment file (JSON; comments, trailing commas and a byte order mark are fine). Errors: not-found;
 * invalid-file with `data` { file, line, column, path, expected, issues }.
 */
export async function readExperimentFile(file: string): Promise<ExperimentFile> {
  const text = await readText(file);
  if (text === undefined) {
    throw new PetriError('not-found', `There is no file ${visible(file, true)}.`, {
      hint: 'Check the path; an experiment file is usually called NAME.experiment.json.',
    });
  }
  return checkDocument(file, text, experimentFile);
}

/** Reads `petri.json` of a workspace; defaults where there is none. Errors: invalid-file, as {@link readExperimentFile}. */
export async function readPetriFile(workspace: string): Promise<PetriFile> {
  const file = path.join(workspace, 'petri.json');
  const text = await readText(file);
  return text === undefined ? petriFile.parse({}) : checkDocument(file, text, petriFile);
}

/** The text of a regular file within the bound; undefined when there is none. */
async function readText(file: string): Promise<string | undefined> {
  const fail = (what: string, cause?: unknown): PetriError =>
    new PetriError('invalid-file', `${visible(path.basename(file), true)}: ${what}`, {
      data: { file, line: 1, column: 1, path: '', expected: 'a JSON file', issues: [] },
      cause,
    });
  let data: Buffer;
  try {
    // Not blocking, so that a named pipe in its place does not stop us.
    const handle = await open(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    try {
      const stat: Stats = await handle.stat();
      if (!stat.isFile()) throw fail(`expected a file, found ${stat.isDirectory() ? 'a folder' : 'something else'}`);
      const buffer = Buffer.alloc(maxFileBytes + 1);
      let length = 0;
      for (;;) {
        const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
        length += bytesRead;
        if (bytesRead === 0 || length === buffer.length) break;
      }
      if (length > maxFileBytes) {
        throw fail(`expected at most ${formatBytes(maxFileBytes)}, found ${formatBytes(Math.max(stat.size, length))}`);
      }
      data = buffer.subarray(0, length);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof PetriError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw fail(`it can't be read: ${messageOf(error)}`, error);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(data);
  } catch (error) {
    throw fail('expected UTF-8 text, found bytes that are none', error);
  }
}
