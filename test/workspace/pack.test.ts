/** Packs from a sandbox: good ones come in, hostile ones leave nothing. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { deflateSync } from 'node:zlib';
import { createHash } from 'node:crypto';
import type { WorkspaceStore } from '../../src/agent/workspace/store';
import {
  captureTree,
  codeOf,
  git,
  makePlace,
  open,
  put,
  removePlace,
  storeGit,
  treeFiles,
  type Place,
} from './helpers';

const maxBytes = 64 << 20;

describe('packs from a sandbox', function () {
  this.timeout(60_000);
  let place: Place;
  let store: WorkspaceStore;
  let box: string;
  let base: string;
  beforeEach(async () => {
    place = makePlace();
    store = await open(place);
    put(place.workspace, 'a', 'a');
    put(place.workspace, 'd/b', 'b');
    base = await captureTree(store);
    box = path.join(place.root, 'box.git');
    git(place.root, ['init', '-q', '--bare', box]);
  });
  afterEach(() => removePlace(place));

  const inBox = (args: string[], input: string | Buffer = ''): string =>
    execFileSync('git', args, { cwd: box, input, maxBuffer: 1 << 30, stdio: ['pipe', 'pipe', 'pipe'] })
      .toString()
      .trim();
  const blob = (content: string | Buffer): string => inBox(['hash-object', '-w', '--stdin'], content);
  const pack = (oids: string[]): Buffer =>
    execFileSync('git', ['pack-objects', '--stdout', '-q'], {
      cwd: box,
      input: oids.join('\n') + '\n',
      maxBuffer: 1 << 30,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  const rawTree = (entries: [string, string, string][]): string =>
    inBox(
      ['hash-object', '-t', 'tree', '-w', '--literally', '--stdin'],
      Buffer.concat(
        entries.map(([mode, name, oid]) =>
          Buffer.concat([Buffer.from(`${mode} ${name}\0`, 'latin1'), Buffer.from(oid, 'hex')]),
        ),
      ),
    );
  const send = (data: Buffer, tree: string, max = maxBytes): Promise<void> =>
    store.importPack(Readable.from([data]), tree, { maxBytes: max });

  /** Nothing in the store but what was there, nothing under way. */
  function assertUntouched(packsBefore: string[], tree: string): void {
    assert.deepEqual(readdirSync(path.join(store.gitDir, 'objects/pack')).sort(), packsBefore);
    const incoming = path.join(store.gitDir, 'incoming');
    if (existsSync(incoming)) assert.deepEqual(readdirSync(incoming), []);
    assert.throws(() => storeGit(store, ['cat-file', '-e', tree]));
  }
  async function assertRefused(data: Buffer, tree: string, code = 'untrusted-data', why = ''): Promise<void> {
    const packs = readdirSync(path.join(store.gitDir, 'objects/pack')).sort();
    assert.equal(await codeOf(send(data, tree)), code, why);
    assertUntouched(packs, tree);
  }

  it('takes only new objects on top of what the store has', async () => {
    const trees = await store.packTrees(base);
    inBox(['index-pack', '--stdin', '--fix-thin'], trees);
    const b = blob('new content');
    const d = inBox(['ls-tree', base, 'd']).split(/\s/)[2] ?? '';
    const next = inBox(
      ['mktree', '--missing'],
      `100644 blob ${inBox(['ls-tree', base, 'a']).split(/\s/)[2] ?? ''}\ta\n040000 tree ${d}\td\n100755 blob ${b}\tnew\n`,
    );
    await send(pack([b, next]), next);
    assert.deepEqual(
      [...(await treeFiles(store, next))],
      [
        ['a', '100644 a'],
        ['d/b', '100644 b'],
        ['new', '100755 new content'],
      ],
    );
    await send(pack([b, next]), next);
    assert.equal(storeGit(store, ['fsck', '--full', '--strict']).includes('error'), false);
    const other = await open({ ...place, workspace: place.root }, 'other');
    const chunks: Buffer[] = [];
    for await (const c of store.packAll(next) as AsyncIterable<Buffer>) chunks.push(c);
    await other.importPack(Readable.from(chunks), next, { maxBytes });
    assert.equal((await treeFiles(other, next)).size, 3);
  });

  it('refuses unsafe names, at the top and deep', async () => {
    const b = blob('evil');
    for (const name of [
      '.git',
      '.GIT',
      '.Git',
      '..',
      '.',
      'git~1',
      'GIT~1',
      '.g\u200cit',
      '.git\u200e',
      'a/b',
      '',
      '.git ',
      '.git.',
      '.git::$INDEX_ALLOCATION',
      '.git\\x',
    ]) {
      const bytes = Buffer.from(name).toString('latin1');
      const flat = rawTree([['100644', bytes, b]]);
      await assertRefused(pack([b, flat]), flat, 'untrusted-data', JSON.stringify(name));
      const folder = rawTree([['40000', bytes, rawTree([['100644', 'config', b]])]]);
      await assertRefused(
        pack([b, folder, rawTree([['100644', 'config', b]])]),
        folder,
        'untrusted-data',
        `folder ${JSON.stringify(name)}`,
      );
      const deep = rawTree([['40000', 'x', flat]]);
      await assertRefused(pack([b, flat, deep]), deep, 'untrusted-data', `deep ${JSON.stringify(name)}`);
    }
  });

  it('refuses modes that are neither file nor link, doubles and disorder', async () => {
    const b = blob('x');
    for (const mode of ['160000', '100666', '100600', '104755', '60000', '20000', '0', '777', '0100644']) {
      const t = rawTree([[mode, 'f', b]]);
      await assertRefused(pack([b, t]), t, 'untrusted-data', mode);
    }
    for (const names of [
      ['a', 'a'],
      ['b', 'a'],
    ]) {
      const t = rawTree(names.map((n): [string, string, string] => ['100644', n, b]));
      await assertRefused(pack([b, t]), t, 'untrusted-data', names.join());
    }
  });

  it('refuses what is not whole: missing objects, another tree, garbage, an end too early', async () => {
    const b = blob('x');
    const missing = rawTree([['100644', 'f', '1'.repeat(40)]]);
    await assertRefused(pack([b, missing]), missing);
    const wrongType = rawTree([['40000', 'f', b]]);
    await assertRefused(pack([b, wrongType]), wrongType);
    const t = rawTree([['100644', 'f', b]]);
    await assertRefused(pack([b]), t);
    await assertRefused(pack([b, t]).subarray(0, 40), t);
    await assertRefused(Buffer.from('PACKxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'), t);
    await assertRefused(Buffer.alloc(0), t);
    const flipped = Buffer.from(pack([b, t]));
    flipped[20] = (flipped[20] ?? 0) ^ 0xff;
    await assertRefused(flipped, t);
    assert.equal(await codeOf(send(pack([b, t]), b)), 'untrusted-data');
    assert.equal(await codeOf(send(pack([b, t]), '--help')), 'untrusted-data');
    await send(pack([b, t]), t);
  });

  it('is bounded: by what is sent, by what it unpacks to, by one object', async () => {
    const random = execFileSync('head', ['-c', '300000', '/dev/urandom']);
    const b = blob(random);
    const t = rawTree([['100644', 'f', b]]);
    assert.equal(await codeOf(send(pack([b, t]), t, 100_000)), 'too-large');
    assertUntouched([], t);
    await send(pack([b, t]), t, 1_000_000);

    const bomb = blob(Buffer.alloc(40 << 20));
    const bombTree = rawTree([['100644', 'zeros', bomb]]);
    const packs = readdirSync(path.join(store.gitDir, 'objects/pack')).sort();
    assert.equal(await codeOf(send(pack([bomb, bombTree]), bombTree, 1 << 20)), 'too-large');
    assertUntouched(packs, bombTree);

    // A tree object (held whole in memory) that claims four gigabytes.
    const huge = packOf([{ type: 2, claim: 2 ** 32, data: Buffer.alloc(1000) }]);
    assert.notEqual(await codeOf(send(huge, t.replace(/^./, '0'), 1 << 20)), 'none');
  });

  it('refuses a tree of exponential size without walking it all', async () => {
    let inner = rawTree(
      Array.from({ length: 20 }, (_, i): [string, string, string] => [
        '100644',
        `f${String(i).padStart(2, '0')}`,
        blob('x'),
      ]),
    );
    const all = [blob('x'), inner];
    for (let level = 0; level < 8; level++) {
      inner = rawTree(
        Array.from({ length: 20 }, (_, i): [string, string, string] => [
          '40000',
          `d${String(i).padStart(2, '0')}`,
          inner,
        ]),
      );
      all.push(inner);
    }
    await assertRefused(pack(all), inner);
  });

  it('refuses a tree of endless depth', async () => {
    let inner = rawTree([['100644', 'f', blob('x')]]);
    const all = [blob('x'), inner];
    const objects: Buffer[] = [];
    for (let level = 0; level < 6000; level++) {
      const data = Buffer.concat([Buffer.from('40000 d\0'), Buffer.from(inner, 'hex')]);
      inner = createHash('sha1').update(`tree ${data.length}\0`).update(data).digest('hex');
      objects.push(data);
    }
    await send(pack(all), all[1] ?? '');
    await assertRefused(packOf(objects.map((data) => ({ type: 2, claim: data.length, data }))), inner);
  });

  it('stops when it is cancelled', async () => {
    const abort = new AbortController();
    const endless = new Readable({ read() {} });
    endless.push('PACK');
    const done = codeOf(store.importPack(endless, base, { maxBytes, signal: abort.signal }));
    abort.abort();
    assert.equal(await done, 'cancelled');
    assert.equal(endless.destroyed, true);
  });
});

/** A pack made by hand, its sizes as claimed. */
function packOf(objects: { type: number; claim: number; data: Buffer }[]): Buffer {
  const header = Buffer.alloc(12);
  header.write('PACK');
  header.writeUInt32BE(2, 4);
  header.writeUInt32BE(objects.length, 8);
  const parts: Buffer[] = [header];
  for (const { type, claim, data } of objects) {
    const bytes: number[] = [];
    let size = BigInt(claim);
    let byte = (type << 4) | Number(size & 15n);
    size >>= 4n;
    while (size > 0n) {
      bytes.push(byte | 0x80);
      byte = Number(size & 0x7fn);
      size >>= 7n;
    }
    bytes.push(byte);
    parts.push(Buffer.from(bytes), deflateSync(data));
  }
  const body = Buffer.concat(parts);
  return Buffer.concat([body, createHash('sha1').update(body).digest()]);
}
