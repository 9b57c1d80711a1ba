/** Records for the tests of what is drawn: whole ones, as the agent would send them. */
import type {
  CheckResult,
  DiffFile,
  ExperimentRecord,
  PromotionRecord,
  RunRecord,
  SandboxRecord,
  SnapshotRecord,
  TestCase,
} from '../../src/protocol/records';
import type { DoctorReport } from '../../src/protocol/operations';

export const now = Date.parse('2026-10-01T12:00:00.000Z');

/** A time so many seconds before {@link now}. */
export function before(seconds: number): string {
  return new Date(now - seconds * 1000).toISOString();
}

export function file(path: string, change: Partial<DiffFile> = {}): DiffFile {
  return {
    path,
    status: 'modified',
    added: 1,
    removed: 1,
    oldMode: '100644',
    newMode: '100644',
    sensitive: null,
    ...change,
  };
}

export function check(name: string, change: Partial<CheckResult> = {}): CheckResult {
  return {
    name,
    passed: true,
    exitCode: 0,
    durationMs: 900,
    tests: null,
    metrics: {},
    breach: null,
    problems: [],
    log: `/data/petri/records/runs/r/${name}.log`,
    logCut: false,
    ...change,
  };
}

/** A report of so many tests, those at `failing` failed. */
export function tests(total: number, failing: readonly number[] = []): CheckResult['tests'] {
  const cases = Array.from({ length: total }, (_, i): TestCase => ({
    name: `rounding > case ${i}`,
    outcome: failing.includes(i) ? 'failed' : 'passed',
    message: failing.includes(i) ? `\n  expected ${i}.5 to round up\n  at round.test.js` : null,
    durationMs: 1,
  }));
  return { passed: total - failing.length, failed: failing.length, skipped: 0, cases, cut: false };
}

export function run(name: string, change: Partial<RunRecord> = {}): RunRecord {
  return {
    id: `r${name.padEnd(10, '2').slice(0, 10)}`,
    experiment: 'e3k9m2p7qrs',
    name,
    state: 'passed',
    rank: 1,
    verdict: 'passes, smallest',
    step: '',
    sandbox: 's5v8xw2y4z6',
    baseTree: 'a'.repeat(40),
    tree: 'b'.repeat(40),
    exitCode: 0,
    breach: null,
    problem: null,
    diff: { files: 1, added: 1, removed: 1 },
    files: [file('src/round.js')],
    patch: '/data/petri/records/runs/r/changes.patch',
    log: '/data/petri/records/runs/r/approach.log',
    logCut: false,
    checks: [check('tests', { tests: tests(41) }), check('size', { metrics: { bytes: 1234 } })],
    metrics: { bytes: 1234 },
    artifacts: [],
    wallMs: 3100,
    cpuSeconds: 2,
    peakMemoryBytes: 96 * 1024 ** 2,
    startedAt: before(130),
    endedAt: before(120),
    ...change,
  };
}

export function experiment(change: Partial<ExperimentRecord> = {}): ExperimentRecord {
  return {
    id: 'e3k9m2p7qrs',
    name: 'fix-rounding',
    task: 'rounding is wrong for halves',
    state: 'done',
    workspace: '/home/ada/rounding',
    file: '/home/ada/rounding/fix-rounding.experiment.json',
    base: { kind: 'workspace', ref: null, tree: 'a'.repeat(40) },
    environment: {
      image: 'node:22-bookworm',
      imageDigest: `sha256:${'ab12'.repeat(16)}`,
      tree: 'a'.repeat(40),
      commit: 'c'.repeat(40),
      lockfiles: {},
      dependencies: null,
    },
    metrics: [{ name: 'bytes', better: 'lower' }],
    checks: [],
    limits: { memoryBytes: 256 * 1024 ** 2, timeoutMs: 300_000 },
    network: 'none',
    winner: 'sed',
    reason:
      '"sed" wins: both checks and all 41 tests pass, lowest bytes (1,234; "rewrite" 3,013). "rewrite" passes too, bytes 3,013. "naive" fails 2 tests and ran out of memory at 256 MB.',
    runs: [
      run('naive', {
        state: 'failed',
        rank: null,
        verdict: '2 tests fail; out of memory at 256 MB',
        breach: 'oom',
        checks: [
          check('tests', { passed: false, exitCode: 137, breach: 'oom', tests: tests(41, [3, 7]) }),
          check('size'),
        ],
        wallMs: 9800,
        cpuSeconds: 9,
        peakMemoryBytes: 256 * 1024 ** 2,
      }),
      run('sed'),
      run('rewrite', {
        rank: 2,
        verdict: 'passes, higher bytes',
        metrics: { bytes: 3013 },
        diff: { files: 12, added: 212, removed: 88 },
        files: [
          file('src/round.js', { added: 100, removed: 80 }),
          file('src/util.js', { status: 'added', added: 112, removed: 8 }),
          file('.vscode/tasks.json', { status: 'added', sensitive: 'the editor runs it' }),
        ],
        wallMs: 4000,
        cpuSeconds: 3.1,
        peakMemoryBytes: 120 * 1024 ** 2,
      }),
    ],
    problem: null,
    createdAt: before(134),
    endedAt: before(120),
    ...change,
  };
}

export function snapshot(
  id: string,
  parent: string | null,
  message: string,
  change: Partial<SnapshotRecord> = {},
): SnapshotRecord {
  return {
    id,
    sandbox: 's5v8xw2y4z6',
    message,
    parent,
    imageId: `sha256:${'1'.repeat(64)}`,
    tree: null,
    automatic: false,
    createdAt: before(600),
    state: 'kept',
    ...change,
  };
}

export function sandbox(change: Partial<SandboxRecord> = {}): SandboxRecord {
  const { environment } = experiment();
  if (environment === null) throw new Error('the sample has an environment');
  return {
    id: 's5v8xw2y4z6',
    name: 'scratch',
    state: 'ready',
    workspace: '/home/ada/rounding',
    engine: 'docker',
    tier: 'container',
    environment,
    limits: { cpus: 2, memoryBytes: 2 * 1024 ** 3, pids: 512, timeoutMs: 1_800_000 },
    network: 'none',
    user: '1000:1000',
    fileOwner: { uid: 1000, gid: 1000 },
    knownTree: 'a'.repeat(40),
    include: [],
    startImage: `sha256:${'2'.repeat(64)}`,
    generation: 1,
    containerId: 'c'.repeat(64),
    currentSnapshot: null,
    snapshots: [],
    execs: [],
    owner: { kind: 'user', id: null },
    forkedFrom: null,
    createdAt: before(900),
    expiresAt: new Date(now + 840_000).toISOString(),
    endedAt: null,
    breach: null,
    saved: null,
    problem: null,
    ...change,
  };
}

export function promotion(change: Partial<PromotionRecord> = {}): PromotionRecord {
  const { environment } = sandbox();
  return {
    id: 'p7h2n4x9k3m',
    source: { kind: 'run', id: 'rsed2222222', name: 'fix-rounding / sed' },
    workspace: '/home/ada/rounding',
    state: 'done',
    dryRun: false,
    baseTree: 'a'.repeat(40),
    resultTree: 'b'.repeat(40),
    environment,
    files: [
      file('src/round.js'),
      file('.vscode/tasks.json', {
        status: 'added',
        added: 8,
        removed: 0,
        oldMode: '000000',
        sensitive: 'the editor runs it',
      }),
    ],
    stages: [
      {
        stage: 'sandbox',
        state: 'passed',
        startedAt: before(20),
        endedAt: before(20),
        detail: '2 files changed',
        checks: [],
      },
      {
        stage: 'verified',
        state: 'passed',
        startedAt: before(20),
        endedAt: before(14),
        detail: '2 checks passed in a clean room',
        checks: [check('tests', { tests: tests(41) })],
      },
      {
        stage: 'local',
        state: 'passed',
        startedAt: before(14),
        endedAt: before(13.8),
        detail: '2 files written',
        checks: [],
      },
    ],
    conflicts: [],
    undo: { before: 'd'.repeat(40), after: 'e'.repeat(40) },
    writing: null,
    problem: null,
    createdAt: before(20),
    endedAt: before(13.8),
    ...change,
  };
}

export function doctorReport(change: Partial<DoctorReport> = {}): DoctorReport {
  return {
    id: 'o1',
    state: 'ok',
    version: '0.1.0',
    home: '/home/ada/.local/share/petri',
    engine: {
      kind: 'docker',
      name: 'Docker Engine',
      endpoint: 'unix:///var/run/docker.sock',
      foundBy: 'DOCKER_HOST',
      version: '27.3.1',
      storageDriver: 'overlay2',
      tiers: ['container', 'gvisor'],
      limits: { cpus: 'hard', memory: 'hard', pids: 'hard', timeout: 'hard', disk: 'soft' },
    },
    tried: [{ where: 'DOCKER_HOST unix:///var/run/docker.sock', result: 'answers' }],
    git: '2.39.5',
    objects: { containers: 2, images: 9, orphans: 0 },
    problems: [],
    ...change,
  };
}
