// Ten sandboxes asked for at the same moment.
import { interleave } from '../measure.mjs';

export default {
  id: 'ten',
  what: '10 sandboxes at once, 5,000 files',
  against: '10 × dockerode create + start at once',
  aim: 1.2,
  async measure(context, n) {
    const workspace = await context.warm(5000);
    const image = await context.startImage(workspace);
    const ten = Array.from({ length: 10 });
    return interleave(n(5), {
      ours: async () => {
        const made = await Promise.all(ten.map(() => context.create(workspace)));
        return () => context.destroy(...made.map((sandbox) => sandbox.id));
      },
      base: async () => {
        const made = await Promise.all(ten.map(() => context.rawBox(image)));
        return () => Promise.all(made.map((container) => context.rawRemove(container)));
      },
    });
  },
};
