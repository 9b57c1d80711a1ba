/** Reading JUnit and TAP: real reports of real runners, and hostile ones. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { maxCases, maxMessage, maxReportBytes, parseJUnit, parseTap } from '../../src/agent/experiment/reports';
import { PetriError } from '../../src/protocol/errors';
import { testReport, type TestReport } from '../../src/protocol/records';

const fixture = (name: string): Buffer => readFileSync(path.join(__dirname, '../../../test/fixtures/reports', name));
const outcomes = (report: TestReport): string[] => report.cases.map(({ outcome, name }) => `${outcome} ${name}`);
const counts = ({ passed, failed, skipped }: TestReport): number[] => [passed, failed, skipped];

function refused(read: () => unknown, words: RegExp): void {
  assert.throws(read, (error) => {
    assert.ok(error instanceof PetriError, String(error));
    assert.equal(error.code, 'untrusted-data');
    assert.match(error.message, words);
    assert.ok(error.hint);
    return true;
  });
}

describe('JUnit reports', () => {
  const suite = (inner: string): TestReport => parseJUnit(Buffer.from(`<testsuite name="s">${inner}</testsuite>`));

  it('reads what `node --test` writes (node 20)', () => {
    const report = parseJUnit(fixture('node-20.junit.xml'));
    assert.deepEqual(outcomes(report), [
      'passed rounding › rounds halves up',
      // This version of node escapes quotes twice.
      'failed rounding › rounds <negative> halves & &quot;quotes&quot;',
      'passed rounding › deep › leaf passes',
      'skipped rounding › deep › leaf is skipped',
      'skipped rounding › deep › leaf is todo',
      'passed top level passes',
      'failed top level fails',
      'passed with steps › step one',
      'passed with steps › step two',
    ]);
    assert.deepEqual(counts(report), [5, 2, 2]);
    assert.equal(report.cases[0]?.durationMs, 0.92);
    assert.match(report.cases[1]?.message ?? '', /^Expected values to be strictly equal:-3 !== -2\n/);
    assert.equal(report.cases[3]?.message, 'not on this platform');
    assert.match(report.cases[6]?.message ?? '', /boom \\x1b\[31mred/);
    testReport.parse(report);
  });

  it('reads what mocha’s xunit reporter writes (mocha 11)', () => {
    const report = parseJUnit(fixture('mocha-11.xunit.xml'));
    assert.deepEqual(outcomes(report), [
      'passed top level passes',
      'failed top level fails',
      'passed rounding › rounds halves up',
      'failed rounding › rounds <negative> halves & "quotes"',
      'passed rounding deep › leaf passes',
      'skipped rounding deep › leaf is skipped',
      'skipped rounding deep › leaf is pending',
    ]);
    assert.match(report.cases[1]?.message ?? '', /^boom\nTypeError: boom\n {4}at Context\.<anonymous>/);
  });

  it('reads what jest-junit writes (jest 29)', () => {
    const report = parseJUnit(fixture('jest-29.junit.xml'));
    assert.deepEqual(outcomes(report), [
      'passed rounding rounds halves up',
      'failed rounding rounds <negative> halves & "quotes"',
      'passed rounding deep leaf passes',
      'skipped rounding deep leaf is skipped',
      'passed rounding deep leaf is todo',
      'passed top level passes',
    ]);
    assert.equal(report.cases[0]?.durationMs, 2);
  });

  it('counts errors as failures, keeps namesakes, joins class and name', () => {
    const report = suite(
      '<testcase classname="C" name="n" time="1,234.5"/><testcase classname="C" name="n"><error message="m">m at line 3</error></testcase>',
    );
    assert.deepEqual(outcomes(report), ['passed C › n', 'failed C › n']);
    assert.equal(report.cases[0]?.durationMs, 1_234_500);
    assert.equal(report.cases[1]?.message, 'm at line 3');
  });

  it('counts a case once, whatever it holds', () => {
    const report = suite('<testcase name="a"><failure>x</failure><failure>y</failure><error>z</error></testcase>');
    assert.deepEqual(counts(report), [0, 1, 0]);
    assert.equal(report.cases[0]?.message, 'x\ny\nz');
  });

  it('takes an error of a whole suite for a failed case', () => {
    assert.deepEqual(outcomes(suite('<error message="no such module"/><testcase name="a"/>')), [
      'failed s › (error of the suite)',
      'passed a',
    ]);
  });

  it('reads CDATA, numbered characters and other encodings; ignores output', () => {
    const report = suite(
      '<properties><property name="a" value="b"/></properties><testcase name="&#65;&#x42;&lt;&amp;lt;&nope;"><failure><![CDATA[1 < 2 && <b>]]> &gt;</failure>' +
        '<system-out><![CDATA[<testcase name="no"/>]]><testcase name="no"/></system-out></testcase>',
    );
    assert.deepEqual(outcomes(report), ['failed AB<&lt;&nope;']);
    assert.equal(report.cases[0]?.message, '1 < 2 && <b> >');
    const latin = Buffer.from(
      '<?xml version="1.0" encoding="ISO-8859-1"?><testsuite><testcase name="\xe9"/></testsuite>',
      'latin1',
    );
    assert.deepEqual(outcomes(parseJUnit(latin)), ['passed é']);
    const wide = Buffer.from('\ufeff<testsuite><testcase name="é"/></testsuite>', 'utf16le');
    assert.deepEqual(outcomes(parseJUnit(wide)), ['passed é']);
  });

  it('takes a report without tests for what it is', () => {
    assert.deepEqual(parseJUnit(Buffer.from('<testsuites/>')), {
      passed: 0,
      failed: 0,
      skipped: 0,
      cases: [],
      cut: false,
    });
  });

  const bad: [string, string, RegExp][] = [
    ['an empty file', '', /it is empty/],
    ['text', 'not xml', /it is not XML \(line 1\)/],
    ['JSON', '{"a":1}', /it is not XML/],
    ['another document', '<html></html>', /expected <testsuites> or <testsuite>, found <html>/],
    [
      'one that was cut off',
      '<testsuite>\n<testcase name="a"/>',
      /it ends before <testsuite> is closed; was it cut off\?/,
    ],
    ['one cut in a tag', '<testsuite>\n<testcase name="a', /it ends in the middle of a tag \(line 2\)/],
    ['a wrong end tag', '<testsuite><testcase></testsuite>', /<testcase> is closed by <\/testsuite>/],
    ['two roots', '<testsuite/><testsuite/>', /more than one root element/],
    ['an entity bomb', '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuite name="&b;"/>', /document type/],
    ['an external entity', '<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>', /document type/],
    ['deep nesting', '<testsuite>'.repeat(70) + '</testsuite>'.repeat(70), /nested deeper than 64/],
    ['an endless tag', `<testsuite ${'a="" '.repeat(400_000)}/>`, /a tag is too long/],
    ['elements without end', `<testsuite>${'<a/>'.repeat(1_000_001)}</testsuite>`, /more than 1000000 elements/],
    ['a prototype', '<testsuite><testcase __proto__="x"/></testsuite>', /XML is wrong/],
  ];
  for (const [title, text, words] of bad)
    it(`refuses ${title}`, () => refused(() => parseJUnit(Buffer.from(text)), words));

  it('refuses what is too large', () =>
    refused(() => parseJUnit(Buffer.alloc(maxReportBytes + 1, 0x20)), /at most 16 MB are read/));

  it('bounds cases and messages, and keeps a late failure', () => {
    const report = suite(
      `${'<testcase name="a"/>'.repeat(maxCases + 5)}<testcase name="z"><failure>${'x'.repeat(10_000)}</failure></testcase>`,
    );
    assert.equal(report.passed, maxCases + 5);
    assert.equal(report.failed, 1);
    assert.equal(report.cut, true);
    assert.equal(report.cases.length, maxCases);
    const late = report.cases.find(({ outcome }) => outcome === 'failed');
    assert.equal(late?.message?.length, maxMessage);
    const flood = suite(
      `<testcase name="${'n'.repeat(1000)}"><failure>${'y'.repeat(1900)}</failure></testcase>`.repeat(5000),
    );
    assert.ok(JSON.stringify(flood).length < 8 * 1024 * 1024);
    assert.ok((flood.cases[0]?.name.length ?? 0) <= 500);
  });

  it('shows control characters instead of sending them', () => {
    const report = suite('<testcase name="\u001b]0;x\u0007&#x202e;"><failure message="&#27;[2J"/></testcase>');
    assert.deepEqual(
      report.cases.map(({ name, message }) => [name, message]),
      [['\\x1b]0;x\\x07\\u{202e}', '\\x1b[2J']],
    );
  });

  it('takes a hostile file of the full size without stalling', () => {
    const began = process.cpuUsage().user;
    suite('<a b="&#65;&lt;"/>'.repeat(900_000));
    assert.ok(process.cpuUsage().user - began < 5_000_000);
  });
});

describe('TAP reports', () => {
  it('reads what `node --test` writes (node 20)', () => {
    const report = parseTap(fixture('node-20.tap').toString());
    assert.deepEqual(outcomes(report), [
      'passed rounding › rounds halves up',
      'failed rounding › rounds <negative> halves & "quotes"',
      'passed rounding › deep › leaf passes',
      'skipped rounding › deep › leaf is skipped',
      'skipped rounding › deep › leaf is todo',
      'passed top level passes',
      'failed top level fails',
      'passed with steps › step one',
      'passed with steps › step two',
    ]);
    assert.equal(report.cases[0]?.durationMs, 0.885633);
    assert.match(
      report.cases[1]?.message ?? '',
      /^Expected values to be strictly equal:\n\n-3 !== -2\n\nexpected: -2\nactual: -3\nTestContext/,
    );
    assert.equal(report.cases[3]?.message, 'not on this platform');
    testReport.parse(report);
  });

  it('agrees with the JUnit report of the same tests', () => {
    const tap = outcomes(parseTap(fixture('node-20.tap').toString()));
    const junit = outcomes(parseJUnit(fixture('node-20.junit.xml'))).map((line) => line.replaceAll('&quot;', '"'));
    assert.deepEqual(tap, junit);
  });

  for (const name of ['mocha-11.tap', 'mocha-11-v13.tap']) {
    it(`reads what mocha’s tap reporter writes (${name})`, () => {
      const report = parseTap(fixture(name).toString());
      assert.deepEqual(outcomes(report), [
        'passed top level passes',
        'failed top level fails',
        'passed rounding rounds halves up',
        'failed rounding rounds <negative> halves & "quotes"',
        'passed rounding deep leaf passes',
        'skipped rounding deep leaf is skipped',
        'skipped rounding deep leaf is pending',
      ]);
      assert.match(report.cases[1]?.message ?? '', /^boom\nTypeError: boom\n {4}at Context/);
      assert.equal(report.cases[5]?.message, null);
    });
  }

  const tap = (...lines: string[]): string[] => outcomes(parseTap(lines.join('\n')));

  it('reads buffered subtests (node-tap)', () => {
    assert.deepEqual(
      tap(
        'TAP version 14',
        'not ok 1 - suite {',
        '    ok 1 - a',
        '    not ok 2 - b',
        '    1..2',
        '}',
        'ok 2 - c # time=3.5ms',
        '1..2',
      ),
      ['passed suite › a', 'failed suite › b', 'passed c'],
    );
    assert.equal(parseTap('ok 1 - c # time=3.5ms\n1..1').cases[0]?.durationMs, 3.5);
  });

  it('counts a subtest that fails although everything in it passes', () => {
    assert.deepEqual(tap('# Subtest: s', '    ok 1 - a', '    1..1', 'not ok 1 - s', '1..1'), [
      'passed s › a',
      'failed s',
    ]);
  });

  it('takes SKIP and TODO for skipped, with the reason', () => {
    const report = parseTap('ok 1 - a # SKIP no network\nnot ok 2 - b # TODO later\nok 3 # skip\n1..3');
    assert.deepEqual(
      report.cases.map(({ outcome, name, message }) => [outcome, name, message]),
      [
        ['skipped', 'a', 'no network'],
        ['skipped', 'b', 'later'],
        ['skipped', 'test 3', null],
      ],
    );
    assert.deepEqual(tap('1..0 # SKIP nothing to do'), []);
  });

  it('makes a plan that does not fit a failed case', () => {
    const report = parseTap('1..5\nok 1\nok 2\nok 3\n');
    assert.deepEqual(counts(report), [3, 1, 0]);
    assert.equal(report.cases.at(-1)?.message, 'The plan says 5, ran 3.');
    assert.deepEqual(tap('# Subtest: s', '    ok 1 - a', '    1..2', 'not ok 1 - s', '1..1'), [
      'passed s › a',
      'failed s › plan',
    ]);
  });

  it('makes a missing plan a failed case: the output may be cut off', () => {
    assert.deepEqual(tap('ok 1 - a', 'ok 2 - b'), ['passed a', 'passed b', 'failed plan']);
  });

  it('makes a bail-out a failed case', () => {
    const report = parseTap('1..3\nok 1 - a\nBail out! no database\nok 2 - b\n');
    assert.deepEqual(outcomes(report), ['passed a', 'failed Bail out!']);
    assert.equal(report.cases[1]?.message, 'no database');
    assert.deepEqual(tap('1..2', '    ok 1 - a', '    Bail out! x'), ['passed a', 'failed Bail out!']);
  });

  it('finds TAP among other output, with CRLF', () => {
    assert.deepEqual(
      tap('\r\n> x@1.0.0 test', '> node --test\r', 'ok 1 - a\r', 'okay then', '# a note', '1..1\r', 'Done in 1 s'),
      ['passed a'],
    );
  });

  it('never reads diagnostics as YAML', () => {
    const report = parseTap(
      'not ok 1 - a\n  ---\n  duration_ms: 12\n  x: !!js/function "function(){}"\n  y: &a [*a, *a]\n  message: \'it broke\'\n  ...\n1..1',
    );
    assert.equal(report.cases[0]?.durationMs, 12);
    assert.match(report.cases[0]?.message ?? '', /!!js\/function[^]*it broke/);
  });

  it('does not let an open block of diagnostics hide tests', () => {
    assert.deepEqual(tap('not ok 1 - a', '  ---', '  message: x', 'not ok 2 - b', '1..2'), ['failed a', 'failed b']);
  });

  it('refuses what is no TAP, with words', () => {
    refused(() => parseTap(''), /it has no test and no plan/);
    refused(() => parseTap('all fine\n'), /it has no test and no plan/);
    refused(() => parseTap(' '.repeat(maxReportBytes + 1)), /at most 16 MB are read/);
    refused(() => parseTap('ok\n'.repeat(1_000_000)), /more than 250000 tests/);
    refused(() => parseTap('1..3\n'.repeat(1_000_000)), /more than 750000 lines of TAP/);
  });

  it('bounds cases, depth and lines', () => {
    const many = parseTap(`${'ok - x\n'.repeat(maxCases + 10)}1..${maxCases + 10}`);
    assert.deepEqual([many.passed, many.cases.length, many.cut], [maxCases + 10, maxCases, true]);
    const deep = Array.from({ length: 500 }, (_, i) => `${'    '.repeat(i)}# Subtest: x\n`).join('');
    assert.equal(counts(parseTap(`${deep}ok 1\n1..1`))[0], 1);
    assert.ok((parseTap(`ok 1 - ${'y'.repeat(1_000_000)}\n1..1`).cases[0]?.name.length ?? 0) <= 500);
  });

  it('shows control characters instead of sending them', () => {
    const report = parseTap('not ok 1 - \u001b[31mred\u202e\n  \u001b[2Jgone\n1..1');
    assert.equal(report.cases[0]?.name, '\\x1b[31mred\\u{202e}');
    assert.equal(report.cases[0]?.message, '\\x1b[2Jgone');
  });
});
