/** Ranking: every criterion decides when only it differs, the order of the input never does, and the words are true. */
import assert from 'node:assert/strict';
import { rankRuns, type Ranking } from '../../src/agent/experiment/ranking';
import type { CheckResult, MetricDeclaration, RunRecord } from '../../src/protocol/records';

const metrics: MetricDeclaration[] = [
  { name: 'bytes', better: 'lower' },
  { name: 'coverage', better: 'higher' },
];

function check(
  change: Partial<CheckResult> = {},
  tests?: [passed: number, failed: number, skipped?: number],
): CheckResult {
  return {
    name: 'tests',
    passed: true,
    exitCode: 0,
    durationMs: 10,
    tests: tests ? { passed: tests[0], failed: tests[1], skipped: tests[2] ?? 0, cases: [], cut: false } : null,
    metrics: {},
    breach: null,
    problems: [],
    log: null,
    logCut: false,
    ...change,
  };
}

function run(name: string, change: Partial<RunRecord> = {}): RunRecord {
  return {
    id: `id-${name}`,
    experiment: 'e',
    name,
    state: 'passed',
    rank: null,
    verdict: '',
    step: '',
    sandbox: null,
    baseTree: 'b',
    tree: 't',
    exitCode: 0,
    breach: null,
    problem: null,
    diff: { files: 1, added: 1, removed: 1 },
    files: [],
    patch: null,
    log: null,
    logCut: false,
    checks: [check({}, [41, 0])],
    metrics: { bytes: 100, coverage: 50 },
    artifacts: [],
    wallMs: 3000,
    cpuSeconds: null,
    peakMemoryBytes: null,
    startedAt: null,
    endedAt: null,
    ...change,
  };
}

const failed = (name: string, change: Partial<RunRecord> = {}): RunRecord =>
  run(name, { state: 'failed', checks: [check({ passed: false, exitCode: 1 }, [39, 2])], ...change });

const names = (ranking: Ranking): string[] => ranking.order.map((id) => id.slice(3));
const verdict = (ranking: Ranking, name: string): string | undefined => ranking.verdicts.get(`id-${name}`);

/** A small generator of the same numbers every time. */
function numbers(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function shuffle<T>(items: T[], random: (below: number) => number): T[] {
  const out = [...items];
  for (let i = out.length - 1; i > 0; i--) {
    const j = random(i + 1);
    const [a, b] = [out[i], out[j]];
    if (a !== undefined && b !== undefined) [out[i], out[j]] = [b, a];
  }
  return out;
}

describe('ranking', () => {
  describe('by one criterion that differs', () => {
    // "z" is better each time, so that the name can't be what decided.
    const cases: [title: string, better: RunRecord, worse: RunRecord, reason: RegExp][] = [
      [
        'passing',
        run('z'),
        failed('a'),
        /^"z" wins: all 41 tests pass, the only one that passes\. "a" fails 2 tests\.$/,
      ],
      [
        'changing something',
        run('z'),
        run('a', { diff: { files: 0, added: 0, removed: 0 } }),
        /the only one that passes and changes something\. "a" passes but changes nothing\.$/,
      ],
      [
        'failed tests in checks that pass',
        run('z'),
        run('a', { checks: [check({}, [41, 1])] }),
        /fewest tests fail \(0; "a" 1\)\. "a" passes too, 1 test fails\.$/,
      ],
      [
        'tests reported at all',
        run('z'),
        run('a', { checks: [check()] }),
        /fewest tests fail \(0; "a" reports none\)\. "a" passes too, reports no tests\.$/,
      ],
      [
        'passed tests',
        run('z', { checks: [check({}, [42, 0])] }),
        run('a'),
        /most tests pass \(42; "a" 41\)\. "a" passes too, only 41 tests\.$/,
      ],
      [
        'a metric where lower is better',
        run('z', { metrics: { bytes: 99, coverage: 50 } }),
        run('a'),
        /lowest bytes \(99; "a" 100\)\. "a" passes too, bytes 100\.$/,
      ],
      [
        'a metric where higher is better',
        run('z', { metrics: { bytes: 100, coverage: 50.5 } }),
        run('a'),
        /highest coverage \(50\.5; "a" 50\)\. "a" passes too, coverage 50\.$/,
      ],
      [
        'a metric that is missing',
        run('z'),
        run('a', { metrics: { bytes: 100 } }),
        /highest coverage \(50; "a" has none\)\. "a" passes too, without coverage\.$/,
      ],
      [
        'a metric that is no number',
        run('z'),
        run('a', { metrics: { bytes: NaN, coverage: 50 } }),
        /lowest bytes \(100; "a" has none\)/,
      ],
      [
        'lines',
        run('z'),
        run('a', { diff: { files: 1, added: 2, removed: 1 } }),
        /^"z" wins: all 41 tests pass, smallest diff \(1 file, \+1 −1\)\. "a" passes too, 1 file, \+2 −1\.$/,
      ],
      [
        'files',
        run('z'),
        run('a', { diff: { files: 2, added: 1, removed: 1 } }),
        /fewest files \(1; "a" 2\)\. "a" passes too, 2 files\.$/,
      ],
      ['time', run('z'), run('a', { wallMs: 4000 }), /fastest \(3\.0 s; "a" 4\.0 s\)\. "a" passes too, in 4\.0 s\.$/],
      ['time that is known', run('z'), run('a', { wallMs: null }), /fastest \(3\.0 s; "a" unknown\)/],
    ];
    for (const [title, better, worse, reason] of cases) {
      it(title, () => {
        for (const input of [
          [better, worse],
          [worse, better],
        ]) {
          const ranking = rankRuns(input, metrics);
          assert.equal(ranking.winner, 'z');
          assert.deepEqual(names(ranking), ['z', 'a']);
          assert.match(ranking.reason, reason);
        }
      });
    }

    it('the name', () => {
      const ranking = rankRuns([run('b'), run('a')], metrics);
      assert.equal(ranking.winner, 'a');
      assert.equal(
        ranking.reason,
        '"a" wins: all 41 tests pass, equal to "b" in everything that counts and first by name. "b" passes too and is equal in everything that counts.',
      );
    });

    it('checks passed, among those that do not win', () => {
      const two = (second: boolean): CheckResult[] => [
        check({ passed: false }, [39, 2]),
        check({ name: 'size', passed: second }),
      ];
      const ranking = rankRuns(
        [run('z', { state: 'failed', checks: two(true) }), run('a', { state: 'failed', checks: two(false) })],
        [],
      );
      assert.deepEqual(names(ranking), ['z', 'a']);
    });

    it('an earlier criterion outweighs all later ones', () => {
      const better = run('z', {
        metrics: { bytes: 99, coverage: 1 },
        diff: { files: 50, added: 900, removed: 900 },
        wallMs: 60_000,
      });
      const ranking = rankRuns([run('a'), better], metrics);
      assert.equal(ranking.winner, 'z');
      assert.equal(rankRuns([run('a'), better], [...metrics].reverse()).winner, 'a');
    });
  });

  describe('time', () => {
    it('counts as equal below 10 % or 100 ms', () => {
      assert.equal(rankRuns([run('a', { wallMs: 3299 }), run('b', { wallMs: 3000 })], []).winner, 'a');
      assert.equal(rankRuns([run('a', { wallMs: 3300 }), run('b', { wallMs: 3000 })], []).winner, 'b');
      assert.equal(rankRuns([run('a', { wallMs: 149 }), run('b', { wallMs: 50 })], []).winner, 'a');
      assert.equal(rankRuns([run('a', { wallMs: 150 }), run('b', { wallMs: 50 })], []).winner, 'b');
    });

    it('does not creep: a chain of small steps is no tie', () => {
      // c is close to b, and b to a, but c is not close to a.
      const chain = [run('a', { wallMs: 1200 }), run('b', { wallMs: 1095 }), run('c', { wallMs: 1000 })];
      assert.deepEqual(names(rankRuns(chain, [])), ['b', 'c', 'a']);
    });
  });

  it('gives ranks to those that can win and null to the others, which come last', () => {
    const ranking = rankRuns(
      [failed('f'), run('b', { wallMs: 9000 }), run('n', { diff: { files: 0, added: 0, removed: 0 } }), run('a')],
      [],
    );
    assert.deepEqual(names(ranking), ['a', 'b', 'n', 'f']);
    assert.deepEqual([...ranking.ranks.values()], [1, 2, null, null]);
  });

  it('never lets a run win whose state or checks say otherwise', () => {
    for (const change of [
      { state: 'failed' },
      { state: 'cancelled' },
      { state: 'interrupted' },
      { state: 'running' },
      { checks: [check({ passed: false })] },
      { diff: null },
      { diff: { files: 0, added: 0, removed: 0 } },
    ] satisfies Partial<RunRecord>[]) {
      const ranking = rankRuns([run('a', change)], []);
      assert.equal(ranking.winner, null, JSON.stringify(change));
      assert.equal(ranking.ranks.get('id-a'), null);
      assert.match(ranking.reason, /^No winner: .*\.$/);
    }
  });

  it('gives the same for every order of the input, and orders any three alike', () => {
    const random = numbers(42);
    const some = <T>(items: T[]): T => items[random(items.length)] as T;
    for (let round = 0; round < 400; round++) {
      const runs = Array.from({ length: 2 + random(7) }, (_, i) =>
        run(`r${i}`, {
          state: some(['passed', 'passed', 'passed', 'failed', 'cancelled']),
          checks: some([[], [check({}, [some([40, 41]), some([0, 0, 1])])], [check({ passed: some([true, false]) })]]),
          metrics: some([{}, { bytes: some([1, 2, NaN]) }, { bytes: 1, coverage: some([1, 2]) }]),
          diff: some([null, { files: some([0, 1, 2]), added: some([0, 1]), removed: 1 }]),
          wallMs: some([null, 0, 50, 120, 1000, 1050, 1099, 1150, 1200, 1260]),
        }),
      );
      const first = rankRuns(runs, metrics);
      assert.deepEqual(rankRuns(shuffle(runs, random), metrics), first);
      assert.deepEqual([...first.order].sort(), runs.map(({ id }) => id).sort());
      if (runs.length < 3) continue;
      // Without the fuzzy time, two runs stand to each other as they do in any company.
      const three = shuffle(runs, random)
        .slice(0, 3)
        .map((r) => ({ ...r, wallMs: 1 }));
      const of = (list: RunRecord[]): string[] => rankRuns(list, metrics).order;
      const whole = of(three);
      for (const left of three) {
        assert.deepEqual(
          of(three.filter((r) => r !== left)),
          whole.filter((id) => id !== left.id),
        );
      }
    }
  });

  describe('words', () => {
    it('are those of the whole picture', () => {
      const ranking = rankRuns(
        [
          run('sed'),
          run('rewrite', { diff: { files: 12, added: 212, removed: 88 }, wallMs: 4000 }),
          failed('naive', { breach: 'oom' }),
        ],
        [],
        { limits: { memoryBytes: 256 * 1024 ** 2 } },
      );
      assert.equal(
        ranking.reason,
        '"sed" wins: all 41 tests pass, smallest diff (1 file, +1 −1). "rewrite" passes too, 12 files, +212 −88. "naive" fails 2 tests and ran out of memory at 256 MB.',
      );
      assert.equal(verdict(ranking, 'sed'), 'passes, smallest');
      assert.equal(verdict(ranking, 'rewrite'), 'passes, larger');
      assert.equal(verdict(ranking, 'naive'), '2 tests fail; out of memory at 256 MB');
    });

    it('say "smaller" where another is smaller still', () => {
      const other = run('c', { metrics: { bytes: 200, coverage: 50 }, diff: { files: 1, added: 0, removed: 1 } });
      const ranking = rankRuns([run('a'), run('b', { diff: { files: 1, added: 5, removed: 5 } }), other], metrics);
      assert.match(
        ranking.reason,
        /^"a" wins: all 41 tests pass, smaller diff than "b" \(1 file, \+1 −1; 1 file, \+5 −5\)\. "b" passes too, 1 file, \+5 −5\. "c" passes too, bytes 200\.$/,
      );
      assert.equal(verdict(ranking, 'a'), 'passes, smaller');
      assert.equal(verdict(ranking, 'c'), 'passes, higher bytes');
    });

    it('say that no checks are declared', () => {
      const ranking = rankRuns(
        [run('a', { checks: [] }), run('b', { checks: [], diff: { files: 2, added: 5, removed: 0 } })],
        [],
      );
      assert.equal(
        ranking.reason,
        '"a" wins: smallest diff (1 file, +1 −1). No checks are declared, so the ranking rests on diff and time alone. "b" passes too, 2 files, +5 −0.',
      );
    });

    it('count checks, tests and what was skipped', () => {
      const reason = (checks: CheckResult[]): string => rankRuns([run('a', { checks })], []).reason;
      assert.equal(reason([check()]), '"a" wins: its check passes, the only approach.');
      assert.equal(reason([check(), check({ name: 'b' })]), '"a" wins: both checks pass, the only approach.');
      assert.equal(
        reason([check(), check({ name: 'b' }), check({ name: 'c' })]),
        '"a" wins: all 3 checks pass, the only approach.',
      );
      assert.equal(reason([check({}, [1, 0])]), '"a" wins: its one test passes, the only approach.');
      assert.equal(reason([check({}, [41, 0, 2])]), '"a" wins: all 41 tests pass (2 skipped), the only approach.');
      assert.equal(
        reason([check({}, [41, 0]), check({ name: 'b' })]),
        '"a" wins: both checks and all 41 tests pass, the only approach.',
      );
    });

    const shortcomings: [change: Partial<RunRecord>, cell: string, sentence: string][] = [
      [
        { state: 'failed', exitCode: 3, checks: [], problem: '`make` ended with exit code 3.' },
        'exit code 3',
        'ended with exit code 3',
      ],
      [
        { state: 'failed', exitCode: null, checks: [], problem: 'The patch does not apply: hunk 1.' },
        'The patch does not apply: hunk 1',
        'failed: The patch does not apply: hunk 1',
      ],
      [{ state: 'failed', breach: 'timeout', checks: [] }, 'timed out after 5 min 0 s', 'timed out after 5 min 0 s'],
      [
        { state: 'failed', breach: 'timeout', checks: [check({ passed: false, exitCode: null, breach: 'timeout' })] },
        'timed out',
        'timed out',
      ],
      [{ state: 'failed', breach: 'pids', checks: [] }, 'out of processes', 'ran out of processes'],
      [{ state: 'failed', breach: 'disk', checks: [] }, 'out of disk space', 'ran out of disk space'],
      [
        { state: 'failed', checks: [check({ name: 'size', passed: false, exitCode: 2 })] },
        'size fails (exit code 2)',
        'fails the check "size" (exit code 2)',
      ],
      [
        { state: 'failed', checks: [check({ passed: false, problems: ['report: it is empty.'] })] },
        'tests fails (report: it is empty)',
        'fails the check "tests" (report: it is empty)',
      ],
      [
        { state: 'failed', checks: [check({ passed: false }), check({ name: 'b', passed: false })] },
        '2 checks fail',
        'fails 2 checks',
      ],
      [
        {
          state: 'failed',
          checks: [check({ passed: false }, [3, 1]), check({ name: 'b', passed: false, exitCode: 1 })],
        },
        '1 test fails; b fails (exit code 1)',
        'fails 1 test and fails the check "b" (exit code 1)',
      ],
      [{ state: 'cancelled', checks: [] }, 'cancelled', 'was cancelled'],
      [{ state: 'interrupted', checks: [] }, 'interrupted', 'was interrupted'],
      [{ state: 'preparing', checks: [] }, 'preparing', 'has not ended'],
      [{ state: 'failed', checks: [], problem: '\u001b[2J\nbad' }, '\\x1b[2J\\nbad', 'failed: \\x1b[2J\\nbad'],
      [{ state: 'failed', checks: [] }, 'failed', 'failed'],
    ];
    for (const [change, cell, sentence] of shortcomings) {
      it(`say "${cell}"`, () => {
        const ranking = rankRuns([run('a'), run('b', change)], [], { limits: { timeoutMs: 300_000 } });
        assert.equal(verdict(ranking, 'b'), cell);
        assert.ok(ranking.reason.endsWith(` "b" ${sentence}.`), ranking.reason);
      });
    }

    it('say in one sentence why nobody wins', () => {
      assert.equal(rankRuns([], []).reason, 'No winner: there are no runs.');
      assert.equal(
        rankRuns([failed('b'), failed('a', { breach: 'oom' })], []).reason,
        'No winner: no approach passes: "a" fails 2 tests and ran out of memory; "b" fails 2 tests.',
      );
      assert.equal(
        rankRuns([failed('b'), run('a', { diff: { files: 0, added: 0, removed: 0 } })], []).reason,
        'No winner: no approach both passes and changes something: "a" passes but changes nothing; "b" fails 2 tests.',
      );
      const gone: Partial<RunRecord> = { state: 'cancelled', checks: [] };
      assert.equal(rankRuns([run('a', gone), run('b', gone)], []).reason, 'No winner: the experiment was cancelled.');
    });

    it('stay readable with many approaches', () => {
      const many = Array.from({ length: 40 }, (_, i) => failed(`r${i}`));
      assert.match(rankRuns([run('a'), ...many], []).reason, / 32 others stand behind\.$/);
      assert.match(rankRuns(many, []).reason, /; and 32 more\.$/);
    });
  });
});
