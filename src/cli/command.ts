/** The shape of a subcommand over `commander`: common options, values read strictly, one way to fail. */
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { PetriError } from '../protocol/errors';
import { parseBytes, parseDuration } from '../protocol/units';
import { Context, type CommonOptions } from './context';
import type { Host } from './host';

/** What the command line gives to the process. */
export interface Session {
  host: Host;
  exitCode: number;
  /** The context of the subcommand at work. */
  context: Context | undefined;
}

/** A command whose mistakes of usage are thrown as PetriErrors that say which help to read. */
export class PetriCommand extends Command {
  override createCommand(name?: string): PetriCommand {
    return new PetriCommand(name);
  }

  override error(message: string): never {
    const [first = '', ...rest] = message.replace(/^error: /, '').split('\n');
    const sentence = first.charAt(0).toUpperCase() + first.slice(1);
    const suggestion = rest.join(' ').trim();
    throw new PetriError('usage', `${sentence}${/[.?!]$/.test(sentence) ? '' : '.'}`, {
      hint: `${suggestion === '' ? '' : `${suggestion.replace(/^\(|\)$/g, '')} `}See \`${this.path} --help\`.`,
    });
  }

  /** A group without a subcommand prints its help, which is no mistake. */
  override help(): never {
    this.outputHelp();
    throw new CommanderError(0, 'commander.help', 'help');
  }

  /** "petri sandbox create" */
  get path(): string {
    const names: string[] = [];
    const climb = (c: Command | null): void => {
      if (c === null) return;
      names.unshift(c.name());
      climb(c.parent);
    };
    climb(this);
    return names.join(' ');
  }
}

/** The options that every subcommand has. With subcommands of its own a command takes them too, without a word in its help. */
export function addCommonOptions(command: PetriCommand): void {
  const group = command.commands.length > 0;
  const common = (flags: string, description: string): Option => {
    const option = new Option(flags, description).helpGroup('Common options:');
    return group ? option.hideHelp() : option;
  };
  command
    .addOption(common('--workspace <dir>', 'the workspace; default: the current folder'))
    .addOption(common('--json', 'print one JSON value; progress goes to standard error'))
    .addOption(common('--home <dir>', "Petri's data folder; default: PETRI_HOME or the platform's place"))
    .addHelpOption(new Option('-h, --help', 'print this help').helpGroup(group ? 'Options:' : 'Common options:'));
}

/** A subcommand; {@link action} completes it. */
export function subcommand(parent: PetriCommand, usage: string, description: string): PetriCommand {
  return parent.command(usage).description(description);
}

/**
 * What a subcommand does. `work` gets the context, the subcommand's own options and its arguments, and returns the exit
 * code, or nothing for 0.
 */
export function action<O extends object>(
  session: Session,
  command: PetriCommand,
  work: (context: Context, options: O & CommonOptions, args: string[]) => Promise<number | void>,
): void {
  addCommonOptions(command);
  command.action(async () => {
    const options = command.optsWithGlobals<O & CommonOptions>();
    const context = new Context(session.host, options);
    session.context = context;
    session.exitCode = (await work(context, options, command.args)) ?? 0;
  });
}

/** The argument at a place where commander made sure that there is one. */
export function arg(args: readonly string[], index = 0): string {
  const value = args[index];
  if (value === undefined || value === '') throw new PetriError('usage', 'An argument is empty.');
  return value;
}

export function bytesOption(text: string): number {
  const value = parseBytes(text);
  if (value === undefined) throw new InvalidArgumentError('Expected a size such as 512m or 2g.');
  return value;
}

export function durationOption(text: string): number {
  const value = parseDuration(text);
  if (value === undefined) throw new InvalidArgumentError('Expected a duration such as 30s, 5m or 1h.');
  return value;
}

export function coresOption(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value) || value <= 0)
    throw new InvalidArgumentError('Expected a number of cores such as 2 or 0.5.');
  return value;
}

export function countOption(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || !Number.isSafeInteger(value))
    throw new InvalidArgumentError('Expected a whole number, 1 or more.');
  return value;
}
