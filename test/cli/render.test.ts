/** What the command draws: widths, hostile names, the words, what is marked and what folds. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import {
  experimentComparison,
  experimentDetail,
  experimentList,
  experimentResult,
} from '../../src/cli/render/experiment';
import { diffSummary, patchText } from '../../src/cli/render/diff';
import { doctor } from '../../src/cli/render/doctor';
import { promotionDetail, promotionList } from '../../src/cli/render/promotion';
import { experimentProgress } from '../../src/cli/render/progress';
import { sandboxDetail, sandboxList, snapshotTree } from '../../src/cli/render/sandbox';
import { table } from '../../src/cli/render/table';
import { lineWidth, paint, t, type Line } from '../../src/cli/render/text';
import { displayWidth, fit, fitMiddle, wrap } from '../../src/cli/render/width';
import { ago, checkWords } from '../../src/cli/render/words';
import * as sample from './samples';

const hostile = 'a\x1b[2J\x1b]0;owned\x07b\rc\nd\u202ee\u200bf\x9bg';

const controls = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f]/;

const text = (lines: readonly Line[]): string => paint(lines, false);
const view = (width: number): { width: number; now: number } => ({ width, now: sample.now });

/** Every screen for people, drawn for records whose every string is hostile where it may be. */
function screens(width: number): [string, readonly Line[]][] {
  const v = view(width);
  const evilRun = sample.run(hostile, {
    verdict: hostile,
    step: hostile,
    problem: hostile,
    files: [sample.file(hostile, { sensitive: hostile })],
    checks: [
      sample.check(hostile, {
        problems: [hostile],
        log: hostile,
        tests: {
          passed: 0,
          failed: 1,
          skipped: 0,
          cut: true,
          cases: [{ name: hostile, outcome: 'failed', message: hostile, durationMs: 1 }],
        },
      }),
    ],
    metrics: { [hostile]: 1 },
    artifacts: [{ path: hostile, bytes: 1, sha256: '', file: hostile }],
    log: hostile,
    patch: hostile,
  });
  const evil = sample.experiment({
    name: hostile,
    task: hostile,
    reason: hostile,
    problem: hostile,
    file: hostile,
    workspace: hostile,
    metrics: [{ name: hostile, better: 'higher' }],
    runs: [evilRun, sample.run('plain', { rank: 2 })],
    winner: hostile,
  });
  const box = sample.sandbox({
    name: hostile,
    workspace: hostile,
    problem: hostile,
    user: hostile,
    breach: 'oom',
    snapshots: [sample.snapshot('n2aaaaaaaaa', null, hostile)],
    execs: [
      {
        id: 'x2',
        command: ['echo', hostile],
        state: 'exited',
        exitCode: 1,
        breach: null,
        startedAt: sample.before(9),
        endedAt: sample.before(1),
        log: hostile,
        logCut: false,
      },
    ],
  });
  const promotion = sample.promotion({
    source: { kind: 'run', id: 'r1', name: hostile },
    problem: hostile,
    conflicts: [{ path: hostile, reason: hostile }],
    files: [sample.file(hostile, { sensitive: hostile })],
  });
  return [
    ['result', experimentResult(evil, v)],
    ['comparison', experimentComparison(evil, v)],
    ['detail', experimentDetail(evil, v)],
    ['experiments', experimentList([evil], v, false)],
    [
      'progress',
      experimentProgress({ ...evil, state: 'running', runs: [{ ...evilRun, state: 'running' }] }, hostile, 1, 24, v),
    ],
    ['sandboxes', sandboxList([box], v, true)],
    ['sandbox', sandboxDetail(box, v)],
    ['promotions', promotionList([promotion], v, false)],
    ['promotion', promotionDetail(promotion, v)],
    [
      'doctor',
      doctor(
        sample.doctorReport({
          home: hostile,
          engine: null,
          tried: [{ where: hostile, result: hostile }],
          problems: [{ message: hostile, hint: hostile }],
        }),
        v,
      ),
    ],
    ['diff', diffSummary({ files: 1, added: 1, removed: 1 }, [sample.file(hostile, { sensitive: hostile })], v)],
  ];
}

describe('cli: what is drawn', () => {
  it('shows no control character of any record, on any screen', () => {
    for (const [name, lines] of screens(100)) {
      const drawn = text(lines);
      assert.ok(!controls.test(drawn), `${name}: ${JSON.stringify(drawn)}`);
      assert.match(drawn, /\\x1b/, `${name} shows the escape as text`);
    }
  });

  it('stays within the width, narrow and wide', () => {
    for (const width of [40, 60, 80, 120, 200]) {
      for (const [name, lines] of screens(width)) {
        for (const l of lines) assert.ok(lineWidth(l) <= width, `${name} at ${width}: ${lineWidth(l)} ${text([l])}`);
      }
    }
  });

  it('counts wide, combining and narrow characters as a terminal does', () => {
    assert.equal(displayWidth('日本'), 4);
    assert.equal(displayWidth('e\u0301'), 1);
    assert.equal(displayWidth('🎉'), 2);
    assert.equal(displayWidth('✓ ★ ⚠ −'), 7);
    assert.equal(fit('日本語', 4), '日…');
    assert.equal(fitMiddle('src/very/long/path/file.ts', 14), 'src/…h/file.ts');
    assert.deepEqual(wrap('one two three', 7), ['one two', 'three']);
    assert.deepEqual(wrap('abcdefghij', 4), ['abcd', 'efgh', 'ij']);
  });

  it('puts the columns that do not fit below, beside the kept ones', () => {
    const lines = table(
      [{ title: 'name' }, { title: 'first' }, { title: 'second' }],
      [['x', '1'.repeat(20), '2'.repeat(20)]],
      40,
      1,
    );
    const drawn = text(lines);
    assert.equal(drawn.match(/^name/gm)?.length, 2);
    assert.match(drawn, /^x +1{20}$/m);
    assert.match(drawn, /^x +2{20}$/m);
  });

  it('marks the winner and the best of those that pass, and folds what is equal', () => {
    const drawn = text(experimentResult(sample.experiment(), view(140)));
    assert.match(drawn, /1 +★ +sed +✓ 41\/41 +1,234 • +1 file \+1 −1 • +3\.1 s •/);
    assert.match(drawn, /2 +✓ +rewrite/);
    assert.match(drawn, /– +✗ +naive +✗ 39\/41 +1,234 {2,}/);
    assert.match(drawn, /the same for all: size ✓$/m);
    assert.match(drawn, /↓ lower is better/);
    assert.match(drawn, /"sed" wins/);
    assert.match(drawn, /petri promote rsed2222222/);
    assert.match(drawn, /naive ran out of memory at 256 MB/);
  });

  it('says which way is better for a metric that should be high', () => {
    const drawn = text(
      experimentResult(sample.experiment({ metrics: [{ name: 'bytes', better: 'higher' }] }), view(140)),
    );
    assert.match(drawn, /bytes ↑/);
    assert.match(drawn, /3,013 •/);
    assert.match(drawn, /↑ higher is better/);
  });

  it('lists failing tests first and counts those that pass everywhere', () => {
    const drawn = text(experimentComparison(sample.experiment(), view(80)));
    assert.match(drawn, /✓ ✓ ✗ {2}rounding > case 3\n +expected 3\.5 to round up/);
    assert.match(drawn, /39 tests pass everywhere/);
    assert.doesNotMatch(drawn, /case 4\b/);
    assert.match(drawn, /M M M {2}src\/round\.js/);
    assert.match(drawn, /· A · {2}\.vscode\/tasks\.json {2}⚠ sensitive/);
  });

  it('folds tests that pass in every approach that got as far as testing', () => {
    const { runs } = sample.experiment();
    const drawn = text(
      experimentComparison(
        sample.experiment({
          runs: [...runs, sample.run('dead', { rank: null, state: 'failed', checks: [], files: [] })],
        }),
        view(80),
      ),
    );
    assert.match(drawn, /✓ ✓ ✗ · {2}rounding > case 3/);
    assert.match(drawn, /39 tests pass everywhere/);
  });

  it('draws ten approaches in eighty columns without losing one', () => {
    const runs = Array.from({ length: 10 }, (_, i) =>
      sample.run(`approach-number-${i}`, { id: `r${i}`, rank: i + 1, wallMs: 1000 + i }),
    );
    const drawn = text(experimentResult(sample.experiment({ runs, winner: 'approach-number-0' }), view(80)));
    for (const r of runs) assert.ok(drawn.includes(r.name), r.name);
  });

  it('keeps the chain of snapshots in its column and marks where it stands', () => {
    const drawn = text(
      snapshotTree(
        sample.sandbox({
          currentSnapshot: 'n3',
          snapshots: [
            sample.snapshot('n1', null, 'deps'),
            sample.snapshot('n2', 'n1', 'green'),
            sample.snapshot('n3', 'n2', 'tidy'),
            sample.snapshot('n4', 'n1', 'other', { automatic: true }),
          ],
        }),
        view(80),
      ),
    );
    const lines = drawn.split('\n').map((l) => l.slice(0, 6).trimEnd());
    assert.deepEqual(lines, ['  ○', '  ○', '  ├─○', '  │ ◉', '  └─○', '']);
    assert.match(drawn, /◉ n3 .*← here/);
    assert.match(drawn, /n4 .*automatic/);
  });

  it('draws a snapshot whose parent is unknown, and a circle of parents, without end', () => {
    const drawn = text(
      snapshotTree(
        sample.sandbox({
          snapshots: [
            sample.snapshot('n1', 'n9', 'orphan'),
            sample.snapshot('n2', 'n3', 'a'),
            sample.snapshot('n3', 'n2', 'b'),
          ],
        }),
        view(80),
      ),
    );
    assert.match(drawn, /orphan/);
  });

  it('shows the ladder, marks sensitive files and says the way back', () => {
    const drawn = text(promotionDetail(sample.promotion(), view(80)));
    assert.match(drawn, /verified ✓ 6\.0 s → local ✓/);
    assert.match(drawn, /⚠ the editor runs it/);
    assert.match(drawn, /petri promotion undo p7h2n4x9k3m/);
  });

  it('makes a patch safe for a terminal and leaves its tabs and lines', () => {
    const patch = 'diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\told\n+\tne\x1b[31mw\r\n';
    assert.equal(patchText(patch, false), patch.replace('\x1b', '\\x1b').replace('\r', '\\r'));
    // A removed line that begins with dashes is no header.
    assert.match(patchText('@@ -1 +1 @@\n--- not a header\n', true), /\x1b\[31m--- not a header/);
  });

  it('paints nothing without colour', () => {
    assert.equal(paint([[t('a', 'good'), t('b', 'bad')]], false), 'ab\n');
    assert.equal(paint([[t('a', 'good')]], true), '\x1b[32ma\x1b[0m\n');
  });

  it('says times and checks in words', () => {
    assert.equal(ago(sample.before(120), sample.now), '2 min ago');
    assert.equal(ago(new Date(sample.now + 3_600_000).toISOString(), sample.now), 'in 1 h');
    assert.equal(ago('nonsense', sample.now), '');
    assert.equal(checkWords(sample.check('c', { passed: false, exitCode: 2 })), 'exit 2');
    assert.equal(checkWords(sample.check('c', { passed: false, exitCode: 0, problems: ['no report'] })), 'problem');
    assert.equal(checkWords(sample.check('c', { passed: false, exitCode: null })), 'did not end');
    assert.equal(checkWords(sample.check('c', { passed: false, exitCode: null, breach: 'timeout' })), 'timed out');
  });
});
