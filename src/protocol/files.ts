/**
 * The files people write: `petri.json` and `*.experiment.json`. One source for two uses: the agent validates with these,
 * and the JSON schemas that editors use are generated from them (schemas.ts). Own messages begin with "expected", so that
 * a reader can put them behind a position.
 */
import * as z from 'zod';
import { networkMode } from './records';
import { parseBytes, parseDuration } from './units';

const nameForm = 'expected 1–63 letters, digits, dots, dashes, underscores or spaces, beginning with a letter or digit';
const name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._ -]{0,62}$/, nameForm)
  .meta({ patternErrorMessage: nameForm });

const text = z.string().regex(/\S/, 'expected text that is not empty').meta({ patternErrorMessage: 'expected text' });

const commands = z.union([text, z.array(text).min(1)], { error: 'expected a string or a list of strings' });
const commandsHelp =
  'A shell command, or a list of them that run one after the other; the first that fails ends the list.';

/** A path or glob relative to some folder that stays in it. */
const insidePath = z
  .string()
  .regex(
    /^(?![/\\]|[A-Za-z]:)(?!\.\.(?:[/\\]|$))(?![\s\S]*[/\\]\.\.(?:[/\\]|$))[\s\S]*\S/,
    'expected a relative path that stays inside the workspace',
  );

const sizeForm = 'expected a size such as "512m" or "2g"';
const size = z
  .union([z.string().regex(/^\s*\d+(\.\d+)?\s*[bkmgtBKMGT]?([iI]?[bB])?\s*$/, sizeForm), z.number().positive()], {
    error: sizeForm,
  })
  .transform((value, ctx) => checked(parseBytes(value), sizeForm, ctx));

const durationForm = 'expected a duration such as "30s", "5m" or "1h"';
const duration = z
  .union([z.string().regex(/^\s*\d+(\.\d+)?\s*(ms|MS|[smhdSMHD])?\s*$/, durationForm), z.number().positive()], {
    error: durationForm,
  })
  .transform((value, ctx) => checked(parseDuration(value), durationForm, ctx));

function checked(value: number | undefined, form: string, ctx: z.RefinementCtx): number {
  if (value !== undefined) return value;
  ctx.addIssue({ code: 'custom', message: form });
  return z.NEVER;
}

export const limitsInput = z
  .strictObject({
    cpus: z
      .number()
      .positive()
      .optional()
      .meta({ description: 'CPU cores; fractions are fine.', examples: [2, 0.5] }),
    memory: size.optional().meta({
      description: 'Memory, such as "512m" or "2g" (units of 1024), or a number of bytes. There is no swap beyond it.',
      examples: ['512m', '2g'],
    }),
    pids: z
      .number()
      .int()
      .positive()
      .optional()
      .meta({ description: 'How many processes and threads may live at once.', examples: [512] }),
    timeout: duration.optional().meta({
      description: 'Wall time, such as "30s", "5m" or "1h", or a number of seconds.',
      examples: ['5m', '30s'],
    }),
  })
  .meta({ description: 'Bounds of one sandbox. What is left out is not bounded by this file.' });
export type LimitsInput = z.output<typeof limitsInput>;

const metricBetter = z.enum(['lower', 'higher']).meta({ description: 'Which way is better.' });

/** A number that a check gives: from its output by a pattern, or from a JSON file by a pointer. */
export type MetricSource =
  { pattern: string; better: 'lower' | 'higher' } | { file: string; pointer: string; better: 'lower' | 'higher' };

export const metricSource = z
  .strictObject({
    pattern: z
      .string()
      .min(1)
      .optional()
      .meta({
        description:
          'A JavaScript regular expression over the last megabyte of the check’s output, with the flags g and m. Its first group is the number (the whole match where there is no group); the last match counts.',
        examples: ['bytes=(\\d+)'],
      }),
    file: insidePath.optional().meta({ description: 'A JSON file in the workspace that the check writes.' }),
    pointer: z
      .string()
      .regex(/^(\/([^~]|~[01])*)?$/, 'expected a JSON pointer such as "/total/bytes"')
      .optional()
      .meta({ description: 'Where in the file, as a JSON pointer (RFC 6901).', examples: ['/total/bytes'] }),
    better: metricBetter,
  })
  .superRefine((value, ctx) => {
    exactlyOne(value, ['pattern', 'file'], ctx);
    if (value.file !== undefined && value.pointer === undefined)
      ctx.addIssue({
        code: 'custom',
        path: ['pointer'],
        message: 'expected a JSON pointer beside `file`, found nothing',
      });
    if (value.pattern !== undefined && value.pointer !== undefined)
      ctx.addIssue({
        code: 'custom',
        path: ['pointer'],
        message: 'expected `pointer` only beside `file`, found it beside `pattern`',
      });
    const wrong = value.pattern === undefined ? undefined : patternProblem(value.pattern);
    if (wrong !== undefined) ctx.addIssue({ code: 'custom', path: ['pattern'], message: wrong });
  })
  .transform(({ pattern, file, pointer, better }): MetricSource =>
    pattern === undefined ? { file: file ?? '', pointer: pointer ?? '', better } : { pattern, better },
  )
  .meta({
    description: 'Where a number comes from (`pattern`, or `file` with `pointer`) and which way is better.',
    oneOf: [{ required: ['pattern'] }, { required: ['file', 'pointer'] }],
  });

const report = z
  .strictObject({
    format: z.enum(['junit', 'tap']).meta({ description: 'JUnit XML or TAP.' }),
    path: insidePath.optional().meta({
      description: 'The report file in the workspace. A TAP report without a path is read from the output.',
      examples: ['junit.xml'],
    }),
  })
  .superRefine((value, ctx) => {
    if (value.format === 'junit' && value.path === undefined)
      ctx.addIssue({ code: 'custom', path: ['path'], message: 'expected the path of the JUnit file, found nothing' });
  })
  .meta({
    description: 'A test report that the check writes.',
    anyOf: [{ properties: { format: { const: 'tap' } } }, { required: ['path'] }],
  });

export const checkInput = z
  .strictObject({
    name: name.meta({ description: 'What the check is called in tables.', examples: ['tests'] }),
    run: commands.meta({ description: commandsHelp, examples: ['npm test'] }),
    exitCode: z.number().int().min(0).max(255).default(0).meta({ description: 'The exit code that means "passed".' }),
    timeout: duration.optional().meta({ description: 'Wall time of this check alone.', examples: ['2m'] }),
    report: report.optional(),
    metrics: z.record(name, metricSource).optional().meta({
      description: 'Numbers to compare approaches by, by name. The order here is the order in which they rank.',
    }),
  })
  .meta({ description: 'A command with an expected outcome.' });
export type CheckInput = z.output<typeof checkInput>;

/** One way to do the task. */
export type ApproachInput = { name: string; run: string | string[] } | { name: string; patch: string };

export const approachInput = z
  .strictObject({
    name: name.meta({ description: 'What the approach is called in tables.' }),
    run: commands.optional().meta({ description: commandsHelp, examples: ['sed -i s/floor/round/ src/a.js'] }),
    patch: text.optional().meta({
      description: 'A patch file (unified diff, as `git diff` makes it), relative to the folder of this file.',
      examples: ['a.patch'],
    }),
  })
  .superRefine((value, ctx) => exactlyOne(value, ['run', 'patch'], ctx))
  .transform(({ name, run, patch }): ApproachInput =>
    run === undefined ? { name, patch: patch ?? '' } : { name, run },
  )
  .meta({
    description: 'One way to do the task: `run` or `patch`.',
    oneOf: [{ required: ['run'] }, { required: ['patch'] }],
  });

const glob = insidePath.regex(
  /^(?![\s\S]*(?<!\\)[@!?*+]\()[\s\S]{0,1000}$/,
  'expected a glob of *, **, ?, [a-z] and {a,b}',
);

const artifacts = z
  .array(glob)
  .default([])
  .meta({
    description:
      'Globs of files to keep from every run, relative to the workspace. A folder’s name takes everything in it. A glob has *, **, ?, [a-z] and {a,b}.',
    examples: [['coverage/**']],
  });

const baseForm = 'expected "workspace", { "commit": … } or { "snapshot": … }';
const base = z
  .union(
    [
      z.literal('workspace'),
      z
        .strictObject({
          commit: text.optional().meta({ description: 'A commit, branch or tag of the workspace’s repository.' }),
          snapshot: text.optional().meta({ description: 'The id of a sandbox’s snapshot.' }),
        })
        .superRefine((value, ctx) => exactlyOne(value, ['commit', 'snapshot'], ctx))
        .transform(({ commit, snapshot }): { commit: string } | { snapshot: string } =>
          commit === undefined ? { snapshot: snapshot ?? '' } : { commit },
        )
        .meta({ oneOf: [{ required: ['commit'] }, { required: ['snapshot'] }] }),
    ],
    { error: baseForm },
  )
  .default('workspace')
  .meta({
    description: 'What every approach starts from: the workspace as it is now, a commit, or a snapshot of a sandbox.',
  });

const checks = z.array(checkInput).superRefine((items, ctx) => {
  uniqueNames(items, ctx);
  const metrics = new Set<string>();
  items.forEach((item, i) => {
    for (const metric of Object.keys(item.metrics ?? {})) {
      if (metrics.has(metric)) {
        const message = `the metric "${metric}" is declared twice; expected a name of its own`;
        ctx.addIssue({ code: 'custom', path: [i, 'metrics', metric], message });
      }
      metrics.add(metric);
    }
  });
});

const image = text.optional();
const schemaKey = z
  .string()
  .optional()
  .meta({ description: 'The JSON schema of this file, for editors that need it named.' });

export const experimentFile = z
  .strictObject({
    $schema: schemaKey,
    task: text.meta({ description: 'What is to be done, in words.', examples: ['rounding is wrong for halves'] }),
    base,
    image: image.meta({ description: 'The container image; overrides the one of petri.json.' }),
    concurrency: z
      .number()
      .int()
      .min(1)
      .max(64)
      .optional()
      .meta({ description: 'How many approaches run at once. Default: the number of cores.' }),
    limits: limitsInput.optional(),
    network: networkMode.optional().meta({ description: 'Overrides the network of petri.json.' }),
    approaches: z.array(approachInput).min(1).superRefine(uniqueNames).meta({
      description: 'The ways to do the task. Each runs in a sandbox of its own.',
    }),
    checks: checks.optional().meta({ description: 'The same for every approach. Default: the checks of petri.json.' }),
    artifacts,
  })
  .meta({ title: 'Petri experiment', description: 'One task, several approaches, the same checks for each.' });
export type ExperimentFile = z.output<typeof experimentFile>;

export const petriFile = z
  .strictObject({
    $schema: schemaKey,
    environment: z
      .strictObject({
        image: image.meta({
          description:
            'The container image that sandboxes are made from. Default: chosen by what the workspace contains.',
          examples: ['node:22-bookworm'],
        }),
        include: z
          .array(insidePath)
          .default([])
          .meta({
            description: 'Paths that git ignores and that belong to the workspace all the same.',
            examples: [['node_modules']],
          }),
        setup: commands.optional().meta({
          description:
            'Installs the dependencies. Runs with only manifests and lockfiles present; its result is kept until one of them changes.',
          examples: ['npm ci'],
        }),
        manifests: z.array(insidePath).optional().meta({
          description: 'Globs of the files that `setup` needs. Default: the usual manifests and lockfiles.',
        }),
        history: z
          .union([z.literal('full'), z.number().int().min(0)], { error: 'expected "full" or a number of commits' })
          .default(1)
          .meta({ description: 'How many commits of history a sandbox gets: "full", or a number; 0 for none.' }),
      })
      .default({ include: [], history: 1 })
      .meta({ description: 'What sandboxes are made from.' }),
    network: networkMode.default('none').meta({
      description: '"none": no network at all. "open": the engine’s default network.',
    }),
    limits: limitsInput.optional(),
    checks: checks.default([]).meta({ description: 'The checks of experiments that name none of their own.' }),
  })
  .meta({ title: 'Petri settings', description: 'Petri’s settings of a workspace. All of it is optional.' });
export type PetriFile = z.output<typeof petriFile>;

function uniqueNames(items: { name: string }[], ctx: z.RefinementCtx): void {
  items.forEach((item, i) => {
    if (items.findIndex((other) => other.name === item.name) !== i)
      ctx.addIssue({
        code: 'custom',
        path: [i, 'name'],
        message: `"${item.name}" is used twice; expected a name of its own`,
      });
  });
}

function exactlyOne<K extends string>(value: { [k in K]?: unknown }, keys: [K, K], ctx: z.RefinementCtx): void {
  const given = keys.filter((key) => value[key] !== undefined).length;
  if (given === 1) return;
  const found = given === 0 ? 'neither' : 'both';
  ctx.addIssue({ code: 'custom', message: `expected either \`${keys[0]}\` or \`${keys[1]}\`, found ${found}` });
}

function patternProblem(pattern: string): string | undefined {
  try {
    new RegExp(pattern, 'gm');
    return undefined;
  } catch (error) {
    const why = error instanceof Error ? /: ([^:]+)$/.exec(error.message)?.[1] : undefined;
    return `expected a regular expression, found one that does not parse${why === undefined ? '' : ` (${why.toLowerCase()})`}`;
  }
}
