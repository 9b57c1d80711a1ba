/** The reports of `doctor`, `agent status` and `prune` for people. */
import type { AgentStatus, DoctorReport, EngineReport, PruneReport } from '../../protocol/operations';
import { formatBytes } from '../../protocol/units';
import { facts, table } from './table';
import { blank, line, paragraph, pathSpan, t, type Line, type Span } from './text';
import { plural } from '../../protocol/words';
import { ago } from './words';
import type { View } from './sandbox';

const enforcement = {
  hard: { symbol: '✓', tone: 'good', words: 'enforced' },
  soft: { symbol: '~', tone: 'warn', words: 'soft: watched, not enforced' },
  missing: { symbol: '✗', tone: 'bad', words: 'not available' },
} as const;

function engineLines(engine: EngineReport, view: View): Line[] {
  const limits = Object.entries(engine.limits);
  const groups = (['hard', 'soft', 'missing'] as const).flatMap((kind): [string, Span[]][] => {
    const names = limits.filter(([, k]) => k === kind).map(([name]) => name);
    const { symbol, tone, words } = enforcement[kind];
    return names.length === 0 ? [] : [['limits', [t(`${symbol} `, tone), t(names.join(', ')), t(`  ${words}`, 'dim')]]];
  });
  return [
    line(t('ENGINE', 'title'), '  ', t('✓ ', 'good'), t(engine.name, 'strong'), ` ${engine.version}`),
    ...facts(
      [
        ['kind', engine.kind],
        ['where', pathSpan(engine.endpoint)],
        ['found by', engine.foundBy],
        ['storage', engine.storageDriver === '' ? undefined : engine.storageDriver],
        ['trust tiers', engine.tiers.join(' · ')],
        ...groups,
      ],
      view.width,
    ),
  ];
}

export function doctor(report: DoctorReport, view: View): Line[] {
  const { objects } = report;
  const good = report.state === 'ok' && report.engine !== null;
  const out: Line[] = [
    line(
      t(`Petri ${report.version}`, 'title'),
      '  ',
      good ? t('✓ everything works', 'good') : t(`✗ ${plural(Math.max(1, report.problems.length), 'problem')}`, 'bad'),
    ),
    ...facts(
      [
        ['data folder', pathSpan(report.home)],
        ['git', report.git === '' ? t('not found', 'bad') : report.git],
      ],
      view.width,
    ),
    blank,
  ];
  if (report.engine) {
    out.push(...engineLines(report.engine, view), blank);
    out.push(
      line(
        t('OBJECTS', 'title'),
        `  ${plural(objects.containers, 'container')} · ${plural(objects.images, 'image')} · `,
        objects.orphans === 0
          ? t('nothing left behind', 'good')
          : t(`${plural(objects.orphans, 'orphan')}: petri prune`, 'warn'),
      ),
    );
  } else {
    out.push(line(t('ENGINE', 'title'), '  ', t('✗ none found', 'bad')));
    out.push(
      ...table(
        [
          { title: 'looked at', min: 16 },
          { title: 'found', min: 16 },
        ],
        report.tried.map((e) => [pathSpan(e.where), t(e.result, 'dim')]),
        view.width - 2,
      ).map((l): Line => [t('  '), ...l]),
    );
  }
  if (report.problems.length > 0) {
    out.push(blank, line(t('PROBLEMS', 'title')));
    for (const p of report.problems) {
      // What was tried stands above already.
      const message = report.engine === null ? (p.message.split(' Tried: ')[0] ?? p.message) : p.message;
      out.push(...paragraph(message, view.width, line('  ', t('✗ ', 'bad'))));
      if (p.hint !== '') out.push(...paragraph(p.hint, view.width, line('    '), 'dim'));
    }
  }
  return out;
}

export function agent(status: AgentStatus, view: View): Line[] {
  if (status.state === 'stopped')
    return [
      line(t('○ the agent is not running', 'dim')),
      ...facts([['data folder', pathSpan(status.home)]], view.width),
    ];
  return [
    line(
      t('● the agent is running', 'good'),
      t(status.startedAt === null ? '' : `  since ${ago(status.startedAt, view.now).replace(/ ago$/, '')}`, 'dim'),
    ),
    ...facts(
      [
        ['process', status.pid === null ? undefined : `${status.pid} · ${formatBytes(status.rssBytes)}`],
        ['version', `${status.version} · protocol ${status.protocol}`],
        ['data folder', pathSpan(status.home)],
        [
          'now',
          `${plural(status.clients, 'client')} · ${plural(status.sandboxes, 'sandbox', 'sandboxes')} · ${plural(status.experiments, 'experiment')}`,
        ],
      ],
      view.width,
    ),
  ];
}

export function prune(report: PruneReport): Line[] {
  const parts = [
    report.sandboxes.length > 0 ? plural(report.sandboxes.length, 'sandbox', 'sandboxes') : '',
    report.containers > 0 ? plural(report.containers, 'container') : '',
    report.images > 0 ? plural(report.images, 'image') : '',
  ].filter((p) => p !== '');
  if (parts.length === 0) return [line(t('✓ ', 'good'), 'There was nothing to remove.')];
  return [
    line(
      t('✓ ', 'good'),
      `Removed ${parts.join(', ')}`,
      report.bytes > 0 ? `; ${formatBytes(report.bytes)} are free again.` : '.',
    ),
  ];
}
