// Resident memory of a fresh agent, two seconds after a sandbox came and went (Linux: it reads /proc).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

const resident = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;

export default {
  id: 'memory',
  what: 'agent, idle after a sandbox came and went: resident memory',
  against: 'node doing nothing',
  aim: 90 * 1024 * 1024,
  unit: 'bytes',
  async measure(context, n) {
    const out = { ours: [], base: [] };
    for (let i = 0; i < n(3); i++) {
      await context.client();
      await context.stopAgent();
      await context.warm(100);
      const idle = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6); console.log(1)'], {
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      await once(idle.stdout, 'data');
      await new Promise((resolve) => setTimeout(resolve, 2000));
      out.ours.push(resident((await context.client()).agent.pid));
      out.base.push(resident(idle.pid));
      idle.kill();
      await once(idle, 'exit');
    }
    return out;
  },
};
