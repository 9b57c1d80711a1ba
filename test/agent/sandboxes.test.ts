/** Sandboxes through a real agent on a real engine. */
import assert from 'node:assert/strict';
import { chmodSync, existsSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import type { PetriClient } from '../../src/client/client';
import { Bench, busyboxImage, codeOf, exec, git, goldenImage, until } from './harness';

describe('sandboxes', function () {
  this.timeout(120_000);
  let bench: Bench;
  let client: PetriClient;

  before(async () => {
    bench = new Bench();
    bench.write('petri.json', `{ "environment": { "image": "${goldenImage}", }, /* comment */ }`);
    bench.write('src/a.txt', 'one\n');
    bench.write('src/b.txt', 'two\n');
    bench.write('run.sh', '#!/bin/sh\necho ran\n');
    chmodSync(path.join(bench.workspace, 'run.sh'), 0o755);
    bench.write('.gitignore', 'ignored/\n');
    bench.write('ignored/x', 'not captured\n');
    symlinkSync('nowhere', path.join(bench.workspace, 'dangling'));
    git(bench.workspace, 'init', '-q', '-b', 'main');
    git(bench.workspace, 'add', '-A');
    git(bench.workspace, 'commit', '-qm', 'first');
    bench.write('src/a.txt', 'one, modified\n');
    bench.write('staged.txt', 'staged\n');
    git(bench.workspace, 'add', 'staged.txt');
    bench.write('untracked with space.txt', 'untracked\n');
    client = await bench.connect();
  });
  after(() => bench.end());

  it('start from the exact state, with a git repository of their own', async () => {
    const sandbox = await client.call('sandbox.create', { workspace: bench.workspace, name: 'exact' });
    assert.equal(sandbox.state, 'ready');
    const seen = await exec(
      client,
      sandbox.id,
      'cat src/a.txt staged.txt untracked*; ./run.sh; readlink dangling; ls -d ignored 2>&1; git status --porcelain; git log --oneline | wc -l; git remote',
    );
    assert.equal(
      seen.out,
      'one, modified\nstaged\nuntracked\nran\nnowhere\nls: cannot access \'ignored\': No such file or directory\n M src/a.txt\nA  staged.txt\n?? "untracked with space.txt"\n1\n',
    );
    assert.equal(
      git(bench.workspace, 'status', '--porcelain'),
      ' M src/a.txt\nA  staged.txt\n?? "untracked with space.txt"\n',
    );
    const diff = await client.call('sandbox.diff', { sandbox: 'exact' });
    assert.deepEqual(diff.stat, { files: 0, added: 0, removed: 0 });
    await client.call('sandbox.destroy', { sandboxes: ['exact'] });
  });

  it('tell what was changed in them, and keep it when they go', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace });
    await exec(
      client,
      id,
      'echo more >> src/b.txt; rm staged.txt; mkdir new; echo n > new/n; chmod +x src/a.txt; rm -rf .git; ln -s /etc/passwd link',
    );
    const diff = await client.call('sandbox.diff', { sandbox: id, patch: true });
    assert.deepEqual(
      diff.files.map((f) => `${f.status} ${f.path}`),
      ['added link', 'added new/n', 'modified src/a.txt', 'modified src/b.txt', 'deleted staged.txt'],
    );
    assert.match(diff.patch ?? '', /\+more/);
    assert.match(diff.files.find((f) => f.path === 'link')?.sensitive ?? '', /./);
    const [gone] = await client.call('sandbox.destroy', { sandboxes: [id] });
    assert.equal(gone?.state, 'destroyed');
    assert.equal(gone.saved?.diff.files, 5);
    assert.match(readFileSync(gone.saved?.patch ?? '', 'utf8'), /\+more/);
    assert.equal((await client.call('sandbox.diff', { sandbox: id })).stat.files, 5);
    assert.equal(bench.read('src/b.txt'), 'two\n', 'the workspace is untouched');
  });

  it('find changes without git inside', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace, image: busyboxImage });
    await exec(client, id, 'echo more >> src/b.txt; rm staged.txt; mkdir ignored; echo x > ignored/y; echo n > n');
    const diff = await client.call('sandbox.diff', { sandbox: id });
    assert.deepEqual(
      diff.files.map((f) => `${f.status} ${f.path}`),
      ['added n', 'modified src/b.txt', 'deleted staged.txt'],
    );
    await client.call('sandbox.destroy', { sandboxes: [id] });
  });

  it('find changes when git inside is broken on purpose', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace });
    await exec(
      client,
      id,
      'echo more >> src/b.txt; rm -rf /.petri; printf "#!/bin/sh\\necho petri1 0000000000000000000000000000000000000000; exit 1\\n" > /usr/bin/git',
    );
    const diff = await client.call('sandbox.diff', { sandbox: id });
    assert.deepEqual(
      diff.files.map((f) => f.path),
      ['src/b.txt'],
    );
    await client.call('sandbox.destroy', { sandboxes: [id], discard: true });
  });

  it('pass input, exit codes, separate streams and the folder', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace });
    const cat = await exec(client, id, ['cat'], 'hello\n');
    assert.equal(cat.out, 'hello\n');
    const both = await exec(client, id, 'echo out; echo err >&2; pwd; exit 7');
    assert.deepEqual([both.out, both.err, both.exitCode], ['out\n/workspace\n', 'err\n', 7]);
    assert.equal((await exec(client, id, ['no-such-command'])).exitCode, 127);
    assert.equal(readFileSync(both.log, 'utf8').includes('err\n'), true);
    await client.call('sandbox.destroy', { sandboxes: [id] });
  });

  it('cancel a command and everything it started', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace });
    const abort = new AbortController();
    const session = client.exec(
      { sandbox: id, command: ['/bin/sh', '-c', 'trap "" TERM; echo started; sleep 1000 & wait; sleep 1000'] },
      { stdout: () => abort.abort(), stderr: () => undefined },
      { signal: abort.signal },
    );
    assert.equal(await codeOf(session.result), 'cancelled');
    assert.equal((await exec(client, id, 'ps ax | grep -c "[s]leep 1000"')).out, '0\n');
    await client.call('sandbox.destroy', { sandboxes: [id] });
  });

  it('bound time, memory and processes, and say which bound it was', async () => {
    const { id } = await client.call('sandbox.create', {
      workspace: bench.workspace,
      limits: { memoryBytes: 64 * 1024 * 1024, pids: 40 },
    });
    const slow = client.exec(
      { sandbox: id, command: ['sleep', '100'], timeoutMs: 300 },
      { stdout: () => undefined, stderr: () => undefined },
    );
    assert.equal((await slow.result).breach, 'timeout');
    assert.equal(
      (await exec(client, id, ['node', '-e', 'const a=[];for(;;)a.push(Buffer.alloc(1<<20,1))'])).breach,
      'oom',
    );
    assert.equal((await exec(client, id, 'for i in $(seq 100); do sleep 5 & done; exit 3')).breach, 'pids');
    await client.call('sandbox.destroy', { sandboxes: [id] });
  });

  it('have no network unless it is asked for', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace });
    assert.equal((await exec(client, id, 'ls /sys/class/net')).out, 'lo\n');
    const open = await client.call('sandbox.create', { workspace: bench.workspace, network: 'open' });
    assert.match((await exec(client, open.id, 'ls /sys/class/net')).out, /eth0/);
    await client.call('sandbox.destroy', { sandboxes: [id, open.id] });
  });

  it('go back to a snapshot and forth again, and fork', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace });
    await exec(client, id, 'echo 1 > s; echo 1 > /outside');
    const first = await client.call('sandbox.snapshot', { sandbox: id, message: 'first' });
    await exec(client, id, 'echo 2 > s; echo 2 > /outside');
    const back = await client.call('sandbox.rollback', { sandbox: id, snapshot: first.id });
    assert.equal(back.currentSnapshot, first.id);
    assert.equal((await exec(client, id, 'cat s /outside')).out, '1\n1\n');
    const automatic = (await client.call('sandbox.snapshots', { sandbox: id })).find((s) => s.automatic);
    assert.ok(automatic && automatic.parent === first.id);
    const fork = await client.call('sandbox.fork', { sandbox: id, snapshot: automatic.id, name: 'forth' });
    assert.equal((await exec(client, 'forth', 'cat s /outside')).out, '2\n2\n');
    assert.equal((await client.call('sandbox.diff', { sandbox: fork.id })).stat.files, 1);
    await client.call('sandbox.destroy', { sandboxes: [id, fork.id] });
  });

  it('follow the workspace with small layers: changed, added and removed files', async () => {
    const one = await client.call('sandbox.create', { workspace: bench.workspace });
    bench.write('src/b.txt', 'two, changed\n');
    bench.write('deep/er/new.txt', 'new\n');
    rmSync(path.join(bench.workspace, 'run.sh'));
    const two = await client.call('sandbox.create', { workspace: bench.workspace });
    assert.equal(
      (await exec(client, two.id, 'cat src/b.txt deep/er/new.txt; ls run.sh 2>&1')).out,
      "two, changed\nnew\nls: cannot access 'run.sh': No such file or directory\n",
    );
    assert.equal((await client.call('sandbox.diff', { sandbox: two.id })).stat.files, 0);
    assert.equal((await exec(client, one.id, 'cat src/b.txt')).out, 'two\n');
    rmSync(path.join(bench.workspace, 'deep'), { recursive: true });
    const three = await client.call('sandbox.create', { workspace: bench.workspace });
    assert.equal((await exec(client, three.id, 'ls -d deep 2>&1 | cut -c1-3')).out, 'ls:\n');
    await client.call('sandbox.destroy', { sandboxes: [one.id, two.id, three.id] });
  });

  it('are seen by every client at once, and outlive the one that made them', async () => {
    const other = await bench.connect();
    let seen = '';
    other.watch((e) => {
      if (e.kind === 'sandbox' && e.record.name === 'shared') seen = e.record.state;
    });
    const watching = until(other, () => seen === 'ready');
    const third = await bench.connect();
    const { id } = await third.call('sandbox.create', { workspace: bench.workspace, name: 'shared' });
    third.dispose();
    await watching;
    assert.equal(
      (await other.call('sandbox.list', { workspace: bench.workspace })).some((s) => s.id === id),
      true,
    );
    await other.call('sandbox.destroy', { sandboxes: [id] });
  });

  it('survive an agent that is killed, with every record', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace, name: 'survivor' });
    await exec(client, id, 'echo kept > kept');
    const running = client.exec(
      { sandbox: id, command: ['sleep', '1000'] },
      { stdout: () => undefined, stderr: () => undefined },
    );
    await until(client, async () =>
      (await client.call('sandbox.show', { sandbox: id })).execs.some((e) => e.state === 'running'),
    );
    process.kill(client.agent.pid, 'SIGKILL');
    assert.equal(await codeOf(running.result), 'agent-unreachable');
    client = await bench.connect();
    const found = await client.call('sandbox.show', { sandbox: 'survivor' });
    assert.equal((await client.call('sandbox.list', { workspace: bench.workspace })).length >= 1, true);
    assert.equal(found.id, id);
    assert.equal((await exec(client, id, 'cat kept')).out, 'kept\n');
    const execs = (await client.call('sandbox.show', { sandbox: id })).execs;
    assert.deepEqual(
      execs.map((e) => e.state),
      ['exited', 'interrupted', 'exited'],
    );
    await client.call('sandbox.destroy', { sandboxes: [id] });
  });

  it('end at their time with their work saved', async () => {
    const { id } = await client.call('sandbox.create', { workspace: bench.workspace, limits: { timeoutMs: 2000 } });
    await exec(client, id, 'echo late > late');
    await until(client, async () => (await client.call('sandbox.show', { sandbox: id })).state === 'destroyed');
    const record = await client.call('sandbox.show', { sandbox: id });
    assert.equal(record.breach, 'timeout');
    assert.equal(record.saved?.diff.files, 1);
  });

  it('refuse what is not there with words and codes', async () => {
    assert.equal(await codeOf(client.call('sandbox.show', { sandbox: 'nothing' })), 'not-found');
    assert.equal(
      await codeOf(client.call('sandbox.create', { workspace: bench.workspace, image: 'petri-test/absent:1' })),
      'image-missing',
    );
    assert.equal(
      await codeOf(client.call('sandbox.create', { workspace: path.join(bench.root, 'absent') })),
      'workspace-missing',
    );
    assert.equal(
      await codeOf(client.call('sandbox.create', { workspace: bench.workspace, tier: 'microvm' })),
      'unsupported',
    );
    assert.equal(existsSync(path.join(bench.home, 'journal.jsonl')), true);
  });
});
