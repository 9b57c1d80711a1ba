// What every row of the benchmark shares: an engine, a fresh agent with a data folder of its own, generated workspaces, and clocks.
import Docker from 'dockerode';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
export const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const image = 'petri-test/golden:1';

export const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length % 2
    ? sorted[(sorted.length - 1) / 2]
    : (sorted[sorted.length / 2 - 1] + sorted[sorted.length / 2]) / 2;
};

/** Milliseconds that `work` takes. */
export async function time(work) {
  const began = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - began) / 1e6;
}

/** Interleaves ours and the baseline `times` times and gives both lists. What comes back from a measured part is cleaned up outside the clock. */
export async function interleave(times, ours, base, { warmUp = 1 } = {}) {
  const out = { ours: [], base: [] };
  for (let i = -warmUp; i < times; i++) {
    for (const [name, work] of [
      ['ours', ours],
      ['base', base],
    ]) {
      let after;
      const ms = await time(async () => (after = await work(i)));
      if (typeof after === 'function') await after();
      if (i >= 0) out[name].push(ms);
    }
  }
  return out;
}

/** Runs a program and gives its output; the event loop stays free. */
export function run(command, args, { cwd = root, input } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: [input ? 'pipe' : 'ignore', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (d) => (out += d));
    child.stderr.on('data', (d) => (err += d));
    child.on('error', reject);
    child.on('close', (code) =>
      code === 0 ? resolve(out) : reject(new Error(`${command} ${args.join(' ')}: ${err}`)),
    );
    if (input) input.pipe(child.stdin);
  });
}

export class Context {
  constructor(dockerHost, log) {
    this.log = log;
    this.dockerHost = dockerHost;
    this.scratch = mkdtempSync(path.join(tmpdir(), 'petri-bench-'));
    this.home = path.join(this.scratch, 'home');
    this.docker = new Docker(dockerHost.startsWith('unix://') ? { socketPath: dockerHost.slice(7) } : undefined);
    this.workspaces = new Map();
    this.made = [];
  }

  async client() {
    const { connect } = require(path.join(root, 'dist/petri-client.js'));
    this.connection ??= await connect({
      home: this.home,
      client: { name: 'bench', version: '0' },
      agentScript: path.join(root, 'dist/agent.js'),
    });
    return this.connection;
  }

  get owner() {
    return readFileSync(path.join(this.home, 'id'), 'utf8').trim();
  }

  /** A git repository with `count` files in nested folders, 6 kB each on average, half of it incompressible. Made once per count. */
  workspace(count) {
    const known = this.workspaces.get(count);
    if (known) return known;
    this.log(`making a workspace of ${count} files`);
    const folder = path.join(this.scratch, `files-${count}`);
    mkdirSync(folder);
    let seed = 42;
    const random = () => (seed = (seed * 1103515245 + 12345) & 0x7fffffff);
    const noise = Buffer.alloc(1 << 20);
    for (let i = 0; i < noise.length; i += 4) noise.writeInt32LE(random() ^ (random() << 8), i);
    for (let i = 0; i < count; i++) {
      const dir = path.join(folder, `d${i % 20}`, `e${Math.floor(i / 20) % 20}`);
      if (i < 400) mkdirSync(dir, { recursive: true });
      const half = 1000 + (random() % 4000);
      const at = random() % (noise.length - half);
      writeFileSync(
        path.join(dir, `f${i}.txt`),
        Buffer.concat([noise.subarray(at, at + half), Buffer.alloc(half, `line ${i}\n`)]),
      );
    }
    writeFileSync(path.join(folder, 'petri.json'), JSON.stringify({ environment: { image } }));
    const git = (...args) =>
      execFileSync('git', ['-c', 'user.name=b', '-c', 'user.email=b@example.org', '-c', 'gc.auto=0', ...args], {
        cwd: folder,
      });
    git('init', '-q');
    git('add', '-A');
    git('commit', '-qm', 'bench');
    this.workspaces.set(count, folder);
    return folder;
  }

  /** A sandbox of a workspace whose layer is baked and settled. */
  async warm(count) {
    const workspace = this.workspace(count);
    const client = await this.client();
    const { id } = await client.call('sandbox.create', { workspace });
    await client.call('sandbox.destroy', { sandboxes: [id], discard: true });
    await this.settled(workspace);
    return { workspace, client };
  }

  /** Waits until the workspace's newest layer is settled, by its label. */
  async settled(workspace) {
    const filters = {
      label: [`dev.petri.owner=${this.owner}`, `dev.petri.workspace=${workspace}`, 'dev.petri.role=layer'],
    };
    for (let i = 0; i < 600; i++) {
      const images = await this.docker.listImages({ filters });
      if (images.some((x) => JSON.parse(x.Labels['dev.petri.meta'] ?? '{}').settled)) return;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error('the layer was never settled');
  }

  /** The image that a sandbox was started from. */
  async startImage(id) {
    return (await (await this.client()).call('sandbox.show', { sandbox: id })).startImage;
  }

  async exec(id, command) {
    const client = await this.client();
    const record = await client.exec({ sandbox: id, command }, { stdout: () => {}, stderr: () => {} }).result;
    if (record.exitCode !== 0) throw new Error(`${command.join(' ')} ended with ${record.exitCode}`);
  }

  destroyer(...ids) {
    return async () => void (await (await this.client()).call('sandbox.destroy', { sandboxes: ids, discard: true }));
  }

  /** The raw counterpart of a sandbox: the same image and kind of container, nothing else. */
  async rawBox(imageId) {
    const container = await this.docker.createContainer({
      Image: imageId,
      Entrypoint: ['/bin/sh', '-c', 'exec sleep 3600'],
      Cmd: [],
      HostConfig: { Init: true, NetworkMode: 'none' },
      Labels: { 'petri-bench': this.scratch },
    });
    await container.start();
    return container;
  }

  async rawExec(container, command) {
    const exec = await container.exec({ Cmd: command, AttachStdout: true, AttachStderr: true });
    const stream = await exec.start({ hijack: true, stdin: false });
    stream.resume();
    await new Promise((resolve) => stream.on('end', resolve).on('close', resolve));
    const { ExitCode } = await exec.inspect();
    if (ExitCode !== 0) throw new Error(`raw exec ended with ${ExitCode}`);
  }

  async end() {
    try {
      const client = await this.client();
      await client.call('prune', { all: true });
      await client.call('agent.stop', {}).catch(() => undefined);
      client.dispose();
    } finally {
      for (const c of await this.docker.listContainers({
        all: true,
        filters: { label: [`petri-bench=${this.scratch}`] },
      })) {
        await this.docker.getContainer(c.Id).remove({ force: true, v: true });
      }
      for (const id of this.made)
        await this.docker
          .getImage(id)
          .remove({ force: true })
          .catch(() => undefined);
      rmSync(this.scratch, { recursive: true, force: true });
    }
  }
}
