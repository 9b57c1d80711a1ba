/** Capture: every kind of workspace, byte for byte. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { WorkspaceStore } from '../../src/agent/workspace/store';
import {
  captureTree,
  codeOf,
  diskFiles,
  fingerprint,
  git,
  makePlace,
  open,
  put,
  removePlace,
  sorted,
  treeFiles,
  type Place,
} from './helpers';

describe('capture', function () {
  this.timeout(120_000);
  let place: Place;
  let ws: string;
  let store: WorkspaceStore;
  beforeEach(async () => {
    place = makePlace();
    ws = place.workspace;
    store = await open(place);
  });
  afterEach(() => removePlace(place));

  /** The captured tree is exactly what is on disk, apart from the given paths. */
  async function assertExact(include: string[] = [], without: string[] = []): Promise<void> {
    const disk = diskFiles(ws);
    for (const p of [...disk.keys()]) if (without.some((w) => p === w || p.startsWith(`${w}/`))) disk.delete(p);
    assert.deepEqual(sorted(await treeFiles(store, await captureTree(store, include))), sorted(disk));
  }

  function strangeFiles(at = ws): void {
    put(at, 'plain.txt', 'a\n');
    put(at, 'empty');
    put(at, 'binary.bin', Buffer.from(Array.from({ length: 512 }, (_, i) => i % 256)));
    put(at, 'crlf.txt', 'one\r\ntwo\r\n');
    put(at, 'mixed.txt', 'one\r\ntwo\nthree\r');
    put(at, 'with space/and "quotes" \'\\ too', 'x');
    put(at, 'new\nline/\ttab', 'x');
    put(at, 'ünïcödé/文件', 'x');
    put(at, 'lfs.psd', `version https://git-lfs.github.com/spec/v1\noid sha256:${'a'.repeat(64)}\nsize 12345\n`);
    put(at, 'ident.c', '$Id$ $Id: 123 $\n');
    put(at, 'utf16.txt', Buffer.from('\ufeffhi\r\n', 'utf16le'));
    put(
      at,
      '.gitattributes',
      '*.txt text eol=lf\n*.psd filter=lfs diff=lfs merge=lfs -text\n*.c ident\nutf16.txt working-tree-encoding=UTF-16\nplain.txt export-ignore\n',
    );
    put(at, 'run.sh', '#!/bin/sh\n');
    chmodSync(path.join(at, 'run.sh'), 0o755);
    symlinkSync('plain.txt', path.join(at, 'link'));
    symlinkSync('nowhere/at all', path.join(at, 'dangling'));
    symlinkSync('with space', path.join(at, 'linkdir'));
    symlinkSync('/etc', path.join(at, 'outside'));
    const raw = Buffer.concat([Buffer.from(`${at}/caf`), Buffer.from([0xe9, 0xff]), Buffer.from('.txt')]);
    writeFileSync(raw, 'latin');
  }

  it('takes a folder without git', async () => {
    strangeFiles();
    await assertExact();
    assert.equal((await store.capture({ include: [] })).commit, null);
  });

  it('takes an empty folder', async () => {
    assert.equal(await captureTree(store), '4b825dc642cb6eb9a060e54bf8d69288fbee4904');
  });

  it('takes staged, modified, untracked, deleted and typechanged files, whatever the user’s git converts', async () => {
    writeFileSync(
      path.join(place.home, '.gitconfig'),
      '[user]\n\tname = T\n\temail = t@example.org\n[core]\n\tautocrlf = true\n\tsafecrlf = false\n[filter "lfs"]\n\tclean = false\n\tsmudge = false\n\trequired = true\n',
      { flag: 'a' },
    );
    git(ws, ['init', '-q']);
    strangeFiles();
    rmSync(path.join(ws, 'lfs.psd'));
    rmSync(path.join(ws, 'utf16.txt'));
    for (const name of ['stay', 'edit', 'gone', 'type', 'dir/a', 'file', 'rmcached']) put(ws, name, `${name}\r\n`);
    git(ws, ['add', '-A']);
    git(ws, ['commit', '-qm', 'one']);
    strangeFilesAgain();
    put(ws, 'edit', 'edited');
    put(ws, 'staged', 'staged');
    git(ws, ['add', 'staged', 'edit']);
    put(ws, 'edit', 'edited more');
    rmSync(path.join(ws, 'gone'));
    rmSync(path.join(ws, 'type'));
    symlinkSync('stay', path.join(ws, 'type'));
    rmSync(path.join(ws, 'dir'), { recursive: true });
    put(ws, 'dir', 'now a file');
    rmSync(path.join(ws, 'file'));
    put(ws, 'file/inside', 'now a folder');
    git(ws, ['rm', '-q', '--cached', 'rmcached']);
    put(ws, 'untracked/deep/er', 'u');
    put(ws, '.gitignore', 'ignored*\n');
    put(ws, 'ignored.log', 'no');
    const before = fingerprint(path.join(ws, '.git'));
    await assertExact([], ['ignored.log']);
    assert.equal(fingerprint(path.join(ws, '.git')), before);
    assert.equal((await store.capture({ include: [] })).commit, git(ws, ['rev-parse', 'HEAD']).trim());
  });

  function strangeFilesAgain(): void {
    put(ws, 'lfs.psd', 'real contents\r\n');
    put(ws, 'utf16.txt', Buffer.from('\ufeffhi\r\n', 'utf16le'));
  }

  it('takes a repository without commits', async () => {
    git(ws, ['init', '-q']);
    strangeFiles();
    git(ws, ['add', 'plain.txt']);
    await assertExact();
    assert.equal((await store.capture({ include: [] })).commit, null);
  });

  it('takes tracked files that are ignored, and files of a folder replaced by a link', async () => {
    git(ws, ['init', '-q']);
    put(ws, 'build/kept.js', '1');
    put(ws, 'lib/a', 'a');
    git(ws, ['add', '-A']);
    put(ws, '.gitignore', 'build\n');
    put(ws, 'build/other.js', '2');
    git(ws, ['commit', '-qm', 'one']);
    await assertExact([], ['build/other.js']);
    renameSync(path.join(ws, 'lib'), path.join(ws, 'real'));
    symlinkSync('real', path.join(ws, 'lib'));
    await assertExact([], ['build/other.js']);
  });

  it('takes submodules and nested repositories as plain files', async () => {
    const sub = path.join(place.root, 'sub');
    git(place.root, ['init', '-q', sub]);
    put(sub, 'code.c', 'c');
    put(sub, '.gitignore', '*.o\n');
    git(sub, ['add', '-A']);
    git(sub, ['commit', '-qm', 's']);
    git(ws, ['init', '-q']);
    git(ws, ['submodule', '--quiet', 'add', sub, 'vendor/sub']);
    git(ws, ['submodule', '--quiet', 'add', sub, 'vendor/empty']);
    git(ws, ['commit', '-qm', 'w']);
    git(ws, ['submodule', '--quiet', 'deinit', '-f', 'vendor/empty']);
    put(ws, 'vendor/sub/new.c', 'n');
    put(ws, 'vendor/sub/x.o', 'object');
    put(ws, 'vendor/sub/code.c', 'changed');
    put(ws, 'nested/a', 'a');
    git(path.join(ws, 'nested'), ['init', '-q']);
    put(ws, 'nested/deeper/b', 'b');
    git(path.join(ws, 'nested/deeper'), ['init', '-q']);
    git(path.join(ws, 'nested/deeper'), ['add', 'b']);
    git(path.join(ws, 'nested/deeper'), ['commit', '-qm', 'd']);
    put(ws, 'broken/.git/x', 'no repository');
    put(ws, 'broken/file', 'f');
    const before = fingerprint(path.join(ws, '.git'));
    await assertExact([], ['vendor/sub/x.o']);
    assert.equal(fingerprint(path.join(ws, '.git')), before);
    await assertExact(['vendor/sub/*.o']);
  });

  it('takes a nested repository whose name is not UTF-8', async () => {
    git(ws, ['init', '-q']);
    const raw = Buffer.concat([Buffer.from(`${ws}/n`), Buffer.from([0xff])]);
    mkdirSync(raw);
    writeFileSync(Buffer.concat([raw, Buffer.from('/f')]), 'f');
    execFileSync('sh', ['-c', 'cd "$1"/n* && git init -q', 'sh', ws]);
    await assertExact();
  });

  it('takes a linked worktree', async () => {
    const main = path.join(place.root, 'main');
    git(place.root, ['init', '-q', main]);
    put(main, 'a', 'a');
    git(main, ['add', '-A']);
    git(main, ['commit', '-qm', 'm']);
    rmSync(ws, { recursive: true });
    git(main, ['worktree', 'add', '-q', '-b', 'side', ws]);
    put(ws, 'b', 'b');
    const before = fingerprint(path.join(main, '.git'));
    await assertExact();
    assert.equal(fingerprint(path.join(main, '.git')), before);
  });

  it('takes a folder inside a repository, and one that the repository around it ignores', async () => {
    git(place.root, ['init', '-q']);
    put(place.root, '.gitignore', '*.log\n');
    put(ws, 'a/b', 'b');
    put(ws, 'x.log', 'log');
    git(place.root, ['add', 'ws']);
    put(ws, 'c', 'c');
    await assertExact([], ['x.log']);
    put(place.root, '.gitignore', '*\n');
    git(place.root, ['rm', '-rq', '--cached', 'ws']);
    await assertExact();
  });

  it('takes ignored paths that are included, all of them', async () => {
    git(ws, ['init', '-q']);
    put(ws, '.gitignore', 'node_modules\n*.log\n');
    put(ws, 'a.log', 'l');
    put(ws, 'src/a.js', 'js');
    put(ws, 'node_modules/x/index.js', 'x');
    put(ws, 'node_modules/x/.gitignore', '*\n');
    put(ws, 'node_modules/x/debug.log', 'x');
    put(ws, 'node_modules/.bin/x', 'x');
    chmodSync(path.join(ws, 'node_modules/.bin/x'), 0o755);
    await assertExact([], ['node_modules', 'a.log']);
    await assertExact(['node_modules'], ['a.log']);
    await assertExact(['node_modules', 'nothing/here'], ['a.log']);
  });

  it('forgets what goes, and sees the same when nothing changed', async () => {
    git(ws, ['init', '-q']);
    for (let i = 0; i < 20; i++) put(ws, `d${i % 3}/f${i}`, `${i}`);
    const first = await captureTree(store);
    assert.equal(await captureTree(store), first);
    rmSync(path.join(ws, 'd1'), { recursive: true });
    put(ws, '.gitignore', 'd2\n');
    await assertExact([], ['d2']);
    rmSync(path.join(ws, '.gitignore'));
    await assertExact();
    const again = await (await open(place)).capture({ include: [] });
    assert.equal(again.tree, await captureTree(store));
  });

  it('sees an edit of the same size in the same second, even with the old time put back', async () => {
    put(ws, 'a', 'one');
    for (let i = 0; i < 5; i++) {
      put(ws, 'a', `on${i}`);
      await assertExact();
    }
    const when = new Date(Math.floor(Date.now() / 1000) * 1000);
    utimesSync(path.join(ws, 'a'), when, when);
    await assertExact();
    put(ws, 'a', 'two');
    utimesSync(path.join(ws, 'a'), when, when);
    await assertExact();
  });

  it('sees a tracked file come back that was missing', async () => {
    git(ws, ['init', '-q']);
    put(ws, 'a', 'a');
    put(ws, 'b', 'b');
    git(ws, ['add', '-A']);
    rmSync(path.join(ws, 'a'));
    await assertExact();
    await assertExact();
    put(ws, 'a', 'a');
    await assertExact();
  });

  it('finds the right tree after dying between index and memory', async () => {
    put(ws, 'a', 'a');
    await captureTree(store);
    put(ws, 'a', 'changed');
    // What a killed capture leaves: an index that is newer than the remembered tree, and a lock.
    git(ws, ['update-index', 'a'], { env: { ...process.env, GIT_DIR: store.gitDir, GIT_WORK_TREE: ws } });
    writeFileSync(path.join(store.gitDir, 'index.lock'), '');
    await assertExact();
  });

  it('makes a damaged index anew', async () => {
    put(ws, 'a', 'a');
    await captureTree(store);
    writeFileSync(path.join(store.gitDir, 'index'), 'garbage that is no index');
    await assertExact();
  });

  it('gives sound trees to two captures at once, and while files change', async () => {
    for (let i = 0; i < 50; i++) put(ws, `f${i}`, 'x'.repeat(1000));
    const [a, b] = await Promise.all([captureTree(store), captureTree(store)]);
    assert.equal(a, b);
    let running = true;
    const writer = (async () => {
      for (let n = 0; running; n++) {
        put(ws, `f${n % 50}`, String(n % 10).repeat(1000));
        put(ws, `t${n % 7}`, 'temp');
        if (existsSync(path.join(ws, `t${(n + 3) % 7}`))) rmSync(path.join(ws, `t${(n + 3) % 7}`));
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    for (let i = 0; i < 5; i++) {
      const files = await treeFiles(store, await captureTree(store));
      for (const [name, content] of files) {
        if (name.startsWith('f'))
          assert.ok(/^100644 (.?)\1*$/.test(content) || content === '100644 ', `${name} is torn`);
      }
    }
    running = false;
    await writer;
    await assertExact();
  });

  it('passes by sockets, pipes and devices', async () => {
    put(ws, 'a', 'a');
    execFileSync('mkfifo', [path.join(ws, 'pipe')]);
    await assertExact();
    rmSync(path.join(ws, 'a'));
    execFileSync('mkfifo', [path.join(ws, 'a')]);
    await assertExact();
  });

  it('hashes many files at once like one by one', async () => {
    git(ws, ['init', '-q']);
    for (let i = 0; i < 700; i++) put(ws, `d${i % 13}/f${i}`, i % 5 ? `content ${i}\r\n` : '');
    await assertExact();
    for (let i = 0; i < 650; i++) put(ws, `d${i % 13}/f${i}`, `other ${i}`);
    put(ws, 'a-first', '1');
    put(ws, 'zz/last', '1');
    rmSync(path.join(ws, 'd3'), { recursive: true });
    put(ws, 'd3', 'a file now');
    await assertExact();
    await assertExact();
    put(ws, 'd4/f4', 'once more');
    await assertExact();
    assert.equal(
      git(ws, ['fsck', '--full', '--strict'], { env: { ...process.env, GIT_DIR: store.gitDir } }).includes('error'),
      false,
    );
  });

  it('says when the workspace is gone, when a file can’t be read, when it is cancelled', async () => {
    put(ws, 'a', 'a');
    const abort = new AbortController();
    abort.abort();
    assert.equal(await codeOf(store.capture({ include: [], signal: abort.signal })), 'cancelled');
    renameSync(ws, `${ws}2`);
    assert.equal(await codeOf(store.capture({ include: [] })), 'workspace-missing');
    renameSync(`${ws}2`, ws);
    await assertExact();
    git(ws, ['init', '-q']);
    writeFileSync(path.join(ws, '.git/config'), '[broken');
    assert.equal(await codeOf(store.capture({ include: [] })), 'git-failed');
  });
});
