/** The files people write: `petri.json` and `*.experiment.json`. The shipped JSON schemas are made from these. */
import { z } from 'zod';
import { networkMode } from './records';
import { bytesInput, durationInput } from './units';

const name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._ -]{0,62}$/, 'expected 1–63 letters, digits, dots, dashes, underscores or spaces, beginning with a letter or digit');

const commands = z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]);

export const limitsInput = z
  .strictObject({
    cpus: z.number().positive().optional().describe('CPU cores, fractions allowed.'),
    memory: bytesInput.optional().describe('Memory, for example "512m" or "2g". There is no swap beyond it.'),
    pids: z.number().int().positive().optional().describe('How many processes and threads may live at once.'),
    timeout: durationInput.optional().describe('Wall time, for example "30s", "5m" or "1h".'),
  })
  .describe('Bounds of one sandbox.');
export type LimitsInput = z.output<typeof limitsInput>;

const metricBetter = z.enum(['lower', 'higher']).describe('Which way is better.');
export const metricSource = z
  .union([
    z.strictObject({
      pattern: z.string().min(1).describe('A regular expression over the check’s output; its first group is the number. The last match counts.'),
      better: metricBetter,
    }),
    z.strictObject({
      file: z.string().min(1).describe('A JSON file in the workspace.'),
      pointer: z.string().describe('Where in it, as a JSON pointer such as "/total/bytes".'),
      better: metricBetter,
    }),
  ])
  .describe('Where a number comes from and which way is better.');
export type MetricSource = z.output<typeof metricSource>;

export const checkInput = z
  .strictObject({
    name: name,
    run: commands.describe('Shell command, or several that run one after the other.'),
    exitCode: z.number().int().min(0).max(255).default(0).describe('The exit code that means "passed".'),
    timeout: durationInput.optional().describe('Wall time of this check alone.'),
    report: z
      .strictObject({
        format: z.enum(['junit', 'tap']),
        path: z.string().min(1).optional().describe('The report file in the workspace. A TAP report without a path is read from the output.'),
      })
      .optional()
      .describe('A test report that the check writes.'),
    metrics: z.record(z.string(), metricSource).optional().describe('Numbers to compare by.'),
  })
  .describe('A command with an expected outcome.');
export type CheckInput = z.output<typeof checkInput>;

export const approachInput = z
  .union([
    z.strictObject({ name, run: commands.describe('Shell command, or several that run one after the other.') }),
    z.strictObject({ name, patch: z.string().min(1).describe('A patch file, relative to this file.') }),
  ])
  .describe('One way to do the task: `run` or `patch`.');
export type ApproachInput = z.output<typeof approachInput>;

const uniqueNames = (items: { name: string }[], ctx: z.RefinementCtx): void => {
  items.forEach((item, i) => {
    if (items.findIndex((other) => other.name === item.name) !== i)
      ctx.addIssue({ code: 'custom', path: [i, 'name'], message: `"${item.name}" is used twice; expected a name of its own` });
  });
};

export const experimentFile = z
  .strictObject({
    $schema: z.string().optional(),
    task: z.string().min(1).describe('What is to be done, in words.'),
    base: z
      .union([
        z.literal('workspace'),
        z.strictObject({ commit: z.string().min(1) }),
        z.strictObject({ snapshot: z.string().min(1) }),
      ])
      .default('workspace')
      .describe('What every approach starts from: the workspace now, a commit, or a snapshot of a sandbox.'),
    image: z.string().min(1).optional().describe('Overrides the image of petri.json.'),
    concurrency: z.number().int().min(1).max(64).optional().describe('How many approaches run at once. Default: the number of cores.'),
    limits: limitsInput.optional(),
    network: networkMode.optional(),
    approaches: z.array(approachInput).min(1).superRefine(uniqueNames),
    checks: z.array(checkInput).superRefine(uniqueNames).optional().describe('Default: the checks of petri.json.'),
    artifacts: z.array(z.string().min(1)).default([]).describe('Globs of files to keep, relative to the workspace.'),
  })
  .describe('A Petri experiment: one task, several approaches, the same checks for each.');
export type ExperimentFile = z.output<typeof experimentFile>;

export const petriFile = z
  .strictObject({
    $schema: z.string().optional(),
    environment: z
      .strictObject({
        image: z.string().min(1).optional().describe('The container image that sandboxes are made from.'),
        include: z.array(z.string().min(1)).default([]).describe('Ignored paths that belong to the workspace all the same, for example "node_modules".'),
        setup: commands.optional().describe('Installs the dependencies. Runs with only manifests and lockfiles present; its result is cached.'),
        manifests: z.array(z.string().min(1)).optional().describe('Globs of the files that `setup` needs. Default: the usual manifests and lockfiles.'),
        history: z.union([z.literal('full'), z.number().int().min(0)]).default(1).describe('How many commits of history a sandbox gets; 0 for none.'),
      })
      .default({ include: [], history: 1 }),
    network: networkMode.default('none').describe('"none": no network at all. "open": the engine’s default network.'),
    limits: limitsInput.optional(),
    checks: z.array(checkInput).superRefine(uniqueNames).default([]),
  })
  .describe('Petri settings of a workspace; all of it is optional.');
export type PetriFile = z.output<typeof petriFile>;
