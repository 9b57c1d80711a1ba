/** The whole command line: from arguments to an exit code. */
import { CommanderError } from 'commander';
import { isCancelled } from '../protocol/errors';
import { addCommonOptions, PetriCommand, type Session } from './command';
import { addAgent } from './commands/agent';
import { addExperiment } from './commands/experiment';
import { addPromote } from './commands/promote';
import { addSandbox } from './commands/sandbox';
import { brokenPipe } from './context';
import { asPetriError, failureJson, failureLines } from './failure';
import { surface, type Host } from './host';
import { append } from './live';
import { line, t } from './render/text';
import { version } from './version';

const epilogue = `
The first minutes:
  petri doctor                               is everything there
  petri experiment run fix.experiment.json   try several approaches, compare them
  petri promote RUN                          take the winner into the workspace
  petri promotion undo PROMOTION             and back out

Every command takes --json, --workspace DIR and --home DIR, and says more with --help.
Exit codes: 0 fine · 1 failed · 2 wrong usage · 3 no engine · 4 conflict or refused gate
`;

export function buildProgram(session: Session): PetriCommand {
  const { host } = session;
  const program = new PetriCommand('petri');
  const { color } = surface(host.stdout, host.env);
  program
    .description(
      'Disposable, isolated copies of your workspace: try several approaches, compare them, promote the winner.',
    )
    .version(version, '-V, --version', 'print the version')
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void host.stdout.write(text),
      // Mistakes are thrown and printed by the one printer of errors.
      writeErr: () => undefined,
      getOutHelpWidth: () => Math.min(100, surface(host.stdout, host.env).columns),
      getOutHasColors: () => color,
    })
    .configureHelp({
      styleTitle: (text) => (color ? `\x1b[1m${text}\x1b[0m` : text),
      subcommandTerm: (command) =>
        [
          command.name(),
          ...command.registeredArguments.map((a) =>
            a.required ? `<${a.name()}${a.variadic ? '…' : ''}>` : `[${a.name()}${a.variadic ? '…' : ''}]`,
          ),
        ].join(' '),
      subcommandDescription: (command) =>
        command.commands.length === 0
          ? command.description()
          : `${command.description()}: ${command.commands.map((c) => c.name()).join(', ')}`,
    })
    .addHelpText('after', epilogue);
  addAgent(session, program);
  addSandbox(session, program);
  addExperiment(session, program);
  addPromote(session, program);
  for (const command of [program, ...program.commands] as PetriCommand[]) {
    if (command.commands.length === 0) continue;
    command.helpCommand(false).enablePositionalOptions();
    addCommonOptions(command);
  }
  return program;
}

/** Whether `--json` is among our own arguments: those before `--`. */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf('--');
  return (end < 0 ? argv : argv.slice(0, end)).includes('--json');
}

/** Runs the command line and gives its exit code. Never rejects. `argv` begins with the first argument. */
export async function run(argv: readonly string[], host: Host): Promise<number> {
  const session: Session = { host, exitCode: 0, context: undefined };
  // Where standard error leads to is gone: nothing is left to be said there.
  const ignore = (): void => undefined;
  host.stderr.on('error', ignore);
  const json = wantsJson(argv);
  let signals = 0;
  const listening = host.onSignal((signal) => {
    signals += 1;
    if (signals > 1 || !session.context) return host.leave(signal === 'SIGTERM' ? 143 : 130);
    if (signal === 'SIGHUP' && session.context.outlives) return host.leave(129);
    session.context.stop();
    if (!json && signal === 'SIGINT') append(host, [line(t('Stopping. Press Ctrl-C again to leave at once.', 'dim'))]);
  });
  try {
    await buildProgram(session).parseAsync(argv, { from: 'user' });
  } catch (thrown) {
    session.exitCode = await fail(thrown, session, json);
  }
  listening.dispose();
  const gone = session.context?.outputGone === true;
  await session.context?.dispose();
  host.stderr.off('error', ignore);
  return gone ? brokenPipe : session.exitCode;
}

/** Prints an error and gives its exit code. */
async function fail(thrown: unknown, session: Session, json: boolean): Promise<number> {
  const { host } = session;
  // Help or the version was asked for and printed.
  if (thrown instanceof CommanderError) return thrown.exitCode;
  if (session.context?.outputGone && isCancelled(thrown)) return brokenPipe;
  const error = asPetriError(thrown);
  if (json)
    await new Promise<void>(
      (resolve) => void host.stdout.write(`${JSON.stringify(failureJson(error), null, 2)}\n`, () => resolve()),
    );
  else append(host, failureLines(error, surface(host.stderr, host.env).columns));
  return error.exitCode;
}
