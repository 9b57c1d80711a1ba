/** Three-way merge of trees, path by path: renames are not guessed, so that what will happen can be told beforehand. */
import { PetriError } from '../../protocol/errors';
import { pathText, shorten, type BytePath } from '../../protocol/text';
import { fields } from './bytes';
import type { Git } from './git';
import { requireOid } from './objects';
import type { MergeResult, Oid } from './store';

const reasons: [RegExp, string][] = [
  [/binary/i, 'both sides changed this binary file'],
  [/modify\/delete/i, 'one side changed it, the other deleted it'],
  [/add\/add/i, 'both sides added it with different contents'],
  [/file\/directory|directory\/file/i, 'one side has a file where the other has a folder'],
  [/distinct (types|modes)|mode/i, 'the sides made different kinds of file of it'],
  [/content/i, 'both sides changed the same lines'],
];

/** What changed from `base` to `theirs`, onto `ours`. Needs git 2.38. */
export async function mergeTrees(git: Git, base: Oid, ours: Oid, theirs: Oid): Promise<MergeResult> {
  [base, ours, theirs].forEach(requireOid);
  if (theirs === base || ours === theirs) return { tree: ours, conflicts: [] };
  if (ours === base) return { tree: theirs, conflicts: [] };
  const commit = (tree: Oid, parents: string[]): Promise<string> =>
    git.text(['commit-tree', ...parents.flatMap((p) => ['-p', p]), '-m', 'petri', tree]);
  const root = await commit(base, []);
  const [a, b] = await Promise.all([commit(ours, [root]), commit(theirs, [root])]);
  const args = ['-c', 'merge.renames=false', '-c', 'merge.directoryRenames=false', '-c', 'core.bigFileThreshold=32m'];
  const run = await git.run([...args, 'merge-tree', '--write-tree', '--messages', '-z', a, b], { ok: [0, 1] });
  const list = fields(run.stdout);
  const tree = list[0] ?? '';
  if (run.code === 0) return { tree, conflicts: [] };
  const conflicts = parseConflicts(list.slice(1));
  if (conflicts.size === 0) throw new PetriError('git-failed', 'git reported conflicts but named none.');
  return { tree: null, conflicts: [...conflicts].map(([p, reason]) => ({ path: pathText(p as BytePath), reason })) };
}

/** After the tree: `mode oid stage\tpath` for each stage, an empty field, then messages: count, paths, kind, text. */
function parseConflicts(list: string[]): Map<string, string> {
  const conflicts = new Map<string, string>();
  let at = 0;
  for (; at < list.length && list[at] !== ''; at++) {
    const field = list[at] ?? '';
    conflicts.set(field.slice(field.indexOf('\t') + 1), 'the two sides can’t be put together');
  }
  at++;
  while (at < list.length) {
    const count = Number(list[at]);
    if (!Number.isInteger(count) || count < 0) break;
    const paths = list.slice(at + 1, at + 1 + count);
    const kind = list[at + 1 + count] ?? '';
    const text = list[at + 2 + count] ?? '';
    at += 3 + count;
    if (!/conflict/i.test(`${kind} ${text}`) && !/binary/i.test(`${kind} ${text}`)) continue;
    const known = reasons.find(([pattern]) => pattern.test(kind)) ?? reasons.find(([pattern]) => pattern.test(text));
    const reason = known?.[1] ?? shorten(text, 200);
    // "binary" comes beside "contents" for the same path and says more.
    for (const p of paths)
      if (conflicts.has(p) && !(conflicts.get(p) ?? '').includes('binary')) conflicts.set(p, reason);
  }
  return conflicts;
}
