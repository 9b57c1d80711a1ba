/** The real engine for tests, with an owner label of the test file's own; what a test leaves behind fails it. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { after, before } from 'mocha';
import { parseEndpoint, type Endpoint } from '../../src/agent/engine/docker/endpoint';
import { openDockerEngine } from '../../src/agent/engine/docker/engine';
import {
  label,
  type Box,
  type BoxSpec,
  type Engine,
  type ExecHandle,
  type ExecSpec,
  type Image,
  type Labels,
} from '../../src/agent/engine/engine';
import { PetriError, type ErrorCode } from '../../src/protocol/errors';

export const goldenName = 'petri-test/golden:1';
export const busyboxName = 'petri-test/busybox:1';

/** Address of the engine that the test command found. */
export function testEngineAddress(): string {
  const address = process.env['DOCKER_HOST'];
  assert.ok(address, 'DOCKER_HOST must name the engine: run the tests with `npm test`');
  return address;
}

export const testEndpoint = (): Endpoint => parseEndpoint(testEngineAddress(), 'test');

export interface Ended {
  code: number;
  stdout: Buffer;
  stderr: Buffer;
  out: string;
  err: string;
}

/** Reads an execution to its end. */
export async function finish(handle: ExecHandle): Promise<Ended> {
  const [stdout, stderr, code] = await Promise.all([buffer(handle.stdout), buffer(handle.stderr), handle.exit]);
  return { code, stdout, stderr, out: stdout.toString(), err: stderr.toString() };
}

export function fails(code: ErrorCode, words?: RegExp): (error: unknown) => true {
  return (error) => {
    assert.ok(error instanceof PetriError, `not one of our errors: ${String(error)}`);
    assert.equal(error.code, code, error.message);
    if (words) assert.match(`${error.message} ${error.hint ?? ''}`, words);
    return true;
  };
}

export class Lab {
  engine!: Engine;
  golden!: Image;
  busybox!: Image;
  readonly owner = `test-${randomBytes(6).toString('hex')}`;
  private count = 0;
  private readonly shared: Box[] = [];

  constructor() {
    before(async () => {
      this.engine = await openDockerEngine(testEndpoint());
      this.golden = await this.image(goldenName);
      this.busybox = await this.image(busyboxName);
    });
    after(async () => {
      await Promise.all(this.shared.map((box) => this.engine.removeBox(box.id)));
      const [boxes, images] = await Promise.all([
        this.engine.listBoxes(this.labels()),
        this.engine.listImages(this.labels()),
      ]);
      for (const box of boxes) await this.engine.removeBox(box.id);
      for (const image of images) await this.engine.removeImage(image.id);
      this.engine.dispose();
      assert.deepEqual([boxes.map((b) => b.name), images.map((i) => i.ref)], [[], []], 'left behind in the engine');
    });
  }

  labels(more: Labels = {}): Labels {
    return { [label.owner]: this.owner, ...more };
  }

  tag(): string {
    return `petri/${this.owner}:${++this.count}`;
  }

  async image(name: string): Promise<Image> {
    const image = await this.engine.findImage(name);
    assert.ok(image, `the engine has no ${name}: run the tests with \`npm test\``);
    return image;
  }

  spec(more: Partial<BoxSpec> = {}): BoxSpec {
    return {
      name: `petri-${this.owner}-${++this.count}`,
      image: this.busybox,
      labels: this.labels({ [label.role]: 'sandbox' }),
      network: 'none',
      tier: 'container',
      env: {},
      workdir: '/',
      user: '',
      lifetimeMs: 300_000,
      ...more,
    };
  }

  /** A box for all tests of the file. */
  async sharedBox(more: Partial<BoxSpec> = {}): Promise<Box> {
    const box = await this.engine.createBox(this.spec(more));
    this.shared.push(box);
    return box;
  }

  /** A box for the time of `work`. */
  async withBox<T>(work: (box: Box) => Promise<T>, more: Partial<BoxSpec> = {}): Promise<T> {
    const box = await this.engine.createBox(this.spec(more));
    try {
      return await work(box);
    } finally {
      await this.engine.removeBox(box.id);
    }
  }

  async run(box: Box, command: string | string[], more: Partial<ExecSpec> = {}): Promise<Ended> {
    return finish(
      await this.engine.exec(box.id, {
        command: typeof command === 'string' ? ['/bin/sh', '-c', command] : command,
        ...more,
      }),
    );
  }
}

/** Waits until something holds, looking again on each turn of a short clock; fails with `what` after `ms`. */
export async function until(what: string, holds: () => Promise<boolean> | boolean, ms = 10_000): Promise<void> {
  const deadline = Date.now() + ms;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, `not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
