/** Single files and changes in and out of a running sandbox, outside its commands. */
import path from 'node:path';
import { PetriError } from '../../protocol/errors';
import type { SandboxRecord } from '../../protocol/records';
import type { BytePath } from '../../protocol/text';
import type { Engine } from '../engine/engine';
import { treeEntries } from '../environment/content';
import { bookkeepingEnv, workdir, workspacePrefix } from '../environment/layout';
import { packTar } from '../tar/pack';
import { unpackTar } from '../tar/unpack';
import type { Oid, WorkspaceStore } from '../workspace/store';

/** Makes the sandbox's workspace differ by exactly what differs between two trees. */
export async function writeChanges(
  engine: Engine,
  sandbox: SandboxRecord,
  store: WorkspaceStore,
  from: Oid,
  to: Oid,
): Promise<void> {
  const box = sandbox.containerId;
  if (box === null) throw new PetriError('state', `Sandbox ${sandbox.name} has no container.`);
  const changes = await store.changes(from, to);
  const gone = changes.filter((c) => c.after === null || c.before !== null).map((c) => c.path);
  const files = changes.flatMap((c) => (c.after ? [{ path: c.path, ...c.after }] : []));
  if (gone.length > 0) await removePaths(engine, box, gone);
  if (files.length > 0)
    await engine.putArchive(box, '/', packTar(treeEntries(store, files, workspacePrefix, sandbox.fileOwner)));
}

/** Removes files of the workspace, and folders that are empty then. */
async function removePaths(engine: Engine, box: string, paths: BytePath[]): Promise<void> {
  const script = `cd ${workdir} && xargs -0 -n 200 /bin/sh -c 'rm -f -- "$@"; for f; do d=\${f%/*}; while [ "$d" != "$f" ]; do rmdir -- "$d" 2>/dev/null || break; f=$d; d=\${f%/*}; done; done; true' sh`;
  const handle = await engine.exec(box, {
    command: ['/bin/sh', '-c', script],
    stdin: true,
    env: bookkeepingEnv,
    user: '0',
    cwd: '/',
  });
  handle.stdout.resume();
  handle.stderr.resume();
  await handle.write(Buffer.from(paths.map((p) => `./${p}\0`).join(''), 'latin1'));
  handle.closeStdin();
  const code = await handle.exit;
  if (code !== 0)
    throw new PetriError('engine-failed', `Files could not be removed inside the sandbox (exit code ${code}).`);
}

/**
 * One regular file of the sandbox, at most `maxBytes`. A link is not followed. Errors: not-found, too-large, untrusted-data.
 */
export async function readSandboxFile(engine: Engine, box: string, file: string, maxBytes: number): Promise<Buffer> {
  const full = path.posix.resolve(workdir, file);
  for await (const entry of unpackTar(await engine.getArchive(box, full), { maxBytes: maxBytes + 1024 * 1024 })) {
    if (entry.type !== 'file') throw new PetriError('untrusted-data', `${file} is no regular file.`);
    if (entry.size > maxBytes)
      throw new PetriError('too-large', `${file} has ${entry.size} bytes; at most ${maxBytes} are read.`);
    const parts: Buffer[] = [];
    for await (const part of entry.content) parts.push(part as Buffer);
    return Buffer.concat(parts);
  }
  throw new PetriError('not-found', `${file} does not exist in the sandbox.`);
}
