/** The dependency layer: what `setup` makes of the base image when only manifests and lockfiles are there. */
import picomatch from 'picomatch';
import { cancelled, PetriError } from '../../protocol/errors';
import type { PetriFile } from '../../protocol/files';
import { pathText, visible } from '../../protocol/text';
import type { Progress } from '../../protocol/wire';
import { label, type Engine, type Image } from '../engine/engine';
import { packTar } from '../tar/pack';
import type { Oid, WorkspaceStore } from '../workspace/store';
import { treeEntries } from './content';
import type { Images } from './images';
import { contentKey, layerTag } from './layers';
import { workdir, workspacePrefix } from './layout';

/** What `setup` usually needs; `environment.manifests` replaces it. */
const usualManifests = [
  '**/package.json',
  '**/package-lock.json',
  '**/npm-shrinkwrap.json',
  '**/yarn.lock',
  '**/pnpm-lock.yaml',
  '**/pnpm-workspace.yaml',
  '**/bun.lock*',
  '.npmrc',
  '.yarnrc*',
  '**/requirements*.txt',
  '**/pyproject.toml',
  '**/setup.{py,cfg}',
  '**/{poetry,uv}.lock',
  '**/Pipfile*',
  '**/go.{mod,sum,work}',
  '**/Cargo.{toml,lock}',
  '**/Gemfile*',
  '**/*.gemspec',
  '**/composer.{json,lock}',
];
const setupDeadlineMs = 30 * 60_000;

export class Dependencies {
  constructor(
    private readonly engine: Engine,
    private readonly owner: string,
    private readonly images: Images,
  ) {}

  /** The layer, cached by base image, setup commands and the manifests' contents. Errors: engine-failed with the end of the output. */
  async layer(
    base: Image,
    store: WorkspaceStore,
    tree: Oid,
    settings: PetriFile,
    options: { signal?: AbortSignal; progress?(p: Progress): void },
  ): Promise<{ image: Image; key: string }> {
    const commands = [settings.environment.setup ?? []].flat();
    const wanted = picomatch(settings.environment.manifests ?? usualManifests, {
      dot: true,
      ignore: ['**/node_modules/**'],
    });
    const files = (await store.entries(tree)).filter((e) => wanted(pathText(e.path)));
    const key = contentKey('dependencies', 1, base.id, commands, files);
    const tag = layerTag(this.owner, key);
    const cached = await this.engine.findImage(tag);
    if (cached?.labels[label.key] === key) return { image: cached, key };
    options.progress?.({ message: `Installing dependencies: ${commands.join(' && ')}` });
    const owner = await this.images.userOf(base);
    const box = await this.engine.createBox({
      name: `petri-setup-${key.slice(0, 12)}-${Date.now().toString(36)}`,
      image: base,
      labels: {
        [label.owner]: this.owner,
        [label.role]: 'bake',
        [label.expires]: new Date(Date.now() + setupDeadlineMs).toISOString(),
      },
      network: 'open',
      tier: 'container',
      env: {},
      workdir: '/',
      user: base.user,
      lifetimeMs: setupDeadlineMs,
      ...(options.signal ? { signal: options.signal } : {}),
    });
    const stop = (): void => void this.engine.killBox(box.id).catch(() => undefined);
    options.signal?.addEventListener('abort', stop, { once: true });
    try {
      await this.engine.putArchive(box.id, '/', packTar(treeEntries(store, files, workspacePrefix, owner)));
      for (const command of commands) await this.run(box.id, command, base.user);
      if (options.signal?.aborted) throw cancelled('Installing dependencies');
      const image = await this.engine.commitBox(box.id, {
        tag,
        labels: {
          [label.owner]: this.owner,
          [label.role]: 'layer',
          [label.key]: key,
          [label.workspace]: store.workspace,
        },
      });
      return { image, key };
    } catch (error) {
      throw options.signal?.aborted ? cancelled('Installing dependencies') : error;
    } finally {
      options.signal?.removeEventListener('abort', stop);
      await this.engine.removeBox(box.id);
    }
  }

  private async run(box: string, command: string, user: string): Promise<void> {
    const handle = await this.engine.exec(box, { command: ['/bin/sh', '-c', command], cwd: workdir, user });
    let tail = '';
    const keep = (part: unknown): void => {
      tail = (tail + String(part)).slice(-2000);
    };
    handle.stdout.on('data', keep);
    handle.stderr.on('data', keep);
    const code = await handle.exit;
    if (code !== 0) {
      throw new PetriError('engine-failed', `The setup command \`${command}\` ended with exit code ${code}.`, {
        hint: 'Its last output is below; setup runs with the manifests and lockfiles only, see `environment.manifests` in petri.json.',
        data: { output: visible(tail) },
      });
    }
  }
}
