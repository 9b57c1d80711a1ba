/**
 * Ranks the runs of an experiment. Pure, and the same whatever order they come in. What is compared, first to last: can it win
 * (it passed and changed something), checks passed, tests failed and passed, the declared metrics, lines changed, files
 * changed, wall time; then the name.
 */
import type { Limits, MetricDeclaration, RunRecord } from '../../protocol/records';
import { criteriaOf, measure, sortAll } from './ranking-criteria';
import { reasonFor, verdictFor, type Field } from './ranking-words';

export interface Ranking {
  /** Run id → 1 for the best; null for a run that can't win. */
  ranks: Map<string, number | null>;
  /** Run id → why it stands where it stands, short enough for a table. */
  verdicts: Map<string, string>;
  /** The winner's name. */
  winner: string | null;
  /** Why it won and the others did not, or why there is none; whole sentences. */
  reason: string;
  /** Every run's id, best first, those that can't win last. */
  order: string[];
}

/**
 * Ranks `runs` by `metrics` in their declared order. `limits` only serves the words ("out of memory at 256 MB").
 * Nearly equal times (less than 10 % or 100 ms apart from the fastest of equals) count as the same, so the name decides.
 */
export function rankRuns(runs: RunRecord[], metrics: MetricDeclaration[], options: { limits?: Limits } = {}): Ranking {
  const criteria = criteriaOf(metrics);
  const sorted = sortAll(runs.map(measure), criteria);
  const able = sorted.filter((s) => s.standing === 0);
  const [winner] = able;
  const field: Field = { sorted, able, criteria, limits: options.limits ?? {} };
  return {
    ranks: new Map(sorted.map((s) => [s.run.id, s.standing === 0 ? able.indexOf(s) + 1 : null])),
    verdicts: new Map(sorted.map((s) => [s.run.id, verdictFor(s, field)])),
    winner: winner?.run.name ?? null,
    reason: reasonFor(field),
    order: sorted.map((s) => s.run.id),
  };
}
