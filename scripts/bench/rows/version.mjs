// How long the command takes to start and say its version.
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { root } from '../context.mjs';
import { interleave } from '../measure.mjs';

const node = (...args) => void execFileSync(process.execPath, args);

export default {
  id: 'version',
  what: '`petri --version`',
  against: '`node -e 0`',
  aim: 2,
  measure: (_context, n) =>
    interleave(n(21), {
      ours: () => node(path.join(root, 'dist/petri.js'), '--version'),
      base: () => node('-e', '0'),
    }),
};
