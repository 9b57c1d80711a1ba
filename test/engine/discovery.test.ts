/** Finding the engine, in homes made for the test, and an engine that goes away: through a proxy of our own in front of the real one. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'mocha';
import tls from 'node:tls';
import { discoverEngine, type Discovery, type DiscoveryOptions } from '../../src/agent/engine/discovery';
import { parseEndpoint } from '../../src/agent/engine/docker/endpoint';
import { openDockerEngine } from '../../src/agent/engine/docker/engine';
import type { EngineEvent } from '../../src/agent/engine/engine';
import { packTar } from '../../src/agent/tar/pack';
import type { PetriError } from '../../src/protocol/errors';
import { fails, finish, Lab, testEngineAddress, until } from './harness';

/** Places that are not below a home: where a machine has an engine there, that is found first, rightly. */
const systemEngines = ['/var/run/docker.sock', '/run/podman/podman.sock'];

/** Something that listens in front of the engine and can be cut. */
class Proxy {
  private readonly sockets = new Set<net.Socket>();
  private readonly server: net.Server;
  private readonly real = testEngineAddress();

  constructor(options?: tls.TlsOptions) {
    const take = (socket: net.Socket): void => this.take(socket);
    this.server = options ? tls.createServer(options, take) : net.createServer({ allowHalfOpen: true }, take);
  }

  private take(socket: net.Socket): void {
    const real = this.real;
    const engine = real.startsWith('unix://')
      ? net.connect({ path: real.slice(7), allowHalfOpen: true })
      : net.connect({ host: new URL(real).hostname, port: Number(new URL(real).port), allowHalfOpen: true });
    for (const [from, to] of [
      [socket, engine],
      [engine, socket],
    ] as const) {
      this.sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  }

  listen(where: string | number): Promise<number> {
    return new Promise((resolve) => {
      const done = (): void => resolve(typeof where === 'number' ? (this.server.address() as net.AddressInfo).port : 0);
      if (typeof where === 'number') this.server.listen(where, '127.0.0.1', done);
      else this.server.listen(where, done);
    });
  }

  /** As when the engine is killed: nothing listens, and every connection is closed. */
  async cut(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }
}

describe('engine: discovery', () => {
  let home: string;
  let proxies: Proxy[];
  let found: Discovery[];
  beforeEach(() => {
    // Short: a socket's path has a bound.
    home = mkdtempSync(path.join(tmpdir(), 'pd-'));
    proxies = [];
    found = [];
  });
  afterEach(async () => {
    for (const f of found) f.engine.dispose();
    for (const proxy of proxies) await proxy.cut();
    rmSync(home, { recursive: true, force: true });
  });
  const listen = async (where: string | number, options?: tls.TlsOptions): Promise<number> => {
    if (typeof where === 'string') mkdirSync(path.dirname(where), { recursive: true });
    const proxy = new Proxy(options);
    proxies.push(proxy);
    return proxy.listen(where);
  };
  const discover = async (env: Record<string, string> = {}, more: Partial<DiscoveryOptions> = {}): Promise<string> => {
    const discovery = await discoverEngine({ env, home, platform: 'linux', ...more });
    found.push(discovery);
    const report = await discovery.engine.report();
    return `${report.foundBy} ${report.endpoint}`;
  };
  const context = (
    name: string,
    host: string,
    options: { skip?: boolean; tlsFiles?: Record<string, Buffer> } = {},
  ): void => {
    const id = createHash('sha256').update(name).digest('hex');
    const meta = path.join(home, '.docker/contexts/meta', id);
    mkdirSync(meta, { recursive: true });
    writeFileSync(
      path.join(meta, 'meta.json'),
      JSON.stringify({
        Name: name,
        Metadata: {},
        Endpoints: { docker: { Host: host, SkipTLSVerify: options.skip ?? false } },
      }),
    );
    for (const [file, data] of Object.entries(options.tlsFiles ?? {})) {
      const folder = path.join(home, '.docker/contexts/tls', id, 'docker');
      mkdirSync(folder, { recursive: true });
      writeFileSync(path.join(folder, file), data);
    }
  };
  const current = (name: string): void => {
    mkdirSync(path.join(home, '.docker'), { recursive: true });
    writeFileSync(path.join(home, '.docker/config.json'), JSON.stringify({ currentContext: name, auths: {} }));
  };

  it('takes the setting before DOCKER_HOST before the context before a well-known socket', async () => {
    const at = (name: string): string => path.join(home, name);
    for (const name of ['setting.sock', 'host.sock', 'context.sock', '.orbstack/run/docker.sock'])
      await listen(at(name));
    context('mine', `unix://${at('context.sock')}`);
    current('mine');
    const env = { DOCKER_HOST: `unix://${at('host.sock')}` };
    assert.equal(await discover(env, { setting: at('setting.sock') }), `setting ${at('setting.sock')}`);
    assert.equal(await discover(env), `DOCKER_HOST unix://${at('host.sock')}`);
    assert.equal(await discover(), `docker context mine unix://${at('context.sock')}`);
    current('default');
    const rest = await discover();
    if (!systemEngines.some((file) => existsSync(file)))
      assert.equal(rest, `OrbStack unix://${at('.orbstack/run/docker.sock')}`);
  });

  for (const [product, where, env] of [
    ['Docker Desktop', '.docker/run/docker.sock', {}],
    ['Docker Desktop', '.docker/desktop/docker.sock', {}],
    ['Colima', '.colima/default/docker.sock', {}],
    ['Rancher Desktop', '.rd/docker.sock', {}],
    ['rootless Docker', 'run/docker.sock', { XDG_RUNTIME_DIR: 'run' }],
    ['rootless Podman', 'run/podman/podman.sock', { XDG_RUNTIME_DIR: 'run' }],
  ] as const) {
    it(`finds ${product} at ${where}`, async function () {
      await listen(path.join(home, where));
      const real = Object.fromEntries(Object.entries(env).map(([key, value]) => [key, path.join(home, value)]));
      if (systemEngines.some((file) => existsSync(file))) return this.skip();
      assert.equal(await discover(real), `${product} unix://${path.join(home, where)}`);
    });
  }

  it('does not silently use another engine than the one that is named', async () => {
    await listen(path.join(home, '.orbstack/run/docker.sock'));
    const dead = `unix://${home}/dead.sock`;
    const check = async (
      env: Record<string, string>,
      words: RegExp,
      more: Partial<DiscoveryOptions> = {},
    ): Promise<void> => {
      await assert.rejects(discover(env, more), (error) => {
        fails('no-engine', words)(error);
        const { tried } = (error as PetriError).data as { tried: { where: string; result: string }[] };
        assert.equal(tried.length, 1);
        return true;
      });
    };
    await check({ DOCKER_HOST: dead }, /DOCKER_HOST .*dead\.sock.*no socket/);
    await check({}, /setting .*dead\.sock/, { setting: dead });
    await check({ DOCKER_HOST: 'gopher://x' }, /gopher/);
    await check({ DOCKER_HOST: 'tcp://127.0.0.1:1' }, /127\.0\.0\.1:1.*does not answer/);
    await check({ DOCKER_CONTEXT: 'nowhere' }, /context nowhere.*no context of this name/);
    context('gone', dead);
    current('gone');
    await check({}, /context gone.*no socket/);
    await check(
      { DOCKER_HOST: 'tcp://127.0.0.1:1', DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: path.join(home, 'no') },
      /DOCKER_CERT_PATH/,
    );
    const file = path.join(home, 'plain');
    writeFileSync(file, '');
    await check({ DOCKER_HOST: `unix://${file}` }, /does not answer/);
  });

  it('tells all that was tried when there is nothing, and what to do', async function () {
    if (systemEngines.some((file) => existsSync(file))) return this.skip();
    await assert.rejects(discover({ XDG_RUNTIME_DIR: path.join(home, 'run') }, { platform: 'darwin' }), (error) => {
      fails('no-engine', /Docker.*Colima.*OrbStack.*Rancher Desktop.*Podman/)(error);
      assert.ok(((error as PetriError).data['tried'] as unknown[]).length >= 9);
      return true;
    });
    const windows = discoverEngine({ env: {}, home, platform: 'win32' });
    await assert.rejects(windows, fails('no-engine', /pipe\/docker_engine.*dockerDesktopLinuxEngine.*podman/));
  });

  it('gives up on what listens and never answers', async () => {
    const mute = net.createServer();
    await new Promise<void>((resolve) => mute.listen(path.join(home, 'mute.sock'), resolve));
    const began = Date.now();
    await assert.rejects(
      discover({ DOCKER_HOST: `unix://${home}/mute.sock` }),
      fails('no-engine', /did not answer within/),
    );
    assert.ok(Date.now() - began < 10_000);
    mute.close();
  });

  it('says that what answers is no engine', async () => {
    for (const answer of [
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi',
      'rubbish\r\n\r\n',
      'HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n',
    ]) {
      const server = net.createServer((socket) => socket.once('data', () => socket.end(answer)));
      const port = await new Promise<number>((resolve) =>
        server.listen(0, '127.0.0.1', () => resolve((server.address() as net.AddressInfo).port)),
      );
      await assert.rejects(discover({ DOCKER_HOST: `tcp://127.0.0.1:${port}` }), fails('no-engine'));
      server.close();
    }
  });

  it('believes no runtime of Podman but its usual one: it lists all that it has heard of', async () => {
    // As Podman 4.3 answers on a machine that has runc alone.
    const answers: Record<string, unknown> = {
      '/_ping': 'OK',
      '/version': { Version: '4.3.1', ApiVersion: '1.41', Components: [{ Name: 'Podman Engine', Version: '4.3.1' }] },
      '/info': {
        OSType: 'linux',
        Driver: 'overlay',
        InitBinary: '',
        MemoryLimit: true,
        CpuCfsQuota: true,
        PidsLimit: true,
        DefaultRuntime: 'runc',
        Runtimes: {
          crun: { path: '/usr/bin/crun' },
          kata: { path: '/usr/bin/kata-runtime' },
          runc: { path: '/usr/bin/runc' },
          runsc: { path: '/usr/bin/runsc' },
        },
      },
    };
    const server = http.createServer((request, response) =>
      response.end(JSON.stringify(answers[(request.url ?? '').split('?')[0] ?? ''] ?? {})),
    );
    const port = await new Promise<number>((resolve) =>
      server.listen(0, '127.0.0.1', () => resolve((server.address() as net.AddressInfo).port)),
    );
    await discover({ DOCKER_HOST: `tcp://127.0.0.1:${port}` });
    const engine = found.at(-1)?.engine;
    const report = await engine?.report();
    assert.deepEqual([report?.name, report?.tiers], ['Podman', ['container']]);
    const image = {
      id: `sha256:${'0'.repeat(64)}`,
      ref: 'x',
      labels: {},
      user: '',
      env: [],
      workdir: '',
      sizeBytes: 0,
      layers: 1,
      createdAt: '',
    };
    const spec = {
      name: 'x',
      image,
      labels: {},
      network: 'none',
      tier: 'gvisor',
      env: {},
      workdir: '/',
      user: '',
    } as const;
    await assert.rejects(async () => engine?.createBox({ ...spec, env: {} }), fails('unsupported', /gVisor/));
    engine?.dispose();
    server.close();
  });

  it('speaks tcp, and TLS with the certificates of the environment and of a context', async () => {
    const plain = await listen(0);
    assert.equal(await discover({ DOCKER_HOST: `tcp://127.0.0.1:${plain}` }), `DOCKER_HOST tcp://127.0.0.1:${plain}`);

    const key = path.join(home, 'key.pem');
    const cert = path.join(home, 'cert.pem');
    execFileSync(
      'openssl',
      [
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-keyout',
        key,
        '-out',
        cert,
        '-days',
        '2',
        '-subj',
        '/CN=petri',
        '-addext',
        'subjectAltName=IP:127.0.0.1',
      ],
      { stdio: 'ignore' },
    );
    const pem = execFileSync('cat', [cert]);
    const keyPem = execFileSync('cat', [key]);
    writeFileSync(path.join(home, 'ca.pem'), pem);
    const port = await listen(0, { key: keyPem, cert: pem, ca: pem, requestCert: true, rejectUnauthorized: true });
    const host = `tcp://127.0.0.1:${port}`;
    assert.equal(
      await discover({ DOCKER_HOST: host, DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: home }),
      `DOCKER_HOST ${host}`,
    );
    // Without the authority the server is a stranger, and is refused.
    rmSync(path.join(home, 'ca.pem'));
    await assert.rejects(
      discover({ DOCKER_HOST: host, DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: home }),
      fails('no-engine', /certificate|self-signed/),
    );
    await assert.rejects(discover({ DOCKER_HOST: host }), fails('no-engine'));
    context('secure', host, { tlsFiles: { 'ca.pem': pem, 'cert.pem': pem, 'key.pem': keyPem } });
    assert.equal(await discover({ DOCKER_CONTEXT: 'secure' }), `docker context secure ${host}`);
    context('lax', host, { skip: true, tlsFiles: { 'cert.pem': pem, 'key.pem': keyPem } });
    assert.equal(await discover({ DOCKER_CONTEXT: 'lax' }), `docker context lax ${host}`);
  });

  it('speaks ssh by the ssh command of the machine', async () => {
    // What stands in for ssh does what the far side does: it joins its input and output with the engine's socket.
    const bin = path.join(home, 'bin');
    const log = path.join(home, 'args');
    mkdirSync(bin);
    const script = `#!${process.execPath}
      require('fs').writeFileSync(${JSON.stringify(log)}, JSON.stringify(process.argv.slice(2)));
      const s = require('net').connect({ path: ${JSON.stringify(path.join(home, 'far.sock'))}, allowHalfOpen: true });
      process.stdin.pipe(s); s.pipe(process.stdout); s.on('close', () => process.exit(0));`;
    writeFileSync(path.join(bin, 'ssh'), script);
    chmodSync(path.join(bin, 'ssh'), 0o755);
    await listen(path.join(home, 'far.sock'));
    const before = process.env['PATH'];
    process.env['PATH'] = `${bin}:${before}`;
    try {
      assert.equal(await discover({ DOCKER_HOST: 'ssh://me@far:2222' }), 'DOCKER_HOST ssh://me@far:2222');
      const engine = found.at(-1)?.engine;
      assert.ok(engine && (await engine.findImage('petri-test/busybox:1')));
      const args = JSON.parse(execFileSync('cat', [log], { encoding: 'utf8' })) as string[];
      assert.deepEqual(args.slice(-9), ['-l', 'me', '-p', '2222', '--', 'far', 'docker', 'system', 'dial-stdio']);
      writeFileSync(path.join(bin, 'ssh'), '#!/bin/sh\necho "Host key verification failed." >&2; exit 255\n');
      await assert.rejects(discover({ DOCKER_HOST: 'ssh://far' }), fails('no-engine', /DOCKER_HOST ssh:\/\/far/));
      await assert.rejects(discover({ DOCKER_HOST: 'ssh://-oProxyCommand=x' }), fails('no-engine'));
    } finally {
      process.env['PATH'] = before;
    }
  });

  it('is not misled by a DOCKER_HOST of this process', async () => {
    const before = process.env['DOCKER_HOST'];
    await listen(path.join(home, 'e.sock'));
    try {
      process.env['DOCKER_HOST'] = 'tcp://[broken';
      const engine = await openDockerEngine(parseEndpoint(`unix://${home}/e.sock`, 'test'));
      engine.dispose();
      assert.equal(process.env['DOCKER_HOST'], 'tcp://[broken');
    } finally {
      process.env['DOCKER_HOST'] = before;
    }
  });

  it('looks through a socket that is a link', async () => {
    await listen(path.join(home, 'real.sock'));
    symlinkSync(path.join(home, 'real.sock'), path.join(home, 'link.sock'));
    assert.match(await discover({ DOCKER_HOST: `unix://${home}/link.sock` }), /link\.sock/);
  });
});

describe('engine: going away', () => {
  const lab = new Lab();
  let socket: string;
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'pg-'));
    socket = path.join(folder, 'e.sock');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('is said by every call, ends what runs with an error, and is over when it is back', async () => {
    const proxy = new Proxy();
    await proxy.listen(socket);
    const engine = await openDockerEngine(parseEndpoint(`unix://${socket}`, 'test'));
    const events: EngineEvent[] = [];
    const watch = engine.watch(lab.owner, (e) => events.push(e));
    await lab.withBox(async (box) => {
      const handle = await engine.exec(box.id, { command: ['sh', '-c', 'echo begun; sleep 100'] });
      await new Promise((resolve) => handle.stdout.once('readable', resolve));
      const ended = assert.rejects(finish(handle), fails('engine-gone', /does not answer/));
      const flood = await engine.exec(box.id, { command: ['cat', '/dev/zero'] });
      flood.stdout.resume();
      flood.stderr.resume();
      const flooded = assert.rejects(flood.exit, fails('engine-gone'));
      const endless = new (await import('node:stream')).Readable({
        read() {
          this.push(Buffer.alloc(65536));
        },
      });
      const put = assert.rejects(
        engine.putArchive(
          box.id,
          '/tmp',
          packTar([
            { path: 'x' as never, type: 'file', mode: 0o644, uid: 0, gid: 0, mtimeMs: 0, size: 8e9, content: endless },
          ]),
        ),
        fails('engine-gone'),
      );
      const layer = assert.rejects(
        engine.addLayer({
          parent: lab.busybox,
          tag: lab.tag(),
          labels: lab.labels(),
          open: () => endless,
          removals: [],
          sizeHint: 0,
          sizeBytes: 8e9,
        }),
        fails('engine-gone'),
      );
      await until('all is under way', () => flood.stdout.readableFlowing === true);
      await proxy.cut();
      await Promise.all([ended, flooded, put, layer]);
      for (const call of [
        () => engine.report(),
        () => engine.findImage('x'),
        () => engine.listBoxes(lab.labels()),
        () => engine.findBox(box.id),
        () => engine.createBox(lab.spec()),
        () => engine.exec(box.id, { command: ['true'] }),
        () => engine.stats(box.id),
        () => engine.getArchive(box.id, '/'),
        () => engine.putArchive(box.id, '/', packTar([])),
        () => engine.removeBox(box.id),
        () => engine.killBox(box.id),
        () => engine.killProcesses(box.id),
        () => engine.removeImage('x'),
        () => engine.commitBox(box.id, { tag: 'petri/x:1', labels: {} }),
        () => engine.pullImage('x:1', {}),
      ]) {
        await assert.rejects(call, fails('engine-gone', /petri doctor/), call.toString());
      }
      // What died while nobody listened is told when the engine is back.
      await lab.engine.killBox(box.id);
      assert.equal(events.length, 0);
      const again = new Proxy();
      await again.listen(socket);
      await until('the watch is back', () => events.some((e) => e.kind === 'died' && e.boxId === box.id));
      assert.equal((await engine.findBox(box.id))?.state, 'stopped');
      await again.cut();
    });
    watch.dispose();
    engine.dispose();
  });
});
