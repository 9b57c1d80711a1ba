// A new sandbox of a workspace that was baked before, up to the end of its first command.
import { interleave } from '../measure.mjs';

export default {
  id: 'create',
  what: 'create → first exec finished, 5,000 files, layers in place',
  against: 'dockerode create + start + exec of the same image',
  aim: 1.2,
  async measure(context, n) {
    const workspace = await context.warm(5000);
    const image = await context.startImage(workspace);
    return interleave(n(9), {
      ours: async () => {
        const { id } = await context.create(workspace);
        await context.exec(id, ['true']);
        return () => context.destroy(id);
      },
      base: async () => {
        const container = await context.rawBox(image);
        await context.rawExec(container, ['true']);
        return () => context.rawRemove(container);
      },
    });
  },
};
