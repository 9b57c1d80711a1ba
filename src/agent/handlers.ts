/** The operations of the table, each as a call of a service. */
import path from 'node:path';
import { PetriError, messageOf } from '../protocol/errors';
import type { AgentStatus, DoctorReport, PruneReport } from '../protocol/operations';
import { discoverEngine } from './engine/discovery';
import { label } from './engine/engine';
import { workspaceFolder } from './environment/environments';
import { mergeLimits } from './experiment/experiments';
import { readPetriFile } from './experiment/files';
import { engineSearch, ownerOf, type Core } from './core';
import type { Records } from './records/records';
import { isLive } from './sandbox/sandboxes';
import type { Handlers } from './server/server';
import { gitVersion } from './workspace/git';

export interface AgentContext {
  home: string;
  version: string;
  records: Records;
  /** Builds the core at the first call; a failure is tried again at the next. */
  core(): Promise<Core>;
  status(): AgentStatus;
  /** The variables by which the engine is found. */
  engineEnv(): NodeJS.ProcessEnv;
  /** Ends the agent after the answer has gone out. */
  stop(): void;
}

export function createHandlers(context: AgentContext): Handlers {
  const { records } = context;
  return {
    'agent.status': async () => context.status(),
    'agent.stop': async () => {
      const status = context.status();
      context.stop();
      return { ...status, state: 'stopped' };
    },
    doctor: () => doctor(context),
    'sandbox.create': async (input, call) => {
      const workspace = workspaceFolder(input.workspace);
      const { sandboxes } = await context.core();
      const settings = await readPetriFile(workspace);
      return sandboxes.create({
        workspace,
        settings,
        limits: { ...mergeLimits(settings.limits), ...input.limits },
        network: input.network ?? settings.network,
        ...(input.name === undefined ? {} : { name: input.name }),
        ...(input.image === undefined ? {} : { image: input.image }),
        ...(input.tier === undefined ? {} : { tier: input.tier }),
        signal: call.signal,
        progress: (p) => call.progress(p),
      });
    },
    'sandbox.list': async (input) => {
      const { sandboxes } = await context.core();
      return sandboxes.list({
        all: input.all,
        ...(input.workspace === undefined ? {} : { workspace: path.resolve(input.workspace) }),
      });
    },
    'sandbox.show': async (input) => (await context.core()).sandboxes.find(input.sandbox),
    'sandbox.exec': async (input, call) => {
      const { sandboxes } = await context.core();
      let registration: { dispose(): void } | undefined;
      try {
        return await sandboxes.exec(input.sandbox, {
          command: input.command,
          tty: input.tty,
          stdin: input.stdin,
          env: input.env,
          signal: call.signal,
          ...(input.cwd === undefined ? {} : { cwd: input.cwd }),
          ...(input.size === undefined ? {} : { size: input.size }),
          ...(input.timeoutMs === undefined ? {} : { timeoutMs: input.timeoutMs }),
          output: (channel, data) =>
            call.client.output({ stream: input.stream, channel, data: data.toString('base64') }),
          began: (handle) => {
            registration = call.client.onInput(input.stream, {
              write: (data) => handle.write(data),
              end: () => handle.closeStdin(),
              resize: (columns, rows) => void handle.resize(columns, rows).catch(() => undefined),
            });
          },
        });
      } finally {
        registration?.dispose();
      }
    },
    'sandbox.diff': async (input, call) =>
      (await context.core()).sandboxes.diff(input.sandbox, {
        patch: input.patch,
        signal: call.signal,
        ...(input.paths ? { paths: input.paths } : {}),
      }),
    'sandbox.snapshot': async (input) => (await context.core()).sandboxes.snapshot(input.sandbox, input.message),
    'sandbox.snapshots': async (input) => (await context.core()).sandboxes.snapshots(input.sandbox),
    'sandbox.rollback': async (input) => (await context.core()).sandboxes.rollback(input.sandbox, input.snapshot),
    'sandbox.fork': async (input, call) =>
      (await context.core()).sandboxes.fork(input.sandbox, {
        signal: call.signal,
        ...(input.snapshot === undefined ? {} : { snapshot: input.snapshot }),
        ...(input.name === undefined ? {} : { name: input.name }),
      }),
    'sandbox.destroy': async (input) => {
      const { sandboxes } = await context.core();
      // All are found before the first goes: a wrong id destroys nothing.
      const ids = [...new Set(input.sandboxes.map((ref) => sandboxes.find(ref).id))];
      return Promise.all(ids.map((id) => sandboxes.destroy(id, { discard: input.discard })));
    },
    'experiment.run': async (input) => {
      const workspace = workspaceFolder(input.workspace);
      return (await context.core()).experiments.start({
        workspace,
        file: path.resolve(workspace, input.file),
        keep: input.keep,
      });
    },
    'experiment.wait': async (input) => (await context.core()).experiments.wait(input.experiment),
    'experiment.list': async (input) =>
      records
        .allExperiments()
        .filter((e) => input.workspace === undefined || e.workspace === path.resolve(input.workspace)),
    'experiment.show': async (input) => records.findExperiment(input.experiment),
    'experiment.cancel': async (input) => (await context.core()).experiments.cancel(input.experiment),
    promote: async (input, call) =>
      (await context.core()).promotions.promote(input.source, {
        to: input.to,
        dryRun: input.dryRun,
        allowSensitive: input.allowSensitive,
        signal: call.signal,
        progress: (message) => call.progress({ message }),
      }),
    'promotion.list': async (input) =>
      records
        .allPromotions()
        .filter((p) => input.workspace === undefined || p.workspace === path.resolve(input.workspace)),
    'promotion.show': async (input) => records.findPromotion(input.promotion),
    'promotion.undo': async (input) => (await context.core()).promotions.undo(input.promotion),
    prune: (input) => prune(context, input.all),
  };
}

async function doctor(context: AgentContext): Promise<DoctorReport> {
  const report: DoctorReport = {
    id: ownerOf(context.home),
    state: 'ok',
    version: context.version,
    home: context.home,
    engine: null,
    tried: [],
    git: '',
    objects: { containers: 0, images: 0, orphans: 0 },
    problems: [],
  };
  try {
    report.git = await gitVersion();
  } catch (error) {
    report.problems.push(problem(error));
  }
  try {
    const { engine, tried } = await discoverEngine(engineSearch(context.engineEnv()));
    report.tried = tried;
    report.engine = await engine.report();
    const owned = { [label.owner]: report.id };
    const [boxes, images] = [await engine.listBoxes(owned), await engine.listImages(owned)];
    const orphans = boxes.filter((b) => {
      const record = context.records.sandbox(b.labels[label.sandbox] ?? '');
      return b.labels[label.role] === 'sandbox' && (!record || !isLive(record));
    }).length;
    report.objects = { containers: boxes.length, images: images.length, orphans };
    if (orphans > 0)
      report.problems.push({ message: `${orphans} containers have no owner any more.`, hint: 'Run `petri prune`.' });
    engine.dispose();
  } catch (error) {
    report.problems.push(problem(error));
    if (error instanceof PetriError && Array.isArray(error.data['tried']))
      report.tried = error.data['tried'] as DoctorReport['tried'];
  }
  return { ...report, state: report.problems.length === 0 ? 'ok' : 'trouble' };
}

function problem(error: unknown): { message: string; hint: string } {
  return { message: messageOf(error), hint: error instanceof PetriError ? (error.hint ?? '') : '' };
}

/** Removes what nothing alive needs. With `all`, everything of this data folder that is in the engine; work is saved first. */
async function prune(context: AgentContext, all: boolean): Promise<PruneReport> {
  const { engine, sandboxes, experiments, environments } = await context.core();
  const { records } = context;
  const owner = ownerOf(context.home);
  const report: PruneReport = { id: owner, state: 'done', containers: 0, images: 0, sandboxes: [], bytes: 0 };
  if (all) {
    await experiments.stop();
    for (const sandbox of sandboxes.list({ all: false })) {
      await sandboxes.destroy(sandbox.id, { discard: false });
      report.sandboxes.push(sandbox.id);
    }
    await environments.settledAll();
  }
  const live = new Set(sandboxes.list({ all: false }).map((s) => s.id));
  for (const box of await engine.listBoxes({ [label.owner]: owner })) {
    if (box.labels[label.role] === 'bake' && !all && Date.parse(box.labels[label.expires] ?? '') > Date.now()) continue;
    if (live.has(box.labels[label.sandbox] ?? '')) continue;
    await engine.removeBox(box.id);
    report.containers++;
  }
  const inUse = new Set(
    [...live].flatMap((id) => [
      records.sandbox(id)?.startImage ?? '',
      ...(records.sandbox(id)?.snapshots.map((s) => s.imageId) ?? []),
    ]),
  );
  // Children first: an image that another is made of can't go before it.
  const images = (await engine.listImages({ [label.owner]: owner })).sort(
    (a, b) => b.layers - a.layers || b.createdAt.localeCompare(a.createdAt),
  );
  const newest = new Set<string>();
  for (const image of images.toSorted((a, b) => b.createdAt.localeCompare(a.createdAt))) {
    const workspace = image.labels[label.workspace] ?? '';
    if (
      image.labels[label.role] === 'layer' &&
      ![...newest].some((id) => images.find((i) => i.id === id)?.labels[label.workspace] === workspace)
    )
      newest.add(image.id);
  }
  for (const image of images) {
    if (inUse.has(image.id) || live.has(image.labels[label.sandbox] ?? '') || (!all && newest.has(image.id))) continue;
    if (await engine.removeImage(image.id)) {
      report.images++;
      report.bytes += image.sizeBytes;
    }
  }
  return report;
}
