// How the demo looks at things from outside: every byte of a folder, a project's own tests, whether a process lives. Nothing here writes.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstatSync, readFileSync, readdirSync, readlinkSync } from 'node:fs';
import path from 'node:path';

/** Path → kind, mode and hash of everything in a folder, `.git` included: the exact bytes. */
export function fingerprint(folder) {
  const out = {};
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    const file = path.join(entry.parentPath, entry.name);
    const content = entry.isDirectory() ? '' : entry.isSymbolicLink() ? readlinkSync(file) : readFileSync(file);
    const hash = createHash('sha256').update(content).digest('hex');
    out[path.relative(folder, file)] = `${lstatSync(file).mode.toString(8)} ${hash}`;
  }
  return out;
}

/** The paths that differ between two fingerprints. */
export const differing = (a, b) =>
  [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((f) => a[f] !== b[f]).sort();
export const same = (a, b) => differing(a, b).length === 0;

/** Runs the project's own tests in the workspace, on this machine; nothing is written. Gives how many passed and failed. */
export function ownTests(work) {
  const { stdout } = spawnSync(process.execPath, ['--test', '--test-reporter=tap'], { cwd: work, encoding: 'utf8' });
  const count = (word) => Number(new RegExp(`^# ${word} (\\d+)$`, 'm').exec(stdout)?.[1] ?? NaN);
  return { passed: count('pass'), failed: count('fail') };
}

/** Whether a process still lives after at most `ms`. */
export function livesAfter(pid, ms) {
  const deadline = Date.now() + ms;
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return false;
    }
    if (Date.now() > deadline) return true;
    Atomics.wait(pause, 0, 0, 50);
  }
}
