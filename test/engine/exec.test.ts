/** Running commands in a box: bytes, streams, exit codes, signals, terminals. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { before, describe, it } from 'mocha';
import type { Box } from '../../src/agent/engine/engine';
import { fails, finish, Lab, until } from './harness';

describe('engine: exec', () => {
  const lab = new Lab();
  let box: Box;
  let golden: Box;
  before(async () => {
    [box, golden] = await Promise.all([lab.sharedBox({ workdir: '/work' }), lab.sharedBox({ image: lab.golden })]);
  });

  it('keeps stdout, stderr and the exit code apart, and starts in the folder of the box', async () => {
    const { code, out, err } = await lab.run(box, 'pwd; echo err >&2; exit 3');
    assert.deepEqual([code, out, err], [3, '/work\n', 'err\n']);
  });

  it('passes every byte in both directions', async () => {
    const data = randomBytes(3_000_000);
    const handle = await lab.engine.exec(box.id, { command: ['cat'], stdin: true });
    const ended = finish(handle);
    for (let at = 0; at < data.length; at += 100_001) await handle.write(data.subarray(at, at + 100_001));
    handle.closeStdin();
    assert.ok((await ended).stdout.equals(data));
  });

  it('gives an empty input when none is asked for', async () => {
    assert.deepEqual((await lab.run(box, 'cat; echo "end $?"')).out, 'end 0\n');
  });

  it('does not take a first line of digits for its own', async () => {
    assert.equal((await lab.run(box, 'echo 12345; echo 678')).out, '12345\n678\n');
    assert.equal((await lab.run(box, ['printf', '42'])).out, '42');
    assert.equal((await lab.run(box, ['true'])).out, '');
  });

  it('hands arguments on untouched', async () => {
    const args = ['a b', '$HOME', '*', '"\'`', '', 'new\nline', '-n', 'ünï'];
    assert.equal((await lab.run(box, ['printf', '[%s]', ...args])).out, args.map((a) => `[${a}]`).join(''));
  });

  it('ends as a shell would when there is nothing to run', async () => {
    const absent = await lab.run(box, ['no-such-command']);
    assert.equal(absent.code, 127);
    assert.match(absent.err, /no-such-command.*not found/);
    assert.equal((await lab.run(box, ['/etc'])).code, 126);
    const nowhere = await lab.run(box, ['true'], { cwd: '/nowhere' });
    assert.equal(nowhere.code, 126);
    assert.match(nowhere.err, /nowhere/);
    assert.equal((await lab.run(box, 'kill -9 $$')).code, 137);
  });

  it('goes on when the folder of the box is removed', async () => {
    await lab.withBox(
      async (b) => {
        assert.equal((await lab.run(b, 'rmdir /gone', { cwd: '/' })).code, 0);
        assert.equal((await lab.run(b, 'pwd', { cwd: '/' })).out, '/\n');
        assert.equal((await lab.run(b, 'pwd')).code, 126);
      },
      { workdir: '/gone' },
    );
  });

  it('uses environment, folder and user as given', async () => {
    const { out } = await lab.run(golden, 'echo "$A|$(id -u):$(id -g)|$PWD"', {
      env: { A: 'x=y z' },
      cwd: '/usr/lib',
      user: '1:2',
    });
    assert.equal(out, 'x=y z|1:2|/usr/lib\n');
    assert.equal((await lab.run(golden, 'pwd', { cwd: 'usr' })).out, '/usr\n');
  });

  it('gains no privileges', async () => {
    assert.match((await lab.run(golden, 'grep NoNewPrivs /proc/self/status')).out, /\t1\n/);
    const caps = BigInt(`0x${(await lab.run(golden, 'sed -n "s/^CapBnd:\\t//p" /proc/self/status')).out.trim()}`);
    for (const [name, bit] of Object.entries({ NET_RAW: 13n, MKNOD: 27n, SYS_ADMIN: 21n, NET_ADMIN: 12n })) {
      assert.equal((caps >> bit) & 1n, 0n, name);
    }
  });

  for (const signal of ['TERM', 'KILL', 'INT']) {
    it(`signals the whole process group: ${signal}`, async () => {
      const handle = await lab.engine.exec(golden.id, { command: ['sh', '-c', 'sleep 987 & echo up; sleep 987'] });
      const ended = finish(handle);
      handle.stdout.once('data', () => void handle.kill(signal));
      const { code } = await ended;
      if (signal === 'KILL') assert.equal(code, 137);
      else assert.notEqual(code, 0);
      if (signal !== 'INT') {
        // An interrupt is ignored by what a shell puts into the background.
        await until('no sleep is left', async () =>
          (await lab.run(golden, 'ps -eo args')).out.split('\n').every((l) => !l.includes('sleep 987')),
        );
      } else await lab.engine.killProcesses(golden.id);
    });
  }

  it('kills what has left the group but not the session, and what ignores signals', async () => {
    const handle = await lab.engine.exec(golden.id, {
      command: ['bash', '-mc', 'trap "" TERM INT; sleep 986 & trap "" TERM; echo up; while :; do sleep 985; done'],
    });
    const ended = finish(handle);
    handle.stdout.once('data', () => void handle.kill('KILL'));
    assert.equal((await ended).code, 137);
    await until('no sleep is left', async () => !/sleep 98[56]/.test((await lab.run(golden, 'ps -eo args')).out));
  });

  it('leaves other commands alone when one is killed, and killing twice or late is nothing', async () => {
    const other = await lab.engine.exec(golden.id, { command: ['cat'], stdin: true });
    const otherEnded = finish(other);
    const handle = await lab.engine.exec(golden.id, { command: ['sleep', '984'] });
    const ended = finish(handle);
    await Promise.all([handle.kill('KILL'), handle.kill('KILL')]);
    assert.equal((await ended).code, 137);
    await handle.kill('KILL');
    other.closeStdin();
    assert.equal((await otherEnded).code, 0);
    await assert.rejects(handle.kill('TERM; rm -rf /'), fails('usage'));
  });

  it('has a terminal with the size that is given, and resizes it', async () => {
    const handle = await lab.engine.exec(golden.id, {
      command: ['bash', '-c', 'trap "stty size; exit 5" WINCH; stty size; while :; do sleep 0.05; done'],
      tty: true,
      stdin: true,
      size: { columns: 100, rows: 30 },
    });
    let text = '';
    handle.stdout.on('data', (data: Buffer) => (text += data.toString()));
    await until('the first size', () => /\d+ \d+/.test(text));
    await handle.resize(77, 22);
    assert.equal(await handle.exit, 5);
    assert.match(text, /22 77/);
    assert.doesNotMatch(text, /^\d+\r\n\d+ \d+/, 'the process id is not shown');
    await handle.resize(80, 24);
  });

  it('talks to a shell in a terminal', async () => {
    const handle = await lab.engine.exec(box.id, { command: ['sh'], tty: true, stdin: true });
    const ended = finish(handle);
    await handle.write(Buffer.from('echo $((6*7)); exit 4\n'));
    const { code, out } = await ended;
    assert.equal(code, 4);
    assert.match(out, /42\r\n/);
    assert.doesNotMatch(out, /^\d+\r\n/);
  });

  it('holds a flooding command back when its output is read slowly, in bounded memory', async () => {
    const handle = await lab.engine.exec(box.id, { command: ['sh', '-c', 'cat /dev/zero'] });
    handle.stderr.resume();
    handle.exit.catch(() => undefined);
    const before = process.memoryUsage().arrayBuffers + process.memoryUsage().external;
    await until('output is waiting', () => handle.stdout.readableLength >= 64 * 1024);
    const progress = async (): Promise<number> =>
      (
        await lab.run(
          box,
          'for f in /proc/[0-9]*; do read -r c < $f/cmdline; done 2>/dev/null; cat /proc/*/io 2>/dev/null | awk "/wchar/ {n+=\\$2} END {print n}"',
        )
      ).code;
    await progress();
    const held = process.memoryUsage().arrayBuffers + process.memoryUsage().external - before;
    assert.ok(handle.stdout.readableLength < 2 * 1024 * 1024, `${handle.stdout.readableLength} bytes are buffered`);
    assert.ok(held < 16 * 1024 * 1024, `${held} bytes are held`);
    let read = 0;
    for await (const data of handle.stdout) {
      read += (data as Buffer).length;
      if (read > 20_000_000) break;
    }
    await handle.kill('KILL');
    assert.equal(await handle.exit, 137);
  });

  it('ends though nobody reads, when the output is small', async () => {
    const handle = await lab.engine.exec(box.id, { command: ['echo', 'unread'] });
    assert.equal(await handle.exit, 0);
  });

  it('ends although something in the background keeps its output open', async () => {
    const began = Date.now();
    const { code, out } = await lab.run(golden, 'sleep 60 & echo started');
    assert.deepEqual([code, out], [0, 'started\n']);
    assert.ok(Date.now() - began < 20_000);
    await lab.engine.killProcesses(golden.id);
  });

  it('runs many at once without mixing them', async () => {
    const results = await Promise.all(Array.from({ length: 12 }, (_, i) => lab.run(box, `echo ${i}; exit ${i}`)));
    assert.deepEqual(
      results.map((r) => [r.code, r.out]),
      results.map((_, i) => [i, `${i}\n`]),
    );
  });

  it('says so when the container has ended or is gone', async () => {
    const b = await lab.engine.createBox(lab.spec());
    const handle = await lab.engine.exec(b.id, { command: ['sh', '-c', 'echo up; sleep 100'] });
    const up = once(handle.stdout, 'readable');
    await up;
    const ended = finish(handle);
    await lab.engine.killBox(b.id);
    await ended.then((r) => assert.equal(r.code, 137), fails('state'));
    await assert.rejects(lab.engine.exec(b.id, { command: ['true'] }), fails('state', /not running/));
    await lab.engine.startBox(b.id);
    assert.equal((await lab.run(b, ['true'])).code, 0);
    await lab.engine.removeBox(b.id);
    await assert.rejects(lab.engine.exec(b.id, { command: ['true'] }), fails('not-found'));
  });
});
