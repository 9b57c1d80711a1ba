/** Reading metrics out of hostile output and files. */
import assert from 'node:assert/strict';
import { matchTime, maxMetricFile, outputTail, readMetric, resolvePointer } from '../../src/agent/experiment/metrics';

const noFile = (): Promise<Buffer> => assert.fail('reads no file');
const match = (pattern: string, output: string): ReturnType<typeof readMetric> =>
  readMetric({ pattern, better: 'lower' }, output, noFile);
const point = (json: string | Buffer, pointer: string): ReturnType<typeof readMetric> =>
  readMetric({ file: 'm.json', pointer, better: 'lower' }, '', async () => Buffer.from(json));

describe('metrics by a pattern', () => {
  it('takes the first group of the last match', async () => {
    assert.deepEqual(await match('bytes=(\\d+)', 'bytes=1\nbytes=20 bytes=300\n'), { value: 300, problem: null });
  });

  it('takes the whole match where there is no group, and lines by themselves', async () => {
    assert.equal((await match('^-?[\\d.]+$', 'x 1\n-2.5\ny')).value, -2.5);
    assert.equal((await match('^t: (.*)$', 't: 1e3 \r\n')).value, 1000);
  });

  it('says in words what is missing or no number', async () => {
    assert.deepEqual(await match('bytes=(\\d+)', 'nothing'), {
      value: null,
      problem: 'The output has nothing that matches `bytes=(\\d+)`.',
    });
    assert.deepEqual(await match('v=(\\S*)', 'v=fast'), {
      value: null,
      problem: 'The pattern `v=(\\S*)` found "fast", which is not a number.',
    });
    for (const text of ['v=', 'v=Infinity', 'v=NaN', 'v=0x10', 'v=1e999', 'v=1,5', 'v=\u001b[1m1']) {
      assert.match((await match('v=(\\S*)', text)).problem ?? '', /which is not a number\.$/, text);
    }
    assert.match((await match('v=(\\S*)', 'v=\u001b[1m1')).problem ?? '', /found "\\x1b\[1m1"/);
    assert.match((await match('a(b)?', 'a')).problem ?? '', /found ""/);
    assert.match((await match('(', 'a')).problem ?? '', /^The pattern `\(` is not a regular expression\.$/);
  });

  it('gives up on a search that would take for ever, without stopping the process', async () => {
    const began = Date.now();
    let beats = 0;
    const timer = setInterval(() => beats++, 20);
    const reading = await match('^(a+)+$', `${'a'.repeat(60)}!`);
    clearInterval(timer);
    assert.match(reading.problem ?? '', /took longer than 1\.0 s on the output; make it simpler\.$/);
    assert.ok(Date.now() - began >= matchTime);
    assert.ok(beats > 5, 'the event loop went on');
  });

  it('searches the end of a long output only', async () => {
    const filler = 'x\n'.repeat(outputTail / 2);
    assert.match((await match('v=(\\d+)', `v=1\n${filler}`)).problem ?? '', /nothing that matches/);
    assert.equal((await match('v=(\\d+)', `${filler}v=2`)).value, 2);
  });

  it('takes matches without length and a million of them', async () => {
    assert.match((await match('', 'abc')).problem ?? '', /not a number/);
    assert.equal((await match('\\d', '7'.repeat(300_000))).value, 7);
  });
});

describe('metrics by a file', () => {
  it('follows a JSON pointer', async () => {
    const json = '{"total":{"a/b":[1,{"m~n":2.5}]},"":3,"length":4}';
    assert.deepEqual(await point(json, '/total/a~1b/1/m~0n'), { value: 2.5, problem: null });
    assert.equal((await point(json, '/')).value, 3);
    assert.equal((await point(json, '/length')).value, 4);
    assert.equal((await point('\ufeff5', '')).value, 5);
  });

  it('resolves the examples of RFC 6901', () => {
    const doc = {
      foo: ['bar', 'baz'],
      '': 0,
      'a/b': 1,
      'c%d': 2,
      'e^f': 3,
      'g|h': 4,
      'i\\j': 5,
      'k"l': 6,
      ' ': 7,
      'm~n': 8,
    };
    assert.equal(resolvePointer(doc, ''), doc);
    const got = ['/foo/0', '/', '/a~1b', '/c%d', '/e^f', '/g|h', '/i\\j', '/k"l', '/ ', '/m~0n'].map((p) =>
      resolvePointer(doc, p),
    );
    assert.deepEqual(got, ['bar', 0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('sees own values only', async () => {
    for (const pointer of [
      '/__proto__',
      '/constructor/length',
      '/toString',
      '/list/length',
      '/list/-',
      '/list/01',
      '/list/-1',
      'list',
      '/x~2',
    ]) {
      assert.match((await point('{"list":[1],"x~2":1}', pointer)).problem ?? '', /has nothing at/, pointer);
    }
  });

  it('says in words what is wrong', async () => {
    assert.equal(
      (await point('{"a":"1"}', '/a')).problem,
      'The metrics file "m.json" has a string at /a; expected a number.',
    );
    assert.equal(
      (await point('{"a":null}', '/a')).problem,
      'The metrics file "m.json" has null at /a; expected a number.',
    );
    assert.equal(
      (await point('{"a":1e999}', '/a')).problem,
      'The metrics file "m.json" has a number at /a that is too large.',
    );
    assert.equal((await point('{', '/a')).problem, 'The metrics file "m.json" is not JSON.');
    assert.match(
      (await point(Buffer.alloc(maxMetricFile + 1), '')).problem ?? '',
      /has 4\.0 MB; at most 4\.0 MB are read/,
    );
    const gone = await readMetric({ file: 'm\n.json', pointer: '', better: 'lower' }, '', () =>
      Promise.reject(new Error('it is not there')),
    );
    assert.equal(gone.problem, 'The metrics file "m\\n.json" can\'t be read: it is not there');
  });

  it('survives deep nesting', async () => {
    assert.notEqual((await point('['.repeat(1_000_000), '')).problem, null);
  });
});
