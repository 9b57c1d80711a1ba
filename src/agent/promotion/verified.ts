/** The gate to *verified*: a fresh sandbox of the same environment, only the diff applied, the checks run there. */
import { PetriError } from '../../protocol/errors';
import type { CheckInput, PetriFile } from '../../protocol/files';
import type { CheckResult, Limits, NetworkMode } from '../../protocol/records';
import { runChecks } from '../experiment/checks';
import { writeChanges } from '../sandbox/transfer';
import type { WorkspaceStore } from '../workspace/store';
import type { PromotionContext } from './promotions';
import type { Source } from './source';

export interface VerifyOptions {
  source: Source;
  settings: PetriFile;
  checks: CheckInput[];
  limits: Limits;
  network: NetworkMode;
  store: WorkspaceStore;
  promotion: string;
  folder: string;
  signal: AbortSignal;
  progress(message: string): void;
}

/** `refusal` is null when the gate opens. The sandbox is gone either way. */
export async function verifyInCleanRoom(
  context: PromotionContext,
  options: VerifyOptions,
): Promise<{ refusal: string | null; checks: CheckResult[] }> {
  const { source, store, limits } = options;
  const environment = await context.environments.prepare({
    workspace: source.workspace,
    settings: options.settings,
    image: source.environment.image,
    state: { tree: source.baseTree, commit: source.environment.commit },
    signal: options.signal,
    progress: (p) => options.progress(p.message),
  });
  if (environment.identity.imageDigest !== source.environment.imageDigest) {
    return {
      refusal: `The image ${source.environment.image} is another one now than when the diff was made.`,
      checks: [],
    };
  }
  const sandbox = await context.sandboxes.create({
    workspace: source.workspace,
    settings: options.settings,
    name: `verify-${options.promotion}`,
    limits,
    network: options.network,
    owner: { kind: 'promotion', id: options.promotion },
    environment,
    signal: options.signal,
  });
  try {
    await writeChanges(context.engine, sandbox, store, source.baseTree, source.tree);
    if ((await context.sandboxes.tree(sandbox.id, options.signal)) !== source.tree) {
      return { refusal: 'The diff gives other files on a clean base than it did in its sandbox.', checks: [] };
    }
    const began = Date.now();
    const checks = await runChecks(options.checks, {
      engine: context.engine,
      sandboxes: context.sandboxes,
      sandbox,
      logs: options.folder,
      signal: options.signal,
      timeLeft: () => (limits.timeoutMs === undefined ? undefined : limits.timeoutMs - (Date.now() - began)),
      step: (words) => options.progress(`Verifying: ${words}`),
    });
    const failed = checks.filter((c) => !c.passed);
    return {
      refusal: failed.length === 0 ? null : `In the clean room ${failed.map((c) => sentence(c)).join('; ')}.`,
      checks,
    };
  } finally {
    await context.sandboxes.destroy(sandbox.id, { discard: true }).catch((error: unknown) => {
      if (!(error instanceof PetriError && error.code === 'engine-gone')) throw error;
    });
  }
}

function sentence(check: CheckResult): string {
  if (check.breach === 'oom') return `check "${check.name}" ran out of memory`;
  if (check.breach !== null) return `check "${check.name}" ended by ${check.breach}`;
  if (check.tests && check.tests.failed > 0)
    return `check "${check.name}" has ${check.tests.failed} failing ${check.tests.failed === 1 ? 'test' : 'tests'}`;
  return `check "${check.name}" failed with exit code ${check.exitCode ?? 'none'}`;
}
