/** A real agent over its socket with a data folder and a workspace of its own; everything is gone afterwards, and that is asserted. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect, type PetriClient } from '../../src/client/client';
import type { ExecRecord } from '../../src/protocol/records';
import { PetriError } from '../../src/protocol/errors';

export const goldenImage = 'petri-test/golden:1';
export const busyboxImage = 'petri-test/busybox:1';
const agentScript = path.join(__dirname, '../../../dist/agent.js');

export function git(cwd: string, ...args: string[]): string {
  return execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', ...args], {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

export class Bench {
  readonly root = mkdtempSync(path.join(tmpdir(), 'petri-agent-'));
  readonly home = path.join(this.root, 'home');
  readonly workspace = path.join(this.root, 'work');
  private readonly clients: PetriClient[] = [];

  constructor() {
    mkdirSync(this.home);
    mkdirSync(this.workspace);
    assert.ok(process.env['DOCKER_HOST'], 'DOCKER_HOST must name the engine for tests');
  }

  write(name: string, content: string | Buffer): void {
    const file = path.join(this.workspace, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
  }

  read(name: string): string {
    return readFileSync(path.join(this.workspace, name), 'utf8');
  }

  async connect(): Promise<PetriClient> {
    const client = await connect({ home: this.home, client: { name: 'test', version: '0' }, agentScript });
    this.clients.push(client);
    return client;
  }

  /** Destroys everything, ends the agent, and asserts that the engine has nothing of this data folder left. */
  async end(): Promise<void> {
    const client = await this.connect();
    await client.call('prune', { all: true });
    await client.call('agent.stop', {}).catch(() => undefined);
    for (const c of this.clients) c.dispose();
    const owner = readFileSync(path.join(this.home, 'id'), 'utf8').trim();
    assert.deepEqual(leftOf(owner), [], 'objects were left in the engine');
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Names of containers and images that carry an owner's label. */
export function leftOf(owner: string): string[] {
  const filter = ['--filter', `label=dev.petri.owner=${owner}`];
  return ['ps -a --format {{.Names}}', 'images -a --format {{.Repository}}:{{.Tag}}/{{.ID}}']
    .flatMap((command) => execFileSync('docker', [...command.split(' '), ...filter], { encoding: 'utf8' }).split('\n'))
    .filter((line) => line !== '');
}

/** Runs a command in a sandbox and gives its output. */
export async function exec(
  client: PetriClient,
  sandbox: string,
  command: string | string[],
  input?: string,
): Promise<ExecRecord & { out: string; err: string }> {
  let out = '';
  let err = '';
  const session = client.exec(
    {
      sandbox,
      command: typeof command === 'string' ? ['/bin/sh', '-c', command] : command,
      stdin: input !== undefined,
    },
    { stdout: (d) => void (out += Buffer.from(d).toString()), stderr: (d) => void (err += Buffer.from(d).toString()) },
  );
  if (input !== undefined) {
    await session.write(Buffer.from(input));
    session.end();
  }
  return { ...(await session.result), out, err };
}

/** The code of the PetriError that a promise rejects with. */
export async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof PetriError, String(error));
    return error.code;
  }
  return assert.fail('it was expected to fail');
}

/** Resolves when `holds` is true, looked at after each event of the agent. */
export function until(client: PetriClient, holds: () => boolean | Promise<boolean>): Promise<void> {
  return new Promise((resolve, reject) => {
    const look = (): void => {
      Promise.resolve(holds()).then((yes) => {
        if (!yes) return;
        watch.dispose();
        resolve();
      }, reject);
    };
    const watch = client.watch(look);
    look();
  });
}
