/** What a sandbox's `.git` depends on, as one hash: HEAD, branch and the staged entries. Reads the user's repository only. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';

/** Null when the folder is not the top of a repository. Costs two small git processes side by side. */
export async function repositoryFingerprint(workspace: string): Promise<string | null> {
  const [head, staged] = await Promise.all([
    read(workspace, ['rev-parse', '--show-prefix', '--symbolic-full-name', 'HEAD']),
    read(workspace, ['ls-files', '-s', '-z']),
  ]);
  const commit = head === null ? await read(workspace, ['rev-parse', '--show-prefix']) : head;
  if (commit === null || staged === null) return null;
  // A prefix on the first line: the folder is inside a repository, not its top.
  if (commit.subarray(0, 1).toString() !== '\n') return null;
  const id = head === null ? Buffer.from('unborn') : await read(workspace, ['rev-parse', 'HEAD']);
  return createHash('sha256')
    .update(commit)
    .update(id ?? '')
    .update(staged)
    .digest('hex');
}

function read(cwd: string, args: string[]): Promise<Buffer | null> {
  const env: NodeJS.ProcessEnv = { ...process.env, GIT_OPTIONAL_LOCKS: '0', LC_ALL: 'C' };
  for (const name of Object.keys(env)) if (name.startsWith('GIT_') && name !== 'GIT_OPTIONAL_LOCKS') delete env[name];
  return new Promise((resolve) => {
    execFile(
      'git',
      ['-c', 'core.fsmonitor=false', ...args],
      { cwd, env, encoding: 'buffer', maxBuffer: 1 << 30 },
      (error, stdout) => resolve(error ? null : stdout),
    );
  });
}
