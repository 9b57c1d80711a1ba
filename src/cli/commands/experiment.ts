/** `petri experiment …`: run, watch, compare, cancel. */
import path from 'node:path';
import { PetriError } from '../../protocol/errors';
import type { ExperimentRecord } from '../../protocol/records';
import type { PetriClient } from '../../client/client';
import { action, arg, subcommand, type PetriCommand, type Session } from '../command';
import type { Context } from '../context';
import { surface } from '../host';
import { LiveBlock } from '../live';
import { experimentComparison, experimentDetail, experimentList, experimentResult } from '../render/experiment';
import { experimentProgress, experimentStep } from '../render/progress';
import { line, t } from '../render/text';

export function addExperiment(session: Session, program: PetriCommand): void {
  const group = program.command('experiment').description('several approaches to one task, side by side');

  const run = subcommand(group, 'run <file>', 'run an experiment file and compare the approaches').option(
    '--keep',
    'keep the sandboxes of the runs afterwards',
  );
  action<{ keep?: boolean }>(session, run, async (context, options, args) => {
    const record = await runExperiment(context, path.resolve(context.host.cwd, arg(args)), options.keep === true);
    await context.print(record, (view) => experimentResult(record, view));
    return record.winner === null || record.state !== 'done' ? 1 : 0;
  });

  const list = subcommand(group, 'list', 'list the experiments of the workspace')
    .alias('ls')
    .option('--all', 'of every workspace');
  action<{ all?: boolean }>(session, list, async (context, options) => {
    const all = options.all === true;
    const records = await context.call('experiment.list', all ? {} : { workspace: context.workspace });
    await context.print(records, (view) => experimentList(records, view, all));
  });

  const show = subcommand(group, 'show <id>', 'show one experiment with its logs, patches and artifacts');
  action(session, show, async (context, _, args) => {
    const record = await context.call('experiment.show', { experiment: arg(args) });
    await context.print(record, (view) => experimentDetail(record, view));
  });

  const compare = subcommand(group, 'compare <id>', 'compare the approaches: results, tests, files');
  action(session, compare, async (context, _, args) => {
    const record = await context.call('experiment.show', { experiment: arg(args) });
    await context.print(record, (view) => experimentComparison(record, view));
  });

  const cancel = subcommand(group, 'cancel <id>', 'stop an experiment and destroy its sandboxes');
  action(session, cancel, async (context, _, args) => {
    const record = await context.call('experiment.cancel', { experiment: arg(args) });
    await context.print(record, () => [
      line(t('– ', 'dim'), t(record.name, 'strong'), `  ${record.state}  `, t(record.id, 'accent')),
    ]);
  });
}

/** Starts the experiment, shows how it goes on, and gives its end. When the user stops it, it is cancelled. */
async function runExperiment(context: Context, file: string, keep: boolean): Promise<ExperimentRecord> {
  const client = await context.client();
  const display = progressOf(context);
  let id: string | undefined;
  const early: ExperimentRecord[] = [];
  const watcher = client.watch((event) => {
    if (event.kind !== 'experiment') return;
    if (id === undefined) early.push(event.record);
    else if (event.record.id === id) display.update(event.record);
  });
  try {
    const started = await client.call(
      'experiment.run',
      { workspace: context.workspace, file, keep },
      { signal: context.signal, progress: (p) => display.note(p.message) },
    );
    id = started.id;
    context.outlives = true;
    display.update(early.filter((r) => r.id === id).at(-1) ?? started);
    if (started.state !== 'running') return started;
    return await waitFor(context, client, started.id, (message) => display.note(message));
  } finally {
    watcher.dispose();
    display.end();
  }
}

async function waitFor(
  context: Context,
  client: PetriClient,
  id: string,
  note: (message: string) => void,
): Promise<ExperimentRecord> {
  // The wait ends by the cancelling, so that what is printed is how the experiment ended.
  const stop = (): void => {
    note('stopping');
    client.call('experiment.cancel', { experiment: id }).catch(() => undefined);
  };
  context.signal.addEventListener('abort', stop, { once: true });
  if (context.signal.aborted) stop();
  try {
    return await client.call('experiment.wait', { experiment: id }, { progress: (p) => note(p.message) });
  } catch (error) {
    if (!(error instanceof PetriError) || error.code !== 'agent-unreachable') throw error;
    throw new PetriError(error.code, error.message, {
      hint: `See what became of it: petri experiment show ${id}`,
      data: { experiment: id },
    });
  } finally {
    context.signal.removeEventListener('abort', stop);
  }
}

interface Display {
  update(record: ExperimentRecord): void;
  note(message: string): void;
  end(): void;
}

function progressOf(context: Context): Display {
  const { host } = context;
  if (!context.json && surface(host.stderr, host.env).inPlace) {
    const block = new LiveBlock(host);
    let record: ExperimentRecord | undefined;
    let note = 'taking the state of the workspace';
    const show = (): void =>
      block.show((tick, s) => {
        const view = { width: s.columns, now: host.now() };
        return record ? experimentProgress(record, note, tick, s.rows, view) : [line(t(note, 'dim'))];
      });
    show();
    return {
      update: (next) => {
        record = next;
        if (next.runs.some((r) => r.state !== 'waiting' && r.state !== 'preparing'))
          note = note === 'stopping' ? note : '';
      },
      note: (message) => {
        note = message;
      },
      end: () => block.clear(),
    };
  }
  const said = new Map<string, string>();
  let lastNote = '';
  return {
    update: (record) => {
      for (const run of record.runs) {
        if (said.get(run.id) === run.state || (run.state === 'waiting' && !said.has(run.id))) continue;
        said.set(run.id, run.state);
        context.say(
          { event: 'run', experiment: record.id, id: run.id, name: run.name, state: run.state, step: run.step },
          [experimentStep(run)],
        );
      }
    },
    note: (message) => {
      if (message === lastNote) return;
      lastNote = message;
      context.say({ event: 'progress', message }, [line(t(`  ${message}`, 'dim'))]);
    },
    end: () => undefined,
  };
}
