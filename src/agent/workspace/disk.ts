/**
 * The real workspace at one path: what is there, is it what a tree says, and putting a file there. A path is only ever followed
 * through real folders. Node has no openat: between a check and its rename another process can still move a folder; each
 * check is made again right before the rename, so that window is as short as it can be.
 */
import { createHash } from 'node:crypto';
import { constants, type BigIntStats } from 'node:fs';
import {
  lchown,
  lstat,
  open,
  readdir,
  readlink,
  rename,
  rmdir,
  symlink,
  unlink,
  type FileHandle,
} from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { inFolder, toBytes } from './bytes';
import type { TreeChange } from './store';

export type Side = TreeChange['before'];
const windows = process.platform === 'win32';

export function parentOf(p: string): string {
  const slash = p.lastIndexOf('/');
  return slash < 0 ? '' : p.slice(0, slash);
}

/** The folders above a path, from the top down, the workspace itself (empty) first. */
export function foldersAbove(p: string): string[] {
  const list = [''];
  for (let at = p.indexOf('/'); at >= 0; at = p.indexOf('/', at + 1)) list.push(p.slice(0, at));
  return list;
}

export type Found =
  | { kind: 'absent' }
  | { kind: 'file' | 'link' | 'folder' | 'other'; stat: BigIntStats }
  /** A component above is a link or no folder. `at` names it. */
  | { kind: 'blocked'; at: string; link: boolean };

export class Disk {
  constructor(readonly workspace: string) {}

  at(p: string): Buffer {
    return p === '' ? Buffer.from(this.workspace) : inFolder(this.workspace, p);
  }

  /** What is at a path, reached through real folders only. */
  async find(p: string): Promise<Found> {
    for (const folder of foldersAbove(p).slice(1)) {
      const above = await this.stat(folder);
      if (!above) return { kind: 'absent' };
      if (!above.isDirectory()) return { kind: 'blocked', at: folder, link: above.isSymbolicLink() };
    }
    const stat = await this.stat(p);
    if (!stat) return { kind: 'absent' };
    if (stat.isFile()) return { kind: 'file', stat };
    if (stat.isSymbolicLink()) return { kind: 'link', stat };
    return { kind: stat.isDirectory() ? 'folder' : 'other', stat };
  }

  private async stat(p: string): Promise<BigIntStats | undefined> {
    try {
      return await lstat(this.at(p), { bigint: true });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
      throw error;
    }
  }

  /**
   * Is the path in the state of that side? A folder or a file in the place of a parent counts as absent: a file can't be
   * there then. A link in the place of a parent never matches.
   */
  async matches(p: string, side: Side): Promise<boolean> {
    const found = await this.find(p);
    if (found.kind === 'blocked') return side === null && !found.link;
    if (found.kind === 'absent' || found.kind === 'folder') return side === null;
    if (side === null || found.kind === 'other') return false;
    if ((found.kind === 'link') !== (side.mode === '120000')) return false;
    if (found.kind === 'link') return blobId(await readlink(this.at(p), { encoding: 'buffer' })) === side.oid;
    if (!windows && (found.stat.mode & 0o100n) !== (side.mode === '100755' ? 0o100n : 0n)) return false;
    return (await this.hash(p, found.stat)) === side.oid;
  }

  /** The object id of the very file that was looked at; undefined when it is another one or changes meanwhile. */
  private async hash(p: string, expected: BigIntStats): Promise<string | undefined> {
    let handle: FileHandle;
    try {
      handle = await open(this.at(p), constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ELOOP' || code === 'ENOTDIR') return undefined;
      throw error;
    }
    try {
      const before = await handle.stat({ bigint: true });
      if (!sameFile(before, expected)) return undefined;
      const sum = createHash('sha1').update(`blob ${before.size}\0`);
      let size = 0n;
      for await (const chunk of handle.createReadStream({
        autoClose: false,
        highWaterMark: 256 * 1024,
      }) as AsyncIterable<Buffer>) {
        size += BigInt(chunk.length);
        if (size > before.size) return undefined;
        sum.update(chunk);
      }
      const after = await handle.stat({ bigint: true });
      return size === before.size && sameFile(before, after) ? sum.digest('hex') : undefined;
    } finally {
      await handle.close();
    }
  }

  /** Writes a temporary file or link. It must not be there yet. The contents are on disk when this returns. */
  async writeTemporary(
    p: string,
    content: Buffer | Readable | { link: Buffer },
    {
      mode,
      exact,
      owner,
    }: {
      mode: number;
      /** Else the umask takes from it. */ exact: boolean;
      owner: { uid: number; gid: number } | null;
    },
  ): Promise<void> {
    const at = this.at(p);
    if (!(content instanceof Buffer) && 'link' in content) {
      await symlink(content.link, at);
      if (owner) await lchown(at, owner.uid, owner.gid);
      return;
    }
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
    const handle = await open(at, flags, mode & 0o777);
    try {
      if (content instanceof Buffer) await handle.writeFile(content);
      else for await (const chunk of content as AsyncIterable<Buffer>) await writeAll(handle, chunk);
      if (owner) await handle.chown(owner.uid, owner.gid);
      if (exact && !windows) await handle.chmod(mode & 0o777);
      await handle.sync();
    } finally {
      await handle.close();
    }
  }

  /** The names in a folder. */
  async names(folder: string): Promise<string[]> {
    return (await readdir(this.at(folder), { encoding: 'buffer' })).map((name) => name.toString('latin1'));
  }

  async move(from: string, to: string): Promise<void> {
    await rename(this.at(from), this.at(to));
  }

  /** Removes a file or link; absent is fine. */
  async remove(p: string): Promise<void> {
    await unlink(this.at(p)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error;
    });
  }

  /** Removes a folder if it is empty. */
  async removeFolder(p: string): Promise<boolean> {
    return rmdir(this.at(p)).then(
      () => true,
      (error: NodeJS.ErrnoException) => {
        if (['ENOTEMPTY', 'EEXIST', 'ENOENT', 'ENOTDIR', 'EBUSY', 'EPERM', 'EACCES'].includes(error.code ?? ''))
          return false;
        throw error;
      },
    );
  }

  /** Everything below a folder: files (anything but folders) and folders, deepest last. */
  async below(folder: string): Promise<{ files: string[]; folders: string[] }> {
    const files: string[] = [];
    const folders: string[] = [];
    const todo = [folder];
    for (let at = todo.pop(); at !== undefined; at = todo.pop()) {
      for (const entry of await readdir(this.at(at), { withFileTypes: true, encoding: 'buffer' })) {
        const p = at === '' ? entry.name.toString('latin1') : `${at}/${entry.name.toString('latin1')}`;
        if (entry.isDirectory()) {
          folders.push(p);
          todo.push(p);
        } else files.push(p);
      }
    }
    return { files, folders };
  }

  /** Makes sure that renames in a folder outlive a power cut, where the platform can. */
  async syncFolder(p: string): Promise<void> {
    if (windows) return;
    const handle = await open(this.at(p), constants.O_RDONLY).catch(() => undefined);
    if (!handle) return;
    try {
      await handle.sync();
    } catch (error) {
      if (!['EINVAL', 'ENOTSUP', 'EBADF'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    } finally {
      await handle.close();
    }
  }
}

async function writeAll(handle: FileHandle, chunk: Buffer): Promise<void> {
  for (let at = 0; at < chunk.length;) at += (await handle.write(chunk, at)).bytesWritten;
}

function sameFile(a: BigIntStats, b: BigIntStats): boolean {
  return a.ino === b.ino && a.dev === b.dev && a.size === b.size && a.mtimeNs === b.mtimeNs && a.mode === b.mode;
}

function blobId(content: Buffer): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}

/** The name of the temporary file for a path and its new contents: the same after a crash, so that it can be found. */
export function temporaryFor(p: string, oid: string): string {
  return `.petri-${createHash('sha256').update(toBytes(p)).update('\0').update(oid).digest('hex').slice(0, 16)}.tmp`;
}
