/** Tar written and read by us against GNU tar in both directions, and archives that are hostile. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  createReadStream,
  createWriteStream,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { packTar, packedSize, tarEndBytes, type TarEntry } from '../../src/agent/tar/pack';
import { unpackTar, type UnpackOptions } from '../../src/agent/tar/unpack';
import { PetriError, type ErrorCode } from '../../src/protocol/errors';
import type { BytePath } from '../../src/protocol/text';

const at = (text: string): BytePath => Buffer.from(text).toString('latin1') as BytePath;
const raw = (bytes: number[]): BytePath => String.fromCharCode(...bytes) as BytePath;
const meta = { mode: 0o644, uid: 0, gid: 0, mtimeMs: 1_700_000_000_000 };
const file = (p: BytePath, content: Buffer | string): TarEntry => {
  const data = Buffer.from(content as string);
  return { ...meta, path: p, type: 'file', size: data.length, content: data };
};
const dir = (p: BytePath): TarEntry => ({ ...meta, path: p, type: 'dir', mode: 0o755, size: 0 });
const link = (p: BytePath, target: BytePath): TarEntry => ({
  ...meta,
  path: p,
  type: 'symlink',
  mode: 0o777,
  size: 0,
  link: target,
});

interface Read {
  path: string;
  type: string;
  mode: number;
  link: string;
  size: number;
  data: Buffer;
}

async function readAll(tar: Readable | Buffer, options: Partial<UnpackOptions> = {}): Promise<Read[]> {
  const out: Read[] = [];
  const stream = Buffer.isBuffer(tar) ? Readable.from([tar], { objectMode: false }) : tar;
  for await (const e of unpackTar(stream, { maxBytes: 1e9, ...options })) {
    out.push({ path: e.path, type: e.type, mode: e.mode, link: e.link, size: e.size, data: await buffer(e.content) });
  }
  return out;
}

const refused = (code: ErrorCode) => (error: unknown) => error instanceof PetriError && error.code === code;

/** Names at every boundary of the format, and names that are not UTF-8. */
const names = [1, 99, 100, 101, 154, 155, 156, 255, 256, 257, 300].map((n) =>
  at('x'.repeat(Math.min(n, 200)) + (n > 200 ? `/${'y'.repeat(n - 201)}` : '')),
);
const strange = [
  at('with space'),
  at('quote"\'`$x'),
  at('new\nline'),
  at('tab\t'),
  raw([0x66, 0xff, 0xfe]),
  raw([0xe9]),
  at('ünïcödé'),
  at('back\\slash'),
  at('-rf'),
  at(' '),
];

describe('tar', () => {
  let scratch: string;
  beforeEach(() => {
    scratch = mkdtempSync(path.join(tmpdir(), 'petri-tar-'));
  });
  afterEach(() => rmSync(scratch, { recursive: true, force: true }));

  async function unpackByGnuTar(entries: TarEntry[]): Promise<string> {
    const archive = path.join(scratch, 'a.tar');
    await pipeline(packTar(entries), createWriteStream(archive));
    const into = path.join(scratch, 'into');
    mkdirSync(into);
    execFileSync('tar', ['-xf', archive, '-C', into]);
    return into;
  }

  it('is unpacked by GNU tar to the same names, bytes, modes, times and links', async () => {
    const contents = new Map<string, Buffer>();
    const entries: TarEntry[] = [];
    const folders = new Set<string>();
    for (const [i, name] of [...names, ...strange].entries()) {
      const top = name.includes('/') ? (name.slice(0, name.indexOf('/')) as BytePath) : undefined;
      const target = top && contents.has(top) ? (`d${name}` as BytePath) : name;
      const folder = target.includes('/') ? target.slice(0, target.indexOf('/')) : undefined;
      if (folder !== undefined && !folders.has(folder)) {
        folders.add(folder);
        entries.push(dir(folder as BytePath));
      }
      const data = randomBytes([0, 1, 511, 512, 513, 70_000, 300_000][i % 7] ?? 0);
      contents.set(target, data);
      entries.push({ ...file(target, data), mode: i % 2 ? 0o755 : 0o640 });
    }
    const longTarget = at(`${'t'.repeat(150)}/z`);
    entries.push(link(at('dangling'), longTarget), link(raw([0x6c, 0xff]), raw([0xfe, 0x2f, 0x61])));
    const into = await unpackByGnuTar(entries);
    for (const e of entries) {
      const onDisk = Buffer.concat([Buffer.from(`${into}/`), Buffer.from(e.path, 'latin1')]);
      const stat = lstatSync(onDisk);
      if (e.type === 'symlink') {
        assert.equal(readlinkSync(onDisk, { encoding: 'buffer' }).toString('latin1'), e.link);
      } else if (e.type === 'file') {
        assert.deepEqual(readFileSync(onDisk), contents.get(e.path), e.path);
        assert.equal(stat.mode & 0o777, e.mode);
        assert.equal(stat.mtimeMs, e.mtimeMs);
      } else assert.ok(stat.isDirectory());
    }
  });

  for (const format of ['gnu', 'posix', 'ustar', 'v7']) {
    it(`reads what GNU tar writes in the format ${format}`, async () => {
      const from = path.join(scratch, 'from');
      mkdirSync(from);
      const short = format === 'ustar' || format === 'v7';
      const wanted = new Map<string, string>();
      for (const name of [...names, ...strange].filter((n) => !short || n.length < 90)) {
        const flat = name.replaceAll('/', '_');
        if (flat.length > 250) continue;
        wanted.set(flat, createHash('sha256').update(flat).digest('hex'));
        writeFileSync(Buffer.concat([Buffer.from(`${from}/`), Buffer.from(flat, 'latin1')]), wanted.get(flat) ?? '');
      }
      const deep = path.join(from, ...Array.from({ length: short ? 2 : 6 }, (_, i) => `${'d'.repeat(30)}${i}`));
      mkdirSync(deep, { recursive: true });
      writeFileSync(path.join(deep, 'leaf'), 'leaf');
      symlinkSync(short ? 'to' : 'l'.repeat(180), path.join(from, 'sym'));
      const archive = path.join(scratch, 'b.tar');
      execFileSync('tar', [`--format=${format}`, '-cf', archive, '-C', from, '.']);
      const read = await readAll(createReadStream(archive));
      const files = new Map(
        read.filter((e) => e.type === 'file').map((e) => [e.path.replace(/^\.\//, ''), e.data.toString()]),
      );
      for (const [name, data] of wanted) assert.equal(files.get(name), data, name);
      assert.equal(files.get(path.relative(from, path.join(deep, 'leaf'))), 'leaf');
      assert.equal(read.find((e) => e.path === './sym')?.link, short ? 'to' : 'l'.repeat(180));
      assert.equal(read.find((e) => e.path === './')?.type, 'dir');
    });
  }

  it('reads back what it writes, streams included, and says its size before', async () => {
    const big = randomBytes(1_000_003);
    const entries: TarEntry[] = [
      dir(at('d')),
      {
        ...file(at('d/streamed'), ''),
        size: big.length,
        content: Readable.from([big.subarray(0, 7), big.subarray(7, 600_000), big.subarray(600_000)]),
      },
      file(at('d/empty'), ''),
      { ...meta, path: at('nothing'), type: 'file', size: 0 },
      { ...file(at('old'), 'x'), mtimeMs: -86_400_000, uid: 2 ** 31, gid: 3_000_000 },
      link(at('l'), at('d/streamed')),
    ];
    const whole = await buffer(packTar(entries.map((e) => ({ ...e }))));
    assert.equal(
      whole.length,
      entries.reduce((sum, e) => sum + packedSize(e), tarEndBytes),
    );
    const read = await readAll(whole);
    assert.deepEqual(
      read.map((e) => [e.path, e.type, e.size]),
      [
        ['d/', 'dir', 0],
        ['d/streamed', 'file', big.length],
        ['d/empty', 'file', 0],
        ['nothing', 'file', 0],
        ['old', 'file', 1],
        ['l', 'symlink', 0],
      ],
    );
    assert.deepEqual(read[1]?.data, big);
    for await (const e of unpackTar(Readable.from([whole]), { maxBytes: 1e9 })) {
      if (e.path === 'old') assert.deepEqual([e.mtimeMs, e.uid, e.gid], [-86_400_000, 2 ** 31, 3_000_000]);
    }
  });

  it('writes sizes over 8 GiB as GNU tar reads them', async () => {
    const size = 9 * 1024 ** 3;
    const entry: TarEntry = { ...file(at('huge'), ''), size, content: new Readable({ read: () => undefined }) };
    let head = Buffer.alloc(0);
    const stream = packTar([entry]);
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      head = Buffer.concat([head, chunk]);
      if (head.length >= 512) break;
    }
    const listing = execFileSync('sh', ['-c', 'tar -tvf - 2>/dev/null || true'], { input: head, encoding: 'utf8' });
    assert.match(listing, new RegExp(` ${size} `));
  });

  it('fails where a file has not the size it says, and lets the streams go', async () => {
    for (const size of [3, 5]) {
      await assert.rejects(buffer(packTar([{ ...file(at('f'), '1234'), size }])), refused('workspace-changed'));
      const content = Readable.from([Buffer.from('1234')]);
      await assert.rejects(buffer(packTar([{ ...file(at('f'), ''), size, content }])), refused('workspace-changed'));
      assert.ok(content.destroyed);
    }
    await assert.rejects(buffer(packTar([dir('' as BytePath)])), refused('internal'));
    await assert.rejects(buffer(packTar([file('a\0b' as BytePath, '')])), refused('internal'));
  });

  it('skips what is not read, and holds little of a large archive', async () => {
    const size = 64 * 1024 * 1024;
    const chunk = randomBytes(1024 * 1024);
    const many = (): Readable =>
      Readable.from(
        (function* () {
          for (let i = 0; i < 64; i++) yield chunk;
        })(),
      );
    const entries: TarEntry[] = [
      { ...file(at('a'), ''), size, content: many() },
      file(at('b'), 'b'),
      { ...file(at('c'), ''), size, content: many() },
      file(at('d'), 'd'),
    ];
    const seen: string[] = [];
    const before = process.memoryUsage().arrayBuffers;
    let most = 0;
    for await (const e of unpackTar(packTar(entries), { maxBytes: 1e9 })) {
      seen.push(e.path);
      most = Math.max(most, process.memoryUsage().arrayBuffers - before);
      if (e.path === 'a') e.content.once('readable', () => undefined);
      if (e.path === 'c') {
        for await (const part of e.content) {
          most = Math.max(most, process.memoryUsage().arrayBuffers - before);
          if ((part as Buffer).length > 0) break;
        }
      }
    }
    assert.deepEqual(seen, ['a', 'b', 'c', 'd']);
    assert.ok(most < 48 * 1024 * 1024, `${most} bytes were held`);
  });

  describe('hostile', () => {
    /** An archive of our own making with one byte range of its first header changed and the checksum made right again. */
    function forge(entry: TarEntry, change: (header: Buffer) => void, rest = Buffer.alloc(0)): Promise<Buffer> {
      return buffer(packTar([entry])).then((whole) => {
        change(whole.subarray(0, 512));
        resum(whole.subarray(0, 512));
        return Buffer.concat([whole.subarray(0, whole.length - tarEndBytes), rest, Buffer.alloc(tarEndBytes)]);
      });
    }
    function resum(header: Buffer): void {
      header.fill(0x20, 148, 156);
      header.write(
        `${header
          .reduce((a, b) => a + b, 0)
          .toString(8)
          .padStart(6, '0')}\0 `,
        148,
      );
    }
    const pax = (records: [string, string][], flag = 'x'): Promise<Buffer> => {
      const text = records
        .map(([key, value]) => {
          let length = 0;
          for (let i = 0; i < 4; i++) length = `${length} ${key}=${value}\n`.length;
          return `${length} ${key}=${value}\n`;
        })
        .join('');
      return forge(file(at('pax'), Buffer.from(text, 'latin1')), (h) => h.write(flag, 156)).then((b) =>
        b.subarray(0, b.length - tarEndBytes),
      );
    };
    const then = async (first: Buffer | Promise<Buffer>, entry: TarEntry): Promise<Buffer> =>
      Buffer.concat([await first, await buffer(packTar([entry]))]);

    it('refuses a wrong checksum, rubbish, and every archive that is cut off', async () => {
      const whole = await buffer(
        packTar([dir(at('d')), file(at('d/f'), randomBytes(2000)), link(at('l'), at('x'.repeat(150)))]),
      );
      for (let cut = 1; cut <= whole.length - tarEndBytes; cut += 97) {
        await assert.rejects(readAll(whole.subarray(0, cut)), refused('untrusted-data'), `cut at ${cut}`);
      }
      await assert.rejects(readAll(Buffer.alloc(0)), refused('untrusted-data'));
      await assert.rejects(readAll(randomBytes(4096)), refused('untrusted-data'));
      const broken = Buffer.from(whole);
      broken[0] = 0x7a;
      await assert.rejects(readAll(broken), refused('untrusted-data'));
      assert.deepEqual(await readAll(Buffer.alloc(10240)), []);
      const two = Buffer.concat([Buffer.alloc(512), whole]);
      await assert.rejects(readAll(two), refused('untrusted-data'));
    });

    it('survives a thousand random changes: a sound result or untrusted-data, nothing else', async () => {
      const whole = await buffer(
        packTar([
          dir(at('d')),
          file(at('d/f'), randomBytes(700)),
          link(at('l'), at('y'.repeat(120))),
          file(at('n'.repeat(300)), 'z'),
        ]),
      );
      for (let i = 0; i < 1000; i++) {
        const copy = Buffer.from(whole);
        const where = (i * 7919) % copy.length;
        copy[where] = (i * 31) % 256;
        if (i % 2) resum(copy.subarray(where - (where % 512), where - (where % 512) + 512));
        try {
          await readAll(copy, { maxBytes: 100_000 });
        } catch (error) {
          assert.ok(error instanceof PetriError && ['untrusted-data', 'too-large'].includes(error.code), String(error));
        }
      }
    });

    it('bounds bytes, entries and headers', async () => {
      const many = await buffer(packTar(Array.from({ length: 50 }, (_, i) => file(at(`f${i}`), 'x'.repeat(100)))));
      await assert.rejects(readAll(many, { maxBytes: 4999 }), refused('too-large'));
      await assert.rejects(readAll(many, { maxEntries: 49 }), refused('too-large'));
      assert.equal((await readAll(many, { maxBytes: 5000, maxEntries: 50 })).length, 50);
      const huge = await forge(file(at('././@LongLink'), 'n'), (h) => {
        h.write('L', 156);
        h.write('77777777777\0', 124);
      });
      await assert.rejects(readAll(huge), refused('untrusted-data'));
      const bomb = await forge(file(at('f'), 'n'), (h) => h.write('77777777777\0', 124));
      await assert.rejects(readAll(bomb), refused('too-large'));
    });

    it('refuses negative, oversized and malformed numbers', async () => {
      for (const size of [
        Buffer.alloc(12, 0xff),
        Buffer.concat([Buffer.from([0x80]), Buffer.alloc(11, 0xff)]),
        Buffer.from('12x4\0\0\0\0\0\0\0\0'),
        Buffer.from('-1\0\0\0\0\0\0\0\0\0\0'),
      ]) {
        await assert.rejects(
          readAll(await forge(file(at('f'), 'n'), (h) => size.copy(h, 124))),
          refused('untrusted-data'),
        );
      }
    });

    it('takes pax names and sizes as bytes and refuses malformed ones', async () => {
      const odd = raw([0x70, 0xff, 0x2f, 0x71]);
      const [entry] = await readAll(
        await then(
          pax([
            ['path', odd],
            ['mtime', '1.5'],
            ['comment', 'x'],
          ]),
          file(at('short'), 'data'),
        ),
      );
      assert.equal(entry?.path, odd);
      assert.equal(entry?.data.toString(), 'data');
      for (const records of [[['path', 'a\0b']], [['size', '-1']], [['size', '1e3']], [['GNU.sparse.major', '1']]] as [
        string,
        string,
      ][][]) {
        await assert.rejects(
          readAll(await then(pax(records), file(at('f'), 'n'))),
          refused('untrusted-data'),
          JSON.stringify(records),
        );
      }
      for (const body of ['5 a=b\n', '999 path=x\n', 'path=x\n', '0 a=b\n', '7 path=\n\n', '6 a=bb']) {
        const bad = await forge(file(at('pax'), body), (h) => h.write('x', 156));
        await assert.rejects(readAll(bad), refused('untrusted-data'), body);
      }
      await assert.rejects(
        readAll(await then(Buffer.concat([await pax([['path', 'a']]), await pax([['path', 'b']])]), file(at('f'), ''))),
        refused('untrusted-data'),
      );
    });

    it('lets no global header rename what follows, and takes a harmless one', async () => {
      await assert.rejects(
        readAll(await then(pax([['path', '../../etc/passwd']], 'g'), file(at('f'), ''))),
        refused('untrusted-data'),
      );
      assert.equal((await readAll(await then(pax([['comment', 'abc']], 'g'), file(at('f'), ''))))[0]?.path, 'f');
    });

    it('reports devices, pipes, hardlinks and unknown types without following them', async () => {
      const types: Record<string, string> = {
        '1': 'hardlink',
        '3': 'other',
        '4': 'other',
        '6': 'other',
        Z: 'other',
        '7': 'file',
      };
      for (const [flag, type] of Object.entries(types)) {
        const [entry, next] = await readAll(
          await then(
            (
              await forge(file(at('f'), ''), (h) => {
                h.write(flag, 156);
                h.write('/etc/shadow', 157);
              })
            ).subarray(0, 512),
            file(at('next'), 'n'),
          ),
        );
        assert.deepEqual([entry?.path, entry?.type, entry?.data.length, next?.path], ['f', type, 0, 'next'], flag);
        assert.equal(entry?.link, type === 'hardlink' ? '/etc/shadow' : '');
      }
      await assert.rejects(
        readAll(await forge(file(at('f'), ''), (h) => h.write('S', 156))),
        refused('untrusted-data'),
      );
    });

    it('passes the error of the stream on', async () => {
      const whole = await buffer(packTar([file(at('f'), randomBytes(5000))]));
      const broken = Readable.from(
        (function* () {
          yield whole.subarray(0, 3000);
          throw new PetriError('engine-gone', 'gone');
        })(),
      );
      await assert.rejects(readAll(broken), refused('engine-gone'));
    });
  });
});
