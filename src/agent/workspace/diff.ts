/** Two trees as people see them: names, line counts, sensitive paths, patches. */
import type { DiffFile } from '../../protocol/records';
import { pathText } from '../../protocol/text';
import { fields } from './bytes';
import type { Git } from './git';
import { describeObjects, readObjects, requireOid } from './objects';
import { sensitiveReason, type SensitiveSide } from './sensitive';
import type { DiffResult, Oid, TreeChange } from './store';
import { changeTree, compareTrees, parseRaw, rawDiff, under } from './trees';

const noMode = '000000';
/** Files from this size on count as binary: nobody reads their lines, and git would hold them in memory. */
const settings = ['-c', 'core.bigFileThreshold=32m'];
/** Contents larger than this are not looked into for sensitive changes. */
const maxLooked = 4 * 1024 ** 2;
const defaultMaxPatch = 256 * 1024 ** 2;

export async function diffTrees(git: Git, before: Oid, after: Oid): Promise<DiffResult> {
  [before, after].forEach(requireOid);
  const none = { stat: { files: 0, added: 0, removed: 0 }, files: [] };
  if (before === after) return none;
  const list = fields((await git.run([...settings, ...rawDiff, '--numstat', before, after])).stdout);
  const { changes, used } = parseRaw(list);
  const counts = new Map<string, { added: number | null; removed: number | null }>();
  for (const field of list.slice(used)) {
    const [added = '-', removed = '-'] = field.split('\t', 2);
    const name = field.slice(added.length + removed.length + 2);
    counts.set(name, {
      added: added === '-' ? null : Number(added),
      removed: removed === '-' ? null : Number(removed),
    });
  }
  const sensitive = await markSensitive(git, changes);
  const stat = { files: changes.length, added: 0, removed: 0 };
  const files = changes.map((change): DiffFile => {
    const { added, removed } = counts.get(change.path) ?? { added: null, removed: null };
    stat.added += added ?? 0;
    stat.removed += removed ?? 0;
    return {
      path: pathText(change.path),
      status: statusOf(change),
      added,
      removed,
      oldMode: change.before?.mode ?? noMode,
      newMode: change.after?.mode ?? noMode,
      sensitive: sensitive.get(change.path) ?? null,
    };
  });
  return { stat, files };
}

function statusOf({ before, after }: TreeChange): DiffFile['status'] {
  if (before === null) return 'added';
  if (after === null) return 'deleted';
  return (before.mode === '120000') === (after.mode === '120000') ? 'modified' : 'type-changed';
}

/** Why each path is sensitive; reads only the contents that the rules ask for. */
async function markSensitive(git: Git, changes: TreeChange[]): Promise<Map<string, string>> {
  const wanted = new Set<Oid>();
  const needs = (change: TreeChange): boolean =>
    /(^|\/)package\.json$/i.test(change.path) || change.after?.mode === '120000';
  for (const change of changes)
    if (needs(change)) for (const side of [change.before, change.after]) if (side) wanted.add(side.oid);
  const small: Oid[] = [];
  const oids = [...wanted];
  const described = await describeObjects(git, oids);
  oids.forEach((oid, i) => {
    if ((described[i]?.size ?? Infinity) <= maxLooked) small.push(oid);
  });
  const contents = new Map<Oid, Buffer>();
  for await (const { oid, data } of readObjects(git, small)) contents.set(oid, data);
  const sideOf = (side: TreeChange['before']): SensitiveSide | null =>
    side && { mode: side.mode, content: contents.get(side.oid) };
  const reasons = new Map<string, string>();
  for (const change of changes) {
    const reason = sensitiveReason(change.path, { before: sideOf(change.before), after: sideOf(change.after) });
    if (reason !== null) reasons.set(change.path, reason);
  }
  return reasons;
}

/** Unified diff with binary patches; cut at a line end, with a last line that says so. */
export async function patchBetween(
  git: Git,
  scratch: string,
  before: Oid,
  after: Oid,
  { paths, maxBytes = defaultMaxPatch }: { paths?: string[]; maxBytes?: number } = {},
): Promise<{ text: string; cut: boolean }> {
  [before, after].forEach(requireOid);
  let to = after;
  if (paths && paths.length > 0) {
    // Names that are not UTF-8 can't be arguments, so the paths are chosen by making a tree that has only their changes.
    const chosen = under(await compareTrees(git, before, after), paths);
    if (chosen.length === 0) return { text: '', cut: false };
    to = await changeTree(
      git,
      scratch,
      before,
      chosen.map((c) => ({ path: c.path, entry: c.after })),
    );
  }
  const args = [
    'diff-tree',
    '-r',
    '-p',
    '--binary',
    '--full-index',
    '--no-renames',
    '--no-color',
    '--no-ext-diff',
    '--no-textconv',
  ];
  const out = git.stream([...settings, ...args, before, to]);
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of out as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxBytes) break;
    }
  } finally {
    out.destroy();
  }
  const all = Buffer.concat(chunks);
  if (all.length <= maxBytes) return { text: all.toString('utf8'), cut: false };
  const end = all.lastIndexOf(10, maxBytes - 1);
  return {
    text: `${all.toString('utf8', 0, end + 1)}# cut here: the diff is larger than ${maxBytes} bytes\n`,
    cut: true,
  };
}
