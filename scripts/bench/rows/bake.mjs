// The first sandbox of a workspace that Petri has never seen, against copying the folder into a container and committing that.
import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import path from 'node:path';
import { image } from '../context.mjs';
import { interleave } from '../measure.mjs';

export default {
  id: 'bake',
  what: 'first bake of 40,000 files (240 MB and its git history): capture, layer, first sandbox',
  against: '`tar \\| docker cp` of the same folder + `docker commit`',
  aim: 1.0,
  async measure(context, n) {
    const workspace = context.workspace(40_000);
    const forget = async () => {
      await context.call('prune', { all: true });
      await context.stopAgent();
      rmSync(path.join(context.home, 'stores'), { recursive: true, force: true });
      await context.client();
    };
    return interleave(
      n(3),
      {
        ours: {
          prepare: forget,
          work: async () => {
            const { id } = await context.create(workspace);
            return async () => {
              await context.settled(workspace);
              await context.destroy(id);
            };
          },
        },
        base: async () => {
          const container = await context.docker.createContainer({
            Image: image,
            Cmd: ['sleep', '3600'],
            Labels: { 'petri-bench': context.scratch },
          });
          const tar = spawn('tar', ['-c', '.'], { cwd: workspace, stdio: ['ignore', 'pipe', 'inherit'] });
          await context.dockerCli(['cp', '-', `${container.id}:/opt`], { input: tar.stdout });
          const removeImage = await context.rawCommit(container, 'bake');
          return async () => {
            await context.rawRemove(container);
            await removeImage();
          };
        },
      },
      { warmUp: 0 },
    );
  },
};
