/** The built command against the real agent and the real engine: every subcommand with --json, the exit codes, hostile use. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'mocha';
import type { AgentStatus, DoctorReport, PruneReport, SandboxDiff } from '../../src/protocol/operations';
import type {
  ExecRecord,
  ExperimentRecord,
  PromotionRecord,
  SandboxRecord,
  SnapshotRecord,
} from '../../src/protocol/records';

const script = path.resolve('dist/petri.js');
const image = 'petri-test/golden:1';

interface Outcome {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface ErrorValue {
  id: null;
  state: 'error';
  error: { code: string; message: string; hint: string | null; data: Record<string, unknown> };
}

describe('cli: end to end', function () {
  this.timeout(120_000);

  let folder = '';
  let workspace: string;
  let home: string;

  interface Options {
    env?: NodeJS.ProcessEnv;
    input?: string | Buffer;
    cwd?: string;
  }

  /** Runs the command; without `input` its standard input is empty and no pipe. */
  function petri(args: string[], options: Options = {}): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [script, ...args], {
        cwd: options.cwd ?? workspace,
        env: { ...process.env, PETRI_HOME: home, NO_COLOR: '1', ...options.env },
        stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
      });
      const out: Buffer[] = [];
      const err: Buffer[] = [];
      child.stdout?.on('data', (d: Buffer) => out.push(d));
      child.stderr?.on('data', (d: Buffer) => err.push(d));
      child.stdin?.end(options.input);
      child.once('error', reject);
      child.once('close', (code) =>
        resolve({ code, stdout: Buffer.concat(out).toString(), stderr: Buffer.concat(err).toString() }),
      );
    });
  }

  /** Runs with --json and gives the one value of standard output. */
  async function json<T>(args: string[], code = 0, options: Options = {}): Promise<T> {
    const at = args.indexOf('--');
    const all = at < 0 ? [...args, '--json'] : [...args.slice(0, at), '--json', ...args.slice(at)];
    const outcome = await petri(all, options);
    assert.equal(outcome.code, code, `petri ${all.join(' ')}\n${outcome.stdout}\n${outcome.stderr}`);
    return JSON.parse(outcome.stdout) as T;
  }

  function write(name: string, text: string): void {
    const file = path.join(workspace, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  before(async () => {
    assert.ok(process.env['DOCKER_HOST'], 'DOCKER_HOST names the engine of the tests');
    assert.ok(existsSync(script), 'the command is built');
    folder = mkdtempSync(path.join(tmpdir(), 'petri-cli-'));
    home = path.join(folder, 'home');
    workspace = path.join(folder, 'workspace');
    write('petri.json', JSON.stringify({ environment: { image } }));
    write('src/round.js', 'exports.round = (x) => Math.floor(x);\n');
    write(
      'test.js',
      [
        "const { round } = require('./src/round.js');",
        'const cases = [[1.2, 1], [1.5, 2], [7.9, 8]];',
        'console.log(`1..${cases.length}`);',
        'cases.forEach(([x, y], i) => console.log(`${round(x) === y ? "ok" : "not ok"} ${i + 1} - round(${x}) is ${y}`));',
        'process.exit(cases.every(([x, y]) => round(x) === y) ? 0 : 1);',
        '',
      ].join('\n'),
    );
    write(
      'fix.experiment.json',
      `{ // the comment and the comma at the end are allowed
        "task": "rounding is wrong for halves",
        "limits": { "memory": "256m", "timeout": "2m" },
        "approaches": [
          { "name": "naive", "run": "sed -i s/floor/ceil/ src/round.js" },
          { "name": "sed", "run": "sed -i s/floor/round/ src/round.js" },
        ],
        "checks": [
          { "name": "tests", "run": "node test.js", "report": { "format": "tap" } },
          { "name": "size", "run": "echo bytes=$(wc -c < src/round.js)", "metrics": { "bytes": { "pattern": "bytes=(\\\\d+)", "better": "lower" } } },
        ],
      }`,
    );
  });

  after(async () => {
    if (folder === '') return;
    await petri(['prune', '--all', '--json']);
    const stopped = await petri(['agent', 'stop', '--json']);
    rmSync(folder, { recursive: true, force: true });
    assert.equal(stopped.code, 0, stopped.stderr);
  });

  it('asks about the agent without starting it', async () => {
    const status = await json<AgentStatus>(['agent', 'status']);
    assert.equal(status.state, 'stopped');
    assert.equal(existsSync(home), false);
  });

  it('doctor: tells the engine', async () => {
    const report = await json<DoctorReport>(['doctor']);
    assert.equal(report.state, 'ok');
    assert.equal(report.engine?.endpoint, process.env['DOCKER_HOST']);
    const status = await json<AgentStatus>(['agent', 'status']);
    assert.equal(status.state, 'running');
    assert.equal(status.home, home);
    const people = await petri(['doctor']);
    assert.equal(people.code, 0);
    assert.match(people.stdout, /ENGINE {2}✓/);
  });

  it('exits with 3 where there is no engine', async () => {
    const elsewhere = path.join(folder, 'no-engine');
    const env = { PETRI_HOME: elsewhere, DOCKER_HOST: `unix://${folder}/nothing.sock`, HOME: folder };
    const error = await json<ErrorValue>(['sandbox', 'create'], 3, { env });
    assert.equal(error.error.code, 'no-engine');
    assert.ok(error.error.hint);
    const report = await json<DoctorReport>(['doctor'], 3, { env });
    assert.equal(report.engine, null);
    assert.ok(report.tried.length > 0);
    assert.equal((await json<AgentStatus>(['agent', 'stop'], 0, { env })).state, 'stopped');
  });

  it('creates, lists, shows, runs commands in, and destroys a sandbox', async () => {
    const made = await json<SandboxRecord>(['sandbox', 'create', '--name', 'one', '--memory', '256m', '--pids', '100']);
    assert.equal(made.state, 'ready');
    assert.equal(made.limits.memoryBytes, 256 * 1024 ** 2);
    const list = await json<SandboxRecord[]>(['sandbox', 'list']);
    assert.deepEqual(
      list.map((s) => s.id),
      [made.id],
    );
    assert.deepEqual(await json(['sandbox', 'list', '--workspace', folder]), []);
    assert.equal((await json<SandboxRecord[]>(['sandbox', 'list', '--all', '--workspace', folder])).length, 1);
    assert.equal((await json<SandboxRecord>(['sandbox', 'show', made.id.slice(0, 6)])).id, made.id);
    assert.equal((await json<SandboxRecord>(['sandbox', 'show', 'one'])).id, made.id);

    const ran = await petri([
      'sandbox',
      'exec',
      'one',
      '--env',
      'A=b c',
      '--',
      'sh',
      '-c',
      'echo "$A --json"; echo problem >&2; exit 7',
    ]);
    assert.deepEqual(ran, { code: 7, stdout: 'b c --json\n', stderr: 'problem\n' });
    const record = await json<ExecRecord & { stdout: string; stderr: string }>(
      ['sandbox', 'exec', 'one', '--', 'sh', '-c', 'pwd; exit 3'],
      3,
    );
    assert.equal(record.state, 'exited');
    assert.equal(record.exitCode, 3);
    assert.match(record.stdout, /^\/.+\n$/);
    assert.ok(readFileSync(record.log, 'utf8').includes(record.stdout));

    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7919) & 0xff));
    const copied = await petri(['sandbox', 'exec', 'one', '--', 'sha256sum'], { input: bytes });
    const expected = spawnSync('sha256sum', { input: bytes }).stdout.toString();
    assert.equal(copied.stdout, expected);
    assert.equal((await petri(['sandbox', 'exec', 'one', '-i', '--', 'cat'])).code, 0);
    const inShell = await petri(['sandbox', 'shell', 'one'], { input: 'echo from the shell; exit 4\n' });
    assert.equal(inShell.code, 4);
    assert.equal(inShell.stdout, 'from the shell\n');
    assert.equal((await petri(['sandbox', 'exec', 'one', '--', 'no-such-command'])).code, 127);

    const gone = await json<SandboxRecord>(['sandbox', 'destroy', 'one']);
    assert.equal(gone.state, 'destroyed');
    assert.deepEqual(await json(['sandbox', 'list']), []);
  });

  it('diffs, snapshots, rolls back and forks', async () => {
    const { id } = await json<SandboxRecord>(['sandbox', 'create', '--name', 'two']);
    await petri([
      'sandbox',
      'exec',
      id,
      '--',
      'sh',
      '-c',
      'echo "// more" >> src/round.js; printf "a\\033[31mb" > "new file"',
    ]);
    const diff = await json<SandboxDiff>(['sandbox', 'diff', id]);
    assert.deepEqual(
      diff.files.map((f) => [f.path, f.status]),
      [
        ['new file', 'added'],
        ['src/round.js', 'modified'],
      ],
    );
    assert.equal(diff.patch, null);
    const patch = await petri(['sandbox', 'diff', id, '--patch']);
    assert.match(patch.stdout, /^\+\/\/ more$/m);
    assert.equal((await json<SandboxDiff>(['sandbox', 'diff', id, '--patch'])).patch, patch.stdout);
    const one = await petri(['sandbox', 'diff', id, 'src/round.js', '--name-only']);
    assert.equal(one.stdout, 'src/round.js\n');
    assert.deepEqual((await json<SandboxDiff>(['sandbox', 'diff', id, './src/'])).stat, {
      files: 1,
      added: 1,
      removed: 0,
    });
    assert.match((await petri(['sandbox', 'diff', id])).stdout, /^2 files \+2 −0/);

    const snapshot = await json<SnapshotRecord>(['sandbox', 'snapshot', id, '-m', 'with changes']);
    assert.equal(snapshot.state, 'kept');
    await petri(['sandbox', 'exec', id, '--', 'rm', '-rf', 'src']);
    const back = await json<SandboxRecord>(['sandbox', 'rollback', id, snapshot.id.slice(0, 5)]);
    assert.equal(back.currentSnapshot, snapshot.id);
    assert.equal((await petri(['sandbox', 'exec', id, '--', 'test', '-f', 'src/round.js'])).code, 0);
    const snapshots = await json<SnapshotRecord[]>(['sandbox', 'snapshots', id]);
    assert.ok(snapshots.some((s) => s.id === snapshot.id));
    assert.match((await petri(['sandbox', 'snapshots', id])).stdout, /with changes .*← here/);
    const fork = await json<SandboxRecord>(['sandbox', 'fork', id, '--snapshot', snapshot.id, '--name', 'fork']);
    assert.equal(fork.forkedFrom?.sandbox, id);
    const gone = await json<SandboxRecord[]>(['sandbox', 'destroy', id, 'fork']);
    assert.deepEqual(
      gone.map((s) => s.state),
      ['destroyed', 'destroyed'],
    );
  });

  it('ends quietly when the reader of its output goes away', async () => {
    await json(['sandbox', 'create', '--name', 'flood']);
    const command = `"${process.execPath}" "${script}" sandbox exec flood -- yes | head -n 2`;
    const result = spawnSync('bash', ['-c', `${command}; echo "\${PIPESTATUS[0]}"`], {
      cwd: workspace,
      env: { ...process.env, PETRI_HOME: home },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 30_000,
      encoding: 'utf8',
    });
    assert.equal(result.stdout, 'y\ny\n141\n');
    assert.equal(result.stderr, '');
  });

  it('gives a terminal, passes its size and the exit code, and leaves the terminal as it was', async function () {
    if (process.platform !== 'linux') return this.skip();
    const command = `stty rows 33 cols 99; stty -g > before; "${process.execPath}" "${script}" sandbox shell flood; echo "code $?"; stty -g > after; cmp before after && echo same`;
    const result = spawnSync('script', ['-qfec', command, '/dev/null'], {
      cwd: folder,
      env: { ...process.env, PETRI_HOME: home, TERM: 'xterm', SHELL: '/bin/bash' },
      input: 'stty size; exit 6\n',
      timeout: 60_000,
      encoding: 'utf8',
    });
    assert.match(result.stdout, /33 99/);
    assert.match(result.stdout, /code 6/);
    assert.match(result.stdout, /same/);
    await json(['sandbox', 'destroy', 'flood', '--discard']);
  });

  it('says what is wrong with unknown and ambiguous ids', async () => {
    for (const args of [
      ['sandbox', 'show', 'zzz'],
      ['sandbox', 'destroy', 'zzz'],
      ['sandbox', 'exec', 'zzz', '--', 'true'],
      ['experiment', 'show', 'zzz'],
      ['experiment', 'compare', 'zzz'],
      ['experiment', 'cancel', 'zzz'],
      ['promotion', 'show', 'zzz'],
      ['promotion', 'undo', 'zzz'],
      ['promote', 'zzz', '--yes'],
    ]) {
      const error = await json<ErrorValue>(args, 1);
      assert.equal(error.error.code, 'not-found', args.join(' '));
      assert.equal(error.state, 'error');
    }
    // Every sandbox's id begins with the same letter.
    const two = [await json<SandboxRecord>(['sandbox', 'create']), await json<SandboxRecord>(['sandbox', 'create'])];
    assert.equal((await json<ErrorValue>(['sandbox', 'show', 's'], 1)).error.code, 'ambiguous');
    await json(['sandbox', 'destroy', ...two.map((s) => s.id)]);
    assert.equal(
      (await json<ErrorValue>(['sandbox', 'create', '--image', 'no.such/image:1'], 1)).error.code,
      'image-missing',
    );
  });

  it('says where an experiment file is wrong', async () => {
    write('broken.experiment.json', '{\n  "task": "x",\n  "approaches": [{ "name": "a", "runn": "true" }]\n}\n');
    const error = await json<ErrorValue>(['experiment', 'run', 'broken.experiment.json'], 2);
    assert.equal(error.error.code, 'invalid-file');
    assert.match(error.error.message, /3:/);
    write('cut.experiment.json', '{ "task": ');
    assert.equal((await petri(['experiment', 'run', 'cut.experiment.json'])).code, 2);
    assert.equal((await petri(['experiment', 'run', 'missing.experiment.json'])).code, 1);
    assert.equal((await petri(['experiment', 'runn'])).code, 2);
  });

  it('runs an experiment, compares, promotes the winner and takes it back', async () => {
    const outcome = await petri(['experiment', 'run', 'fix.experiment.json', '--json']);
    assert.equal(outcome.code, 0, outcome.stderr);
    const experiment = JSON.parse(outcome.stdout) as ExperimentRecord;
    assert.equal(experiment.winner, 'sed');
    assert.equal(experiment.state, 'done');
    assert.ok(experiment.reason.includes('sed'));
    const [naive, winner] = ['naive', 'sed'].map((name) => experiment.runs.find((r) => r.name === name));
    assert.ok(naive && winner);
    assert.equal(winner.rank, 1);
    assert.deepEqual(
      winner.checks.map((c) => [c.name, c.passed, c.exitCode]),
      [
        ['tests', true, 0],
        ['size', true, 0],
      ],
    );
    assert.equal(winner.metrics['bytes'], 38);
    assert.deepEqual(winner.diff, { files: 1, added: 1, removed: 1 });
    const events = outcome.stderr
      .trim()
      .split('\n')
      .map((l) => JSON.parse(l) as { event: string; name?: string });
    assert.ok(events.some((e) => e.event === 'run' && e.name === 'sed'));

    assert.equal((await json<ExperimentRecord[]>(['experiment', 'list'])).length, 1);
    assert.equal((await json<ExperimentRecord>(['experiment', 'show', experiment.id.slice(0, 4)])).id, experiment.id);
    assert.equal((await json<ExperimentRecord>(['experiment', 'compare', experiment.id])).winner, 'sed');
    assert.equal((await json<ExperimentRecord>(['experiment', 'cancel', experiment.id])).state, 'done');
    const compared = await petri(['experiment', 'compare', experiment.id]);
    assert.match(compared.stdout, /1 +★ +sed +✓ 3\/3/);
    assert.match(compared.stdout, /round\(1\.2\) is 1/);
    assert.match((await petri(['experiment', 'show', experiment.id])).stdout, /log +\//);

    const original = readFileSync(path.join(workspace, 'src/round.js'), 'utf8');
    const unconfirmed = await json<ErrorValue>(['promote', winner.id], 4);
    assert.equal(unconfirmed.error.code, 'gate-refused');
    assert.match(unconfirmed.error.hint ?? '', /--yes/);
    const trial = await json<PromotionRecord>(['promote', winner.id, '--dry-run']);
    assert.equal(trial.dryRun, true);
    const verified = await json<PromotionRecord>(['promote', winner.id, '--to', 'verified']);
    assert.equal(verified.stages.at(-1)?.state, 'passed');
    assert.equal(readFileSync(path.join(workspace, 'src/round.js'), 'utf8'), original);
    const refused = await json<PromotionRecord>(['promote', naive.id, '--yes'], 4);
    assert.equal(refused.state, 'refused');
    const done = await json<PromotionRecord>(['promote', winner.id, '--yes']);
    assert.equal(done.state, 'done');
    assert.match(readFileSync(path.join(workspace, 'src/round.js'), 'utf8'), /round\(x\)/);
    assert.ok((await json<PromotionRecord[]>(['promotion', 'list'])).some((p) => p.id === done.id));
    assert.match((await petri(['promotion', 'show', done.id])).stdout, /verified ✓.* → local ✓/);
    assert.equal((await json<PromotionRecord>(['promotion', 'undo', done.id])).state, 'undone');
    assert.equal(readFileSync(path.join(workspace, 'src/round.js'), 'utf8'), original);

    write('src/round.js', 'exports.round = (x) => Math.trunc(x);\n');
    const conflict = await json<PromotionRecord>(['promote', winner.id, '--yes'], 4);
    assert.equal(conflict.state, 'conflict');
    assert.deepEqual(
      conflict.conflicts.map((c) => c.path),
      ['src/round.js'],
    );
    assert.match(readFileSync(path.join(workspace, 'src/round.js'), 'utf8'), /trunc/);
    write('src/round.js', original);
  });

  it('exits with 1 when no approach passes, and cancels at an interrupt', async () => {
    write(
      'none.experiment.json',
      JSON.stringify({ task: 't', approaches: [{ name: 'bad', run: 'false' }], checks: [{ name: 'c', run: 'true' }] }),
    );
    assert.equal((await json<ExperimentRecord>(['experiment', 'run', 'none.experiment.json'], 1)).winner, null);
    write(
      'long.experiment.json',
      JSON.stringify({ task: 't', approaches: [{ name: 'slow', run: 'touch here; sleep 600' }], checks: [] }),
    );
    const child = spawn(process.execPath, [script, 'experiment', 'run', 'long.experiment.json', '--json'], {
      cwd: workspace,
      env: { ...process.env, PETRI_HOME: home },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const out: Buffer[] = [];
    child.stdout.on('data', (d: Buffer) => out.push(d));
    let heard = '';
    child.stderr.on('data', (d: Buffer) => {
      const first = !heard.includes('"running"');
      heard += d.toString();
      if (first && heard.includes('"running"')) child.kill('SIGINT');
    });
    const code = await new Promise((resolve) => child.once('close', resolve));
    assert.equal(code, 1, heard);
    const experiment = JSON.parse(Buffer.concat(out).toString()) as ExperimentRecord;
    assert.equal(experiment.state, 'cancelled');
    assert.deepEqual(await json(['sandbox', 'list']), []);
  });

  it('prunes, and stops the agent', async () => {
    const { id } = await json<SandboxRecord>(['sandbox', 'create']);
    const some = await json<PruneReport>(['prune']);
    assert.equal(some.state, 'done');
    assert.deepEqual(some.sandboxes, []);
    const all = await json<PruneReport>(['prune', '--all']);
    assert.deepEqual(all.sandboxes, [id]);
    const stopped = await json<AgentStatus>(['agent', 'stop']);
    assert.equal(stopped.state, 'stopped');
    assert.match((await petri(['agent', 'status'])).stdout, /not running/);
  });

  it('answers --version at once', async () => {
    const { code, stdout } = await petri(['--version']);
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    assert.deepEqual([code, stdout], [0, `${version}\n`]);
  });
});
