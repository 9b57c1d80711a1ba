/** Trees of the store: blobs, edits, patches, diffs, merges. */
import assert from 'node:assert/strict';
import { chmodSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import type { Oid, WorkspaceStore } from '../../src/agent/workspace/store';
import {
  bytePath,
  captureTree,
  codeOf,
  makePlace,
  open,
  put,
  removePlace,
  storeGit,
  treeFiles,
  type Place,
} from './helpers';

describe('trees of the store', function () {
  this.timeout(60_000);
  let place: Place;
  let ws: string;
  let store: WorkspaceStore;
  before(async () => {
    place = makePlace();
    store = await open(place);
  });
  after(() => removePlace(place));
  beforeEach(() => {
    ws = place.workspace;
    rmSync(ws, { recursive: true, force: true });
    put(ws, 'base', 'base\n');
  });

  /** A tree of these files; a value of null leaves the base's one out. Modes: `x:` executable, `->` link. */
  async function tree(files: Record<string, string | Buffer>): Promise<Oid> {
    rmSync(ws, { recursive: true, force: true });
    put(ws, '.keep');
    for (const [name, value] of Object.entries(files)) {
      const text = value.toString();
      if (text.startsWith('->')) symlinkSync(text.slice(2), path.join(ws, name));
      else if (text.startsWith('x:')) {
        put(ws, name, text.slice(2));
        chmodSync(path.join(ws, name), 0o755);
      } else put(ws, name, value);
    }
    return captureTree(store);
  }

  it('stores and reads blobs, small and streamed, in order and twice', async () => {
    const a = await store.writeBlob(Buffer.from('a\r\n'));
    const big = await store.writeBlob(Readable.from([Buffer.alloc(3 << 20, 1), Buffer.alloc(3 << 20, 2)]));
    const sizes = await store.blobSizes([a, big, a]);
    assert.deepEqual([sizes.get(a), sizes.get(big)], [3, 6 << 20]);
    const seen: string[] = [];
    for await (const { oid, data } of store.readBlobs([big, a, a])) seen.push(`${oid} ${data.length}`);
    assert.deepEqual(seen, [`${big} ${6 << 20}`, `${a} 3`, `${a} 3`]);
    let streamed = 0;
    for await (const chunk of store.openBlob(big) as AsyncIterable<Buffer>) streamed += chunk.length;
    assert.equal(streamed, 6 << 20);
    assert.equal(await codeOf(store.writeBlob(Readable.from([Buffer.alloc(11)]), 10)), 'too-large');
    assert.equal(await codeOf(store.writeBlob(Buffer.alloc(11), 10)), 'too-large');
    assert.equal(await codeOf(store.blobSizes(['1'.repeat(40)])), 'not-found');
    for await (const chunk of store.openBlob(big) as AsyncIterable<Buffer>) {
      assert.ok(chunk.length > 0);
      break;
    }
  });

  it('edits trees, files and folders taking each other’s place', async () => {
    const base = await tree({ a: 'a', 'd/x': 'x', 'd/y': 'y' });
    const oid = await store.writeBlob(Buffer.from('new'));
    const entry = { mode: '100755', oid };
    const next = await store.editTree(base, [
      { path: bytePath('d/x'), entry: null },
      { path: bytePath('d/y'), entry: null },
      { path: bytePath('d'), entry },
      { path: bytePath('a'), entry: null },
      { path: bytePath('a/ü'), entry },
    ]);
    assert.deepEqual([...(await treeFiles(store, next)).keys()].sort(), ['.keep', bytePath('a/ü'), 'd'].sort());
    for (const bad of [
      '.git/config',
      'x/.GIT/hooks/a',
      '../a',
      'a/./b',
      '/a',
      'a//b',
      '',
      'a\0b',
      'git~1/x',
      '.g\u200cit/x',
      '.git./x',
      'a/..',
      `${'n'.repeat(256)}`,
    ])
      assert.equal(await codeOf(store.editTree(base, [{ path: bytePath(bad), entry }])), 'untrusted-data', bad);
    for (const mode of ['160000', '040000', '100666', '120001'])
      assert.equal(
        await codeOf(store.editTree(base, [{ path: bytePath('ok'), entry: { mode, oid } }])),
        'untrusted-data',
        mode,
      );
  });

  it('applies patches exactly and says why it can’t', async () => {
    const base = await tree({ 'a.txt': 'one\r\ntwo\r\nthree\r\n', 'b.bin': Buffer.from([0, 1, 2]), run: 'r' });
    const want = await tree({
      'a.txt': 'one\r\n2\r\nthree\r\n',
      'b.bin': Buffer.from([0, 9, 2, 0]),
      run: 'x:r',
      'new/ü f': 'n',
      l: '->a.txt',
    });
    const { text, cut } = await store.patch(base, want);
    assert.equal(cut, false);
    assert.equal(await store.applyPatch(base, Buffer.from(text)), want);
    assert.equal(await store.applyPatch(base, Buffer.alloc(0)), base);
    const other = await tree({ 'a.txt': 'nothing alike\n' });
    await assert.rejects(
      store.applyPatch(other, Buffer.from(text)),
      (e: Error & { code?: string }) => e.code === 'conflict' && /a\.txt/.test(e.message),
    );
    assert.equal(await codeOf(store.applyPatch(base, Buffer.from('hello\n'))), 'invalid-file');
    const evil = (name: string): Buffer =>
      Buffer.from(
        `diff --git a/${name} b/${name}\nnew file mode 100644\n--- /dev/null\n+++ b/${name}\n@@ -0,0 +1 @@\n+x\n`,
      );
    for (const name of ['.git/hooks/post-checkout', '../out', 'x/.git/config', '.GIT/config'])
      assert.equal(await codeOf(store.applyPatch(base, evil(name))), 'untrusted-data', name);
    const link = await tree({ d: '->/etc' });
    assert.equal(await codeOf(store.applyPatch(link, evil('d/passwd'))), 'untrusted-data');
    const gitlink = `diff --git a/s b/s\nnew file mode 160000\nindex 0000000..${'1'.repeat(7)}\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit ${'1'.repeat(40)}\n`;
    assert.notEqual(await codeOf(store.applyPatch(base, Buffer.from(gitlink))), 'none');
  });

  it('shows diffs: status, counts, modes, names, sensitive paths', async () => {
    const one = await tree({
      'a b': '1\n2\n',
      mode: 'm',
      type: 't',
      gone: 'g\n',
      bin: Buffer.from([0, 1]),
      'package.json': '{"version":"1","scripts":{"a":"b"}}',
      'sub/package.json': '{"version":"1"}',
    });
    const two = await tree({
      'a b': '1\n3\n4\n',
      mode: 'x:m',
      type: '->mode',
      'new\nline': 'n\n',
      bin: Buffer.from([0, 2]),
      'package.json': '{"version":"1","scripts":{"a":"c"}}',
      'sub/package.json': '{"version":"2"}',
      out: '->../../x',
    });
    const { stat, files } = await store.diff(one, two);
    const of = (p: string) => files.find((f) => f.path === p);
    assert.deepEqual(of('a b'), {
      path: 'a b',
      status: 'modified',
      added: 2,
      removed: 1,
      oldMode: '100644',
      newMode: '100644',
      sensitive: null,
    });
    assert.deepEqual([of('mode')?.status, of('mode')?.newMode, of('mode')?.added], ['modified', '100755', 0]);
    assert.equal(of('type')?.status, 'type-changed');
    assert.deepEqual([of('gone')?.status, of('gone')?.newMode], ['deleted', '000000']);
    assert.equal(of('new\nline')?.status, 'added');
    assert.equal(of('bin')?.added, null);
    assert.match(of('package.json')?.sensitive ?? '', /scripts/);
    assert.equal(of('sub/package.json')?.sensitive, null);
    assert.match(of('out')?.sensitive ?? '', /outside/);
    assert.equal(stat.files, files.length);
    assert.deepEqual(await store.diff(one, one), { stat: { files: 0, added: 0, removed: 0 }, files: [] });
    const some = await store.patch(one, two, { paths: ['a b'] });
    assert.match(some.text, /^diff --git a\/a b b\/a b\n/);
    assert.equal(some.text.match(/^diff --git/gm)?.length, 1);
    const short = await store.patch(one, two, { maxBytes: 200 });
    assert.equal(short.cut, true);
    assert.ok(short.text.length < 300 && /cut here/.test(short.text));
  });

  it('merges what does not touch, and names each conflict', async () => {
    const lines = (n: number, change: Record<number, string> = {}): string =>
      Array.from({ length: n }, (_, i) => change[i] ?? `line ${i}`).join('\n') + '\n';
    const base = await tree({
      f: lines(20),
      crlf: lines(9).replaceAll('\n', '\r\n'),
      del: 'd',
      bin: Buffer.from([0, 1]),
      mode: 'm',
      both: lines(3),
    });
    const ours = await tree({
      f: lines(20, { 1: 'ours' }),
      crlf: lines(9, { 0: 'o' }).replaceAll('\n', '\r\n'),
      del: 'd',
      bin: Buffer.from([0, 1]),
      mode: 'x:m',
      both: lines(3),
      mine: 'm',
    });
    const theirs = await tree({
      f: lines(20, { 18: 'theirs' }),
      crlf: lines(9, { 8: 't' }).replaceAll('\n', '\r\n'),
      bin: Buffer.from([0, 2]),
      mode: 'm2',
      both: lines(3),
      'new/file': 'n',
    });
    const clean = await store.merge(base, ours, theirs);
    assert.deepEqual(clean.conflicts, []);
    assert.ok(clean.tree);
    const files = await treeFiles(store, clean.tree);
    assert.equal(files.get('f'), `100644 ${lines(20, { 1: 'ours', 18: 'theirs' })}`);
    assert.equal(files.get('crlf'), `100644 ${lines(9, { 0: 'o', 8: 't' }).replaceAll('\n', '\r\n')}`);
    assert.equal(files.get('mode'), '100755 m2');
    assert.equal(files.has('del'), false);
    assert.equal(files.has('mine') && files.has('new/file'), true);

    const a = await tree({
      f: lines(20, { 1: 'ours' }),
      bin: Buffer.from([0, 5]),
      del: 'changed',
      both: 'x',
      'dir/f': '1',
      add: '1',
      kind: '->f',
    });
    const b = await tree({
      f: lines(20, { 1: 'theirs' }),
      bin: Buffer.from([0, 6]),
      both: 'x',
      dir: 'file',
      add: '2',
      kind: 'x:f',
    });
    const { tree: none, conflicts } = await store.merge(base, a, b);
    assert.equal(none, null);
    const reason = new Map(conflicts.map((c) => [c.path, c.reason]));
    assert.match(reason.get('f') ?? '', /same lines/);
    assert.match(reason.get('bin') ?? '', /binary/);
    assert.match(reason.get('del') ?? '', /deleted/);
    assert.match(reason.get('add') ?? '', /both sides/);
    assert.ok(
      [...reason.keys()].some((p) => p.startsWith('dir')),
      JSON.stringify(conflicts),
    );
    assert.ok(
      [...reason.keys()].some((p) => p.startsWith('kind')),
      JSON.stringify(conflicts),
    );
    assert.equal(reason.has('both'), false);
  });

  it('undoes by merging backwards', async () => {
    const before = await tree({ a: '1\n2\n3\n4\n5\n', b: 'b' });
    const after = await tree({ a: '1\n2\n3\n4\nFIVE\n', c: 'c' });
    const now = await tree({ a: 'ONE\n2\n3\n4\nFIVE\n', c: 'c', mine: 'later' });
    const { tree: undone } = await store.merge(after, now, before);
    assert.ok(undone);
    const files = await treeFiles(store, undone);
    assert.deepEqual(
      [files.get('a'), files.get('b'), files.has('c'), files.get('mine')],
      ['100644 ONE\n2\n3\n4\n5\n', '100644 b', false, '100644 later'],
    );
  });

  it('keeps trees by name', async () => {
    const t = await tree({ a: 'kept' });
    await store.keep('promotion/p1/before', t);
    assert.equal(storeGit(store, ['rev-parse', 'refs/petri/promotion/p1/before']), t);
    await store.keep('promotion/p1/before', null);
    await store.keep('never/was', null);
    assert.equal(storeGit(store, ['for-each-ref']), '');
    assert.equal(await codeOf(store.keep('../evil', t)), 'internal');
  });

  it('lists changes with both sides', async () => {
    const one = await tree({ a: '1', b: 'b' });
    const two = await tree({ a: '2', c: 'x:c' });
    const changes = await store.changes(one, two);
    assert.deepEqual(
      changes.map((c) => [c.path, c.before?.mode ?? null, c.after?.mode ?? null]),
      [
        ['a', '100644', '100644'],
        ['b', '100644', null],
        ['c', null, '100755'],
      ],
    );
  });
});
