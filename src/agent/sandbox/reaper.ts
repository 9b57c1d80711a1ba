/**
 * Putting records and engine back in step: at start, after whatever happened, and then regularly. What has an owner that lives is kept, what has
 * none is removed, what is over its time is saved and destroyed.
 */
import type { SandboxRecord } from '../../protocol/records';
import { label, type Engine } from '../engine/engine';
import type { Records } from '../records/records';
import { isLive, type Sandboxes } from './sandboxes';

interface Context {
  engine: Engine;
  records: Records;
  sandboxes: Sandboxes;
  owner: string;
}

/** How often expiry is looked at, ms. */
const sweepEveryMs = 5_000;

/** Run once before the agent answers. `orphanOf` says why a sandbox has no living owner, or null when it has one. */
export async function reconcile(context: Context, orphanOf: (s: SandboxRecord) => string | null): Promise<void> {
  const { engine, records, sandboxes, owner } = context;
  const boxes = await engine.listBoxes({ [label.owner]: owner });
  for (const record of records.allSandboxes()) {
    for (const exec of record.execs) {
      if (exec.state === 'running')
        records.putExec(record.id, { ...exec, state: 'interrupted', endedAt: new Date().toISOString() });
    }
    if (!isLive(record)) continue;
    const mine = boxes.filter((b) => b.labels[label.sandbox] === record.id && b.labels[label.role] === 'sandbox');
    const newest = mine.reduce<(typeof mine)[number] | undefined>(
      (a, b) => (a && Number(a.labels[label.generation]) >= Number(b.labels[label.generation]) ? a : b),
      undefined,
    );
    if (record.state === 'destroying') {
      await sandboxes.remove(record);
    } else if (!newest) {
      await sandboxes.remove({
        ...record,
        problem: record.state === 'creating' ? 'the agent ended while it was made' : 'its container is gone',
      });
    } else if (record.state === 'creating') {
      // Nobody ever got it: it is not handed out second-hand.
      await sandboxes.remove({ ...record, problem: 'the agent ended while it was made' });
    } else {
      await adoptOldBoxes(context, record, mine, newest);
      records.putSandbox({
        ...(records.sandbox(record.id) ?? record),
        containerId: newest.id,
        generation: Number(newest.labels[label.generation]) || record.generation,
        state: newest.state === 'running' ? 'ready' : 'stopped',
      });
      const orphan = orphanOf(record);
      if (orphan !== null) {
        records.putSandbox({ ...(records.sandbox(record.id) ?? record), problem: orphan });
        await sandboxes.destroy(record.id, { discard: false });
      }
    }
  }
  for (const box of boxes) {
    const record = records.sandbox(box.labels[label.sandbox] ?? '');
    if (box.labels[label.role] !== 'sandbox' || !record || !isLive(record)) await engine.removeBox(box.id);
  }
}

/** A rollback that was cut off: the box before it is saved as the snapshot that was promised, then removed. */
async function adoptOldBoxes(
  context: Context,
  record: SandboxRecord,
  mine: { id: string; labels: Record<string, string> }[],
  newest: { id: string },
): Promise<void> {
  for (const old of mine) {
    if (old.id === newest.id) continue;
    const open = record.snapshots.find((s) => s.automatic && s.imageId === '');
    if (open) {
      const image = await context.engine.commitBox(old.id, {
        tag: `petri/snapshot-${context.owner}:${open.id}`,
        labels: {
          [label.owner]: context.owner,
          [label.role]: 'snapshot',
          [label.workspace]: record.workspace,
          [label.sandbox]: record.id,
          [label.snapshot]: open.id,
        },
      });
      const current = context.records.sandbox(record.id) ?? record;
      context.records.putSandbox({
        ...current,
        snapshots: current.snapshots.map((s) => (s.id === open.id ? { ...s, imageId: image.id } : s)),
      });
    }
    await context.engine.removeBox(old.id);
  }
}

/** Ends what is over its time, regularly until disposed. Work in it is saved first. */
export function startReaper(context: Context): { dispose(): void } {
  let busy = false;
  const sweep = async (): Promise<void> => {
    if (busy) return;
    busy = true;
    try {
      const now = Date.now();
      for (const record of context.records.allSandboxes()) {
        if (
          !isLive(record) ||
          record.expiresAt === null ||
          Date.parse(record.expiresAt) > now ||
          record.owner.kind !== 'user'
        )
          continue;
        await context.sandboxes
          .expire(record.id)
          .catch((error: unknown) => console.error(`could not end sandbox ${record.id}:`, error));
      }
    } finally {
      busy = false;
    }
  };
  const timer = setInterval(() => void sweep(), sweepEveryMs);
  return { dispose: () => clearInterval(timer) };
}
