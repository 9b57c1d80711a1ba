/** The process of the command: joins the command line to the real streams and signals, and ends. */
import { fstatSync } from 'node:fs';
import { connect } from '../client/client';
import type { Host } from './host';
import { run } from './program';

const restorers = new Set<() => void>();
process.on('exit', () => {
  for (const restore of restorers) restore();
});

/** True when file descriptor 0 is something to be read: a pipe, a file or a socket; not a terminal, not /dev/null, not closed. */
function stdinPiped(): boolean {
  try {
    const stat = fstatSync(0);
    return stat.isFIFO() || stat.isFile() || stat.isSocket();
  } catch {
    return false;
  }
}

const host: Host = {
  // A closed descriptor must not be touched before somebody wants to read.
  get stdin() {
    return process.stdin;
  },
  stdinPiped: stdinPiped(),
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  cwd: process.cwd(),
  connect,
  onSignal: (listener) => {
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
    for (const s of signals) process.on(s, listener);
    return { dispose: () => signals.forEach((s) => process.off(s, listener)) };
  },
  leave: (code) => process.exit(code),
  atExit: (restore) => {
    restorers.add(restore);
    return { dispose: () => restorers.delete(restore) };
  },
  now: () => Date.now(),
};

void run(process.argv.slice(2), host).then((code) => {
  // What was written to a pipe may not be out yet: the exit waits for it.
  process.stdout.write('', () => process.stderr.write('', () => process.exit(code)));
});
