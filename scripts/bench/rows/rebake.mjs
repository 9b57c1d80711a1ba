// A sandbox after one file changed: the whole create, and what of it the bake alone takes.
import { appendFileSync } from 'node:fs';
import path from 'node:path';
import { interleave, median } from '../measure.mjs';

function measureOnce(context, n) {
  return context.once('rebake', async () => {
    const workspace = await context.warm(40_000);
    const image = await context.startImage(workspace);
    const create = async () => {
      const { id } = await context.create(workspace);
      return () => context.destroy(id);
    };
    const change = (i) => appendFileSync(path.join(workspace, 'd1/e0/f1.txt'), `change ${i}\n`);
    return interleave(n(7), {
      changed: { prepare: change, work: create },
      plain: create,
      run: async () => void (await context.dockerCli(['run', '--rm', '--network', 'none', image, 'true'])),
    });
  });
}

export const rebake = {
  id: 'rebake',
  what: 'bake after one file changed among 40,000 (a create after the change, less the median create without one)',
  against: '`docker run` of the image',
  aim: 2,
  async measure(context, n) {
    const { changed, plain, run } = await measureOnce(context, n);
    return { ours: changed.map((ms) => ms - median(plain)), base: run };
  },
};

export const changed = {
  id: 'changed',
  what: 'the whole create after that change, bake included',
  against: '`docker run` of the image',
  async measure(context, n) {
    const { changed, run } = await measureOnce(context, n);
    return { ours: changed, base: run };
  },
};
