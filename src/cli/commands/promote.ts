/** `petri promote` and `petri promotion …`: the way of a diff into the workspace, and back out. */
import { createInterface } from 'node:readline';
import { Option } from 'commander';
import { cancelled, PetriError } from '../../protocol/errors';
import { stageName, type PromotionRecord, type StageName } from '../../protocol/records';
import { plural } from '../../protocol/words';
import { action, arg, subcommand, type PetriCommand, type Session } from '../command';
import type { Context } from '../context';
import { surface } from '../host';
import { promotionDetail, promotionList, promotionQuestion } from '../render/promotion';
import { line, paintLine, t } from '../render/text';

interface PromoteOptions {
  to: StageName;
  dryRun?: boolean;
  yes?: boolean;
  allowSensitive?: boolean;
}

export function addPromote(session: Session, program: PetriCommand): void {
  const promote = subcommand(
    program,
    'promote <run-or-sandbox>',
    'take the diff of a run or sandbox into the workspace',
  )
    .addOption(
      new Option('--to <stage>', 'how far: "verified" only checks it in a clean sandbox')
        .choices(stageName.options.filter((s) => s !== 'sandbox'))
        .default('local'),
    )
    .option('--dry-run', 'do all but write into the workspace')
    .option('-y, --yes', 'write without asking')
    .option('--allow-sensitive', 'take paths along that run by themselves later, such as hooks and CI files');
  action<PromoteOptions>(session, promote, async (context, options, args) => {
    const source = arg(args);
    const input = { source, to: options.to, allowSensitive: options.allowSensitive === true };
    const writes = options.to !== 'verified' && options.dryRun !== true;
    if (writes && options.yes !== true) {
      if (context.json || context.host.stdin.isTTY !== true || context.host.stderr.isTTY !== true) {
        throw new PetriError('gate-refused', 'Nobody is here to confirm the change to the workspace.', {
          hint: 'Pass --yes to write without asking, or --dry-run to see what would happen.',
        });
      }
      const trial = await context.call('promote', { ...input, dryRun: true });
      await context.print(trial, (view) => promotionDetail(trial, view, trial.state === 'done'));
      const code = exitCodeOf(trial);
      if (code !== 0 || trial.files.length === 0) return code;
      const sensitive = trial.files.filter((f) => f.sensitive !== null);
      if (sensitive.length > 0 && options.allowSensitive !== true) {
        throw new PetriError(
          'sensitive-paths',
          `${plural(sensitive.length, 'file')} of the diff can run by themselves later; they are marked above.`,
          {
            hint: 'Look at them; then promote with --allow-sensitive.',
            data: { paths: sensitive.map((f) => f.path) },
          },
        );
      }
      if (!(await confirm(context, promotionQuestion(trial)))) {
        throw new PetriError('gate-refused', 'Not confirmed; the workspace is as it was.');
      }
    }
    const record = await context.call('promote', { ...input, dryRun: options.dryRun === true });
    await context.print(record, (view) => promotionDetail(record, view));
    return exitCodeOf(record);
  });

  const group = program.command('promotion').description('what was promoted, and the way back');
  const list = subcommand(group, 'list', 'list the promotions into the workspace')
    .alias('ls')
    .option('--all', 'into every workspace');
  action<{ all?: boolean }>(session, list, async (context, options) => {
    const all = options.all === true;
    const records = await context.call('promotion.list', all ? {} : { workspace: context.workspace });
    await context.print(records, (view) => promotionList(records, view, all));
  });
  const show = subcommand(group, 'show <id>', 'show one promotion');
  action(session, show, async (context, _, args) => {
    const record = await context.call('promotion.show', { promotion: arg(args) });
    await context.print(record, (view) => promotionDetail(record, view));
  });
  const undo = subcommand(group, 'undo <id>', 'take a promotion back out of the workspace');
  action(session, undo, async (context, _, args) => {
    const record = await context.call('promotion.undo', { promotion: arg(args) });
    await context.print(record, (view) => promotionDetail(record, view));
    return record.state === 'undone' ? 0 : 4;
  });
}

function exitCodeOf(record: PromotionRecord): number {
  if (record.state === 'done') return 0;
  return record.state === 'refused' || record.state === 'conflict' ? 4 : 1;
}

/** Asks on the terminal; anything but yes is no. Errors: cancelled. */
async function confirm(context: Context, question: string): Promise<boolean> {
  const { host } = context;
  const reader = createInterface({ input: host.stdin, output: host.stderr });
  const text = paintLine(line(t(question, 'strong'), ' [y/N] '), surface(host.stderr, host.env).color);
  try {
    return await new Promise<boolean>((resolve, reject) => {
      const stop = (): void => reject(cancelled('The promotion'));
      reader.on('SIGINT', stop);
      context.signal.addEventListener('abort', stop, { once: true });
      reader.once('close', () => resolve(false));
      reader.question(`\n${text}`, (answer) => resolve(/^\s*y(es)?\s*$/i.test(answer)));
    });
  } finally {
    reader.close();
    host.stdin.pause();
  }
}
