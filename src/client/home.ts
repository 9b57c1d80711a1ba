/** Where the data folder is, and what is in it that a client reads. */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { lockFile, type LockFile } from '../protocol/wire';

/** `PETRI_HOME`, or the platform's place for application data. Absolute. */
export function agentHome(env: NodeJS.ProcessEnv = process.env, platform: NodeJS.Platform = process.platform): string {
  if (env['PETRI_HOME']) return path.resolve(env['PETRI_HOME']);
  const home = env['HOME'] ?? homedir();
  if (platform === 'win32') return path.join(env['LOCALAPPDATA'] ?? path.join(home, 'AppData', 'Local'), 'Petri');
  if (platform === 'darwin') return path.join(home, 'Library', 'Application Support', 'Petri');
  return path.join(env['XDG_DATA_HOME'] ?? path.join(home, '.local', 'share'), 'petri');
}

/** The running agent's lock file, or undefined when there is none or it can't be read as one. */
export function readLock(home: string): LockFile | undefined {
  try {
    return lockFile.parse(JSON.parse(readFileSync(path.join(home, 'agent.lock'), 'utf8')));
  } catch {
    return undefined;
  }
}

/** The end of the agent's own log, for the words of an error. */
export function agentLogTail(home: string, bytes = 2000): string {
  try {
    return readFileSync(path.join(home, 'agent.log'), 'utf8').slice(-bytes).trim();
  } catch {
    return '';
  }
}
