/** What the agent remembers and shows: sandboxes, snapshots, experiments, runs, promotions. JSON values only. */
import * as z from 'zod';

/** Seconds since the epoch would lose precision: every time is an ISO 8601 string in UTC. */
const time = z.string();

export const networkMode = z.enum(['none', 'open']);
export type NetworkMode = z.infer<typeof networkMode>;

export const trustTier = z.enum(['process', 'container', 'gvisor', 'microvm']);
export type TrustTier = z.infer<typeof trustTier>;

/** Bounds of one sandbox. Bytes, cores, milliseconds. A missing one is not bounded. */
export const limits = z.object({
  cpus: z.number().positive().optional(),
  memoryBytes: z.number().int().positive().optional(),
  pids: z.number().int().positive().optional(),
  /** Wall time from creation to destruction. */
  timeoutMs: z.number().int().positive().optional(),
});
export type Limits = z.infer<typeof limits>;

/** The small pinned identity of what a sandbox is made from. */
export const environmentIdentity = z.object({
  image: z.string(),
  /** Content id of the image, `sha256:…`. */
  imageDigest: z.string(),
  /** Git tree id of the workspace's captured state, or null where there is no workspace. */
  tree: z.string(),
  /** HEAD commit of the workspace's own repository at capture, or null. */
  commit: z.string().nullable(),
  /** Path → SHA-256 of each lockfile at the top of the workspace. */
  lockfiles: z.record(z.string(), z.string()),
  /** Key of the dependency layer, or null when there is none. */
  dependencies: z.string().nullable(),
});
export type EnvironmentIdentity = z.infer<typeof environmentIdentity>;

export const breach = z.enum(['oom', 'timeout', 'disk', 'pids', 'egress-denied']);
export type Breach = z.infer<typeof breach>;

export const diffFile = z.object({
  /** See `pathText` in text.ts. */
  path: z.string(),
  status: z.enum(['added', 'modified', 'deleted', 'type-changed']),
  /** Lines; null for binary files. */
  added: z.number().int().nullable(),
  removed: z.number().int().nullable(),
  /** Git file modes, `100644`, `100755`, `120000`; `000000` where the side does not exist. */
  oldMode: z.string(),
  newMode: z.string(),
  /** Why this path needs its own consent before it reaches the workspace, or null. */
  sensitive: z.string().nullable(),
});
export type DiffFile = z.infer<typeof diffFile>;

export const diffStat = z.object({
  files: z.number().int(),
  added: z.number().int(),
  removed: z.number().int(),
});
export type DiffStat = z.infer<typeof diffStat>;

export const snapshotRecord = z.object({
  id: z.string(),
  sandbox: z.string(),
  message: z.string(),
  /** The snapshot this one was made after, or null for the sandbox's start. */
  parent: z.string().nullable(),
  imageId: z.string(),
  /** Git tree id of the workspace in it; null until somebody asked for it. */
  tree: z.string().nullable(),
  /** True for those that Petri made by itself, for example before a rollback. */
  automatic: z.boolean(),
  createdAt: time,
  state: z.enum(['kept', 'removed']),
});
export type SnapshotRecord = z.infer<typeof snapshotRecord>;

export const execRecord = z.object({
  id: z.string(),
  command: z.array(z.string()),
  state: z.enum(['running', 'exited', 'interrupted']),
  exitCode: z.number().int().nullable(),
  breach: breach.nullable(),
  startedAt: time,
  endedAt: time.nullable(),
  /** Path of the log on this machine. */
  log: z.string(),
  /** True when the log was cut at its cap. */
  logCut: z.boolean(),
});
export type ExecRecord = z.infer<typeof execRecord>;

/** What is left of a sandbox's work after it went. */
export const savedWork = z.object({
  tree: z.string(),
  diff: diffStat,
  patch: z.string().nullable(),
  at: time,
});

export const sandboxRecord = z.object({
  id: z.string(),
  name: z.string(),
  state: z.enum(['creating', 'ready', 'stopped', 'destroying', 'destroyed', 'failed']),
  workspace: z.string(),
  engine: z.string(),
  tier: trustTier,
  environment: environmentIdentity,
  limits,
  network: networkMode,
  /** The user inside: `name` or `uid[:gid]`; empty for the image's default. */
  user: z.string(),
  /** The state that the bookkeeping inside starts from (a git tree id); the host has all of it. */
  knownTree: z.string(),
  /** Owner of the workspace's files inside. */
  fileOwner: z.object({ uid: z.number().int(), gid: z.number().int() }),
  /** Ignored paths that belong to the workspace. */
  include: z.array(z.string()),
  /** The image the current container was started from: the workspace layer or a snapshot. */
  startImage: z.string(),
  /** Counts the containers this sandbox had: 1, and one more for each rollback. */
  generation: z.number().int(),
  containerId: z.string().nullable(),
  /** The snapshot that the present state comes after. */
  currentSnapshot: z.string().nullable(),
  snapshots: z.array(snapshotRecord),
  execs: z.array(execRecord),
  /** For whom it was made. */
  owner: z.object({ kind: z.enum(['user', 'experiment', 'promotion']), id: z.string().nullable() }),
  /** The sandbox and snapshot it was forked from. */
  forkedFrom: z.object({ sandbox: z.string(), snapshot: z.string() }).nullable(),
  createdAt: time,
  expiresAt: time.nullable(),
  endedAt: time.nullable(),
  breach: breach.nullable(),
  saved: savedWork.nullable(),
  /** Why it failed, for people. */
  problem: z.string().nullable(),
});
export type SandboxRecord = z.infer<typeof sandboxRecord>;

export const testCase = z.object({
  name: z.string(),
  outcome: z.enum(['passed', 'failed', 'skipped']),
  /** First lines of the failure, bounded. */
  message: z.string().nullable(),
  durationMs: z.number().nullable(),
});
export type TestCase = z.infer<typeof testCase>;

export const testReport = z.object({
  passed: z.number().int(),
  failed: z.number().int(),
  skipped: z.number().int(),
  /** Every case, up to a bound; `cut` says when there were more. */
  cases: z.array(testCase),
  cut: z.boolean(),
});
export type TestReport = z.infer<typeof testReport>;

export const checkResult = z.object({
  name: z.string(),
  passed: z.boolean(),
  exitCode: z.number().int().nullable(),
  durationMs: z.number(),
  tests: testReport.nullable(),
  metrics: z.record(z.string(), z.number()),
  breach: breach.nullable(),
  /** What went wrong beside the exit code: a report that is missing, a metric that was not found. */
  problems: z.array(z.string()),
  /** Path of the log on this machine. */
  log: z.string().nullable(),
  logCut: z.boolean(),
});
export type CheckResult = z.infer<typeof checkResult>;

export const artifactRecord = z.object({
  path: z.string(),
  bytes: z.number().int(),
  sha256: z.string(),
  /** Where it is kept on this machine. */
  file: z.string(),
});
export type ArtifactRecord = z.infer<typeof artifactRecord>;

export const runState = z.enum([
  'waiting',
  'preparing',
  'running',
  'checking',
  'passed',
  'failed',
  'cancelled',
  'interrupted',
]);
export type RunState = z.infer<typeof runState>;

export const runRecord = z.object({
  id: z.string(),
  experiment: z.string(),
  name: z.string(),
  state: runState,
  /** 1 is best; null for a run that can't win. */
  rank: z.number().int().nullable(),
  /** Why it stands where it stands, one sentence. */
  verdict: z.string(),
  /** The step at hand, for a progress line. */
  step: z.string(),
  sandbox: z.string().nullable(),
  baseTree: z.string(),
  tree: z.string().nullable(),
  /** Exit code of the approach's own command; null for a patch or when it did not end. */
  exitCode: z.number().int().nullable(),
  breach: breach.nullable(),
  problem: z.string().nullable(),
  diff: diffStat.nullable(),
  files: z.array(diffFile),
  patch: z.string().nullable(),
  log: z.string().nullable(),
  logCut: z.boolean(),
  checks: z.array(checkResult),
  metrics: z.record(z.string(), z.number()),
  artifacts: z.array(artifactRecord),
  wallMs: z.number().nullable(),
  cpuSeconds: z.number().nullable(),
  peakMemoryBytes: z.number().nullable(),
  startedAt: time.nullable(),
  endedAt: time.nullable(),
});
export type RunRecord = z.infer<typeof runRecord>;

/** A number by which runs are ranked, and which way is better. */
export const metricDeclaration = z.object({ name: z.string(), better: z.enum(['lower', 'higher']) });
export type MetricDeclaration = z.infer<typeof metricDeclaration>;

export const experimentRecord = z.object({
  id: z.string(),
  name: z.string(),
  task: z.string(),
  state: z.enum(['running', 'done', 'cancelled', 'interrupted', 'failed']),
  workspace: z.string(),
  file: z.string().nullable(),
  base: z.object({ kind: z.enum(['workspace', 'commit', 'snapshot']), ref: z.string().nullable(), tree: z.string() }),
  environment: environmentIdentity.nullable(),
  metrics: z.array(metricDeclaration),
  /** The checks as declared, for promotion's clean room. Shape: `experimentFile.checks`. */
  checks: z.array(z.unknown()),
  limits,
  network: networkMode,
  winner: z.string().nullable(),
  reason: z.string(),
  runs: z.array(runRecord),
  problem: z.string().nullable(),
  createdAt: time,
  endedAt: time.nullable(),
});
export type ExperimentRecord = z.infer<typeof experimentRecord>;

/** The ladder. Later stages (`tested`, `staging`, `production`) have their place here and come with their gates. */
export const stageName = z.enum(['sandbox', 'verified', 'local', 'tested', 'staging', 'production']);
export type StageName = z.infer<typeof stageName>;

export const stageResult = z.object({
  stage: stageName,
  state: z.enum(['running', 'passed', 'refused', 'undone']),
  startedAt: time,
  endedAt: time.nullable(),
  /** What was done or why the gate refused, one sentence. */
  detail: z.string(),
  checks: z.array(checkResult),
});
export type StageResult = z.infer<typeof stageResult>;

export const promotionRecord = z.object({
  id: z.string(),
  source: z.object({ kind: z.enum(['run', 'sandbox']), id: z.string(), name: z.string() }),
  workspace: z.string(),
  state: z.enum(['running', 'done', 'refused', 'conflict', 'undone', 'interrupted']),
  dryRun: z.boolean(),
  baseTree: z.string(),
  resultTree: z.string(),
  environment: environmentIdentity,
  files: z.array(diffFile),
  stages: z.array(stageResult),
  /** Paths that can't be merged, with the reason. */
  conflicts: z.array(z.object({ path: z.string(), reason: z.string() })),
  /** The undo point: the workspace's tree before and after `local`. */
  undo: z.object({ before: z.string(), after: z.string() }).nullable(),
  /** A write to the workspace that has begun and not ended: what a restarted agent finishes or takes back. */
  writing: z.object({ before: z.string(), after: z.string(), purpose: z.enum(['apply', 'undo']) }).nullable(),
  problem: z.string().nullable(),
  createdAt: time,
  endedAt: time.nullable(),
});
export type PromotionRecord = z.infer<typeof promotionRecord>;

/** A change that every watching client hears of. */
export type AgentEvent =
  | { kind: 'sandbox'; record: SandboxRecord }
  | { kind: 'experiment'; record: ExperimentRecord }
  | { kind: 'promotion'; record: PromotionRecord };
