// Taking the exact state of a workspace in which nothing changed. No operation does only this, so the store is called directly.
import path from 'node:path';
import { require, root, run } from '../context.mjs';
import { interleave } from '../measure.mjs';

export default {
  id: 'capture',
  what: 'capture, nothing changed, 5,000 files',
  against: '`git status` there',
  aim: 2,
  async measure(context, n) {
    const workspace = context.workspace(5000);
    const { openStore } = require(path.join(root, 'dist/tools/capture.js'));
    const store = await openStore({ workspace, dir: path.join(context.scratch, 'capture-store') });
    return interleave(n(15), {
      ours: async () => void (await store.capture({ include: [] })),
      base: async () => void (await run('git', ['status', '--porcelain'], { cwd: workspace })),
    });
  },
};
