// What every row of the benchmark shares: an engine, an agent with a data folder of its own, workspaces, and raw containers.
import Docker from 'dockerode';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeWorkspace } from './workspaces.mjs';

export const require = createRequire(import.meta.url);
export const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const image = 'petri-test/golden:1';

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
      code === 0 ? resolve(out) : reject(new Error(`${command} ${args.join(' ')} ended with ${code}: ${err}`)),
    );
    input?.pipe(child.stdin).on('error', () => undefined);
  });
}

/** Polls until `done` gives something true; throws after a minute. */
async function until(what, done) {
  for (const deadline = Date.now() + 60_000; Date.now() < deadline;) {
    if (await done()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`Waited a minute for ${what}.`);
}

export class Context {
  constructor(dockerHost, log) {
    this.log = log;
    this.dockerHost = dockerHost;
    this.scratch = mkdtempSync(path.join(tmpdir(), 'petri-bench-'));
    this.home = path.join(this.scratch, 'home');
    // Without options it goes by DOCKER_HOST.
    this.docker = new Docker(dockerHost.startsWith('unix://') ? { socketPath: dockerHost.slice(7) } : undefined);
    this.workspaces = new Map();
    this.shared = new Map();
  }

  /** The connection to this run's agent, which is started at need. */
  async client() {
    if (!this.connection) {
      const { connect } = require(path.join(root, 'dist/petri-client.js'));
      this.connection = await connect({
        home: this.home,
        client: { name: 'bench', version: '0' },
        agentScript: path.join(root, 'dist/agent.js'),
      });
    }
    return this.connection;
  }

  async call(operation, input) {
    return (await this.client()).call(operation, input);
  }

  /** Ends the agent; the next call starts a fresh one. */
  async stopAgent() {
    const client = await this.client();
    const { pid } = client.agent;
    await client.call('agent.stop', {}).catch(() => undefined);
    client.dispose();
    this.connection = undefined;
    await until('the agent to end', () => !alive(pid));
  }

  get owner() {
    return readFileSync(path.join(this.home, 'id'), 'utf8').trim();
  }

  /** What several rows take from one measurement. */
  once(name, measure) {
    if (!this.shared.has(name)) this.shared.set(name, measure());
    return this.shared.get(name);
  }

  /** A git repository with `count` files. Made once per count. */
  workspace(count) {
    const known = this.workspaces.get(count);
    if (known) return known;
    this.log(`making a workspace of ${count} files`);
    const folder = path.join(this.scratch, `files-${count}`);
    makeWorkspace(folder, count, image);
    this.workspaces.set(count, folder);
    return folder;
  }

  /** A workspace whose layer is baked and settled. */
  async warm(count) {
    const workspace = this.workspace(count);
    const { id } = await this.create(workspace);
    await this.destroy(id);
    await this.settled(workspace);
    return workspace;
  }

  /** Waits until the workspace's newest layer is settled, by its label. */
  async settled(workspace) {
    const filters = {
      label: [`dev.petri.owner=${this.owner}`, `dev.petri.workspace=${workspace}`, 'dev.petri.role=layer'],
    };
    await until('the layer to settle', async () =>
      (await this.docker.listImages({ filters })).some(
        (found) => JSON.parse(found.Labels['dev.petri.meta'] ?? '{}').settled,
      ),
    );
  }

  create(workspace) {
    return this.call('sandbox.create', { workspace });
  }

  async destroy(...ids) {
    await this.call('sandbox.destroy', { sandboxes: ids, discard: true });
  }

  /** The image that sandboxes of this workspace are started from now. */
  async startImage(workspace) {
    const { id } = await this.create(workspace);
    const { startImage } = await this.call('sandbox.show', { sandbox: id });
    await this.destroy(id);
    return startImage;
  }

  async exec(id, command) {
    const client = await this.client();
    const record = await client.exec({ sandbox: id, command }, { stdout: () => {}, stderr: () => {} }).result;
    if (record.exitCode !== 0) throw new Error(`${command.join(' ')} ended with ${record.exitCode}`);
  }

  /** The raw counterpart of a sandbox: a running container of the same image and network mode, nothing else. */
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
    if (ExitCode !== 0) throw new Error(`raw exec of ${command.join(' ')} ended with ${ExitCode}`);
  }

  async rawRemove(container) {
    await container.remove({ force: true, v: true });
  }

  /** Commits a container as `docker commit` does; gives what removes the image. */
  async rawCommit(container, tag) {
    const changes = `LABEL petri-bench=${this.scratch}`;
    const { Id } = await container.commit({ repo: 'petri-bench', tag, changes });
    return () => this.docker.getImage(Id).remove({ force: true });
  }

  /** The `docker` command on this run's engine. */
  async dockerCli(args, options) {
    try {
      return await run('docker', ['-H', this.dockerHost, ...args], options);
    } catch (error) {
      if (error.code === 'ENOENT') throw new Error('This row needs the docker command, and it is not here.');
      throw error;
    }
  }

  /** Removes all that this run made: sandboxes, layers, agent, raw containers and images, files. */
  async end() {
    this.ending ??= this.removeAll();
    return this.ending;
  }

  async removeAll() {
    try {
      if (existsSync(path.join(this.home, 'id'))) {
        await this.call('prune', { all: true });
        await this.stopAgent();
      }
    } finally {
      const filters = { label: [`petri-bench=${this.scratch}`] };
      for (const { Id } of await this.docker.listContainers({ all: true, filters })) {
        await this.rawRemove(this.docker.getContainer(Id));
      }
      for (const { Id } of await this.docker.listImages({ filters }))
        await this.docker.getImage(Id).remove({ force: true });
      rmSync(this.scratch, { recursive: true, force: true });
    }
  }
}

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
