/** The sentences that all surfaces share. */
import assert from 'node:assert/strict';
import { breach as breaches } from '../../src/protocol/records';
import {
  breachSentence,
  breachWords,
  diffWords,
  formatNumber,
  listWords,
  plural,
  quoted,
  stageLine,
  testCounts,
} from '../../src/protocol/words';

describe('shared words', () => {
  it('say what happened, then what to do', () => {
    assert.equal(
      breachSentence('oom', { name: 'naive', command: 'npm test', limits: { memoryBytes: 256 * 1024 ** 2 } }),
      'naive ran out of memory at 256 MB while running `npm test`. Raise `limits.memory` or see its log.',
    );
    assert.equal(
      breachSentence('timeout', { name: 'slow', limits: { timeoutMs: 300_000 } }),
      'slow timed out after 5 min 0 s. Raise `limits.timeout` or see its log.',
    );
    assert.equal(
      breachSentence('timeout', { name: 'tests', timeoutMs: 30_000, limits: { timeoutMs: 300_000 } }),
      'tests timed out after 30 s. Raise `timeout` or see its log.',
    );
    assert.equal(
      breachSentence('pids', { limits: { pids: 512 } }),
      'It ran out of processes at 512. Raise `limits.pids` or see its log.',
    );
    assert.equal(
      breachSentence('egress-denied', { host: 'example.org' }),
      'It was denied access to example.org. Change `network` or see its log.',
    );
  });

  it('have words for every breach, without exclamation marks or control characters', () => {
    for (const breach of breaches.options) {
      const sentence = breachSentence(breach, { name: 'a\u001b[2J', command: 'x\ny', host: 'h\u202e' });
      assert.match(sentence, /^a\\x1b\[2J (?:ran|was|timed) .*\. [A-Z].*\.$/);
      assert.doesNotMatch(sentence, /[!\u001b\n\u202e]/);
      assert.notEqual(breachWords(breach), '');
    }
  });

  it('count and list', () => {
    assert.deepEqual(
      [plural(1, 'file'), plural(1204, 'file'), plural(2, 'entry', 'entries')],
      ['1 file', '1,204 files', '2 entries'],
    );
    assert.deepEqual(
      [listWords([]), listWords(['a']), listWords(['a', 'b']), listWords(['a', 'b', 'c'], 'or')],
      ['', 'a', 'a and b', 'a, b or c'],
    );
    assert.equal(quoted('a\u0007'), '"a\\x07"');
    assert.deepEqual(
      [formatNumber(1234567), formatNumber(0.1 + 0.2), formatNumber(-2.5)],
      ['1,234,567', '0.3', '-2.5'],
    );
    assert.equal(diffWords({ files: 1, added: 1, removed: 1 }), '1 file, +1 −1');
    assert.equal(diffWords({ files: 0, added: 0, removed: 0 }), 'nothing changed');
    assert.deepEqual(
      [testCounts({ passed: 41, failed: 0, skipped: 0 }), testCounts({ passed: 39, failed: 2, skipped: 1 })],
      ['41/41', '39/41, 1 skipped'],
    );
  });

  it('write a stage with its sign and time', () => {
    const at = (s: number): string => new Date(s * 1000).toISOString();
    assert.equal(
      stageLine({ stage: 'verified', state: 'passed', startedAt: at(1), endedAt: at(7) }),
      'verified ✓ 6.0 s',
    );
    assert.equal(stageLine({ stage: 'local', state: 'running', startedAt: at(1), endedAt: null }), 'local …');
  });
});
