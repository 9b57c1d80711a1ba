/**
 * One agent per data folder: a lock file made exclusively. A lock whose process is gone, or whose process is no agent any more
 * (nothing accepts on its socket), is taken over.
 */
import { randomBytes, randomUUID, createHash } from 'node:crypto';
import { chmodSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { lockFile, protocolVersion, type LockFile } from '../../protocol/wire';

/** Longest path of a Unix socket that every platform takes (macOS: 104 with the closing NUL). */
const maxSocketPath = 100;

/** The lock, or undefined when another agent holds it. Call `publish` once the socket listens. */
export async function acquireLock(
  home: string,
  version: string,
): Promise<{ lock: LockFile; publish(): void; release(): void } | undefined> {
  mkdirSync(home, { recursive: true, mode: 0o700 });
  chmodSync(home, 0o700);
  const file = path.join(home, 'agent.lock');
  const claim = path.join(home, 'agent.claim');
  if (!(await takeClaim(claim, file))) return undefined;
  const lock: LockFile = {
    pid: process.pid,
    socket: socketPath(home),
    token: randomBytes(32).toString('hex'),
    protocol: protocolVersion,
    version,
    startedAt: new Date().toISOString(),
  };
  rmSync(file, { force: true });
  return {
    lock,
    publish: () => {
      const temporary = `${file}.${randomUUID()}`;
      writeFileSync(temporary, JSON.stringify(lock), { mode: 0o600, flag: 'wx' });
      renameSync(temporary, file);
    },
    release: () => {
      if (readPid(claim) !== process.pid) return;
      rmSync(file, { force: true });
      if (process.platform !== 'win32') rmSync(lock.socket, { force: true });
      rmSync(claim, { force: true });
    },
  };
}

/** Makes the claim file with our pid in it, exclusively; takes over a dead one. */
async function takeClaim(claim: string, lock: string): Promise<boolean> {
  const mine = `${claim}.${randomUUID()}`;
  writeFileSync(mine, String(process.pid), { mode: 0o600, flag: 'wx' });
  try {
    for (let attempt = 0; attempt < 5; attempt++) {
      try {
        linkSync(mine, claim);
        return true;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      const holder = readPid(claim);
      if (holder !== undefined && (await holds(holder, lock))) return false;
      // Dead: move it aside; whoever moved the right one away goes on to link its own.
      const aside = `${claim}.${randomUUID()}`;
      try {
        renameSync(claim, aside);
      } catch {
        continue;
      }
      if (readPid(aside) !== holder) {
        // Somebody else was quicker and this is a living claim: put it back.
        try {
          linkSync(aside, claim);
        } catch {
          // Taken again meanwhile.
        }
      }
      unlinkSync(aside);
    }
    return false;
  } finally {
    rmSync(mine, { force: true });
  }
}

/** True when the process lives and is an agent: it answers on its socket, or is only just starting. */
async function holds(pid: number, file: string): Promise<boolean> {
  if (!alive(pid)) return false;
  let lock: LockFile | undefined;
  try {
    lock = lockFile.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch {
    // It has not published yet, or a process with a reused number never will.
    return pid !== process.pid && looksLikeNode(pid);
  }
  return lock.pid === pid ? accepts(lock.socket) : looksLikeNode(pid);
}

function looksLikeNode(pid: number): boolean {
  if (process.platform !== 'linux') return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('agent.js');
  } catch {
    return false;
  }
}

function accepts(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = createConnection(socket);
    connection.once('connect', () => {
      connection.destroy();
      resolve(true);
    });
    connection.once('error', () => resolve(false));
  });
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function readPid(file: string): number | undefined {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    return Number.isInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}

/** A named pipe on Windows; else a socket in the data folder, or in a private temporary folder when that path is too long. */
function socketPath(home: string): string {
  const key = createHash('sha256').update(home).digest('hex').slice(0, 16);
  if (process.platform === 'win32') return `\\\\.\\pipe\\petri-${key}-${randomBytes(8).toString('hex')}`;
  const near = path.join(home, 'agent.sock');
  if (Buffer.byteLength(near) <= maxSocketPath) return near;
  const folder = path.join(tmpdir(), `petri-${userInfo().uid}-${key}`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  chmodSync(folder, 0o700);
  return path.join(folder, 'agent.sock');
}
