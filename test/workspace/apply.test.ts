/** Applying to the real workspace: exactly, all or nothing, through no link, recoverable at every step. */
import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { planApply, recoverApply, runApply } from '../../src/agent/workspace/apply';
import { Disk } from '../../src/agent/workspace/disk';
import { applySteps, stageAll } from '../../src/agent/workspace/applySteps';
import type { Oid, WorkspaceStore } from '../../src/agent/workspace/store';
import { captureTree, codeOf, diskFiles, makePlace, open, put, removePlace, sorted, type Place } from './helpers';

const nothing = { began: async () => {}, ended: async () => {} };

describe('apply', function () {
  this.timeout(60_000);
  let place: Place;
  let ws: string;
  let store: WorkspaceStore;
  beforeEach(async () => {
    place = makePlace();
    ws = place.workspace;
    store = await open(place);
  });
  afterEach(() => removePlace(place));

  const clear = (): void => {
    rmSync(ws, { recursive: true, force: true });
    mkdirSync(ws);
  };

  function stateA(): void {
    clear();
    for (const [name, text] of Object.entries({
      edit: 'old',
      'gone/deep/x': 'x',
      'gone/deep/y': 'y',
      'mode.sh': 'm',
      'file-to-dir': 'f',
      'dir-to-file/a': 'a',
      'dir-to-file/b/c': 'c',
      same: 's',
      'new\nline': '1',
    }))
      put(ws, name, text);
    symlinkSync('edit', path.join(ws, 'link'));
    symlinkSync('edit', path.join(ws, 'link-to-file'));
    writeFileSync(Buffer.concat([Buffer.from(`${ws}/raw`), Buffer.from([0xfe])]), 'r');
  }
  function stateB(): void {
    clear();
    for (const [name, text] of Object.entries({
      edit: 'new\r\n',
      'mode.sh': 'm',
      'file-to-dir/in/side': 'i',
      'dir-to-file': 'f',
      same: 's',
      'added/deep/z': 'z',
      empty: '',
      'new\nline': '2',
      'link-to-file': 'file',
    }))
      put(ws, name, text);
    chmodSync(path.join(ws, 'mode.sh'), 0o755);
    symlinkSync('nowhere', path.join(ws, 'link'));
    put(ws, 'big', Buffer.alloc(9 << 20, 7));
    writeFileSync(Buffer.concat([Buffer.from(`${ws}/raw`), Buffer.from([0xfe])]), 'R');
  }
  async function both(): Promise<{ a: Oid; b: Oid }> {
    stateB();
    const b = await captureTree(store);
    stateA();
    return { a: await captureTree(store), b };
  }
  /** What is on disk, folders too, so that nothing temporary or empty is left. */
  async function assertState(tree: Oid): Promise<void> {
    assert.equal(await captureTree(store), tree);
    assert.deepEqual(
      [...diskFiles(ws).keys()].filter((p) => p.includes('.petri-')),
      [],
    );
  }

  it('goes there and back, in the order began, written, ended', async () => {
    const { a, b } = await both();
    const plan = await planApply(store, a, b);
    assert.deepEqual(plan.conflicts, []);
    const before = diskFiles(ws);
    const events: string[] = [];
    await runApply(store, plan.changes, {
      began: async () => {
        assert.deepEqual(sorted(diskFiles(ws)), sorted(before));
        events.push('began');
      },
      ended: async () => {
        events.push('ended');
        await assertState(b);
      },
    });
    assert.deepEqual(events, ['began', 'ended']);
    assert.equal(existsSync(path.join(ws, 'gone')), false);
    const back = await planApply(store, b, a);
    assert.deepEqual(back.conflicts, []);
    await runApply(store, back.changes, nothing);
    await assertState(a);
    assert.equal(existsSync(path.join(ws, 'added')), false);
  });

  it('keeps folders that were empty before, permissions and ignored files', async () => {
    put(ws, 'x', '1');
    put(ws, 'd/y', '1');
    mkdirSync(path.join(ws, 'empty/inner'), { recursive: true });
    put(ws, '.gitignore', 'ignored\n');
    const a = await captureTree(store);
    put(ws, 'x', '2');
    rmSync(path.join(ws, 'd'), { recursive: true });
    const b = await captureTree(store);
    put(ws, 'x', '1');
    put(ws, 'd/y', '1');
    put(ws, 'd/ignored', 'mine');
    chmodSync(path.join(ws, 'x'), 0o600);
    await runApply(store, (await planApply(store, a, b)).changes, nothing);
    assert.equal(lstatSync(path.join(ws, 'x')).mode & 0o777, 0o600);
    assert.equal(readFileSync(path.join(ws, 'd/ignored'), 'utf8'), 'mine');
    assert.equal(existsSync(path.join(ws, 'empty/inner')), true);
  });

  it('gives new files to the owner of the folder when it runs as root', async function () {
    if (process.getuid?.() !== 0) return this.skip();
    const { a, b } = await both();
    const hand = (p: string): void => chownSync(path.join(ws, p), 1234, 1235);
    ['', 'edit', 'file-to-dir'].forEach(hand);
    await runApply(store, (await planApply(store, a, b)).changes, nothing);
    for (const p of ['edit', 'added', 'added/deep', 'added/deep/z', 'file-to-dir/in/side', 'link', 'big']) {
      const s = lstatSync(path.join(ws, p));
      if (p !== 'link') assert.deepEqual([p, s.uid, s.gid], [p, 1234, 1235]);
    }
    assert.equal(lstatSync(path.join(ws, 'same')).uid, 0);
  });

  it('refuses, before anything is written, each thing in the way', async () => {
    const { a, b } = await both();
    const ways: [string, () => void, RegExp, string][] = [
      ['edited', () => put(ws, 'edit', 'somebody'), /changed/, 'edit'],
      ['same size', () => put(ws, 'edit', 'OLD'), /changed/, 'edit'],
      ['mode', () => chmodSync(path.join(ws, 'mode.sh'), 0o755), /changed/, 'mode.sh'],
      ['deleted', () => rmSync(path.join(ws, 'edit')), /deleted/, 'edit'],
      ['target', () => (rmSync(path.join(ws, 'link')), symlinkSync('other', path.join(ws, 'link'))), /changed/, 'link'],
      ['link to file', () => (rmSync(path.join(ws, 'link')), put(ws, 'link', 'edit')), /changed/, 'link'],
      ['uncaptured', () => put(ws, 'added/deep/z', 'mine'), /not part of its captured state/, 'added/deep/z'],
      ['folder there', () => put(ws, 'empty/mine', 'm'), /folder is in its place/, 'empty'],
      ['stranger in a folder that goes', () => put(ws, 'dir-to-file/mine', 'm'), /dir-to-file\/mine/, 'dir-to-file'],
      ['file as parent', () => put(ws, 'added', 'file'), /added is a file/, 'added/deep/z'],
      [
        'link as parent',
        () => (
          mkdirSync(path.join(place.root, 'out')),
          symlinkSync(path.join(place.root, 'out'), path.join(ws, 'added'))
        ),
        /symbolic link/,
        'added/deep/z',
      ],
      [
        'link above a deletion',
        () => (renameSync(path.join(ws, 'gone'), path.join(ws, 'moved')), symlinkSync('moved', path.join(ws, 'gone'))),
        /symbolic link/,
        'gone/deep/x',
      ],
    ];
    for (const [name, change, reason, at] of ways) {
      stateA();
      change();
      const before = sorted(diskFiles(ws));
      const { changes, conflicts } = await planApply(store, a, b);
      assert.match(conflicts.find((c) => c.path === at)?.reason ?? `none for ${at}`, reason, name);
      let began = false;
      assert.equal(
        await codeOf(runApply(store, changes, { ...nothing, began: async () => void (began = true) })),
        'workspace-changed',
        name,
      );
      assert.equal(began, false);
      assert.deepEqual(sorted(diskFiles(ws)), before, name);
      rmSync(path.join(place.root, 'out'), { recursive: true, force: true });
    }
  });

  it('takes everything back when somebody interferes after the check', async () => {
    const { a, b } = await both();
    const { changes } = await planApply(store, a, b);
    const interfere: [() => void, string][] = [
      [() => put(ws, 'same-new', ''), 'none'],
      [() => put(ws, 'new\nline', 'mine'), 'workspace-changed'],
      [
        () => (rmSync(path.join(ws, 'gone'), { recursive: true }), symlinkSync(place.home, path.join(ws, 'gone'))),
        'workspace-changed',
      ],
    ];
    for (const [change, code] of interfere) {
      stateA();
      let want: [string, string][] = [];
      const got = await codeOf(
        runApply(store, changes, { ...nothing, began: async () => (change(), void (want = sorted(diskFiles(ws)))) }),
      );
      assert.equal(got, code);
      if (code !== 'none') assert.deepEqual(sorted(diskFiles(ws)), want);
    }
    assert.equal(existsSync(path.join(place.home, '.gitconfig')), true);
  });

  it('leaves nothing half done when the store or the disk fails', async () => {
    const { a, b } = await both();
    const { changes } = await planApply(store, a, b);
    const full = new Proxy(store, {
      get: (target, key) =>
        key === 'openBlob'
          ? () => {
              throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
            }
          : ((Reflect.get(target, key) as () => unknown).bind?.(target) ?? Reflect.get(target, key)),
    });
    assert.equal(await codeOf(runApply(full, changes, nothing)), 'disk-full');
    await assertState(a);
  });

  /** Stops the writing after `n` renames and removals, as a crash would: nothing is cleaned up. */
  async function crashAfter(n: number, changes: Awaited<ReturnType<typeof planApply>>['changes']): Promise<boolean> {
    class Crashing extends Disk {
      left = n;
      step(): void {
        if (this.left-- <= 0) throw new Error('crash');
      }
      override async move(from: string, to: string): Promise<void> {
        this.step();
        await super.move(from, to);
      }
      override async remove(p: string): Promise<void> {
        this.step();
        await super.remove(p);
      }
      override async removeFolder(p: string): Promise<boolean> {
        this.step();
        return super.removeFolder(p);
      }
    }
    const disk = new Crashing(ws);
    try {
      await applySteps(disk, changes, await stageAll(store, disk, changes), []);
      return false;
    } catch (error) {
      assert.equal((error as Error).message, 'crash');
      return true;
    }
  }

  it('finishes after a crash at any step', async () => {
    const { a, b } = await both();
    const { changes } = await planApply(store, a, b);
    let steps = 0;
    for (let crashed = true; crashed; steps++) {
      stateA();
      crashed = await crashAfter(steps, changes);
      assert.deepEqual(await recoverApply(store, changes), { state: 'after', detail: '', changed: [] });
      await assertState(b);
    }
    assert.ok(steps > 15, `${steps} steps`);
  });

  it('takes back after a crash when somebody changed a path meanwhile', async () => {
    const { a, b } = await both();
    const { changes } = await planApply(store, a, b);
    for (let steps = 0, crashed = true; crashed; steps += 2) {
      stateA();
      crashed = await crashAfter(steps, changes);
      put(ws, 'edit', 'mine meanwhile');
      const outcome = await recoverApply(store, changes);
      assert.equal(outcome.state, 'before');
      assert.deepEqual(outcome.changed, ['edit']);
      assert.match(outcome.detail, /edit/);
      assert.equal(readFileSync(path.join(ws, 'edit'), 'utf8'), 'mine meanwhile');
      put(ws, 'edit', 'old');
      await assertState(a);
    }
  });

  it('refuses hostile paths whatever the tree says', async () => {
    const oid = await store.writeBlob(Buffer.from('x'));
    for (const p of ['.git/hooks/pre-commit', '../x', 'a/../../x', '.GIT/config']) {
      const change = { path: p as never, before: null, after: { mode: '100644', oid } };
      assert.equal(await codeOf(runApply(store, [change], nothing)), 'workspace-changed', p);
    }
  });
});
