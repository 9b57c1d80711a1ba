/** The workspace's own repository: copies of it say what it says, commits come into the store, nothing in it is ever written. */
import assert from 'node:assert/strict';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import type { WorkspaceStore } from '../../src/agent/workspace/store';
import {
  captureTree,
  codeOf,
  fingerprint,
  git,
  makePlace,
  open,
  put,
  removePlace,
  treeFiles,
  type Place,
} from './helpers';

describe('the workspace’s own repository', function () {
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

  /** Exports, puts the copy beside the captured files, and compares what git says there and here. */
  async function assertSame(
    depth: number | 'full' = 1,
    gitDir = path.join(ws, '.git'),
    ignore?: RegExp,
  ): Promise<string> {
    const copy = path.join(place.root, 'copy');
    rmSync(copy, { recursive: true, force: true });
    mkdirSync(path.join(copy, '.git'), { recursive: true });
    const before = fingerprint(gitDir, ignore);
    assert.equal(await store.exportRepository(path.join(copy, '.git'), depth), true);
    await captureTree(store);
    assert.equal(fingerprint(gitDir, ignore), before, 'the user’s .git was touched');
    for (const name of readdirSync(ws))
      if (name !== '.git')
        cpSync(path.join(ws, name), path.join(copy, name), {
          recursive: true,
          verbatimSymlinks: true,
          filter: (from) => path.basename(from) !== '.git',
        });
    const inside = {
      env: { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', HOME: '/nonexistent', XDG_CONFIG_HOME: '/nonexistent' },
    };
    const state = ['-c', 'status.branch=false', 'status', '--porcelain=v2', '-z'];
    assert.equal(git(copy, state, inside), git(ws, state));
    assert.equal(git(copy, ['ls-files', '-s', '-v', '-z'], inside), git(ws, ['ls-files', '-s', '-v', '-z']));
    assert.equal(git(copy, ['fsck', '--full'], inside).replace(/^(dangling|notice).*\n/gm, ''), '');
    assert.equal(git(copy, ['remote'], inside), '');
    assert.equal(existsSync(path.join(copy, '.git/hooks')), false);
    return copy;
  }

  function history(commits = 5): void {
    git(ws, ['init', '-q']);
    for (let i = 0; i < commits; i++) {
      put(ws, `f${i}`, `${i}\n`);
      put(ws, 'common', `${i}\n`);
      git(ws, ['add', '-A']);
      git(ws, ['commit', '-qm', `c${i}`]);
    }
  }

  it('copies branch, index as staged, changes and depth', async () => {
    history();
    git(ws, ['checkout', '-qb', 'feature/x']);
    git(ws, ['remote', 'add', 'origin', 'https://user:secret@example.org/x.git']);
    git(ws, ['config', 'http.extraHeader', 'Authorization: secret']);
    put(ws, '.git/hooks/post-checkout', '#!/bin/sh\nexit 1\n');
    chmodSync(path.join(ws, '.git/hooks/post-checkout'), 0o755);
    put(ws, 'staged', 'only in the index');
    git(ws, ['add', 'staged']);
    put(ws, 'staged', 'and differently on disk');
    put(ws, 'later', 'l');
    git(ws, ['add', '-N', 'later']);
    git(ws, ['rm', '-q', '--cached', 'f1']);
    rmSync(path.join(ws, 'f2'));
    put(ws, 'f3', 'edited');
    git(ws, ['update-index', '--assume-unchanged', 'f0']);
    put(ws, 'untracked', 'u');
    put(ws, '.git/info/exclude', 'hidden\n');
    put(ws, 'hidden', 'h');
    const copy = await assertSame(2);
    assert.equal(git(copy, ['symbolic-ref', 'HEAD']).trim(), 'refs/heads/feature/x');
    assert.equal(git(copy, ['rev-parse', 'HEAD']), git(ws, ['rev-parse', 'HEAD']));
    assert.equal(git(copy, ['log', '--format=%s']).trim(), 'c4\nc3');
    assert.equal(git(copy, ['show', ':staged']), 'only in the index');
    assert.equal(git(copy, ['for-each-ref', '--format=%(refname)']).trim(), 'refs/heads/feature/x');
    assert.doesNotMatch(readFileSync(path.join(copy, '.git/config'), 'utf8'), /secret|example\.org/);
    git(copy, ['commit', '-qam', 'works inside']);
    assert.equal(git(await assertSame('full'), ['rev-list', '--count', 'HEAD']).trim(), '5');
  });

  it('copies a detached HEAD, a repository without commits, one in the middle of a merge', async () => {
    history(2);
    git(ws, ['checkout', '-q', '--detach', 'HEAD~1']);
    const copy = await assertSame();
    assert.equal(git(copy, ['rev-parse', 'HEAD']), git(ws, ['rev-parse', 'HEAD']));
    assert.throws(() => git(copy, ['symbolic-ref', '-q', 'HEAD']));
    git(ws, ['checkout', '-qb', 'other']);
    put(ws, 'common', 'other\n');
    git(ws, ['commit', '-qam', 'o']);
    assert.throws(() => git(ws, ['merge', 'main']));
    await assertSame();
    rmSync(path.join(ws, '.git'), { recursive: true });
    git(ws, ['init', '-q', '-b', 'fresh']);
    git(ws, ['add', 'common']);
    assert.equal(git(await assertSame(), ['symbolic-ref', 'HEAD']).trim(), 'refs/heads/fresh');
  });

  it('copies with line endings converted, a global ignore file, a sparse checkout', async () => {
    writeFileSync(
      path.join(place.home, '.gitconfig'),
      '[user]\n\tname = T\n\temail = t@example.org\n[core]\n\tautocrlf = true\n\texcludesFile = ~/ignored\n[protocol "file"]\n\tallow = always\n',
    );
    put(place.home, 'ignored', '*.swp\n');
    git(ws, ['init', '-q']);
    put(ws, 'crlf', 'a\r\nb\r\n');
    put(ws, 'lf', 'a\nb\n');
    put(ws, 'x.swp', 's');
    put(ws, 'deep/a', 'a');
    git(ws, ['add', '-A']);
    git(ws, ['commit', '-qm', 'c']);
    await assertSame();
    assert.match(await store.ignoreRules(), /\*\.swp/);
    git(ws, ['sparse-checkout', 'set', '--cone']);
    assert.equal(existsSync(path.join(ws, 'deep')), false);
    await assertSame();
  });

  it('copies a linked worktree, a submodule and a repository with alternates', async () => {
    history(3);
    const main = path.join(place.root, 'main');
    renameSync(ws, main);
    git(main, ['worktree', 'add', '-q', '-b', 'side', ws]);
    put(ws, 'common', 'x');
    git(ws, ['add', 'common']);
    const copy = await assertSame(1, path.join(main, '.git'));
    assert.equal(git(copy, ['symbolic-ref', 'HEAD']).trim(), 'refs/heads/side');
    git(main, ['worktree', 'remove', '--force', ws]);

    git(place.root, ['clone', '-q', '--shared', main, ws]);
    await assertSame();
    const parent = path.join(place.root, 'parent');
    git(place.root, ['init', '-q', parent]);
    git(parent, ['submodule', '--quiet', 'add', main, 'ws']);
    rmSync(ws, { recursive: true });
    symlinkSync(path.join(parent, 'ws'), ws);
    await assertSame(1, path.join(parent, '.git'));
  });

  it('keeps flags of a split index', async () => {
    history(2);
    git(ws, ['update-index', '--split-index']);
    put(ws, 'f0', 'changed');
    git(ws, ['add', 'f0']);
    // Whatever reads a split index, "git status" included, has git renew the time stamp of the shared half; not its contents.
    await assertSame(1, path.join(ws, '.git'), /sharedindex/);
  });

  it('is false without a repository, inside of one, and when no history is wanted', async () => {
    const into = path.join(place.root, 'into');
    mkdirSync(into);
    assert.equal(await store.exportRepository(into, 1), false);
    assert.equal(await store.ignoreRules(), '');
    git(place.root, ['init', '-q']);
    assert.equal(await store.exportRepository(into, 1), false);
    assert.deepEqual(readdirSync(into), []);
  });

  it('imports commits, submodules as files, folders of a repository', async () => {
    const sub = path.join(place.root, 'sub');
    git(place.root, ['init', '-q', sub]);
    put(sub, 'inner', 'old');
    git(sub, ['add', '-A']);
    git(sub, ['commit', '-qm', 's']);
    history(3);
    git(ws, ['submodule', '--quiet', 'add', sub, 'lib/sub']);
    put(ws, 'lib/own', 'o');
    git(ws, ['add', '-A']);
    git(ws, ['commit', '-qm', 'sub']);
    put(ws, 'lib/sub/inner', 'changed since');
    const before = fingerprint(path.join(ws, '.git'));
    const head = await store.importCommit('HEAD');
    assert.equal(head.commit, git(ws, ['rev-parse', 'HEAD']).trim());
    const files = await treeFiles(store, head.tree);
    assert.deepEqual(
      [files.get('lib/sub/inner'), files.get('lib/own'), files.get('common')],
      ['100644 old', '100644 o', '100644 2\n'],
    );
    assert.equal((await treeFiles(store, (await store.importCommit('HEAD~2')).tree)).get('common'), '100644 1\n');
    assert.equal((await store.importCommit('main')).tree, head.tree);
    for (const bad of ['nothing', '--all', '-h', 'HEAD~99', 'HEAD:common'])
      assert.equal(await codeOf(store.importCommit(bad)), 'not-found', bad);
    assert.equal(fingerprint(path.join(ws, '.git')), before);
    const { openStore } = await import('../../src/agent/workspace/gitStore');
    const inner = await openStore({ workspace: path.join(ws, 'lib'), dir: path.join(place.root, 'inner') });
    assert.deepEqual([...(await treeFiles(inner, (await inner.importCommit('HEAD')).tree)).keys()].sort(), [
      'own',
      'sub/inner',
    ]);
    assert.equal(await codeOf(inner.importCommit('HEAD~1')), 'not-found');
  });
});
