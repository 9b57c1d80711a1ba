// The images that tests, demo and benchmarks run in, made here once and kept in the engine: no registry is needed on Debian.
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { api, failIn } from './dockerApi.mjs';
import { findCommand, installMissing } from './engine.mjs';

/** Debian with git, node and procps. */
export const golden = 'petri-test/golden:1';
/** A static busybox: a shell and small tools, no git. */
export const busybox = 'petri-test/busybox:1';

const packages = ['git', 'nodejs', 'procps'];

/** Makes the images that the engine doesn't have yet. */
export async function ensureTestImages(dockerHost, { log = console.log } = {}) {
  if (!(await has(dockerHost, busybox))) {
    log(`Making the image ${busybox}`);
    if (canBootstrap()) await importBusybox(dockerHost, log);
    else await pullAs(dockerHost, 'busybox:1.36', busybox);
  }
  if (!(await has(dockerHost, golden))) {
    log(`Making the image ${golden} (Debian with ${packages.join(', ')}; about half a minute)`);
    if (canBootstrap()) await importDebian(dockerHost, log);
    else await buildDebian(dockerHost);
  }
}

async function has(dockerHost, name) {
  try {
    await api(dockerHost, 'GET', `/images/${name}/json`, { timeoutMs: 10_000 });
    return true;
  } catch (error) {
    if (error.status === 404) return false;
    throw error;
  }
}

/** On Debian and Ubuntu as root the images are made out of packages. */
const canBootstrap = () =>
  process.platform === 'linux' && process.getuid() === 0 && findCommand('apt-get') !== undefined;

async function importBusybox(dockerHost, log) {
  installMissing(log, { busybox: 'busybox-static' });
  await withScratch(async (scratch) => {
    const root = path.join(scratch, 'root');
    for (const dir of ['bin', 'tmp', 'etc', 'root', 'proc', 'sys', 'dev'])
      mkdirSync(path.join(root, dir), { recursive: true });
    chmodSync(path.join(root, 'tmp'), 0o1777);
    const binary = findCommand('busybox');
    copyFileSync(binary, path.join(root, 'bin/busybox'));
    const applets = spawnSync(binary, ['--list'], { encoding: 'utf8' }).stdout.split('\n').filter(Boolean);
    for (const applet of applets) if (applet !== 'busybox') symlinkSync('busybox', path.join(root, 'bin', applet));
    symlinkSync('bin', path.join(root, 'sbin'));
    const archive = path.join(scratch, 'root.tar');
    must('tar', ['--owner=0', '--group=0', '-cf', archive, '-C', root, '.']);
    await importTar(dockerHost, archive, busybox);
  });
}

async function importDebian(dockerHost, log) {
  installMissing(log, { mmdebstrap: 'mmdebstrap' });
  const sources = sourceLists();
  const suite = /^VERSION_CODENAME=(.*)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1]?.replace(/"/g, '');
  if (!suite || sources.length === 0) throw new Error('This machine has no package sources to make an image from.');
  await withScratch(async (scratch) => {
    const archive = path.join(scratch, 'golden.tar');
    await bootstrap([
      '--quiet',
      '--variant=essential',
      `--include=${packages.join(',')}`,
      '--aptopt=Acquire::Languages "none"',
      suite,
      archive,
      ...sources,
    ]);
    await importTar(dockerHost, archive, golden);
  });
}

/** The machine's own lists of the distribution's packages; what others added is left out. */
function sourceLists() {
  const named = [
    '/etc/apt/sources.list.d/debian.sources',
    '/etc/apt/sources.list.d/ubuntu.sources',
    '/etc/apt/sources.list',
  ];
  return named.filter((file) => existsSync(file) && /^\s*(deb |Types:)/m.test(readFileSync(file, 'utf8')));
}

function bootstrap(args) {
  return new Promise((resolve, reject) => {
    const child = spawn(findCommand('mmdebstrap'), args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let complaint = '';
    child.stderr.on('data', (part) => (complaint = (complaint + part).slice(-3000)));
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve() : reject(new Error(`mmdebstrap failed:\n${complaint}`))));
  });
}

async function importTar(dockerHost, archive, name) {
  const [repo, tag] = name.split(':');
  failIn(
    await api(dockerHost, 'POST', `/images/create?fromSrc=-&repo=${encodeURIComponent(repo)}&tag=${tag}`, {
      body: createReadStream(archive),
    }),
  );
}

async function pullAs(dockerHost, from, name) {
  const [image, version] = from.split(':');
  failIn(await api(dockerHost, 'POST', `/images/create?fromImage=${encodeURIComponent(image)}&tag=${version}`));
  const [repo, tag] = name.split(':');
  await api(dockerHost, 'POST', `/images/${from}/tag?repo=${encodeURIComponent(repo)}&tag=${tag}`);
}

/** Elsewhere: the packages put into Debian's image from the registry. */
async function buildDebian(dockerHost) {
  const from = 'debian:bookworm-slim';
  await pullAs(dockerHost, from, 'petri-test/debian:1');
  const install = `apt-get update && apt-get install -y --no-install-recommends ca-certificates ${packages.join(' ')} && rm -rf /var/lib/apt/lists/*`;
  const { Id } = JSON.parse(
    await api(dockerHost, 'POST', '/containers/create', { body: { Image: from, Cmd: ['/bin/sh', '-c', install] } }),
  );
  try {
    await api(dockerHost, 'POST', `/containers/${Id}/start`);
    const { StatusCode } = JSON.parse(await api(dockerHost, 'POST', `/containers/${Id}/wait`));
    if (StatusCode !== 0) throw new Error(`Packages could not be installed in ${from} (exit code ${StatusCode}).`);
    const [repo, tag] = golden.split(':');
    await api(dockerHost, 'POST', `/commit?container=${Id}&repo=${encodeURIComponent(repo)}&tag=${tag}`, {
      body: { Cmd: ['/bin/sh'] },
    });
  } finally {
    await api(dockerHost, 'DELETE', `/containers/${Id}?force=1&v=1`);
  }
}

async function withScratch(work) {
  const scratch = mkdtempSync(path.join(tmpdir(), 'petri-image-'));
  try {
    await work(scratch);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function must(command, args) {
  const result = spawnSync(command, args, { stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8' });
  if (result.status !== 0) throw new Error(`${command} failed: ${result.stderr}`);
}
