/**
 * The command line from arguments to exit code. The agent is a scripted stand-in here: what is tested is which operation is called
 * with which input, what goes where, and how it ends. The real agent is in endToEnd.test.ts.
 */
import assert from 'node:assert/strict';
import { PassThrough, Writable } from 'node:stream';
import { describe, it } from 'mocha';
import type { ExecIo, ExecSession, PetriClient } from '../../src/client/client';
import type { Host } from '../../src/cli/host';
import { run } from '../../src/cli/program';
import { PetriError } from '../../src/protocol/errors';
import type { ExecInput, Input, OperationName, Output } from '../../src/protocol/operations';
import type { AgentEvent, ExecRecord } from '../../src/protocol/records';
import * as sample from './samples';

type Answers = { [N in OperationName]?: (input: Input<N>) => Output<N> | Promise<Output<N>> };

interface Standin {
  answers: Answers;
  /** What a command does with its streams; gives its exit code. */
  exec?: (
    input: Omit<ExecInput, 'stream'>,
    io: ExecIo,
    stdin: AsyncIterable<Buffer>,
    signal: AbortSignal | undefined,
  ) => Promise<number>;
  running?: boolean;
}

interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
  calls: [string, unknown][];
  raw: boolean[];
}

interface Setting extends Standin {
  env?: Record<string, string>;
  stdin?: string;
  tty?: boolean;
  /** What the person at the terminal types. */
  typed?: string;
  /** Gets the way to send a signal. */
  onStart?: (signal: (s: NodeJS.Signals) => void, emit: (e: AgentEvent) => void) => void;
}

const record: ExecRecord = {
  id: 'x1',
  command: [],
  state: 'exited',
  exitCode: 0,
  breach: null,
  startedAt: sample.before(1),
  endedAt: sample.before(0),
  log: '/l',
  logCut: false,
};

async function petri(argv: string[], setting: Setting = { answers: {} }): Promise<Outcome> {
  const calls: [string, unknown][] = [];
  const raw: boolean[] = [];
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  const sink = (to: Buffer[]): Writable =>
    new Writable({ write: (chunk: Buffer, _, done) => (to.push(chunk), done()) });
  const watchers = new Set<(e: AgentEvent) => void>();
  const client: PetriClient = {
    agent: { pid: 1, version: '0' },
    call: async (name, input) => {
      calls.push([name, input]);
      const answer = setting.answers[name];
      if (!answer) throw new PetriError('internal', `The stand-in has no answer for ${name}.`);
      return answer(input);
    },
    exec: (input, io, options): ExecSession => {
      calls.push(['exec', input]);
      const stdin = new PassThrough();
      const result = (setting.exec ?? (async () => 0))(input, io, stdin, options?.signal).then((exitCode) => ({
        ...record,
        exitCode,
      }));
      return { result, write: async (d) => void stdin.write(d), end: () => void stdin.end(), resize: () => undefined };
    },
    watch: (listener) => {
      watchers.add(listener);
      return { dispose: () => watchers.delete(listener) };
    },
    onClose: () => undefined,
    dispose: () => undefined,
  };
  const stdin = Object.assign(
    new PassThrough(),
    setting.tty ? { isTTY: true, setRawMode: (on: boolean) => raw.push(on) } : {},
  );
  if (setting.stdin !== undefined) stdin.end(setting.stdin);
  if (setting.typed !== undefined) stdin.write(setting.typed);
  const signals = new Set<(s: NodeJS.Signals) => void>();
  const host: Host = {
    stdin,
    stdinPiped: setting.stdin !== undefined,
    stdout: Object.assign(sink(out), setting.tty ? { isTTY: true, columns: 100, rows: 30 } : {}),
    stderr: Object.assign(sink(err), setting.tty ? { isTTY: true, columns: 100, rows: 30 } : {}),
    env: { NO_COLOR: '1', TERM: 'xterm', ...setting.env },
    cwd: '/work',
    connect: async (options) => {
      calls.push(['connect', { start: options.start, home: options.home }]);
      if (setting.running === false && options.start === false)
        throw new PetriError('agent-unreachable', 'The agent is not running.');
      return client;
    },
    onSignal: (listener) => {
      signals.add(listener);
      return { dispose: () => signals.delete(listener) };
    },
    leave: (code) => calls.push(['leave', code]),
    atExit: () => ({ dispose: () => undefined }),
    now: () => sample.now,
  };
  setting.onStart?.(
    (s) => signals.forEach((l) => l(s)),
    (e) => watchers.forEach((l) => l(e)),
  );
  const code = await run(argv, host);
  return { code, stdout: Buffer.concat(out).toString(), stderr: Buffer.concat(err).toString(), calls, raw };
}

function json(outcome: Outcome): Record<string, unknown> {
  return JSON.parse(outcome.stdout) as Record<string, unknown>;
}

function operations(outcome: Outcome): [string, unknown][] {
  return outcome.calls.filter(([name]) => name !== 'connect');
}

describe('cli: usage', () => {
  it('prints help with no arguments, and for a group without a subcommand', async () => {
    for (const argv of [[], ['--help'], ['sandbox'], ['promotion'], ['sandbox', 'exec', '--help']]) {
      const { code, stdout, stderr } = await petri(argv);
      assert.equal(code, 0, argv.join(' '));
      assert.match(stdout, /^Usage: petri/);
      assert.equal(stderr, '');
    }
  });

  it('answers --version', async () => {
    const { code, stdout } = await petri(['--version']);
    assert.equal(code, 0);
    assert.match(stdout, /^\d+\.\d+\.\d+\n$/);
  });

  const mistakes: [string[], RegExp][] = [
    [['sandbx'], /Unknown command 'sandbx'\.\n {2}Did you mean sandbox\?/],
    [['sandbox', 'creat'], /Did you mean create\?/],
    [['sandbox', 'create', '--memroy', '1g'], /Unknown option '--memroy'\.\n {2}Did you mean --memory\?/],
    [['sandbox', 'create', '--memory', 'lots'], /such as 512m or 2g/],
    [['sandbox', 'create', '--cpus', '-1'], /number of cores/],
    [['sandbox', 'create', '--cpus', ''], /number of cores/],
    [['sandbox', 'create', '--pids', '1.5'], /whole number/],
    [['sandbox', 'create', '--timeout', 'soon'], /such as 30s, 5m or 1h/],
    [['sandbox', 'create', '--network', 'lan'], /none, open/],
    [['sandbox', 'show'], /Missing required argument 'id'/],
    [['sandbox', 'show', 'a', 'b'], /Too many arguments/],
    [['sandbox', 'show', ''], /An argument is empty/],
    [['sandbox', 'exec', 'a'], /Missing required argument 'command'/],
    [['sandbox', 'exec', 'a', '--env', '=x', '--', 'b'], /NAME=VALUE/],
    [['sandbox', 'exec', 'a', '--env', 'NOT_SET_HERE', '--', 'b'], /is not set here/],
    [['sandbox', 'diff', 'a', '--stat', '--patch'], /cannot be used with/],
    [['promote', 'a', '--to', 'moon'], /verified, local/],
    [['experiment', 'run'], /Missing required argument 'file'/],
  ];
  for (const [argv, message] of mistakes) {
    it(`wrong usage: petri ${argv.join(' ')}`, async () => {
      const people = await petri(argv);
      assert.equal(people.code, 2);
      assert.equal(people.stdout, '');
      assert.match(people.stderr, message);
      assert.deepEqual(operations(people), []);
    });
  }

  it('gives a mistake as one JSON value with --json, wherever it stands', async () => {
    for (const argv of [
      ['--json', 'sandbox', 'show'],
      ['sandbox', 'show', '--json'],
      ['sandbox', '--json', 'nonsense'],
    ]) {
      const outcome = await petri(argv);
      assert.equal(outcome.code, 2);
      assert.deepEqual(Object.keys(json(outcome)), ['id', 'state', 'error']);
      assert.equal((json(outcome)['error'] as { code: string }).code, 'usage');
      assert.equal(outcome.stderr, '');
    }
  });

  it('takes the common options before and after the subcommand', async () => {
    const answers: Answers = { 'sandbox.list': () => [] };
    for (const argv of [
      ['--json', '--home', 'h', '--workspace', 'w', 'sandbox', 'list'],
      ['sandbox', 'list', '--json', '--home', 'h', '--workspace', 'w'],
    ]) {
      const outcome = await petri(argv, { answers });
      assert.equal(outcome.code, 0);
      assert.deepEqual(json(outcome), []);
      assert.deepEqual(outcome.calls, [
        ['connect', { start: true, home: '/work/h' }],
        ['sandbox.list', { all: false, workspace: '/work/w' }],
      ]);
    }
  });
});

describe('cli: errors', () => {
  const codes: [PetriError, number][] = [
    [new PetriError('not-found', 'There is none.'), 1],
    [new PetriError('invalid-file', 'line 3: expected a list', { hint: 'See the schema.' }), 2],
    [new PetriError('no-engine', 'No engine.'), 3],
    [new PetriError('conflict', 'Conflict.'), 4],
    [new PetriError('sensitive-paths', 'Hooks.', { data: { paths: ['.git'] } }), 4],
  ];
  for (const [error, code] of codes) {
    it(`${error.code} exits with ${code}`, async () => {
      const answers: Answers = { 'sandbox.show': () => Promise.reject(error) };
      const people = await petri(['sandbox', 'show', 'x'], { answers });
      assert.equal(people.code, code);
      assert.ok(people.stderr.includes(error.message));
      const machine = await petri(['sandbox', 'show', 'x', '--json'], { answers });
      assert.equal(machine.code, code);
      assert.deepEqual(json(machine), {
        id: null,
        state: 'error',
        error: { code: error.code, message: error.message, hint: error.hint ?? null, data: error.data },
      });
    });
  }

  it('shows no control character of a message', async () => {
    const answers: Answers = {
      'sandbox.show': () => Promise.reject(new PetriError('not-found', 'no \x1b[31mred', { hint: '\x07beep' })),
    };
    const { stderr } = await petri(['sandbox', 'show', 'x'], { answers });
    assert.match(stderr, /no \\x1b\[31mred/);
    assert.match(stderr, /\\x07beep/);
  });
});

describe('cli: what is called', () => {
  it('creates with limits in bytes and milliseconds', async () => {
    const outcome = await petri(
      [
        'sandbox',
        'create',
        '--name',
        'n',
        '--image',
        'i',
        '--cpus',
        '0.5',
        '--memory',
        '512m',
        '--pids',
        '64',
        '--timeout',
        '30m',
        '--network',
        'open',
        '--json',
      ],
      {
        answers: { 'sandbox.create': () => sample.sandbox() },
      },
    );
    assert.equal(outcome.code, 0);
    assert.deepEqual(operations(outcome), [
      [
        'sandbox.create',
        {
          workspace: '/work',
          name: 'n',
          image: 'i',
          limits: { cpus: 0.5, memoryBytes: 512 * 1024 ** 2, pids: 64, timeoutMs: 1_800_000 },
          network: 'open',
        },
      ],
    ]);
    assert.equal(json(outcome)['state'], 'ready');
  });

  it('gives an object for one destroyed sandbox and a list for several', async () => {
    const gone = sample.sandbox({ state: 'destroyed' });
    const one = await petri(['sandbox', 'destroy', 'a', '--json', '--discard'], {
      answers: { 'sandbox.destroy': () => [gone] },
    });
    assert.equal(json(one)['state'], 'destroyed');
    assert.deepEqual(operations(one), [['sandbox.destroy', { sandboxes: ['a'], discard: true }]]);
    const two = await petri(['sandbox', 'destroy', 'a', 'b', '--json'], {
      answers: { 'sandbox.destroy': () => [gone, gone] },
    });
    assert.ok(Array.isArray(json(two)));
  });

  it('prints a patch as it is to a pipe and visible to a terminal', async () => {
    const patch = 'diff --git a/x b/x\n+new\x1b[31m\r\n';
    const answers: Answers = {
      'sandbox.diff': () => ({
        id: 's1',
        state: 'ready',
        baseTree: '',
        tree: '',
        stat: { files: 1, added: 1, removed: 0 },
        files: [sample.file('x')],
        patch,
        patchCut: false,
      }),
    };
    assert.equal((await petri(['sandbox', 'diff', 's1', '--patch', 'x'], { answers })).stdout, patch);
    assert.match(
      (await petri(['sandbox', 'diff', 's1', '--patch'], { answers, tty: true })).stdout,
      /\+new\\x1b\[31m\\r\n/,
    );
    assert.equal((await petri(['sandbox', 'diff', 's1', '--name-only'], { answers })).stdout, 'x\n');
    assert.match((await petri(['sandbox', 'diff', 's1'], { answers })).stdout, /1 file \+1 −0\n\n {2}M {2}x/);
  });

  it('never starts the agent only to ask about it or to stop it', async () => {
    for (const name of ['status', 'stop']) {
      const outcome = await petri(['agent', name, '--json'], { answers: {}, running: false });
      assert.equal(outcome.code, 0);
      assert.equal(json(outcome)['state'], 'stopped');
      assert.deepEqual(outcome.calls, [['connect', { start: false, home: undefined }]]);
    }
  });

  it('tells by doctor’s exit code whether there is an engine and whether all is well', async () => {
    const code = async (change: Parameters<typeof sample.doctorReport>[0]): Promise<number> =>
      (await petri(['doctor', '--json'], { answers: { doctor: () => sample.doctorReport(change) } })).code;
    assert.equal(await code({}), 0);
    assert.equal(await code({ engine: null, state: 'trouble' }), 3);
    assert.equal(await code({ state: 'trouble', problems: [{ message: 'm', hint: 'h' }] }), 1);
  });
});

describe('cli: exec', () => {
  it('passes output, exit code and everything after -- through', async () => {
    const outcome = await petri(
      [
        'sandbox',
        'exec',
        's1',
        '--env',
        'A=1',
        '--env',
        'TERM',
        '--cwd',
        'sub',
        '--timeout',
        '5s',
        '--',
        'ls',
        '--json',
        '-la',
        '--',
        'x',
      ],
      {
        answers: {},
        exec: async (_, io) => {
          await io.stdout(Buffer.from([0xff, 0x1b, 0x0a]));
          await io.stderr(Buffer.from('warning\n'));
          return 42;
        },
      },
    );
    assert.equal(outcome.code, 42);
    assert.equal(Buffer.from(outcome.stdout).includes(0x1b), true);
    assert.equal(outcome.stderr, 'warning\n');
    assert.deepEqual(operations(outcome), [
      [
        'exec',
        {
          sandbox: 's1',
          command: ['ls', '--json', '-la', '--', 'x'],
          tty: false,
          stdin: false,
          env: { A: '1', TERM: 'xterm' },
          cwd: 'sub',
          timeoutMs: 5000,
        },
      ],
    ]);
  });

  it('pipes standard input when there is one, to its end', async () => {
    const outcome = await petri(['sandbox', 'exec', 's1', '--', 'cat'], {
      answers: {},
      stdin: 'hello',
      exec: async (input, io, stdin) => {
        assert.equal(input.stdin, true);
        for await (const chunk of stdin) await io.stdout(chunk);
        return 0;
      },
    });
    assert.equal(outcome.stdout, 'hello');
  });

  it('with --json prints one value with the record and its output, and the command’s exit code', async () => {
    const outcome = await petri(['sandbox', 'exec', 's1', '--json', '--', 'false'], {
      answers: {},
      exec: async (_, io) => {
        await io.stdout(Buffer.from('out'));
        await io.stderr(Buffer.from('err'));
        return 1;
      },
    });
    assert.equal(outcome.code, 1);
    const value = json(outcome);
    assert.equal(value['stdout'], 'out');
    assert.equal(value['stderr'], 'err');
    assert.equal(value['exitCode'], 1);
    assert.equal(value['outputCut'], false);
    assert.equal(outcome.stderr, '');
  });

  it('keeps only the end of a flood in the JSON value', async () => {
    const outcome = await petri(['sandbox', 'exec', 's1', '--json', '--', 'yes'], {
      answers: {},
      exec: async (_, io) => {
        for (let i = 0; i < 64; i++) await io.stdout(Buffer.alloc(64 * 1024, 97));
        await io.stdout(Buffer.from('END'));
        return 0;
      },
    });
    const value = json(outcome);
    assert.equal(value['outputCut'], true);
    assert.equal((value['stdout'] as string).length, 256 * 1024);
    assert.match(value['stdout'] as string, /END$/);
  });

  it('makes the terminal raw only while the command has it', async () => {
    const outcome = await petri(['sandbox', 'shell', 's1'], {
      answers: {},
      tty: true,
      exec: async (input) => (input.tty ? 7 : 1),
    });
    assert.equal(outcome.code, 7);
    assert.deepEqual(outcome.raw, [true, false]);
    const failed = await petri(['sandbox', 'shell', 's1'], {
      answers: {},
      tty: true,
      exec: () => Promise.reject(new PetriError('engine-gone', 'gone')),
    });
    assert.equal(failed.code, 3);
    assert.deepEqual(failed.raw, [true, false]);
  });

  it('cancels at the first Ctrl-C and leaves at the second', async () => {
    let send: (s: NodeJS.Signals) => void = () => undefined;
    const outcome = await petri(['sandbox', 'exec', 's1', '--', 'sleep', '99'], {
      answers: {},
      onStart: (signal) => (send = signal),
      exec: (_, __, ___, signal) =>
        new Promise((_resolve, reject) => {
          signal?.addEventListener('abort', () => {
            send('SIGINT');
            reject(new PetriError('cancelled', 'The command was cancelled.'));
          });
          send('SIGINT');
        }),
    });
    assert.equal(outcome.code, 1);
    assert.deepEqual(outcome.calls.at(-1), ['leave', 130]);
    assert.match(outcome.stderr, /Press Ctrl-C again/);
  });
});

describe('cli: experiment run', () => {
  const running = sample.experiment({
    state: 'running',
    winner: null,
    runs: [sample.run('sed', { state: 'waiting', rank: null })],
  });

  it('appends a line for each change where nothing can be drawn over, and exits 0 with a winner', async () => {
    let emit: (e: AgentEvent) => void = () => undefined;
    const outcome = await petri(['experiment', 'run', 'a.experiment.json', '--keep'], {
      onStart: (_, e) => (emit = e),
      answers: {
        'experiment.run': () => running,
        'experiment.wait': () => {
          emit({
            kind: 'experiment',
            record: { ...running, runs: [sample.run('sed', { state: 'running', step: 'npm test', rank: null })] },
          });
          emit({
            kind: 'experiment',
            record: { ...running, id: 'eother', runs: [sample.run('other', { state: 'running' })] },
          });
          return sample.experiment();
        },
      },
    });
    assert.equal(outcome.code, 0);
    assert.match(outcome.stderr, /sed: running\n/);
    assert.doesNotMatch(outcome.stderr, /other/);
    assert.match(outcome.stdout, /"sed" wins/);
    assert.deepEqual(operations(outcome), [
      ['experiment.run', { workspace: '/work', file: '/work/a.experiment.json', keep: true }],
      ['experiment.wait', { experiment: running.id }],
    ]);
  });

  it('exits 1 without a winner and prints the whole record as JSON, events as lines on standard error', async () => {
    const end = sample.experiment({ winner: null, reason: 'No winner.' });
    let emit: (e: AgentEvent) => void = () => undefined;
    const outcome = await petri(['experiment', 'run', 'a', '--json'], {
      onStart: (_, e) => (emit = e),
      answers: {
        'experiment.run': () => running,
        'experiment.wait': () => {
          emit({
            kind: 'experiment',
            record: { ...running, runs: [sample.run('sed', { state: 'running', step: 's' })] },
          });
          return end;
        },
      },
    });
    assert.equal(outcome.code, 1);
    assert.deepEqual(json(outcome), JSON.parse(JSON.stringify(end)));
    for (const l of outcome.stderr.trim().split('\n'))
      assert.equal(typeof (JSON.parse(l) as { event: string }).event, 'string');
  });

  it('cancels the experiment at Ctrl-C, prints how it ended and exits 1', async () => {
    let send: (s: NodeJS.Signals) => void = () => undefined;
    const stopped = sample.experiment({ state: 'cancelled', winner: null, reason: 'Cancelled.' });
    let finish: (e: typeof stopped) => void = () => undefined;
    const outcome = await petri(['experiment', 'run', 'a', '--json'], {
      onStart: (signal) => (send = signal),
      answers: {
        'experiment.run': () => running,
        'experiment.wait': () =>
          new Promise((resolve) => {
            finish = resolve;
            setImmediate(() => send('SIGINT'));
          }),
        'experiment.cancel': () => {
          finish(stopped);
          return stopped;
        },
      },
    });
    assert.equal(outcome.code, 1);
    assert.equal(json(outcome)['state'], 'cancelled');
  });

  it('leaves the experiment alone when the terminal is closed', async () => {
    let send: (s: NodeJS.Signals) => void = () => undefined;
    const outcome = await petri(['experiment', 'run', 'a'], {
      onStart: (signal) => (send = signal),
      answers: {
        'experiment.run': () => running,
        'experiment.wait': () => {
          send('SIGHUP');
          return sample.experiment();
        },
      },
    });
    assert.deepEqual(
      operations(outcome).map(([name]) => name),
      ['experiment.run', 'experiment.wait', 'leave'],
    );
  });

  it('draws over its lines on a terminal and clears them, but not with CI or TERM=dumb', async () => {
    const answers: Answers = { 'experiment.run': () => running, 'experiment.wait': () => sample.experiment() };
    const drawn = await petri(['experiment', 'run', 'a'], { answers, tty: true });
    assert.match(drawn.stderr, /\x1b\[J/);
    assert.match(drawn.stderr, /\x1b\[\?25h$/);
    for (const env of [{ CI: 'true' }, { TERM: 'dumb' }]) {
      const plain = await petri(['experiment', 'run', 'a'], { answers, tty: true, env });
      assert.doesNotMatch(plain.stderr + plain.stdout, /\x1b/);
    }
  });
});

describe('cli: promote', () => {
  const trial = sample.promotion({ dryRun: true, undo: null, files: [sample.file('src/round.js')] });
  const done = sample.promotion({ files: trial.files });

  it('refuses without --yes where nobody can be asked', async () => {
    for (const flags of [[], ['--json']]) {
      const outcome = await petri(['promote', 'r1', ...flags], { answers: {} });
      assert.equal(outcome.code, 4);
      assert.deepEqual(operations(outcome), []);
      assert.match(outcome.stdout + outcome.stderr, /--yes/);
    }
  });

  it('asks after showing a dry run, and takes only yes for yes', async () => {
    const answers: Answers = { promote: (input) => (input.dryRun ? trial : done) };
    const yes = await petri(['promote', 'r1'], { answers, tty: true, typed: 'y\n' });
    assert.equal(yes.code, 0);
    assert.deepEqual(
      operations(yes).map(([, input]) => (input as { dryRun: boolean }).dryRun),
      [true, false],
    );
    assert.match(yes.stdout, /petri promotion undo/);
    const no = await petri(['promote', 'r1'], { answers, tty: true, typed: '\n' });
    assert.equal(no.code, 4);
    assert.equal(operations(no).length, 1);
  });

  it('does not ask about sensitive files that were not allowed', async () => {
    const sensitive = { ...trial, files: [sample.file('.envrc', { sensitive: 'direnv runs it' })] };
    const outcome = await petri(['promote', 'r1'], { answers: { promote: () => sensitive }, tty: true });
    assert.equal(outcome.code, 4);
    assert.match(outcome.stderr, /--allow-sensitive/);
    const allowed = await petri(['promote', 'r1', '--yes', '--allow-sensitive'], { answers: { promote: () => done } });
    assert.deepEqual(operations(allowed), [
      ['promote', { source: 'r1', to: 'local', allowSensitive: true, dryRun: false }],
    ]);
  });

  it('needs no yes for what writes nothing, and exits 4 for conflict and refusal', async () => {
    const end = async (change: Parameters<typeof sample.promotion>[0], flags: string[]): Promise<number> =>
      (await petri(['promote', 'r1', ...flags], { answers: { promote: () => sample.promotion(change) } })).code;
    assert.equal(await end({ dryRun: true }, ['--dry-run']), 0);
    assert.equal(await end({}, ['--to', 'verified']), 0);
    assert.equal(await end({ state: 'conflict' }, ['--yes']), 4);
    assert.equal(await end({ state: 'refused' }, ['--yes']), 4);
    assert.equal(await end({ state: 'interrupted' }, ['--yes']), 1);
  });
});
