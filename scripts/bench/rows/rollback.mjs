// Returning a sandbox to a snapshot, against replacing a container by a new one of that image.
import { interleave } from '../measure.mjs';

export default {
  id: 'rollback',
  what: 'rollback, 5,000 files',
  against: 'dockerode remove + create + start',
  aim: 1.3,
  async measure(context, n) {
    const workspace = await context.warm(5000);
    const { id } = await context.create(workspace);
    const snapshot = await context.call('sandbox.snapshot', { sandbox: id });
    let raw = await context.rawBox(snapshot.imageId);
    const change = ['sh', '-c', 'echo change >> /workspace/d3/e0/f3.txt'];
    const out = await interleave(n(9), {
      ours: {
        prepare: () => context.exec(id, change),
        work: async () => {
          await context.call('sandbox.rollback', { sandbox: id, snapshot: snapshot.id });
          // What goes on in the background (saving what was there) ends outside the clock.
          return async () => void (await context.call('sandbox.diff', { sandbox: id }));
        },
      },
      base: {
        prepare: () => context.rawExec(raw, change),
        work: async () => {
          await context.rawRemove(raw);
          raw = await context.rawBox(snapshot.imageId);
        },
      },
    });
    await context.rawRemove(raw);
    await context.destroy(id);
    return out;
  },
};
