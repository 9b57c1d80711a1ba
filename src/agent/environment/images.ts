/** Which image a workspace gets, and getting it. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { PetriError } from '../../protocol/errors';
import type { Progress } from '../../protocol/wire';
import { label, type Engine, type Image } from '../engine/engine';
import type { Owner } from './content';

/** What a file at the top of the workspace says about the toolchain; the first that fits decides. */
const choices: [file: string, image: string][] = [
  ['package.json', 'node:22-bookworm'],
  ['pyproject.toml', 'python:3.13-bookworm'],
  ['requirements.txt', 'python:3.13-bookworm'],
  ['setup.py', 'python:3.13-bookworm'],
  ['go.mod', 'golang:1.24-bookworm'],
  ['Cargo.toml', 'rust:1-bookworm'],
  ['Gemfile', 'ruby:3.4-bookworm'],
  ['pom.xml', 'maven:3-eclipse-temurin-21'],
  ['build.gradle', 'gradle:jdk21'],
  ['build.gradle.kts', 'gradle:jdk21'],
  ['composer.json', 'composer:2'],
];

/** The image for a workspace whose settings name none. */
export function chooseImage(workspace: string): string {
  return choices.find(([file]) => existsSync(path.join(workspace, file)))?.[1] ?? 'buildpack-deps:bookworm-scm';
}

export class Images {
  private readonly owners = new Map<string, Promise<Owner>>();

  constructor(
    private readonly engine: Engine,
    private readonly owner: string,
  ) {}

  /** The image by name: what is here, else from its registry. Errors: image-missing, cancelled. */
  async get(ref: string, options: { signal?: AbortSignal; progress?(p: Progress): void }): Promise<Image> {
    const here = await this.engine.findImage(ref);
    if (here) return here;
    options.progress?.({ message: `Getting image ${ref}` });
    return this.engine.pullImage(ref, options);
  }

  /** Numeric owner of the files of this image's default user. Asked from inside for a named one, once per image. */
  userOf(image: Image): Promise<Owner> {
    const numeric = /^(\d+)(?::(\d+))?$/.exec(image.user);
    if (image.user === '') return Promise.resolve({ uid: 0, gid: 0 });
    if (numeric?.[2] !== undefined) return Promise.resolve({ uid: Number(numeric[1]), gid: Number(numeric[2]) });
    const known = this.owners.get(image.id);
    if (known) return known;
    const asked = this.ask(image);
    this.owners.set(image.id, asked);
    asked.catch(() => this.owners.delete(image.id));
    return asked;
  }

  private async ask(image: Image): Promise<Owner> {
    const box = await this.engine.createBox({
      name: `petri-who-${Date.now().toString(36)}`,
      image,
      labels: { [label.owner]: this.owner, [label.role]: 'bake' },
      network: 'none',
      tier: 'container',
      env: {},
      workdir: '/',
      user: image.user,
      lifetimeMs: 60_000,
    });
    try {
      const handle = await this.engine.exec(box.id, {
        command: ['/bin/sh', '-c', 'id -u; id -g'],
        user: image.user,
        cwd: '/',
      });
      handle.stderr.resume();
      let text = '';
      for await (const part of handle.stdout) text = (text + String(part)).slice(0, 100);
      const m = /^(\d{1,9})\n(\d{1,9})\n$/.exec(text);
      if ((await handle.exit) !== 0 || !m) {
        throw new PetriError(
          'engine-failed',
          `The user "${image.user}" of image ${image.ref} does not exist inside it.`,
        );
      }
      return { uid: Number(m[1]), gid: Number(m[2]) };
    } finally {
      await this.engine.removeBox(box.id);
    }
  }
}
