/** `petri sandbox …`: everything but running commands in one. */
import { Option } from 'commander';
import type { Limits, NetworkMode } from '../../protocol/records';
import { networkMode } from '../../protocol/records';
import { visible } from '../../protocol/text';
import {
  action,
  arg,
  bytesOption,
  coresOption,
  countOption,
  durationOption,
  subcommand,
  type PetriCommand,
  type Session,
} from '../command';
import { surface } from '../host';
import { diffSummary, patchText } from '../render/diff';
import { sandboxDetail, sandboxHead, sandboxList, snapshotTree } from '../render/sandbox';
import { blank, line, t } from '../render/text';
import { facts } from '../render/table';
import { limitsText, statLine } from '../render/words';
import { addExec } from './exec';

interface CreateOptions {
  name?: string;
  image?: string;
  cpus?: number;
  memory?: number;
  pids?: number;
  timeout?: number;
  network?: NetworkMode;
  tier?: 'container' | 'gvisor' | 'microvm';
}

export function addSandbox(session: Session, program: PetriCommand): void {
  const group = program.command('sandbox').description('disposable, isolated copies of the workspace');
  addCreate(session, group);
  addList(session, group);
  addExec(session, group);
  addDiff(session, group);
  addSnapshots(session, group);

  const destroy = subcommand(group, 'destroy <id...>', 'destroy sandboxes; their diff and logs are kept').option(
    '--discard',
    "don't keep the diff",
  );
  action<{ discard?: boolean }>(session, destroy, async (context, options, ids) => {
    const records = await context.call('sandbox.destroy', { sandboxes: ids, discard: options.discard === true });
    await context.print(ids.length === 1 && records.length === 1 ? records[0] : records, ({ width }) =>
      records.flatMap((r) => [
        sandboxHead(r),
        ...facts(
          [
            ['kept', r.saved === null ? undefined : statLine(r.saved.diff)],
            ['patch', r.saved?.patch ?? undefined],
          ],
          width,
        ),
      ]),
    );
  });
}

function limitsOf(options: CreateOptions): Limits {
  return {
    ...(options.cpus === undefined ? {} : { cpus: options.cpus }),
    ...(options.memory === undefined ? {} : { memoryBytes: options.memory }),
    ...(options.pids === undefined ? {} : { pids: options.pids }),
    ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
  };
}

function addCreate(session: Session, group: PetriCommand): void {
  const create = subcommand(group, 'create', 'make a sandbox from the workspace as it is now')
    .option('--name <name>', 'a name to call it by')
    .option(
      '--image <image>',
      'the container image; default: from petri.json, or chosen by what the workspace contains',
    )
    .option('--cpus <cores>', 'CPU cores, fractions allowed', coresOption)
    .option('--memory <size>', 'memory, such as 512m or 2g', bytesOption)
    .option('--pids <count>', 'processes and threads', countOption)
    .option('--timeout <time>', 'time until it ends by itself, such as 30m', durationOption)
    .addOption(new Option('--network <mode>', 'the network inside').choices(networkMode.options))
    .addOption(new Option('--tier <tier>', 'how strongly it is isolated').choices(['container', 'gvisor', 'microvm']));
  action<CreateOptions>(session, create, async (context, options) => {
    const limits = limitsOf(options);
    const record = await context.call('sandbox.create', {
      workspace: context.workspace,
      ...(options.name === undefined ? {} : { name: options.name }),
      ...(options.image === undefined ? {} : { image: options.image }),
      ...(Object.keys(limits).length === 0 ? {} : { limits }),
      ...(options.network === undefined ? {} : { network: options.network }),
      ...(options.tier === undefined ? {} : { tier: options.tier }),
    });
    await context.print(record, ({ width }) => [
      sandboxHead(record),
      ...facts(
        [
          ['image', record.environment.image],
          ['limits', limitsText(record.limits)],
          ['isolation', `${record.tier} · network ${record.network}`],
        ],
        width,
      ),
      blank,
      line(t(`  petri sandbox exec ${record.id} -- COMMAND    petri sandbox shell ${record.id}`, 'dim')),
    ]);
  });
}

function addList(session: Session, group: PetriCommand): void {
  const list = subcommand(group, 'list', 'list the sandboxes of the workspace')
    .alias('ls')
    .option('--all', 'of every workspace, ended ones too');
  action<{ all?: boolean }>(session, list, async (context, options) => {
    const all = options.all === true;
    const records = await context.call('sandbox.list', { all, ...(all ? {} : { workspace: context.workspace }) });
    await context.print(records, (view) => sandboxList(records, view, all));
  });

  const show = subcommand(group, 'show <id>', 'show one sandbox');
  action(session, show, async (context, _, args) => {
    const record = await context.call('sandbox.show', { sandbox: arg(args) });
    await context.print(record, (view) => sandboxDetail(record, view));
  });
}

function addDiff(session: Session, group: PetriCommand): void {
  const diff = subcommand(group, 'diff <id> [paths...]', 'show what a sandbox changed')
    .addOption(new Option('--stat', 'numbers and a table of files (the default)').conflicts(['nameOnly', 'patch']))
    .addOption(new Option('--name-only', 'only the paths, one a line').conflicts(['stat', 'patch']))
    .addOption(new Option('--patch', 'the changes themselves, as a patch').conflicts(['stat', 'nameOnly']));
  action<{ stat?: boolean; nameOnly?: boolean; patch?: boolean }>(session, diff, async (context, options, args) => {
    const [, ...paths] = args;
    const result = await context.call('sandbox.diff', {
      sandbox: arg(args),
      patch: options.patch === true,
      ...(paths.length > 0 ? { paths } : {}),
    });
    if (context.json) {
      await context.print(result, () => []);
      return;
    }
    if (options.patch === true) {
      const { color } = surface(context.host.stdout, context.host.env);
      // A file or another program gets the bytes as they are: an escaped patch would not apply.
      await context.write(
        context.host.stdout.isTTY === true ? patchText(result.patch ?? '', color) : (result.patch ?? ''),
      );
      if (result.patchCut)
        context.say({ event: 'cut' }, [
          line(t('! ', 'warn'), 'The patch was too large and is cut. Name paths to see the rest.'),
        ]);
    } else if (options.nameOnly === true) {
      await context.write(result.files.map((f) => `${visible(f.path, true)}\n`).join(''));
    } else {
      await context.print(result, (view) => diffSummary(result.stat, result.files, view));
    }
  });
}

function addSnapshots(session: Session, group: PetriCommand): void {
  const snapshot = subcommand(group, 'snapshot <id>', 'save the state of a sandbox').option(
    '-m, --message <text>',
    'what it is about',
    '',
  );
  action<{ message: string }>(session, snapshot, async (context, options, args) => {
    const record = await context.call('sandbox.snapshot', { sandbox: arg(args), message: options.message });
    await context.print(record, () => [
      line(t('✓ ', 'good'), 'Saved as ', t(record.id, 'accent'), record.message === '' ? '' : `  ${record.message}`),
      line('  ', t(`Return to it: petri sandbox rollback ${record.sandbox} ${record.id}`, 'dim')),
    ]);
  });

  const snapshots = subcommand(group, 'snapshots <id>', 'show the snapshots of a sandbox as a tree');
  action(session, snapshots, async (context, _, args) => {
    const id = arg(args);
    if (context.json) {
      const records = await context.call('sandbox.snapshots', { sandbox: id });
      await context.print(records, () => []);
    } else {
      const record = await context.call('sandbox.show', { sandbox: id });
      await context.print(record, (view) => [sandboxHead(record), ...snapshotTree(record, view)]);
    }
  });

  const rollback = subcommand(group, 'rollback <id> <snapshot>', 'return a sandbox to a snapshot');
  action(session, rollback, async (context, _, args) => {
    const record = await context.call('sandbox.rollback', { sandbox: arg(args), snapshot: arg(args, 1) });
    await context.print(record, (view) => [sandboxHead(record), ...snapshotTree(record, view)]);
  });

  const fork = subcommand(group, 'fork <id>', 'start a new sandbox from a snapshot or from the present state')
    .option('--snapshot <id>', 'the snapshot; default: the state as it is now')
    .option('--name <name>', 'a name to call it by');
  action<{ snapshot?: string; name?: string }>(session, fork, async (context, options, args) => {
    const record = await context.call('sandbox.fork', {
      sandbox: arg(args),
      ...(options.snapshot === undefined ? {} : { snapshot: options.snapshot }),
      ...(options.name === undefined ? {} : { name: options.name }),
    });
    await context.print(record, () => [
      sandboxHead(record),
      line(
        '  ',
        t(
          record.forkedFrom === null
            ? 'forked'
            : `forked from ${record.forkedFrom.sandbox} at ${record.forkedFrom.snapshot}`,
          'dim',
        ),
      ),
    ]);
  });
}
