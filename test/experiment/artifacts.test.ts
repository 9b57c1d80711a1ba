/** Globs of artifacts over hostile paths. */
import assert from 'node:assert/strict';
import picomatch from 'picomatch';
import { globProblem, matchArtifacts, staticPrefix } from '../../src/agent/experiment/artifacts';

describe('artifact globs', () => {
  const takes = (glob: string, path: string): boolean => matchArtifacts([glob])(path);

  it('matches paths below the workspace', () => {
    assert.ok(takes('coverage/**', 'coverage/lcov.info'));
    assert.ok(takes('coverage/**', 'coverage/a/b/c.html'));
    assert.ok(takes('**/*.log', 'a/b.log'));
    assert.ok(takes('**/*.log', 'b.log'));
    assert.ok(takes('out/*.{png,svg}', 'out/a.svg'));
    assert.ok(!takes('out/*.png', 'out/a/b.png'));
    assert.ok(!takes('coverage/**', 'coverage2/x'));
    assert.ok(!takes('*.log', 'a/b.log'));
  });

  it('takes dot files and whole folders', () => {
    assert.ok(takes('**', '.hidden/x'));
    assert.ok(takes('coverage/**', 'coverage/.last_run.json'));
    assert.ok(takes('coverage', 'coverage/a/b'));
    assert.ok(takes('./coverage/', 'coverage/a'));
    assert.ok(takes('build.log', 'build.log'));
    assert.ok(!takes('build.log', 'build.log.1'));
  });

  it('takes an exclamation mark for a character', () => {
    assert.ok(!takes('!coverage', 'src/a.js'));
  });

  it('never matches what is not a plain relative path', () => {
    for (const path of ['', '/etc/passwd', '../x', 'a/../x', './x', 'a//x', 'a/', 'a/\0']) {
      assert.ok(!matchArtifacts(['**', '**/*', '*'])(path), JSON.stringify(path));
    }
  });

  it('leaves out globs that lead outside', () => {
    for (const glob of ['../**', 'a/../../**', '/etc/**', 'C:/x', '\\x', '', '  ', 'a\0']) {
      assert.notEqual(globProblem(glob), undefined, JSON.stringify(glob));
      assert.ok(!takes(glob, 'a/x'));
    }
    assert.equal(globProblem('coverage/**'), undefined);
    assert.equal(globProblem('a..b/**'), undefined);
  });

  it('matches nothing without globs', () => {
    assert.ok(!matchArtifacts([])('a'));
  });

  it('does not stall on nasty globs', () => {
    const began = process.cpuUsage().user;
    const deep = `${'a/'.repeat(1500)}c`;
    takes('**/*a*a*a*a*a*a*a*a*b', `${'a'.repeat(4000)}/c`);
    takes(`${'**/a/'.repeat(100)}b`, deep);
    takes(`${'**/*a*/'.repeat(100)}b`, deep);
    assert.ok(process.cpuUsage().user - began < 2_000_000);
    assert.match(globProblem('{a,b}'.repeat(20)) ?? '', /at most 1000 alternatives/);
    assert.match(globProblem('{'.repeat(900)) ?? 'fine', /fine/);
    assert.match(globProblem('a'.repeat(2000)) ?? '', /at most 1000 characters/);
    assert.match(globProblem('+(a|aa)b') ?? '', /found a \( behind/);
  });

  it('reads alternatives, sets and escapes', () => {
    assert.ok(takes('{a,b/{c,d}}/x', 'b/d/x'));
    assert.ok(!takes('{a,b/{c,d}}/x', 'b/x'));
    assert.ok(takes('[a-c][!x]\\*.log', 'by*.log'));
    assert.ok(!takes('[a-c][!x].log', 'bx.log'));
    assert.ok(takes('a[]]b', 'a]b'));
    assert.ok(takes('x{1}[', 'x{1}['));
    assert.ok(takes('?.txt', '\u{1f600}.txt'));
  });

  it('agrees with picomatch on simple globs', () => {
    let seed = 7;
    const random = (n: number): number => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    const pick = (from: string[], parts: number): string =>
      Array.from({ length: parts }, () => from[Math.floor(random(1 << 20) / 64) % from.length] ?? '').join('');
    const disagree: string[] = [];
    let matches = 0;
    for (let i = 0; i < 20_000; i++) {
      // A glob that ends in a globstar is left out: there picomatch takes the folder itself for a match.
      const glob = `${pick(['a', 'b', '*', '?', '**/', 'a/', '.', '{a,b}', '[ab]', '*/'], 1 + random(5))}a`.replace(
        /\*{2,}(?!\/)|(?<!^|\/)\*\*/g,
        '*',
      );
      const path = pick(['a', 'b', '/', '.x', 'ab', 'a/'], 1 + random(5))
        .replace(/\/+/g, '/')
        .replace(/^\/|\/$/g, '');
      if (
        globProblem(glob) !== undefined ||
        !/[*?[{]/.test(glob) ||
        path === '' ||
        /(?:^|\/)\.{1,2}(?:\/|$)/.test(path)
      )
        continue;
      const [mine, theirs] = [takes(glob, path), picomatch(glob, { dot: true, nonegate: true })(path)];
      if (mine) matches++;
      if (mine !== theirs) disagree.push(`${glob} ${path} ${mine}`);
    }
    assert.deepEqual(disagree, []);
    assert.ok(matches > 500, `only ${matches} matches`);
  });

  it('finds the folder that everything lies under', () => {
    assert.deepEqual(
      ['coverage/**', 'out/logs/*.log', '**/*.log', '*.log', 'build.log', './a/b/', 'a/{b,c}/d', 'a/b?/c'].map(
        staticPrefix,
      ),
      ['coverage', 'out/logs', '', '', 'build.log', 'a/b', 'a', 'a'],
    );
  });
});
