/** The journal and what is folded from it; ids; logs with a cap; the lock. */
import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Journal, type JournalLine } from '../../src/agent/records/journal';
import { newId, resolveRef } from '../../src/agent/records/ids';
import { LogFile } from '../../src/agent/records/logFile';
import { KeyedMutex } from '../../src/agent/records/mutex';
import { acquireLock } from '../../src/agent/server/lock';
import { PetriError } from '../../src/protocol/errors';

let dir: string;
beforeEach(() => (dir = mkdtempSync(path.join(tmpdir(), 'petri-test-'))));
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function readAll(file: string): JournalLine[] {
  const lines: JournalLine[] = [];
  Journal.open(file, (l) => lines.push(l)).close();
  return lines;
}

describe('journal', () => {
  it('gives back every line that was written, in order', () => {
    const file = path.join(dir, 'j');
    const journal = Journal.open(file, () => assert.fail('nothing is there yet'));
    journal.append('sandbox', 'a', { n: 1 });
    journal.append('sandbox', 'a', { n: 2, text: 'line\nbreak' }, true);
    journal.close();
    assert.deepEqual(
      readAll(file).map((l) => l.record),
      [{ n: 1 }, { n: 2, text: 'line\nbreak' }],
    );
  });

  it('cuts a torn last line and appends after it soundly', () => {
    const file = path.join(dir, 'j');
    const journal = Journal.open(file, () => undefined);
    journal.append('run', 'a', { n: 1 });
    journal.close();
    appendFileSync(file, '{"at":"x","kind":"run","id":"b","rec');
    assert.equal(readAll(file).length, 1);
    const again = Journal.open(file, () => undefined);
    again.append('run', 'c', { n: 3 });
    again.close();
    assert.deepEqual(
      readAll(file).map((l) => l.id),
      ['a', 'c'],
    );
  });

  it('skips a damaged line in the middle and keeps the rest', () => {
    const file = path.join(dir, 'j');
    writeFileSync(
      file,
      '{"at":"1","kind":"run","id":"a","record":1}\n\0\0garbage\n{"at":"2","kind":"run","id":"b","record":2}\n',
    );
    assert.deepEqual(
      readAll(file).map((l) => l.id),
      ['a', 'b'],
    );
  });

  it('is readable by the user alone', () => {
    Journal.open(path.join(dir, 'sub', 'j'), () => undefined).close();
    assert.equal(statSync(path.join(dir, 'sub', 'j')).mode & 0o077, 0);
  });
});

describe('references', () => {
  const records = [
    { id: 'sabc1', name: 'one' },
    { id: 'sabd2', name: 'two' },
  ];
  const codeOf = (ref: string): string => {
    try {
      return resolveRef(records, ref, 'sandbox', (r) => r.name).id;
    } catch (error) {
      assert.ok(error instanceof PetriError);
      return error.code;
    }
  };

  it('finds by id, unique prefix and name', () => {
    assert.equal(codeOf('sabc1'), 'sabc1');
    assert.equal(codeOf('sabc'), 'sabc1');
    assert.equal(codeOf('two'), 'sabd2');
  });

  it('says what is unknown or ambiguous', () => {
    assert.equal(codeOf('sx'), 'not-found');
    assert.equal(codeOf('sab'), 'ambiguous');
  });

  it('makes ids that differ', () => {
    assert.equal(new Set(Array.from({ length: 1000 }, () => newId('s'))).size, 1000);
  });
});

describe('log file', () => {
  it('keeps the beginning and the end and says what was cut between', () => {
    const log = new LogFile(path.join(dir, 'l', 'x.log'), { headBytes: 10, tailBytes: 6 });
    for (const part of ['0123456', '789abc', 'defghijk', 'lmnop']) log.write(Buffer.from(part));
    log.close();
    assert.equal(log.cut, true);
    assert.equal(readFileSync(log.file, 'utf8'), '0123456789\n[petri: 10 bytes cut here]\nklmnop');
  });

  it('is whole below the cap', () => {
    const log = new LogFile(path.join(dir, 'x.log'), { headBytes: 4, tailBytes: 4 });
    log.write(Buffer.from('12345678'));
    log.close();
    log.close();
    assert.equal(log.cut, false);
    assert.equal(readFileSync(log.file, 'utf8'), '12345678');
  });
});

describe('mutex', () => {
  it('runs tasks of one key one after the other, also after a failure', async () => {
    const mutex = new KeyedMutex();
    const order: string[] = [];
    const task =
      (name: string, fail = false) =>
      async (): Promise<void> => {
        order.push(`+${name}`);
        await new Promise((resolve) => setImmediate(resolve));
        order.push(`-${name}`);
        if (fail) throw new Error(name);
      };
    const failing = mutex.run('k', task('a', true));
    const second = mutex.run('k', task('b'));
    await assert.rejects(failing);
    await second;
    assert.deepEqual(order, ['+a', '-a', '+b', '-b']);
    assert.equal(mutex.busy('k'), false);
  });
});

describe('lock', () => {
  it('is held by one, and free again after release', async () => {
    const first = await acquireLock(dir, '0');
    assert.ok(first);
    first.publish();
    assert.equal(statSync(path.join(dir, 'agent.lock')).mode & 0o077, 0);
    first.release();
    const second = await acquireLock(dir, '0');
    assert.ok(second);
    second.release();
  });

  it('is taken over from a process that is gone', async () => {
    writeFileSync(path.join(dir, 'agent.claim'), '999999999');
    const lock = await acquireLock(dir, '0');
    assert.ok(lock);
    lock.release();
  });

  it('keeps the socket path short enough for every platform', async () => {
    const deep = path.join(dir, 'x'.repeat(120));
    const lock = await acquireLock(deep, '0');
    assert.ok(lock);
    assert.ok(Buffer.byteLength(lock.lock.socket) <= 100);
    lock.release();
  });
});
