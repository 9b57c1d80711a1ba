/**
 * The one table of operations: what the agent can do, the shapes in and out, and who may call it. The agent serves it,
 * the client types its calls by it, and the command line and MCP take their words from it.
 */
import * as z from 'zod';
import {
  diffFile,
  diffStat,
  execRecord,
  experimentRecord,
  limits,
  networkMode,
  promotionRecord,
  sandboxRecord,
  snapshotRecord,
  stageName,
} from './records';

export interface Operation<I extends z.ZodType = z.ZodType, O extends z.ZodType = z.ZodType> {
  input: I;
  output: O;
  /** What it is for, one sentence. */
  summary: string;
  /** True when it removes or overwrites something. */
  destructive: boolean;
  /** May the command line and MCP offer it. */
  cli: boolean;
  mcp: boolean;
}

function op<I extends z.ZodType, O extends z.ZodType>(
  summary: string,
  input: I,
  output: O,
  flags: Partial<Pick<Operation, 'destructive' | 'cli' | 'mcp'>> = {},
): Operation<I, O> {
  return { summary, input, output, destructive: false, cli: true, mcp: true, ...flags };
}

/** An id, a unique prefix of one, or a sandbox's name. */
const ref = z.string().min(1).max(200);
const workspace = z.string().min(1).max(4096);

/** What the caller gives for one execution. `stream` names the notifications that carry its output and input. */
const execInput = z.object({
  sandbox: ref,
  command: z.array(z.string()).min(1),
  tty: z.boolean().default(false),
  /** Whether the caller will send input; else the command reads an empty one. */
  stdin: z.boolean().default(false),
  env: z.record(z.string(), z.string()).default({}),
  /** Folder inside, absolute or relative to the workspace in the sandbox. */
  cwd: z.string().optional(),
  size: z.object({ columns: z.number().int().positive(), rows: z.number().int().positive() }).optional(),
  timeoutMs: z.number().int().positive().optional(),
  stream: z.string().min(1),
});
export type ExecInput = z.input<typeof execInput>;

export const engineReport = z.object({
  kind: z.string(),
  name: z.string(),
  endpoint: z.string(),
  /** Which rule of the search found it. */
  foundBy: z.string(),
  version: z.string(),
  storageDriver: z.string(),
  tiers: z.array(z.string()),
  /** Per limit: `hard`, `soft` or `missing`. */
  limits: z.record(z.string(), z.enum(['hard', 'soft', 'missing'])),
});
export type EngineReport = z.infer<typeof engineReport>;

export const doctorReport = z.object({
  id: z.string(),
  state: z.enum(['ok', 'trouble']),
  version: z.string(),
  home: z.string(),
  engine: engineReport.nullable(),
  /** Each place that was looked at, and what was there. */
  tried: z.array(z.object({ where: z.string(), result: z.string() })),
  git: z.string(),
  /** Objects in the engine that carry Petri's label, and those of them that nothing alive owns. */
  objects: z.object({ containers: z.number(), images: z.number(), orphans: z.number() }),
  problems: z.array(z.object({ message: z.string(), hint: z.string() })),
});
export type DoctorReport = z.infer<typeof doctorReport>;

export const agentStatus = z.object({
  id: z.string(),
  state: z.enum(['running', 'stopped']),
  pid: z.number().nullable(),
  version: z.string(),
  protocol: z.number(),
  home: z.string(),
  clients: z.number(),
  sandboxes: z.number(),
  experiments: z.number(),
  rssBytes: z.number(),
  startedAt: z.string().nullable(),
});
export type AgentStatus = z.infer<typeof agentStatus>;

export const sandboxDiff = z.object({
  id: z.string(),
  state: z.string(),
  baseTree: z.string(),
  tree: z.string(),
  stat: diffStat,
  files: z.array(diffFile),
  /** Unified diff, as asked for; null when it was not. */
  patch: z.string().nullable(),
  patchCut: z.boolean(),
});
export type SandboxDiff = z.infer<typeof sandboxDiff>;

const pruneReport = z.object({
  id: z.string(),
  state: z.literal('done'),
  containers: z.number(),
  images: z.number(),
  sandboxes: z.array(z.string()),
  bytes: z.number(),
});
export type PruneReport = z.infer<typeof pruneReport>;

const createInput = z.object({
  workspace,
  name: z.string().min(1).max(63).optional(),
  image: z.string().min(1).optional(),
  limits: limits.optional(),
  network: networkMode.optional(),
  tier: z.enum(['container', 'gvisor', 'microvm']).optional(),
});

export const operations = {
  'agent.status': op('Tell how the agent is', z.object({}), agentStatus, { mcp: false }),
  'agent.stop': op('Stop the agent; sandboxes stay', z.object({}), agentStatus, { mcp: false }),
  doctor: op('Find the engine and tell what works', z.object({ workspace: workspace.optional() }), doctorReport),
  'sandbox.create': op('Create a sandbox from the workspace as it is now', createInput, sandboxRecord),
  'sandbox.list': op(
    'List sandboxes',
    z.object({ workspace: workspace.optional(), all: z.boolean().default(false) }),
    z.array(sandboxRecord),
  ),
  'sandbox.show': op('Show one sandbox', z.object({ sandbox: ref }), sandboxRecord),
  'sandbox.exec': op('Run a command in a sandbox', execInput, execRecord),
  'sandbox.diff': op(
    'Show what a sandbox changed',
    z.object({ sandbox: ref, patch: z.boolean().default(false), paths: z.array(z.string()).optional() }),
    sandboxDiff,
  ),
  'sandbox.snapshot': op(
    'Save the state of a sandbox',
    z.object({ sandbox: ref, message: z.string().max(500).default('') }),
    snapshotRecord,
  ),
  'sandbox.snapshots': op('List the snapshots of a sandbox', z.object({ sandbox: ref }), z.array(snapshotRecord)),
  'sandbox.rollback': op('Return a sandbox to a snapshot', z.object({ sandbox: ref, snapshot: ref }), sandboxRecord, {
    destructive: true,
  }),
  'sandbox.fork': op(
    'Start a new sandbox from a snapshot or from the present state',
    z.object({ sandbox: ref, snapshot: ref.optional(), name: z.string().min(1).max(63).optional() }),
    sandboxRecord,
  ),
  'sandbox.destroy': op(
    'Destroy sandboxes; their diff and logs are kept unless told otherwise',
    z.object({ sandboxes: z.array(ref).min(1), discard: z.boolean().default(false) }),
    z.array(sandboxRecord),
    { destructive: true },
  ),
  'experiment.run': op(
    'Start an experiment; it goes on if the caller goes away',
    z.object({ workspace, file: z.string().min(1), keep: z.boolean().default(false) }),
    experimentRecord,
  ),
  'experiment.wait': op('Wait until an experiment ends', z.object({ experiment: ref }), experimentRecord, {
    cli: false,
  }),
  'experiment.list': op('List experiments', z.object({ workspace: workspace.optional() }), z.array(experimentRecord)),
  'experiment.show': op('Show one experiment', z.object({ experiment: ref }), experimentRecord),
  'experiment.cancel': op(
    'Stop an experiment and destroy its sandboxes',
    z.object({ experiment: ref }),
    experimentRecord,
    {
      destructive: true,
    },
  ),
  promote: op(
    'Take the diff of a run or sandbox up the ladder',
    z.object({
      source: ref,
      to: stageName.default('local'),
      dryRun: z.boolean().default(false),
      /** Consent to paths that run by themselves later. */
      allowSensitive: z.boolean().default(false),
    }),
    promotionRecord,
    { destructive: true },
  ),
  'promotion.list': op('List promotions', z.object({ workspace: workspace.optional() }), z.array(promotionRecord)),
  'promotion.show': op('Show one promotion', z.object({ promotion: ref }), promotionRecord),
  'promotion.undo': op('Take a promotion back out of the workspace', z.object({ promotion: ref }), promotionRecord, {
    destructive: true,
  }),
  prune: op(
    'Remove what nothing alive needs; with all, every sandbox, image and cache of this data folder',
    z.object({ all: z.boolean().default(false) }),
    pruneReport,
    { destructive: true },
  ),
} as const satisfies Record<string, Operation>;

export type Operations = typeof operations;
export type OperationName = keyof Operations;
/** What a caller passes. */
export type Input<N extends OperationName> = z.input<Operations[N]['input']>;
/** What the agent's handler gets: defaults filled in. */
export type ParsedInput<N extends OperationName> = z.output<Operations[N]['input']>;
export type Output<N extends OperationName> = z.output<Operations[N]['output']>;
