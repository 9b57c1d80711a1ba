/** Experiments and promotion through a real agent on a real engine. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { PetriClient } from '../../src/client/client';
import type { ExperimentRecord } from '../../src/protocol/records';
import { Bench, codeOf, exec, git, goldenImage, until } from './harness';

describe('experiments and promotion', function () {
  this.timeout(180_000);
  let bench: Bench;
  let client: PetriClient;

  before(async () => {
    bench = new Bench();
    bench.write('petri.json', `{ "environment": { "image": "${goldenImage}" } }`);
    bench.write('src/round.js', 'exports.round = (x) => Math.floor(x);\n');
    bench.write(
      'test.js',
      `const { test } = require('node:test'); const assert = require('assert'); const { round } = require('./src/round');
test('down', () => assert.equal(round(1.2), 1)); test('half', () => assert.equal(round(1.5), 2)); test('whole', () => assert.equal(round(3), 3));\n`,
    );
    git(bench.workspace, 'init', '-q', '-b', 'main');
    git(bench.workspace, 'add', '-A');
    git(bench.workspace, 'commit', '-qm', 'first');
    bench.write('notes.txt', 'not committed\n');
    client = await bench.connect();
  });
  after(() => bench.end());

  const checks = [
    { name: 'tests', run: 'node --test --test-reporter=tap test.js', report: { format: 'tap' } },
    {
      name: 'size',
      run: 'wc -c < src/round.js | sed s/^/bytes=/',
      metrics: { bytes: { pattern: 'bytes=\\s*(\\d+)', better: 'lower' } },
    },
  ];

  async function run(experiment: object, name = 'fix.experiment.json'): Promise<ExperimentRecord> {
    writeFileSync(path.join(bench.root, name), JSON.stringify(experiment));
    const { id } = await client.call('experiment.run', {
      workspace: bench.workspace,
      file: path.join(bench.root, name),
    });
    return client.call('experiment.wait', { experiment: id });
  }

  it('rank what passes, say why, and keep the evidence', async () => {
    writeFileSync(
      path.join(bench.root, 'big.patch'),
      '--- a/src/round.js\n+++ b/src/round.js\n@@ -1 +1,3 @@\n-exports.round = (x) => Math.floor(x);\n+// rounds\n+// halves up\n+exports.round = (x) => Math.round(x);\n',
    );
    const e = await run({
      task: 'halves are rounded down',
      limits: { memory: '256m', timeout: '1m' },
      approaches: [
        { name: 'naive', run: 'sed -i s/floor/ceil/ src/round.js' },
        { name: 'patch', patch: 'big.patch' },
        { name: 'sed', run: ['sed -i s/floor/round/ src/round.js', 'mkdir out && echo kept > out/report.txt'] },
        { name: 'hog', run: 'node -e "const a=[];for(;;)a.push(Buffer.alloc(1<<20,1))"' },
        { name: 'broken', run: 'exit 3' },
        { name: 'misfit', patch: 'misfit.patch' },
      ],
      checks,
      artifacts: ['out/**'],
    }).catch(async (error: unknown) => {
      // The missing patch file is told before anything starts; then it is there.
      assert.match(String(error), /misfit\.patch/);
      writeFileSync(path.join(bench.root, 'misfit.patch'), '--- a/absent\n+++ b/absent\n@@ -1 +1 @@\n-x\n+y\n');
      const { id } = await client.call('experiment.run', {
        workspace: bench.workspace,
        file: path.join(bench.root, 'fix.experiment.json'),
      });
      return client.call('experiment.wait', { experiment: id });
    });
    const by = (name: string): ExperimentRecord['runs'][number] =>
      e.runs.find((r) => r.name === name) ?? assert.fail(name);
    assert.equal(e.state, 'done');
    assert.equal(e.winner, 'sed', e.reason);
    assert.match(e.reason, /"sed" wins/);
    assert.deepEqual([by('sed').rank, by('patch').rank], [1, 2]);
    assert.deepEqual(
      by('sed').checks.map((c) => [c.name, c.passed, c.exitCode]),
      [
        ['tests', true, 0],
        ['size', true, 0],
      ],
    );
    assert.equal(by('sed').checks[0]?.tests?.passed, 3);
    assert.equal(by('naive').checks[0]?.tests?.failed, 1);
    assert.equal(by('naive').state, 'failed');
    assert.equal(by('hog').breach, 'oom');
    assert.match(by('broken').problem ?? '', /exit code 3/);
    assert.match(by('misfit').problem ?? '', /patch/);
    assert.ok((by('sed').metrics['bytes'] ?? 0) < (by('patch').metrics['bytes'] ?? 0));
    assert.deepEqual(
      by('sed').artifacts.map((a) => a.path),
      ['out/report.txt'],
    );
    assert.equal(readFileSync(by('sed').artifacts[0]?.file ?? '', 'utf8'), 'kept\n');
    assert.ok((by('sed').wallMs ?? 0) > 0 && (by('sed').cpuSeconds ?? 0) > 0 && (by('sed').peakMemoryBytes ?? 0) > 0);
    assert.equal((await client.call('sandbox.list', {})).length, 0, 'no sandbox outlives its run');
    assert.equal(bench.read('src/round.js').includes('floor'), true);
  });

  it('cancel leaves nothing behind and says so', async () => {
    writeFileSync(
      path.join(bench.root, 'slow.experiment.json'),
      JSON.stringify({
        task: 't',
        approaches: [
          { name: 'a', run: 'echo x > y; sleep 1000' },
          { name: 'b', run: 'sleep 1000' },
        ],
      }),
    );
    const { id } = await client.call('experiment.run', {
      workspace: bench.workspace,
      file: path.join(bench.root, 'slow.experiment.json'),
    });
    await until(client, async () =>
      (await client.call('experiment.show', { experiment: id })).runs.every((r) => r.state === 'running'),
    );
    const e = await client.call('experiment.cancel', { experiment: id });
    assert.equal(e.state, 'cancelled');
    assert.deepEqual(
      e.runs.map((r) => r.state),
      ['cancelled', 'cancelled'],
    );
    assert.equal((await client.call('sandbox.list', {})).length, 0);
  });

  it('an agent that is killed in the middle marks what was in flight and leaves no sandbox', async () => {
    writeFileSync(
      path.join(bench.root, 'slow.experiment.json'),
      JSON.stringify({ task: 't', approaches: [{ name: 'a', run: 'echo x > y; sleep 1000' }] }),
    );
    const { id } = await client.call('experiment.run', {
      workspace: bench.workspace,
      file: path.join(bench.root, 'slow.experiment.json'),
    });
    await until(client, async () =>
      (await client.call('experiment.show', { experiment: id })).runs.every((r) => r.state === 'running'),
    );
    process.kill(client.agent.pid, 'SIGKILL');
    await new Promise<void>((resolve) => client.onClose(resolve));
    client = await bench.connect();
    assert.equal((await client.call('sandbox.list', {})).length, 0);
    const e = await client.call('experiment.show', { experiment: id });
    assert.equal(e.state, 'interrupted');
    assert.equal(e.runs[0]?.state, 'interrupted');
    const kept = (await client.call('sandbox.list', { all: true })).find((s) => s.owner.id === id);
    assert.equal(kept?.saved?.diff.files, 1, 'its work was saved first');
  });

  it('a run that is over its time is a result', async () => {
    const e = await run({
      task: 't',
      limits: { timeout: '1s' },
      approaches: [{ name: 'slow', run: 'echo begun > file; sleep 100' }],
      checks: [],
    });
    assert.equal(e.runs[0]?.breach, 'timeout');
    assert.equal(e.runs[0].diff?.files, 1);
    assert.equal(e.winner, null);
  });

  it('start from a commit, and from a snapshot', async () => {
    const fromCommit = await run({
      task: 't',
      base: { commit: 'HEAD' },
      approaches: [{ name: 'look', run: 'ls > listing' }],
      checks: [],
    });
    const id = fromCommit.runs[0]?.id ?? '';
    assert.equal(readFileSync(fromCommit.runs[0]?.patch ?? '', 'utf8').includes('notes.txt'), false, id);
    const sandbox = await client.call('sandbox.create', { workspace: bench.workspace });
    await exec(client, sandbox.id, 'echo hidden > /hidden; echo s > s');
    const snapshot = await client.call('sandbox.snapshot', { sandbox: sandbox.id });
    const fromSnapshot = await run({
      task: 't',
      base: { snapshot: snapshot.id },
      approaches: [{ name: 'look', run: 'cat /hidden s > seen' }],
      checks: [],
    });
    assert.match(readFileSync(fromSnapshot.runs[0]?.patch ?? '', 'utf8'), /\+hidden\n\+s/);
    assert.deepEqual(
      fromSnapshot.runs[0]?.files.map((f) => f.path),
      ['seen'],
    );
    await client.call('sandbox.destroy', { sandboxes: [sandbox.id] });
  });

  it('the winner reaches the dirty workspace and can be taken back to the byte', async () => {
    const e = await run({
      task: 't',
      approaches: [{ name: 'sed', run: 'sed -i s/floor/round/ src/round.js' }],
      checks,
    });
    const id = e.runs[0]?.id ?? '';
    bench.write('notes.txt', 'edited meanwhile\n');
    const dry = await client.call('promote', { source: id, dryRun: true });
    assert.deepEqual([dry.state, dry.dryRun, bench.read('src/round.js').includes('floor')], ['done', true, true]);
    const p = await client.call('promote', { source: id });
    assert.deepEqual(
      p.stages.map((s) => `${s.stage} ${s.state}`),
      ['sandbox passed', 'verified passed', 'local passed'],
      p.problem ?? '',
    );
    assert.equal(bench.read('src/round.js'), 'exports.round = (x) => Math.round(x);\n');
    assert.equal(bench.read('notes.txt'), 'edited meanwhile\n');
    bench.write('notes.txt', 'edited again\n');
    const undone = await client.call('promotion.undo', { promotion: p.id });
    assert.equal(undone.state, 'undone');
    assert.equal(bench.read('src/round.js'), 'exports.round = (x) => Math.floor(x);\n');
    assert.equal(bench.read('notes.txt'), 'edited again\n');
    assert.equal(await codeOf(client.call('promotion.undo', { promotion: p.id })), 'state');
  });

  it('a conflict touches no file; a result that lived on hidden state is refused', async () => {
    const e = await run({
      task: 't',
      approaches: [
        { name: 'conflicting', run: 'sed -i s/floor/round/ src/round.js; echo second > other.txt' },
        { name: 'hidden', run: 'echo 1 > /hidden; echo x > x' },
      ],
      checks: [{ name: 'c', run: 'test -f /hidden || grep -q round.x src/round.js' }],
    });
    const [conflicting, hidden] = e.runs;
    bench.write('src/round.js', 'exports.round = (x) => Math.trunc(x);\n');
    const p = await client.call('promote', { source: conflicting?.id ?? '' });
    assert.equal(p.state, 'conflict');
    assert.deepEqual(
      p.conflicts.map((c) => c.path),
      ['src/round.js'],
    );
    assert.equal(bench.read('src/round.js'), 'exports.round = (x) => Math.trunc(x);\n');
    assert.equal(existsSync(path.join(bench.workspace, 'other.txt')), false);
    bench.write('src/round.js', 'exports.round = (x) => Math.floor(x);\n');
    const q = await client.call('promote', { source: hidden?.id ?? '' });
    assert.equal(q.state, 'refused');
    assert.match(q.problem ?? '', /clean room/);
  });

  it('paths that run by themselves later need their own consent; a link in the way is never followed', async () => {
    const outside = path.join(bench.root, 'outside');
    writeFileSync(outside, 'untouched\n');
    const e = await run({
      task: 't',
      approaches: [{ name: 'sly', run: 'mkdir -p .vscode d && echo "{}" > .vscode/tasks.json && echo owned > d/file' }],
      checks: [],
    });
    const id = e.runs[0]?.id ?? '';
    assert.equal(await codeOf(client.call('promote', { source: id })), 'sensitive-paths');
    assert.equal(existsSync(path.join(bench.workspace, '.vscode')), false);
    symlinkSync(bench.root, path.join(bench.workspace, 'd'));
    const p = await client.call('promote', { source: id, allowSensitive: true });
    assert.equal(p.state, 'conflict');
    assert.deepEqual(readdirSync(bench.workspace).includes('.vscode'), false, 'all or nothing');
    assert.equal(existsSync(path.join(bench.root, 'file')), false);
  });

  it('two promotions at once keep both changes', async () => {
    const a = await client.call('sandbox.create', { workspace: bench.workspace });
    const b = await client.call('sandbox.create', { workspace: bench.workspace });
    await exec(client, a.id, 'echo a > a.txt');
    await exec(client, b.id, 'echo b > b.txt');
    const both = await Promise.all([a, b].map((s) => client.call('promote', { source: s.id })));
    assert.deepEqual(
      both.map((p) => p.state),
      ['done', 'done'],
    );
    assert.deepEqual([bench.read('a.txt'), bench.read('b.txt')], ['a\n', 'b\n']);
    await client.call('sandbox.destroy', { sandboxes: [a.id, b.id] });
  });

  it('a malformed file is told with its position; later stages say that they are not there', async () => {
    writeFileSync(
      path.join(bench.root, 'bad.experiment.json'),
      '{\n  "task": "t",\n  "approaches": [{ "name": "a", "run": 5 }]\n}',
    );
    await assert.rejects(
      client.call('experiment.run', { workspace: bench.workspace, file: path.join(bench.root, 'bad.experiment.json') }),
      /3:\d+/,
    );
    const s = await client.call('sandbox.create', { workspace: bench.workspace });
    assert.equal(await codeOf(client.call('promote', { source: s.id, to: 'production' })), 'unsupported');
    const empty = await client.call('promote', { source: s.id });
    assert.equal(empty.state, 'refused');
    await client.call('sandbox.destroy', { sandboxes: [s.id] });
  });
});
