/** What counts as sensitive, and what does not. */
import assert from 'node:assert/strict';
import { sensitiveReason } from '../../src/agent/workspace/sensitive';

const file = (text = ''): { mode: string; content: Buffer } => ({ mode: '100644', content: Buffer.from(text) });
const link = (target: string): { mode: string; content: Buffer } => ({ mode: '120000', content: Buffer.from(target) });
const added = { before: null, after: file('x') };

describe('sensitive paths', () => {
  it('marks what runs by itself later, in any case and depth', () => {
    const paths =
      `.vscode/tasks.json sub/.VSCode/settings.json a.code-workspace .devcontainer/devcontainer.json .devcontainer.json .gitattributes x/.gitmodules .gitconfig
      .husky/pre-commit .githooks/pre-push hooks/pre-commit .pre-commit-config.yaml lefthook.yml .github/workflows/ci.yml .github/actions/a/action.yml .gitlab-ci.yml Jenkinsfile
      .circleci/config.yml azure-pipelines.yml .travis.yml .npmrc web/.yarnrc .yarnrc.yml .yarn/releases/yarn.cjs .pnpmfile.cjs .bashrc .zshenv .profile .envrc a/.envrc .mise.toml petri.json a.experiment.json
      .idea/workspace.xml .cursor/mcp.json .claude/settings.json .mcp.json AGENTS.md .cargo/config.toml bunfig.toml sitecustomize.py .GIT/config .vscode`.split(
        /\s+/,
      );
    for (const p of paths) {
      assert.notEqual(sensitiveReason(p, added), null, p);
      assert.notEqual(sensitiveReason(p, { before: file('x'), after: null }), null, `${p} deleted`);
    }
  });

  it('leaves ordinary files alone', () => {
    const paths =
      'src/index.ts Makefile README.md .gitignore src/hooks/useThing.ts vscode/x.json docs/github/workflows.md package-lock.json a.npmrc.txt my.bashrc.md envrc profile src/petri.json.ts Dockerfile config.toml'.split(
        ' ',
      );
    for (const p of paths) assert.equal(sensitiveReason(p, added), null, p);
  });

  it('looks into package.json', () => {
    const reason = (before: string | null, after: string | null) =>
      sensitiveReason('web/package.json', {
        before: before === null ? null : file(before),
        after: after === null ? null : file(after),
      });
    assert.equal(
      reason('{"version":"1","scripts":{"a":"1","b":"2"}}', '{"scripts":{"b":"2","a":"1"},"version":"2"}'),
      null,
    );
    assert.equal(reason('{"dependencies":{"a":"1"}}', '{"dependencies":{"a":"2"}}'), null);
    assert.equal(reason(null, '{"name":"x"}'), null);
    assert.match(reason('{"scripts":{"test":"a"}}', '{"scripts":{"test":"b"}}') ?? '', /scripts/);
    assert.match(reason(null, '{"scripts":{"postinstall":"x"}}') ?? '', /scripts/);
    assert.match(reason('{"scripts":{"a":"b"}}', '{}') ?? '', /scripts/);
    assert.match(reason('{}', '{"husky":{"hooks":{}}}') ?? '', /husky/);
    assert.match(reason('{}', '{ not json') ?? '', /JSON/);
    assert.match(reason('{}', '[]') ?? '', /JSON/);
    assert.match(
      sensitiveReason('package.json', { before: file('{}'), after: { mode: '100644', content: undefined } }) ?? '',
      /JSON/,
    );
  });

  it('marks links that lead outside or may', () => {
    const reason = (target: string) => sensitiveReason('a/b/link', { before: null, after: link(target) });
    for (const bad of [
      '/etc/passwd',
      '../../../x',
      '../../..',
      'x/../../y',
      'C:\\x',
      '\\\\host\\x',
      '../../.git/hooks',
    ])
      assert.notEqual(reason(bad), null, bad);
    for (const good of ['../c', '../../top', 'file', './file', '..', '../..']) assert.equal(reason(good), null, good);
    assert.notEqual(sensitiveReason('l', { before: null, after: { mode: '120000', content: undefined } }), null);
  });
});
