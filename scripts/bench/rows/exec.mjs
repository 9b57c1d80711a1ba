// One small command in a sandbox, asked for and ended.
import { interleave } from '../measure.mjs';

export default {
  id: 'exec',
  what: 'exec round trip',
  against: 'dockerode exec in the same container',
  aim: 1.2,
  async measure(context, n) {
    const workspace = await context.warm(100);
    const { id, containerId } = await context.create(workspace);
    const container = context.docker.getContainer(containerId);
    const out = await interleave(
      n(25),
      { ours: () => context.exec(id, ['true']), base: () => context.rawExec(container, ['true']) },
      { warmUp: 3 },
    );
    await context.destroy(id);
    return out;
  },
};
