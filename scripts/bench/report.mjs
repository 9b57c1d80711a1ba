// What is made of the measurements: figures, a table for people, JSON for machines.
import { median } from './measure.mjs';

/** A row with its measurements, worked out. A row without an aim is there for information: `held` is null. */
export function resultOf(row, { ours, base }) {
  const side = (values) => ({
    median: median(values),
    min: Math.min(...values),
    max: Math.max(...values),
    all: values,
  });
  const [a, b] = [side(ours), side(base)];
  const unit = row.unit ?? 'ms';
  const ratio = a.median / b.median;
  const held = row.aim === undefined ? null : (unit === 'bytes' ? a.median : ratio) <= row.aim;
  const { id, what, against, aim = null } = row;
  return { id, what, against, unit, ratio, aim, held, ours: a, base: b };
}

function figure(value, unit) {
  if (unit === 'bytes') return `${Math.round(value / 1024 / 1024)} MB`;
  return Math.abs(value) >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(0)} ms`;
}

const spread = ({ median: middle, min, max }, unit) =>
  min === max ? figure(middle, unit) : `${figure(middle, unit)} (${figure(min, unit)} – ${figure(max, unit)})`;

const aimOf = ({ aim, unit }) => (aim === null ? '–' : `≤ ${unit === 'bytes' ? figure(aim, unit) : aim}`);
const markOf = ({ held }) => (held === null ? '' : held ? '✓' : '✗');

/** One line of progress. */
export const lineOf = (r) =>
  `  ${r.ratio.toFixed(2)} × (${spread(r.ours, r.unit)} / ${spread(r.base, r.unit)}), aim ${aimOf(r)} ${markOf(r)}`;

/** The Markdown table, under a line that says where and when. */
export function tableOf(results, { date, cores, platform, node, engine, storage, quick }) {
  return [
    `${date}, ${cores} cores, ${platform}, node ${node}, engine ${engine}, storage ${storage}${quick ? ', quick' : ''}. Medians, with the least and the most.`,
    '',
    '| measure | against | Petri | baseline | ratio | aim | |',
    '|---|---|---:|---:|---:|---:|---|',
    ...results.map(
      (r) =>
        `| ${r.what} | ${r.against} | ${spread(r.ours, r.unit)} | ${spread(r.base, r.unit)} | ${r.ratio.toFixed(2)} | ${aimOf(r)} | ${markOf(r)} |`,
    ),
  ].join('\n');
}
