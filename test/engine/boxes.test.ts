/** Boxes: creation and what bounds them, labels, saving, killing, figures, events. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { parseProbe } from '../../src/agent/engine/docker/stats';
import { createRequest } from '../../src/agent/engine/docker/boxes';
import { reportOf, runtimeFor, type Capabilities } from '../../src/agent/engine/docker/capabilities';
import type { Client } from '../../src/agent/engine/docker/client';
import { label, type EngineEvent } from '../../src/agent/engine/engine';
import { packTar } from '../../src/agent/tar/pack';
import { unpackTar } from '../../src/agent/tar/unpack';
import type { BytePath } from '../../src/protocol/text';
import { fails, finish, Lab, until } from './harness';

describe('engine: boxes', () => {
  const lab = new Lab();

  it('creates, finds, lists and removes with its labels alone', async () => {
    const labels = lab.labels({ [label.role]: 'sandbox', [label.sandbox]: 'sb1', note: 'ü=x y' });
    await lab.withBox(
      async (box) => {
        const found = await lab.engine.findBox(box.id);
        assert.deepEqual(found?.labels, labels);
        assert.deepEqual([found?.state, found?.name, found?.imageId], ['running', box.name, lab.busybox.id]);
        assert.deepEqual(
          (await lab.engine.listBoxes(lab.labels({ [label.sandbox]: 'sb1' }))).map((b) => b.id),
          [box.id],
        );
        assert.deepEqual(await lab.engine.listBoxes(lab.labels({ [label.sandbox]: 'other' })), []);
        await lab.engine.killBox(box.id);
        assert.equal((await lab.engine.findBox(box.id))?.state, 'stopped');
        await lab.engine.killBox(box.id);
        await lab.engine.removeBox(box.id);
        await lab.engine.removeBox(box.id);
        await lab.engine.killBox(box.id);
        assert.equal(await lab.engine.findBox(box.id), undefined);
      },
      { labels },
    );
  });

  it('removes a box once though many ask at once', async () => {
    const box = await lab.engine.createBox(lab.spec());
    await Promise.all(Array.from({ length: 5 }, () => lab.engine.removeBox(box.id)));
    assert.equal(await lab.engine.findBox(box.id), undefined);
  });

  it('leaves no container when it can not be started, or is cancelled', async () => {
    const none = async (): Promise<void> => assert.deepEqual(await lab.engine.listBoxes(lab.labels()), []);
    await assert.rejects(
      lab.engine.createBox(lab.spec({ user: 'nobody-knows-them' })),
      fails('engine-failed', /no user/),
    );
    await none();
    await assert.rejects(
      lab.engine.createBox(lab.spec({ image: { ...lab.busybox, id: `sha256:${'0'.repeat(64)}`, ref: 'gone:1' } })),
      fails('image-missing', /gone:1/),
    );
    await none();
    for (const delay of [0, 20, 60, 120]) {
      const abort = new AbortController();
      const made = lab.engine.createBox(lab.spec({ signal: abort.signal }));
      setTimeout(() => abort.abort(), delay);
      await made.then((box) => lab.engine.removeBox(box.id), fails('cancelled'));
      await none();
    }
    const taken = lab.spec();
    const first = await lab.engine.createBox(taken);
    await assert.rejects(lab.engine.createBox(taken), fails('engine-failed', /in use/));
    assert.equal((await lab.run(first, ['true'])).code, 0, 'the one that has the name lives on');
    await lab.engine.removeBox(first.id);
  });

  it('says that an image has no shell', async () => {
    const image = await lab.engine.addLayer({
      parent: lab.busybox,
      tag: lab.tag(),
      labels: lab.labels(),
      open: () => packTar([]),
      removals: ['bin/sh' as BytePath],
      sizeHint: 0,
    });
    const box = await lab.engine.createBox(lab.spec({ image })).catch((error: unknown) => {
      fails('command-missing', /\/bin\/sh/)(error);
      return undefined;
    });
    if (box) {
      await until('it has ended', async () => (await lab.engine.findBox(box.id))?.state === 'stopped');
      await assert.rejects(lab.engine.exec(box.id, { command: ['true'] }), fails('command-missing', /\/bin\/sh/));
      await lab.engine.removeBox(box.id);
    }
    assert.equal(await lab.engine.removeImage(image.id), true);
  });

  it('has no network when it is to have none, and one when it is open', async () => {
    const links = (more: Parameters<Lab['withBox']>[1]): Promise<string> =>
      lab.withBox(async (box) => (await lab.run(box, 'ls /sys/class/net; ip route 2>/dev/null')).out, more);
    assert.doesNotMatch(await links({ network: 'none' }), /eth0|default/);
    assert.match(await links({ network: 'open' }), /eth0/);
  });

  it('mounts nothing of the host', async () => {
    await lab.withBox(async (box) => {
      const mounts = (await lab.run(box, 'cat /proc/self/mounts')).out
        .split('\n')
        .filter((line) => line.startsWith('/dev/'));
      // What the engine itself puts there: names, and its init.
      assert.deepEqual(
        mounts
          .map((line) => line.split(' ')[1])
          .filter((p) => !/^\/etc\/(hosts|hostname|resolv\.conf)$|^(\/usr)?\/s?bin\/docker-init$/.test(p ?? '')),
        [],
      );
    });
  });

  it('ends by itself when its time is over, and says so', async () => {
    const box = await lab.engine.createBox(lab.spec({ lifetimeMs: 1000 }));
    await until('it has ended', async () => (await lab.engine.findBox(box.id))?.state === 'stopped');
    await assert.rejects(lab.engine.exec(box.id, { command: ['true'] }), fails('state', /its time was over/));
    await lab.engine.removeBox(box.id);
  });

  it('kills what takes more memory than it may, and tells', async () => {
    const events: EngineEvent[] = [];
    const watch = lab.engine.watch(lab.owner, (e) => events.push(e));
    await lab.withBox(
      async (box) => {
        const before = await lab.engine.stats(box.id);
        assert.equal(before.oomKills, 0);
        assert.ok(before.memoryBytes > 0 && before.memoryBytes < 32 * 1024 ** 2);
        const { code } = await lab.run(box, ['node', '-e', 'const a=[]; for(;;) a.push(Buffer.alloc(1<<20, 1))']);
        assert.ok(code === 137 || code === 134, `exit code ${code}`);
        const stats = await lab.engine.stats(box.id);
        assert.ok((stats.oomKills ?? 0) > 0);
        assert.ok((stats.peakMemoryBytes ?? 0) > 40 * 1024 ** 2 && (stats.peakMemoryBytes ?? 0) <= 64 * 1024 ** 2);
        assert.ok(stats.cpuSeconds > 0);
        await until('the engine told of it', () =>
          events.some((e) => e.kind === 'oom' && e.boxId === box.id && e.labels[label.owner] === lab.owner),
        );
        assert.equal((await lab.engine.findBox(box.id))?.state, 'running', 'the box itself lives on');
      },
      { image: lab.golden, memoryBytes: 64 * 1024 ** 2 },
    );
    watch.dispose();
  });

  it('refuses processes over the limit, tells, and can be emptied and used again', async () => {
    await lab.withBox(
      async (box) => {
        // Every process that can be had, none of which ends by itself or on a signal that it can refuse.
        const handle = await lab.engine.exec(box.id, {
          command: ['sh', '-c', 'trap "" TERM; i=0; while [ $i -lt 100 ]; do sleep 500 & i=$((i+1)); done; wait'],
        });
        const ended = finish(handle);
        await until(
          'the limit is reached',
          async () => {
            const stats = await lab.engine.stats(box.id);
            return stats.pids >= 35 && (stats.pidsDenied ?? 0) > 0;
          },
          30_000,
        );
        await lab.engine.killProcesses(box.id);
        await ended.then((r) => assert.notEqual(r.code, 0), fails('state'));
        assert.equal((await lab.run(box, 'echo again')).out, 'again\n');
        assert.ok((await lab.engine.stats(box.id)).pids <= 4);
      },
      { pids: 40 },
    );
  });

  it('holds commands to the cores that were given', async () => {
    await lab.withBox(
      async (box) => {
        const before = (await lab.engine.stats(box.id)).cpuSeconds;
        await lab.run(box, 'timeout 2 sh -c "while :; do :; done"');
        const used = (await lab.engine.stats(box.id)).cpuSeconds - before;
        assert.ok(used > 0.1 && used < 1.2, `${used} s of a quarter core in 2 s`);
      },
      { cpus: 0.25 },
    );
  });

  it('kills everything but what keeps it alive, and its files stay', async () => {
    await lab.withBox(
      async (box) => {
        const long = finish(
          await lab.engine.exec(box.id, {
            command: [
              'sh',
              '-c',
              'trap "" TERM INT HUP; (setsid sleep 900 &); echo kept > /kept; while :; do sleep 901; done',
            ],
          }),
        );
        await until('it has begun', async () => (await lab.run(box, 'cat /kept 2>/dev/null')).out === 'kept\n');
        await lab.engine.killProcesses(box.id);
        assert.equal((await long).code, 137);
        assert.doesNotMatch((await lab.run(box, 'ps -eo args')).out, /sleep 90[01]/);
        assert.equal((await lab.run(box, 'cat /kept')).out, 'kept\n');
        await lab.engine.killProcesses(box.id);
      },
      { image: lab.golden },
    );
  });

  it('kills everything in a box whose shell was taken away or lies', async () => {
    for (const sabotage of [
      'cp /bin/busybox /bin/x; rm /bin/sh',
      'rm /bin/sh; printf "#!/bin/busybox ash\\necho done\\n" > /bin/sh; chmod +x /bin/sh',
    ]) {
      const events: EngineEvent[] = [];
      const watch = lab.engine.watch(lab.owner, (e) => events.push(e));
      await lab.withBox(async (box) => {
        const handle = await lab.engine.exec(box.id, { command: ['sh', '-c', 'echo up; sleep 900'] });
        const ended = finish(handle).catch(() => undefined);
        await new Promise((resolve) => handle.stdout.once('readable', resolve));
        await lab.run(box, sabotage);
        // It can't be started again without a shell; what matters is that nothing goes on in it.
        await lab.engine.killProcesses(box.id).catch(fails('engine-failed'));
        await ended;
        await lab.engine.putArchive(
          box.id,
          '/',
          packTar([
            {
              path: 'bin/sh' as BytePath,
              type: 'symlink',
              mode: 0o777,
              uid: 0,
              gid: 0,
              mtimeMs: 0,
              size: 0,
              link: 'busybox' as BytePath,
            },
          ]),
        );
        await lab.engine.startBox(box.id);
        assert.doesNotMatch((await lab.run(box, 'ps')).out, /sleep 900/);
      });
      watch.dispose();
    }
  });

  it('saves a box as an image with the configuration of the image below and the labels given', async () => {
    await lab
      .withBox(
        async (box) => {
          assert.equal((await lab.run(box, 'echo new > /new; rm -rf /root', { user: '0' })).code, 0);
          const image = await lab.engine.commitBox(box.id, {
            tag: lab.tag(),
            labels: lab.labels({ [label.role]: 'snapshot' }),
          });
          assert.deepEqual(image.labels, lab.labels({ [label.role]: 'snapshot' }));
          assert.equal(image.layers, lab.busybox.layers + 1);
          assert.ok(['', '0'].includes(image.user));
          await lab.withBox(
            async (again) => {
              assert.deepEqual((await lab.engine.findBox(again.id))?.labels, lab.labels({ [label.role]: 'sandbox' }));
              assert.equal(
                (await lab.run(again, 'cat /new; ls -d /root 2>&1; echo "[$SECRETISH]"')).out.replace(
                  /ls: .*\n/,
                  'gone\n',
                ),
                'new\ngone\n[x]\n',
              );
              assert.equal(await lab.engine.removeImage(image.id), false, 'in use');
            },
            { image },
          );
          assert.equal(await lab.engine.removeImage(image.id), true);
          assert.equal(await lab.engine.removeImage(image.id), true);
          assert.equal(await lab.engine.findImage(image.ref), undefined);
        },
        {
          user: '1000:1000',
          env: { SECRETISH: 'x' },
          labels: lab.labels({
            [label.role]: 'sandbox',
            [label.expires]: '2030-01-01T00:00:00Z',
            [label.sandbox]: 's',
          }),
        },
      )
      .catch((error: unknown) => {
        throw error;
      });
  });

  it('takes archives in and gives them out, and says what is not there', async () => {
    await lab.withBox(async (box) => {
      const entry = { type: 'file' as const, mode: 0o640, uid: 12, gid: 34, mtimeMs: 1e12 };
      const odd = 'w/\xff\xfe' as BytePath;
      await lab.engine.putArchive(
        box.id,
        '/tmp',
        packTar([
          { ...entry, path: 'w' as BytePath, type: 'dir', mode: 0o750, size: 0 },
          { ...entry, path: odd, size: 3, content: Buffer.from('abc') },
        ]),
      );
      const seen: string[] = [];
      for await (const e of unpackTar(await lab.engine.getArchive(box.id, '/tmp/w'), { maxBytes: 1000 }))
        seen.push(`${e.path.replace(/\/$/, '')} ${e.mode.toString(8)} ${e.uid}:${e.gid} ${e.size}`);
      assert.deepEqual(seen, ['w 750 12:34 0', `${odd} 640 12:34 3`]);
      await assert.rejects(lab.engine.getArchive(box.id, '/nowhere'), fails('not-found', /nowhere/));
      await assert.rejects(lab.engine.putArchive(box.id, '/nowhere', packTar([])), fails('not-found'));
      await assert.rejects(
        lab.engine.putArchive(
          box.id,
          '/tmp',
          packTar([{ ...entry, path: 'bad' as BytePath, size: 9, content: Buffer.from('abc') }]),
        ),
        fails('workspace-changed'),
      );
    });
    await assert.rejects(lab.engine.getArchive('0'.repeat(64), '/'), fails('not-found', /container/));
    assert.equal(await lab.engine.findBox('0'.repeat(64)), undefined);
  });

  it('tells of boxes that died, of this owner alone', async () => {
    const events: EngineEvent[] = [];
    const watch = lab.engine.watch(lab.owner, (e) => events.push(e));
    const foreign: EngineEvent[] = [];
    const other = lab.engine.watch(`${lab.owner}-other`, (e) => foreign.push(e));
    await lab.withBox(async (box) => {
      // The watch needs a moment to be in place: a box that dies again and again is seen in the end.
      await until('its death is told', async () => {
        await lab.engine.killBox(box.id);
        const told = events.some((e) => e.kind === 'died' && e.boxId === box.id);
        if (!told) await lab.engine.startBox(box.id);
        return told;
      });
      assert.equal(events.at(-1)?.labels[label.role], 'sandbox');
    });
    watch.dispose();
    other.dispose();
    assert.deepEqual(foreign, []);
  });

  it('answers about figures soon, again and again', async () => {
    await lab.withBox(async (box) => {
      const began = Date.now();
      for (let i = 0; i < 4; i++) await lab.engine.stats(box.id);
      assert.ok(Date.now() - began < 2500, `${Date.now() - began} ms for four`);
    });
  });

  describe('tiers and limits that can not be had', () => {
    const able: Capabilities = {
      name: 'Docker',
      version: '1',
      podman: false,
      loadsLayers: true,
      storageDriver: 'overlay2',
      hasInit: true,
      memory: true,
      cpus: true,
      pids: true,
      swap: true,
      rootless: false,
      api: 41,
      defaultRuntime: 'runc',
      runtimes: [{ name: 'runc', path: 'runc' }],
    };
    const plain = { tier: 'container', network: 'none' } as const;

    it('are refused by the engine here before anything is made', async () => {
      await assert.rejects(lab.engine.createBox(lab.spec({ tier: 'microvm' })), fails('unsupported', /microvm.*Kata/));
      await assert.rejects(lab.engine.createBox(lab.spec({ tier: 'process' })), fails('unsupported', /process/));
      assert.deepEqual(await lab.engine.listBoxes(lab.labels()), []);
    });

    it('are refused by name', () => {
      for (const [limit, key] of Object.entries({ memory: 'memoryBytes', cpus: 'cpus', pids: 'pids' })) {
        assert.throws(
          () => runtimeFor({ ...able, [limit]: false }, { ...plain, [key]: 1 }),
          fails('unsupported', new RegExp(limit)),
        );
        assert.equal(runtimeFor({ ...able, [limit]: false }, plain), undefined);
      }
      assert.throws(() => runtimeFor(able, { ...plain, tier: 'gvisor' }), fails('unsupported', /gVisor/));
    });

    it('choose the runtime by tier, never a weaker or a useless one', () => {
      const runsc = { name: 'sandboxed', path: '/usr/bin/runsc', runtimeArgs: ['--network=none', '--ignore-cgroups'] };
      const net = { name: 'runsc-net', path: '/usr/bin/runsc', runtimeArgs: ['--network=host', '--ignore-cgroups'] };
      const kata = { name: 'vm', runtimeType: 'io.containerd.kata.v2' };
      const all = { ...able, runtimes: [...able.runtimes, runsc, net, kata] };
      assert.equal(runtimeFor(all, { ...plain, tier: 'gvisor' }), 'sandboxed');
      assert.equal(runtimeFor(all, { tier: 'gvisor', network: 'open' }), 'runsc-net');
      assert.equal(runtimeFor(all, { ...plain, tier: 'microvm', memoryBytes: 1 }), 'vm');
      assert.throws(
        () => runtimeFor(all, { ...plain, tier: 'gvisor', memoryBytes: 1 }),
        fails('unsupported', /memory.*ignore-cgroups/s),
      );
      assert.throws(
        () => runtimeFor({ ...able, runtimes: [runsc] }, { tier: 'gvisor', network: 'open' }),
        fails('unsupported', /network/),
      );
      assert.equal(
        runtimeFor({ ...all, defaultRuntime: 'sandboxed' }, plain),
        'runc',
        'container is not gvisor by accident',
      );
      assert.deepEqual(reportOf(all, { endpoint: { text: 'x', foundBy: 'y' } } as unknown as Client).tiers, [
        'container',
        'gvisor',
        'microvm',
      ]);
    });

    it('send the request of a microvm as it should be', () => {
      const kata = { ...able, runtimes: [...able.runtimes, { name: 'kata', runtimeType: 'io.containerd.kata.v2' }] };
      const request = createRequest(
        kata,
        lab.spec({
          tier: 'microvm',
          cpus: 1.5,
          memoryBytes: 1000,
          pids: 7,
          lifetimeMs: 1500,
          env: { A: 'b' },
          user: '5',
        }),
      );
      assert.deepEqual(request['HostConfig'], {
        Init: true,
        Runtime: 'kata',
        Binds: [],
        Privileged: false,
        SecurityOpt: ['no-new-privileges'],
        CapDrop: ['NET_RAW', 'MKNOD', 'SETPCAP'],
        NetworkMode: 'none',
        LogConfig: { Type: 'none' },
        RestartPolicy: { Name: 'no' },
        AutoRemove: false,
        Memory: 1000,
        MemorySwap: 1000,
        NanoCpus: 1.5e9,
        PidsLimit: 7,
      });
      assert.deepEqual(request['Entrypoint'], ['/bin/sh', '-c', 'exec sleep 2']);
    });

    it('read what a box says about itself as what it is: anything', () => {
      const nothing = {
        cpuSeconds: null,
        memoryBytes: null,
        inactiveFile: null,
        peak: null,
        oomKills: null,
        pids: null,
        pidsLimit: null,
        pidsDenied: null,
      };
      assert.deepEqual(
        parseProbe(
          '=memory.events\noom_kill 3\n=pids.events\nmax 9\n=memory.peak\n12345\n=cpu.stat\nusage_usec 2500000\n=pids.max\nmax\n',
        ),
        { ...nothing, oomKills: 3, pidsDenied: 9, peak: 12345, cpuSeconds: 2.5 },
      );
      for (const text of [
        '',
        '\0'.repeat(9999),
        '=memory.peak\n-5\n',
        '=memory.peak\n99999999999999999999\n',
        '=toString\n5\n=__proto__\n1\n',
        'oom_kill 5',
        '=memory.events\noom_kill 5x\n',
      ]) {
        assert.deepEqual(parseProbe(text), nothing);
      }
    });
  });

  it('isolates by gVisor where the engine has it', async function () {
    const { tiers } = await lab.engine.report();
    if (!tiers.includes('gvisor')) return this.skip();
    await lab.withBox(
      async (box) => {
        assert.match((await lab.run(box, 'cat /proc/version')).out, /4\.4\.0/);
        const handle = await lab.engine.exec(box.id, { command: ['sh', '-c', 'sleep 300 & echo up; sleep 300'] });
        const ended = finish(handle);
        handle.stdout.once('data', () => void handle.kill('KILL'));
        assert.equal((await ended).code, 137);
        assert.equal((await lab.run(box, 'exit 9')).code, 9);
        await lab.engine.killProcesses(box.id);
        assert.equal((await lab.run(box, ['true'])).code, 0);
      },
      { tier: 'gvisor' },
    );
  });
});
