/** Sandboxes for people: the list, one in full, its snapshots as a tree. */
import type { SandboxRecord, SnapshotRecord } from '../../protocol/records';
import { facts, table, type Cell } from './table';
import { blank, fitLine, line, paragraph, pathSpan, t, type Line } from './text';
import { breachSentence, breachWords, plural } from '../../protocol/words';
import { ago, duration, elapsed, lifeTime, limitsText, sandboxState, statLine } from './words';
import { fit, displayWidth } from './width';

export interface View {
  /** Columns of the terminal. */
  width: number;
  /** The present, ms. */
  now: number;
}

/** What a sandbox is up to, in few words. */
function note(record: SandboxRecord): string {
  if (record.problem !== null) return record.problem;
  if (record.breach !== null) return breachWords(record.breach, { limits: record.limits });
  const running = record.execs.filter((e) => e.state === 'running').length;
  if (running > 0) return `${plural(running, 'command')} running`;
  if (record.state === 'destroyed') return record.saved ? 'work kept' : 'nothing kept';
  return record.snapshots.some((s) => s.state === 'kept')
    ? plural(record.snapshots.filter((s) => s.state === 'kept').length, 'snapshot')
    : '';
}

export function sandboxList(records: readonly SandboxRecord[], view: View, withWorkspace: boolean): Line[] {
  if (records.length === 0) {
    return [
      line(withWorkspace ? 'There are no sandboxes.' : 'There are no sandboxes of this workspace.'),
      line(
        '  ',
        t(
          withWorkspace
            ? 'Make one: petri sandbox create'
            : 'Make one: petri sandbox create   See all: petri sandbox list --all',
          'dim',
        ),
      ),
    ];
  }
  // Where space is short, what the sandbox is up to says more than what it is made of.
  const withImage = view.width >= 100;
  const rows = records.map((r): Cell[] => [
    t(r.id, 'accent'),
    t(r.name, 'strong'),
    sandboxState(r.state),
    ...(withWorkspace ? [pathSpan(r.workspace)] : []),
    t(lifeTime(r, view.now), 'dim'),
    t(note(r), r.problem !== null || r.breach !== null ? 'warn' : 'dim'),
    ...(withImage ? [t(r.environment.image, 'dim')] : []),
  ]);
  return table(
    [
      { title: 'id' },
      { title: 'name', min: 12 },
      { title: 'state' },
      ...(withWorkspace ? [{ title: 'workspace', min: 14 }] : []),
      { title: 'time' },
      { title: '', min: 12 },
      ...(withImage ? [{ title: 'image', min: 12 }] : []),
    ],
    rows,
    view.width,
  );
}

/** One line after something was done to a sandbox. */
export function sandboxHead(record: SandboxRecord): Line {
  return line(sandboxState(record.state), '  ', t(record.id, 'accent'), '  ', t(record.name, 'strong'));
}

const shownCommands = 8;

export function sandboxDetail(record: SandboxRecord, view: View): Line[] {
  const { environment } = record;
  const owner =
    record.owner.kind === 'user'
      ? undefined
      : `${record.owner.kind}${record.owner.id === null ? '' : ` ${record.owner.id}`}`;
  const out: Line[] = [
    fitLine(sandboxHead(record), view.width),
    ...facts(
      [
        ['workspace', pathSpan(record.workspace)],
        ['image', line(environment.image, '  ', t(shortId(environment.imageDigest), 'dim'))],
        [
          'state of',
          line(
            'tree ',
            t(environment.tree.slice(0, 12), 'dim'),
            environment.commit === null ? '' : '  commit ',
            t(environment.commit?.slice(0, 12) ?? '', 'dim'),
          ),
        ],
        [
          'isolation',
          line(record.tier, t(` · network ${record.network}`), t(record.user === '' ? '' : ` · user ${record.user}`)),
        ],
        ['limits', limitsText(record.limits)],
        ['made', `${ago(record.createdAt, view.now)}${owner === undefined ? '' : `, for ${owner}`}`],
        ['until', record.expiresAt === null || record.endedAt !== null ? undefined : lifeTime(record, view.now)],
        ['ended', record.endedAt === null ? undefined : ago(record.endedAt, view.now)],
        [
          'forked from',
          record.forkedFrom === null ? undefined : `${record.forkedFrom.sandbox} at ${record.forkedFrom.snapshot}`,
        ],
        ['kept work', record.saved === null ? undefined : statLine(record.saved.diff)],
        ['patch', record.saved?.patch ? pathSpan(record.saved.patch) : undefined],
      ],
      view.width,
    ),
  ];
  if (record.problem !== null) out.push(blank, ...paragraph(record.problem, view.width, line(t('✗ ', 'bad'))));
  if (record.breach !== null) {
    out.push(
      blank,
      ...paragraph(
        breachSentence(record.breach, { name: record.name, limits: record.limits }),
        view.width,
        line(t('! ', 'warn')),
      ),
    );
  }
  if (record.snapshots.some((s) => s.state === 'kept'))
    out.push(blank, line(t('SNAPSHOTS', 'title')), ...snapshotTree(record, view));
  if (record.execs.length > 0) {
    const last = record.execs.slice(-shownCommands);
    const rows = last.map((e): Cell[] => [
      e.state === 'running' ? t('◌', 'accent') : e.exitCode === 0 ? t('✓', 'good') : t('✗', 'bad'),
      t(e.command.join(' ')),
      t(
        e.state === 'running'
          ? 'running'
          : e.breach !== null
            ? breachWords(e.breach)
            : e.exitCode === null
              ? e.state
              : `exit ${e.exitCode}`,
      ),
      t(duration(elapsed(e.startedAt, e.endedAt, view.now)), 'dim'),
      pathSpan(e.log, 'dim'),
    ]);
    const more = record.execs.length - last.length;
    out.push(
      blank,
      line(t('COMMANDS', 'title'), t(more > 0 ? `  the last ${last.length} of ${record.execs.length}` : '', 'dim')),
    );
    out.push(
      ...table(
        [{ title: '' }, { title: '', min: 12 }, { title: '' }, { title: '', align: 'right' }, { title: '', min: 12 }],
        rows,
        view.width - 2,
      ).map((l) => [t('  '), ...l]),
    );
  }
  return out;
}

/** `sha256:0123456789ab` */
export function shortId(digest: string): string {
  return digest.startsWith('sha256:') ? `sha256:${digest.slice(7, 19)}` : digest.slice(0, 19);
}

/**
 * The snapshots of a sandbox as a tree. A chain stays in its column; only where the way parts do lines go to the right.
 * The one that the present state comes after is marked.
 */
export function snapshotTree(
  record: Pick<SandboxRecord, 'snapshots' | 'currentSnapshot' | 'createdAt'>,
  view: View,
): Line[] {
  const ids = new Set(record.snapshots.map((s) => s.id));
  const children = new Map<string | null, SnapshotRecord[]>();
  for (const s of record.snapshots) {
    const parent = s.parent !== null && ids.has(s.parent) && s.parent !== s.id ? s.parent : null;
    children.set(parent, [...(children.get(parent) ?? []), s]);
  }
  const rows: { tree: string; node: SnapshotRecord | null }[] = [];
  const seen = new Set<string>();
  const walk = (start: SnapshotRecord | null, first: string, rest: string): void => {
    let node = start;
    let lead = first;
    for (;;) {
      rows.push({ tree: lead, node });
      const next: SnapshotRecord[] = (children.get(node?.id ?? null) ?? []).filter((s) => !seen.has(s.id));
      for (const s of next) seen.add(s.id);
      const [only, second] = next;
      if (!only) return;
      if (second) {
        next.forEach((s, i) =>
          i === next.length - 1 ? walk(s, `${rest}└─`, `${rest}  `) : walk(s, `${rest}├─`, `${rest}│ `),
        );
        return;
      }
      node = only;
      lead = rest;
    }
  };
  walk(null, '', '');
  const treeWidth = Math.max(...rows.map((r) => r.tree.length)) + 1;
  const messages = rows.map(({ node }) => (node === null ? 'start' : node.message === '' ? '' : node.message));
  const messageWidth = Math.min(Math.max(...messages.map(displayWidth)), Math.max(12, view.width - treeWidth - 50));
  return rows.map(({ tree, node }, i) => {
    const here = (node?.id ?? null) === record.currentSnapshot;
    const removed = node?.state === 'removed';
    const message = fit(t(messages[i] ?? '').text, messageWidth);
    return fitLine(
      line(
        t(`  ${tree}`, 'dim'),
        here ? t('◉', 'good') : t(removed ? '·' : '○', removed ? 'dim' : 'plain'),
        ' '.repeat(treeWidth - tree.length),
        t((node?.id ?? '').padEnd(11), removed ? 'dim' : 'accent'),
        '  ',
        t(message, removed ? 'dim' : here ? 'strong' : 'plain'),
        ' '.repeat(messageWidth - displayWidth(message) + 2),
        t(ago(node?.createdAt ?? record.createdAt, view.now).padEnd(10), 'dim'),
        t(node?.automatic === true ? '  automatic' : '', 'dim'),
        t(removed ? '  removed' : '', 'dim'),
        here ? t('  ← here', 'good') : '',
      ),
      view.width,
    );
  });
}
