// Generated workspaces: git repositories with many files in nested folders, the same on every machine.
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { devNull } from 'node:os';
import path from 'node:path';

const noise = noiseOf(1 << 20);

/** Makes `folder`: `count` files of 6 kB on average, half of each incompressible, committed and packed as in a fresh clone. */
export function makeWorkspace(folder, count, image) {
  const random = randomOf(count);
  for (let i = 0; i < count; i++) {
    const dir = path.join(folder, `d${i % 20}`, `e${Math.floor(i / 20) % 20}`);
    if (i < 400) mkdirSync(dir, { recursive: true });
    const half = 1000 + (random() % 4000);
    const at = random() % (noise.length - half);
    const content = Buffer.concat([noise.subarray(at, at + half), Buffer.alloc(half, `line ${i}\n`)]);
    writeFileSync(path.join(dir, `f${i}.txt`), content);
  }
  writeFileSync(path.join(folder, 'petri.json'), JSON.stringify({ environment: { image } }));
  const env = { ...process.env, GIT_CONFIG_GLOBAL: devNull, GIT_CONFIG_NOSYSTEM: '1' };
  const git = (...args) => execFileSync('git', args, { cwd: folder, env, stdio: ['ignore', 'ignore', 'inherit'] });
  git('init', '-q');
  for (const [key, value] of [
    ['user.name', 'bench'],
    ['user.email', 'bench@example.org'],
    ['gc.auto', '0'],
  ]) {
    git('config', key, value);
  }
  git('add', '-A');
  git('commit', '-qm', 'bench');
  git('repack', '-adq', '--window=0');
}

/** A linear congruential generator of 31 bits: the same numbers everywhere. */
function randomOf(seed) {
  let state = BigInt(seed);
  return () => Number((state = (state * 1103515245n + 12345n) & 0x7fffffffn));
}

function noiseOf(length) {
  const random = randomOf(42);
  const out = Buffer.alloc(length);
  for (let i = 0; i < length; i++) out[i] = random() >> 16;
  return out;
}
