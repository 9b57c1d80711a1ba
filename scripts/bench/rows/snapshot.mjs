// Saving a sandbox after a small change, against committing the same container after a small change.
import { interleave } from '../measure.mjs';

export default {
  id: 'snapshot',
  what: 'snapshot, small change, 5,000 files',
  against: '`docker commit` of the same container (dockerode)',
  aim: 1.3,
  async measure(context, n) {
    const workspace = await context.warm(5000);
    const { id, containerId } = await context.create(workspace);
    const container = context.docker.getContainer(containerId);
    const prepare = (i) => context.rawExec(container, ['sh', '-c', `echo ${i} >> /workspace/d3/e0/f3.txt`]);
    const out = await interleave(n(9), {
      ours: { prepare, work: async () => void (await context.call('sandbox.snapshot', { sandbox: id })) },
      base: { prepare, work: (i) => context.rawCommit(container, `s${i + 1}`) },
    });
    await context.destroy(id);
    return out;
  },
};
