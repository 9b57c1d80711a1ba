/** What is promoted: the diff of a run that has ended, or of a sandbox as it is now. */
import { PetriError } from '../../protocol/errors';
import type { CheckInput } from '../../protocol/files';
import type { EnvironmentIdentity, Limits, NetworkMode } from '../../protocol/records';
import { resolveRef } from '../records/ids';
import type { Oid } from '../workspace/store';
import type { PromotionContext } from './promotions';

export interface Source {
  kind: 'run' | 'sandbox';
  id: string;
  name: string;
  workspace: string;
  baseTree: Oid;
  tree: Oid;
  environment: EnvironmentIdentity;
  /** The checks it was made with; undefined: those of petri.json. */
  checks: CheckInput[] | undefined;
  limits: Limits | undefined;
  network: NetworkMode | undefined;
}

/** Finds a run (by id or prefix) or a sandbox (by id, prefix or name). Errors: not-found, ambiguous, state. */
export async function findSource(context: PromotionContext, ref: string, signal: AbortSignal): Promise<Source> {
  const { records, sandboxes } = context;
  const runs = records.allRuns().filter((r) => r.id.startsWith(ref));
  if (runs.length > 0) {
    const run = resolveRef(runs, ref, 'run');
    const experiment = records.findExperiment(run.experiment);
    if (run.tree === null || experiment.environment === null) {
      throw new PetriError('state', `Run ${run.name} has no result to promote: it is ${run.state}.`, {
        data: { id: run.id, state: run.state },
      });
    }
    return {
      kind: 'run',
      id: run.id,
      name: `${experiment.name}/${run.name}`,
      workspace: experiment.workspace,
      baseTree: run.baseTree,
      tree: run.tree,
      environment: experiment.environment,
      // Written by this agent from a validated file.
      checks: experiment.checks as CheckInput[],
      limits: experiment.limits,
      network: experiment.network,
    };
  }
  const sandbox = sandboxes.find(ref);
  const { tree } = await sandboxes.diff(sandbox.id, { patch: false, signal });
  return {
    kind: 'sandbox',
    id: sandbox.id,
    name: sandbox.name,
    workspace: sandbox.workspace,
    baseTree: sandbox.environment.tree,
    tree,
    environment: sandbox.environment,
    checks: undefined,
    limits: undefined,
    network: sandbox.network,
  };
}
