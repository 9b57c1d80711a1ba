/** `petri doctor`, `petri agent …` and `petri prune`: how Petri itself is. */
import { PetriError } from '../../protocol/errors';
import type { AgentStatus } from '../../protocol/operations';
import { protocolVersion } from '../../protocol/wire';
import { agentHome } from '../../client/home';
import { action, subcommand, type PetriCommand, type Session } from '../command';
import type { Context } from '../context';
import * as render from '../render/doctor';
import { version } from '../version';

export function addAgent(session: Session, program: PetriCommand): void {
  const doctor = subcommand(program, 'doctor', 'find the container engine and tell what works');
  action(session, doctor, async (context) => {
    const report = await context.call('doctor', { workspace: context.workspace });
    await context.print(report, (view) => render.doctor(report, view));
    if (report.engine === null) return 3;
    return report.state === 'ok' ? 0 : 1;
  });

  const prune = subcommand(program, 'prune', 'remove what nothing alive needs').option(
    '--all',
    'every sandbox, image and cache of this data folder; the diffs of sandboxes are kept',
  );
  action<{ all?: boolean }>(session, prune, async (context, options) => {
    const report = await context.call('prune', { all: options.all === true });
    await context.print(report, () => render.prune(report));
  });

  const group = program
    .command('agent')
    .description('the local runtime agent; other commands start it when they need it');
  const status = subcommand(group, 'status', 'tell how the agent is');
  action(session, status, async (context) => {
    const record = await orStopped(context, 'agent.status');
    await context.print(record, (view) => render.agent(record, view));
  });
  const stop = subcommand(group, 'stop', 'stop the agent; sandboxes stay');
  action(session, stop, async (context) => {
    const record = await orStopped(context, 'agent.stop');
    await context.print(record, (view) => render.agent({ ...record, state: 'stopped' }, view));
  });
}

/** Asks the running agent; when none runs, says so without starting one. */
async function orStopped(context: Context, name: 'agent.status' | 'agent.stop'): Promise<AgentStatus> {
  try {
    await context.client(false);
    return await context.call(name, {});
  } catch (error) {
    // One that ends before its answer is out has stopped as well.
    if (!(error instanceof PetriError) || error.code !== 'agent-unreachable') throw error;
    return {
      id: 'agent',
      state: 'stopped',
      pid: null,
      version,
      protocol: protocolVersion,
      home: context.home ?? agentHome(context.host.env),
      clients: 0,
      sandboxes: 0,
      experiments: 0,
      rssBytes: 0,
      startedAt: null,
    };
  }
}
