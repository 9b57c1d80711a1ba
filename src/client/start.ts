/** Starting the agent: a process of its own, detached from whoever started it, found by its lock file. */
import { spawn } from 'node:child_process';
import { mkdirSync, openSync, closeSync, watch } from 'node:fs';
import path from 'node:path';
import { PetriError } from '../protocol/errors';
import { agentLogTail } from './home';

/** How long a new agent may take until it answers, ms. */
const startDeadlineMs = 15_000;

/**
 * Starts the agent and connects as soon as it answers. When two callers start one each, the second agent sees the lock and ends;
 * both callers find the first. Errors: agent-unreachable, with the end of its log.
 */
export async function startAgent<T>(
  home: string,
  script: string | undefined,
  tryConnect: () => Promise<T | undefined>,
): Promise<T> {
  mkdirSync(home, { recursive: true, mode: 0o700 });
  const log = openSync(path.join(home, 'agent.log'), 'a', 0o600);
  const child = spawn(process.execPath, [script ?? path.join(__dirname, 'agent.js')], {
    detached: true,
    stdio: ['ignore', 'ignore', log],
    env: { ...process.env, PETRI_HOME: home, ELECTRON_RUN_AS_NODE: '1' },
    cwd: home,
    windowsHide: true,
  });
  closeSync(log);
  child.unref();
  const failed = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code) => {
      // 0: another agent was there first, and answers.
      if (code !== 0) resolve(`it ended with exit code ${code ?? 'none'}`);
    });
  });
  const deadline = Date.now() + startDeadlineMs;
  let failure: string | undefined;
  void failed.then((why) => (failure = why));
  for (;;) {
    const client = await tryConnect();
    if (client) {
      child.removeAllListeners();
      return client;
    }
    if (failure !== undefined || Date.now() > deadline) break;
    await lockChange(home, 50);
  }
  const tail = agentLogTail(home);
  throw new PetriError(
    'agent-unreachable',
    `The agent did not start: ${failure ?? `no answer in ${startDeadlineMs / 1000} s`}.`,
    {
      hint: `Its log is ${path.join(home, 'agent.log')}.`,
      data: { log: tail },
    },
  );
}

/** Resolves when something changes in the folder, or after `ms` at the latest. */
function lockChange(home: string, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      watcher?.close();
      resolve();
    };
    const timer = setTimeout(done, ms);
    let watcher: ReturnType<typeof watch> | undefined;
    try {
      watcher = watch(home, done);
      watcher.on('error', () => undefined);
    } catch {
      // No watching on this file system: the timer does it.
    }
  });
}
