/** Keeping artifacts of a run: files that the globs name, copied out of the sandbox into the data folder with their hashes. */
import { createHash } from 'node:crypto';
import { createWriteStream, mkdirSync, constants } from 'node:fs';
import path from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { PetriError } from '../../protocol/errors';
import type { ArtifactRecord } from '../../protocol/records';
import { pathText } from '../../protocol/text';
import type { Engine } from '../engine/engine';
import { workdir } from '../environment/layout';
import { unpackTar } from '../tar/unpack';
import { matchArtifacts, staticPrefix } from './artifacts';

const maxBytes = 512 * 1024 * 1024;
const maxFiles = 5000;

/**
 * Copies what matches into `folder`. The names on this machine are numbers, so no name from inside ever becomes a path here; the record
 * keeps the real one. Gives what was kept and what was not, in words.
 */
export async function collectArtifacts(
  engine: Engine,
  box: string,
  globs: string[],
  folder: string,
): Promise<{ kept: ArtifactRecord[]; problems: string[] }> {
  const kept: ArtifactRecord[] = [];
  const problems: string[] = [];
  if (globs.length === 0) return { kept, problems };
  const matches = matchArtifacts(globs);
  const seen = new Set<string>();
  let total = 0;
  for (const prefix of topmost(globs.map(staticPrefix))) {
    const from = path.posix.join(workdir, prefix);
    try {
      for await (const entry of unpackTar(await engine.getArchive(box, from), { maxBytes: 4 * maxBytes })) {
        const inside =
          prefix === ''
            ? entry.path.replace(/^workspace\//, '')
            : path.posix.join(path.posix.dirname(prefix), entry.path);
        const name = pathText(inside as typeof entry.path);
        if (entry.type !== 'file' || seen.has(name) || !matches(name)) {
          await entry.skip();
          continue;
        }
        if (kept.length >= maxFiles || total + entry.size > maxBytes) {
          problems.push(`artifacts: more than ${maxFiles} files or ${maxBytes} bytes match; the rest was left out`);
          return { kept, problems };
        }
        seen.add(name);
        total += entry.size;
        mkdirSync(folder, { recursive: true, mode: 0o700 });
        const file = path.join(folder, `${kept.length + 1}${safeExtension(name)}`);
        const hash = createHash('sha256');
        const tap = new Transform({ transform: (chunk: Buffer, _, done) => (hash.update(chunk), done(null, chunk)) });
        const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
        await pipeline(entry.content, tap, createWriteStream(file, { flags: flags as unknown as string, mode: 0o600 }));
        kept.push({ path: name, bytes: entry.size, sha256: hash.digest('hex'), file });
      }
    } catch (error) {
      if (!(error instanceof PetriError) || error.code === 'engine-gone') throw error;
      if (error.code !== 'not-found') problems.push(`artifacts: ${error.message}`);
    }
  }
  return { kept, problems };
}

/** Prefixes that no other prefix contains. */
function topmost(prefixes: string[]): string[] {
  const unique = [...new Set(prefixes)];
  return unique.filter((p) => !unique.some((q) => q !== p && (q === '' || p.startsWith(`${q}/`))));
}

function safeExtension(name: string): string {
  return /\.[A-Za-z0-9]{1,8}$/.exec(name)?.[0] ?? '';
}
