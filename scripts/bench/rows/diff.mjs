// Finding one changed file among many, in the same container. A file changes before each measurement, so that neither side repeats itself.
import { interleave } from '../measure.mjs';

export default {
  id: 'diff',
  what: 'diff, one file changed among 40,000',
  against: '`git status` by exec in the same container',
  aim: 2,
  async measure(context, n) {
    const workspace = await context.warm(40_000);
    const { id, containerId } = await context.create(workspace);
    const container = context.docker.getContainer(containerId);
    const prepare = (i) => context.rawExec(container, ['sh', '-c', `echo ${i} >> /workspace/d2/e0/f2.txt`]);
    const out = await interleave(n(9), {
      ours: { prepare, work: async () => void (await context.call('sandbox.diff', { sandbox: id })) },
      base: { prepare, work: () => context.rawExec(container, ['git', '-C', '/workspace', 'status', '--porcelain']) },
    });
    await context.destroy(id);
    return out;
  },
};
