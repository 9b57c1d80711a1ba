// The rows of the benchmark: what is measured, against what, and the aim. Each gives lists of milliseconds (or bytes).
import { execFileSync, spawn } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { interleave, median, root, run, time } from './context.mjs';

/** create → first exec finished, against raw dockerode on the very image. */
async function create(context, count, times) {
  const { workspace, client } = await context.warm(count);
  const probe = await client.call('sandbox.create', { workspace });
  const image = await context.startImage(probe.id);
  await context.destroyer(probe.id)();
  return interleave(
    times,
    async () => {
      const { id } = await client.call('sandbox.create', { workspace });
      await context.exec(id, ['true']);
      return context.destroyer(id);
    },
    async () => {
      const container = await context.rawBox(image);
      await context.rawExec(container, ['true']);
      return () => container.remove({ force: true, v: true });
    },
  );
}

export const rows = [
  {
    id: 'create',
    what: 'create → first exec finished, 5,000 files, layers in place',
    against: 'dockerode create + start + exec of the same image',
    aim: 1.2,
    measure: (context, n) => create(context, 5000, n(9)),
  },
  {
    id: 'scale',
    what: 'create → first exec finished, 40,000 files',
    against: 'the same for 100 files',
    aim: 1.1,
    async measure(context, n) {
      const large = await context.warm(40_000);
      const small = await context.warm(100);
      const make = (workspace) => async () => {
        const { id } = await large.client.call('sandbox.create', { workspace });
        await context.exec(id, ['true']);
        return context.destroyer(id);
      };
      return interleave(n(9), make(large.workspace), make(small.workspace));
    },
  },
  {
    id: 'bake',
    what: 'first bake of 40,000 files (240 MB and its git history): capture, layer, first sandbox',
    against: '`tar | docker cp` of the same folder + `docker commit`',
    aim: 1.0,
    async measure(context, n) {
      const workspace = context.workspace(40_000);
      const client = await context.client();
      const { rmSync, readdirSync } = await import('node:fs');
      return interleave(
        n(3),
        async () => {
          const { id } = await client.call('sandbox.create', { workspace });
          return async () => {
            await context.settled(workspace);
            await context.destroyer(id)();
            await client.call('prune', { all: true });
            await client.call('agent.stop', {}).catch(() => undefined);
            // Cold again: the store goes too.
            for (const store of readdirSync(path.join(context.home, 'stores')))
              rmSync(path.join(context.home, 'stores', store), { recursive: true, force: true });
            await new Promise((resolve) => setTimeout(resolve, 300));
            context.connection = undefined;
            Object.assign(client, await context.client());
          };
        },
        async () => {
          const container = await context.docker.createContainer({
            Image: 'petri-test/golden:1',
            Cmd: ['sleep', '3600'],
            Labels: { 'petri-bench': context.scratch },
          });
          const tar = spawn('tar', ['-c', '.'], { cwd: workspace, stdio: ['ignore', 'pipe', 'inherit'] });
          await run('docker', ['-H', context.dockerHost, 'cp', '-', `${container.id}:/opt`], { input: tar.stdout });
          const { Id } = await container.commit({ repo: 'petri-bench', tag: 'bake' });
          return async () => {
            await container.remove({ force: true, v: true });
            await context.docker.getImage(Id).remove({ force: true });
          };
        },
        { warmUp: 0 },
      );
    },
  },
  {
    id: 'rebake',
    what: 'bake after one file changed among 40,000 (a create after the change, less the median create without one)',
    against: '`docker run` of the image',
    aim: 2,
    async measure(context, n) {
      const { workspace, client } = await context.warm(40_000);
      const probe = await client.call('sandbox.create', { workspace });
      const image = await context.startImage(probe.id);
      await context.destroyer(probe.id)();
      const out = await interleave(
        n(7),
        async (i) => {
          appendFileSync(path.join(workspace, 'd1/e0/f1.txt'), `change ${i} ${Date.now()}\n`);
          const { id } = await client.call('sandbox.create', { workspace });
          return context.destroyer(id);
        },
        async () =>
          void (await run('docker', ['-H', context.dockerHost, 'run', '--rm', '--network', 'none', image, 'true'])),
      );
      const plain = [];
      for (let i = 0; i < n(7) + 1; i++) {
        let id;
        const ms = await time(async () => ({ id } = await client.call('sandbox.create', { workspace })));
        await context.destroyer(id)();
        if (i > 0) plain.push(ms);
      }
      return { ours: out.ours.map((ms) => ms - median(plain)), base: out.base };
    },
  },
  {
    id: 'capture',
    what: 'capture, nothing changed, 5,000 files',
    against: '`git status` there',
    aim: 2,
    async measure(context, n) {
      const { workspace } = await context.warm(5000);
      const bench = path.join(root, 'dist/tools/capture.js');
      const { createRequire } = await import('node:module');
      const { openStore } = createRequire(import.meta.url)(bench);
      const store = await openStore({ workspace, dir: path.join(context.scratch, 'capture-store') });
      await store.capture({ include: [] });
      return interleave(
        n(15),
        async () => void (await store.capture({ include: [] })),
        async () => void (await run('git', ['status', '--porcelain'], { cwd: workspace })),
      );
    },
  },
  {
    id: 'snapshot',
    what: 'snapshot, small change',
    against: 'dockerode commit of the same container',
    aim: 1.3,
    async measure(context, n) {
      const { workspace, client } = await context.warm(5000);
      const { id, containerId } = await client.call('sandbox.create', { workspace });
      const out = await interleave(
        n(9),
        async () => void (await client.call('sandbox.snapshot', { sandbox: id })),
        async (i) => {
          const { Id } = await context.docker
            .getContainer(containerId)
            .commit({ repo: 'petri-bench', tag: `s${i + 1}` });
          return () => context.docker.getImage(Id).remove({ force: true });
        },
      );
      await context.destroyer(id)();
      return out;
    },
  },
  {
    id: 'rollback',
    what: 'rollback',
    against: 'dockerode remove + create + start',
    aim: 1.3,
    async measure(context, n) {
      const { workspace, client } = await context.warm(5000);
      const { id } = await client.call('sandbox.create', { workspace });
      const snapshot = await client.call('sandbox.snapshot', { sandbox: id });
      let raw = await context.rawBox(snapshot.imageId);
      const out = await interleave(
        n(9),
        async () => {
          await client.call('sandbox.rollback', { sandbox: id, snapshot: snapshot.id });
          // The background part (saving what was there) ends outside the clock.
          return async () => void (await client.call('sandbox.diff', { sandbox: id }));
        },
        async () => {
          await raw.remove({ force: true, v: true });
          raw = await context.rawBox(snapshot.imageId);
        },
      );
      await raw.remove({ force: true, v: true });
      await context.destroyer(id)();
      return out;
    },
  },
  {
    id: 'diff',
    what: 'diff, one file changed among 40,000',
    against: '`git status` by exec in the same container',
    aim: 2,
    async measure(context, n) {
      const { workspace, client } = await context.warm(40_000);
      const { id, containerId } = await client.call('sandbox.create', { workspace });
      const container = context.docker.getContainer(containerId);
      const out = await interleave(
        n(9),
        async (i) => {
          await context.rawExec(container, ['sh', '-c', `echo ${i} >> d2/e0/f2.txt`]);
          return async () => {};
        },
        async () => {},
        { warmUp: 0 },
      ).then(() =>
        interleave(
          n(9),
          async () => void (await client.call('sandbox.diff', { sandbox: id })),
          async () => void (await context.rawExec(container, ['git', '-C', '/workspace', 'status', '--porcelain'])),
        ),
      );
      await context.destroyer(id)();
      return out;
    },
  },
  {
    id: 'ten',
    what: '10 sandboxes at once',
    against: '10 × dockerode create + start at once',
    aim: 1.2,
    async measure(context, n) {
      const { workspace, client } = await context.warm(5000);
      const probe = await client.call('sandbox.create', { workspace });
      const image = await context.startImage(probe.id);
      await context.destroyer(probe.id)();
      const ten = Array.from({ length: 10 });
      return interleave(
        n(4),
        async () => {
          const made = await Promise.all(ten.map(() => client.call('sandbox.create', { workspace })));
          return context.destroyer(...made.map((s) => s.id));
        },
        async () => {
          const made = await Promise.all(ten.map(() => context.rawBox(image)));
          return () => Promise.all(made.map((c) => c.remove({ force: true, v: true })));
        },
      );
    },
  },
  {
    id: 'exec',
    what: 'exec round trip',
    against: 'dockerode exec',
    aim: 1.2,
    async measure(context, n) {
      const { workspace, client } = await context.warm(100);
      const { id, containerId } = await client.call('sandbox.create', { workspace });
      const container = context.docker.getContainer(containerId);
      const out = await interleave(
        n(25),
        () => context.exec(id, ['true']),
        () => context.rawExec(container, ['true']),
        { warmUp: 3 },
      );
      await context.destroyer(id)();
      return out;
    },
  },
  {
    id: 'memory',
    what: 'agent, idle after a sandbox came and went: resident memory',
    against: 'node doing nothing',
    aim: 90 * 1024 * 1024,
    unit: 'bytes',
    async measure(context) {
      // A fresh agent, as after a start of the day.
      const before = await context.client();
      await before.call('agent.stop', {}).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 300));
      context.connection = undefined;
      const { client } = await context.warm(100);
      const rss = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
      await new Promise((resolve) => setTimeout(resolve, 2000));
      const idle = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6); console.log(1)'], {
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      await new Promise((resolve) => idle.stdout.once('data', resolve));
      const out = { ours: [rss(client.agent.pid)], base: [rss(idle.pid)] };
      idle.kill();
      return out;
    },
  },
  {
    id: 'version',
    what: '`petri --version`',
    against: '`node -e 0`',
    aim: 2,
    async measure(context, n) {
      const ours = () => execFileSync(process.execPath, [path.join(root, 'dist/petri.js'), '--version']);
      const base = () => execFileSync(process.execPath, ['-e', '0']);
      const out = { ours: [], base: [] };
      for (let i = 0; i < n(15); i++) {
        out.ours.push(await time(ours));
        out.base.push(await time(base));
      }
      return out;
    },
  },
];
