// Whether a new sandbox costs more for a large workspace than for a small one.
import { interleave } from '../measure.mjs';

export default {
  id: 'scale',
  what: 'create → first exec finished, 40,000 files',
  against: 'the same for 100 files',
  aim: 1.1,
  async measure(context, n) {
    const [large, small] = [await context.warm(40_000), await context.warm(100)];
    const make = (workspace) => async () => {
      const { id } = await context.create(workspace);
      await context.exec(id, ['true']);
      return () => context.destroy(id);
    };
    return interleave(n(9), { ours: make(large), base: make(small) });
  },
};
