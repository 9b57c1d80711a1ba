/** New layers by both ways, and images: what is found, removed, and never touched. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { before, describe, it } from 'mocha';
import { readCapabilities } from '../../src/agent/engine/docker/capabilities';
import { Client } from '../../src/agent/engine/docker/client';
import { Layers } from '../../src/agent/engine/docker/layers';
import { label, type Image, type LayerSpec } from '../../src/agent/engine/engine';
import { packTar, type TarEntry } from '../../src/agent/tar/pack';
import { PetriError } from '../../src/protocol/errors';
import type { BytePath } from '../../src/protocol/text';
import { fails, Lab, testEndpoint, until } from './harness';

const p = (text: string): BytePath => Buffer.from(text).toString('latin1') as BytePath;
const owner = { uid: 1000, gid: 1001, mtimeMs: 1_600_000_000_000 };
const dir = (path: string, mode = 0o755): TarEntry => ({ ...owner, path: p(path), type: 'dir', mode, size: 0 });
const file = (path: BytePath, text: string, mode = 0o644): TarEntry => ({
  ...owner,
  path,
  type: 'file',
  mode,
  size: text.length,
  content: Buffer.from(text),
});

describe('engine: layers', () => {
  const lab = new Lab();
  const ways: Record<string, (spec: LayerSpec) => Promise<Image>> = {};
  let client: Client;
  before(async () => {
    client = await Client.open(testEndpoint());
    const capabilities = await readCapabilities(client);
    const byContainer = new Layers({ client, capabilities: { ...capabilities, loadsLayers: false } });
    ways['as the engine likes it best'] = (spec) => lab.engine.addLayer(spec);
    ways['by a container'] = (spec) => byContainer.add(spec);
  });
  const spec = (parent: Image, entries: TarEntry[], more: Partial<LayerSpec> = {}): LayerSpec => ({
    parent,
    tag: lab.tag(),
    labels: lab.labels({ [label.role]: 'layer', [label.key]: 'k' }),
    open: () => packTar(entries),
    removals: [],
    sizeHint: 0,
    ...more,
  });
  const scratchFiles = (): string[] => readdirSync(tmpdir()).filter((name) => name.startsWith('petri-layer-'));

  for (const name of ['as the engine likes it best', 'by a container']) {
    const add = (s: LayerSpec): Promise<Image> => (ways[name] as (s: LayerSpec) => Promise<Image>)(s);

    describe(name, () => {
      it('adds, replaces and removes, byte for byte, on layers of the same kind', async () => {
        const odd = 'w/\xff name\n' as BytePath;
        const first = await add(
          spec(lab.busybox, [
            dir('w', 0o750),
            dir('w/sub'),
            file(p('w/keep'), 'keep', 0o600),
            file(p('w/sub/gone'), 'gone'),
            file(p('w/sub/stay'), 'stay'),
            file(p('w/change'), 'old'),
            dir('w/tree'),
            file(p('w/tree/leaf'), 'leaf'),
            file(odd, 'odd', 0o755),
            { ...owner, path: p('w/link'), type: 'symlink', mode: 0o777, size: 0, link: 'to\xff' as BytePath },
          ]),
        );
        assert.equal(first.layers, lab.busybox.layers + 1);
        assert.deepEqual(first.labels, lab.labels({ [label.role]: 'layer', [label.key]: 'k' }));
        const second = await add(
          spec(first, [dir('w', 0o750), file(p('w/change'), 'new!')], {
            labels: lab.labels({ [label.role]: 'snapshot' }),
            removals: [p('w/sub/gone'), p('w/tree'), odd],
            owner,
          }),
        );
        assert.deepEqual(second.labels, lab.labels({ [label.role]: 'snapshot' }));
        await lab.withBox(
          async (box) => {
            const out = await lab.run(
              box,
              'cd /w; find . | sort | tr "\\n" " "; echo; cat keep change sub/stay; echo; stat -c "%n %a %u:%g" . keep sub sub/stay link; readlink link',
            );
            const [names, contents, ...rest] = out.stdout.toString('latin1').split('\n');
            assert.equal(names, '. ./change ./keep ./link ./sub ./sub/stay ');
            assert.equal(contents, 'keepnew!stay');
            assert.deepEqual(rest, [
              '. 750 1000:1001',
              'keep 600 1000:1001',
              'sub 755 1000:1001',
              'sub/stay 644 1000:1001',
              'link 777 1000:1001',
              'to\xff',
              '',
            ]);
            assert.equal((await lab.run(box, 'ls -d /bin /tmp')).code, 0);
          },
          { image: second },
        );
        await lab.withBox(
          async (box) =>
            assert.equal((await lab.run(box, 'cat /w/sub/gone /w/tree/leaf; ls /w | wc -l')).out, 'goneleaf6\n'),
          { image: first },
        );
        assert.equal(await lab.engine.removeImage(second.id), true);
        assert.equal(await lab.engine.removeImage(first.id), true);
      });

      it('leaves nothing when it is cancelled at any time', async () => {
        for (const delay of [0, 5, 40, 120, 250]) {
          const abort = new AbortController();
          const timer = setTimeout(() => abort.abort(), delay);
          const entries = [dir('w'), ...Array.from({ length: 300 }, (_, i) => file(p(`w/${i}`), 'x'.repeat(5000)))];
          const made = add(spec(lab.busybox, entries, { signal: abort.signal }));
          await made.then(
            async (image) => assert.equal(await lab.engine.removeImage(image.id), true),
            fails('cancelled'),
          );
          clearTimeout(timer);
          assert.deepEqual(await lab.engine.listImages(lab.labels()), []);
          assert.deepEqual(await lab.engine.listBoxes(lab.labels()), []);
          assert.deepEqual(scratchFiles(), []);
        }
      });

      it('stops a layer that comes slowly as soon as it is cancelled', async () => {
        const abort = new AbortController();
        const source = new Readable({ read: () => undefined });
        const made = add(spec(lab.busybox, [], { signal: abort.signal, open: () => source }));
        setTimeout(() => abort.abort(), 150);
        await assert.rejects(made, fails('cancelled'));
        assert.ok(source.destroyed);
        assert.deepEqual(await lab.engine.listBoxes(lab.labels()), []);
      });

      it('passes the error of its source on and leaves nothing', async () => {
        const broken = (): Readable =>
          Readable.from(
            (function* () {
              yield Buffer.alloc(512 * 400);
              throw new PetriError('workspace-changed', 'it changed');
            })(),
          );
        await assert.rejects(add(spec(lab.busybox, [], { open: broken })), fails('workspace-changed'));
        await assert.rejects(
          add(spec(lab.busybox, [], { open: broken, sizeBytes: 512 * 4000 })),
          fails('workspace-changed'),
        );
        assert.deepEqual(await lab.engine.listImages(lab.labels()), []);
        assert.deepEqual(await lab.engine.listBoxes(lab.labels()), []);
        assert.deepEqual(scratchFiles(), []);
      });

      it('says that the parent is gone', async () => {
        await assert.rejects(add(spec({ ...lab.busybox, id: `sha256:${'0'.repeat(64)}` }, [])), fails('image-missing'));
      });
    });
  }

  it('takes a layer of known size as it is made, and refuses another size', async () => {
    const entries = [dir('w'), file(p('w/a'), 'x'.repeat(100_000))];
    const sizeBytes = (await buffer(packTar(entries))).length;
    const seen: number[] = [];
    const image = await lab.engine.addLayer(
      spec(lab.busybox, entries, { sizeBytes, progress: (m) => seen.push(m.done ?? 0) }),
    );
    await lab.withBox(async (box) => assert.equal((await lab.run(box, 'wc -c < /w/a')).out, '100000\n'), { image });
    assert.equal(await lab.engine.removeImage(image.id), true);
    for (const wrong of [sizeBytes - 512, sizeBytes + 512]) {
      await assert.rejects(
        lab.engine.addLayer(spec(lab.busybox, entries, { sizeBytes: wrong })),
        fails('workspace-changed'),
      );
    }
    assert.deepEqual(await lab.engine.listImages(lab.labels()), []);
  });

  it('makes many at once, of the same content too', async () => {
    const images = await Promise.all(
      Array.from({ length: 6 }, (_, i) =>
        lab.engine.addLayer(spec(lab.busybox, [file(p('same'), i < 3 ? 'one' : String(i))])),
      ),
    );
    for (const image of images) assert.ok(await lab.engine.findImage(image.ref), image.ref);
    for (const image of images) await lab.engine.removeImage(image.id);
    assert.deepEqual(await lab.engine.listImages(lab.labels()), []);
  });

  it('takes the tag from an older image, and removes that with the newer', async () => {
    const tag = lab.tag();
    const older = await lab.engine.addLayer(spec(lab.busybox, [file(p('a'), '1')], { tag }));
    await lab.withBox(
      async (box) => {
        const newer = await lab.engine.commitBox(box.id, { tag, labels: lab.labels() });
        assert.equal((await lab.engine.findImage(tag))?.id, newer.id);
        await lab.engine.removeBox(box.id);
        assert.equal(await lab.engine.removeImage(newer.id), true);
      },
      { image: older },
    );
    assert.equal(
      await lab.engine.findImage(older.id),
      undefined,
      'the one below, which nothing names any more, went too',
    );
  });

  it('never removes an image that is not ours, nor a tag of someone else', async () => {
    assert.equal(await lab.engine.removeImage(lab.busybox.id), false);
    assert.equal(await lab.engine.removeImage(lab.busybox.ref), false);
    assert.ok(await lab.engine.findImage(lab.busybox.ref));
    const image = await lab.engine.addLayer(spec(lab.busybox, [file(p('a'), '1')]));
    const theirs = `${lab.owner}-kept`;
    await client.docker.getImage(image.id).tag({ repo: theirs, tag: 'mine' });
    assert.equal(await lab.engine.removeImage(image.id), false);
    assert.equal((await lab.engine.findImage(`${theirs}:mine`))?.id, image.id, 'the user’s tag stays');
    assert.equal(await lab.engine.findImage(image.ref), undefined, 'ours is gone');
    await client.docker.getImage(`${theirs}:mine`).remove();
  });

  it('finds nothing under names that are none, and says why an image can not be got', async () => {
    for (const ref of [
      '',
      'no/such:image',
      'UPPER CASE',
      '../../x',
      'a'.repeat(300),
      'x:y:z',
      `sha256:${'1'.repeat(64)}`,
    ]) {
      assert.equal(await lab.engine.findImage(ref), undefined, ref);
    }
    await assert.rejects(lab.engine.pullImage(`sha256:${'1'.repeat(64)}`, {}), fails('image-missing'));
    await assert.rejects(lab.engine.pullImage('UPPER CASE', {}), fails('image-missing'));
    // Port 1 of this machine: refused at once, on every machine.
    await assert.rejects(lab.engine.pullImage('127.0.0.1:1/petri/none:1', {}), (error) => {
      assert.ok(error instanceof PetriError && ['engine-failed', 'image-missing'].includes(error.code) && error.hint);
      return true;
    });
    await assert.rejects(
      lab.engine.pullImage('127.0.0.1:1/petri/none:1', { signal: AbortSignal.abort() }),
      fails('cancelled'),
    );
  });

  it('lists by all labels that are asked for', async () => {
    const image = await lab.engine.addLayer(
      spec(lab.busybox, [file(p('a'), '2')], { labels: lab.labels({ [label.meta]: '{"a":"ü, =\\""}' }) }),
    );
    assert.deepEqual(
      (await lab.engine.listImages(lab.labels({ [label.meta]: '{"a":"ü, =\\""}' }))).map((i) => [i.id, i.ref]),
      [[image.id, image.ref]],
    );
    assert.deepEqual(await lab.engine.listImages(lab.labels({ [label.meta]: 'other' })), []);
    await lab.engine.removeImage(image.id);
    await until('it is gone', async () => (await lab.engine.findImage(image.id)) === undefined);
    client.close();
  });
});
