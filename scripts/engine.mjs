// A container engine for tests, demo and benchmarks: the one that is there, or on a Debian machine without one a private one that is set up here.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, existsSync, lstatSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { answers } from './dockerApi.mjs';

export { ensureTestImages } from './testImages.mjs';

const startWithinMs = 90_000;
const stopWithinMs = 30_000;

/**
 * Gives the address of an engine that answers. `started` is true when this call set up a private one: then `stop()` ends it, else `stop()` does
 * nothing. A private one goes on after the script unless it is stopped, and is found again by the next call.
 */
export async function ensureEngine({ log = console.log } = {}) {
  const nothing = async () => undefined;
  const named = process.env.DOCKER_HOST;
  if (named) {
    if (await answers(named)) return { dockerHost: named, started: false, stop: nothing };
    throw new Error(
      `DOCKER_HOST is ${named}, and no engine for Linux containers answers there.\nStart it, or unset DOCKER_HOST to have one looked for.`,
    );
  }
  const places = usualPlaces();
  for (const place of places) {
    if (await answers(place)) {
      log(`Using the container engine at ${place}`);
      return { dockerHost: place, started: false, stop: nothing };
    }
  }
  return privateEngine(log, places);
}

/** The current docker context first, then the sockets of the usual products. */
function usualPlaces() {
  if (process.platform === 'win32')
    return ['npipe:////./pipe/docker_engine', 'npipe:////./pipe/dockerDesktopLinuxEngine'];
  const home = homedir();
  const runtime = process.env.XDG_RUNTIME_DIR;
  const context = contextHost(path.join(home, '.docker'));
  return [
    ...(context ? [context] : []),
    'unix:///var/run/docker.sock',
    ...(runtime ? [`unix://${runtime}/docker.sock`] : []),
    `unix://${home}/.docker/run/docker.sock`,
    `unix://${home}/.docker/desktop/docker.sock`,
    `unix://${home}/.colima/default/docker.sock`,
    `unix://${home}/.orbstack/run/docker.sock`,
    `unix://${home}/.rd/docker.sock`,
    ...(runtime ? [`unix://${runtime}/podman/podman.sock`] : []),
    'unix:///run/podman/podman.sock',
  ];
}

function contextHost(folder) {
  try {
    const name =
      process.env.DOCKER_CONTEXT || JSON.parse(readFileSync(path.join(folder, 'config.json'), 'utf8')).currentContext;
    if (!name || name === 'default') return undefined;
    const id = createHash('sha256').update(name).digest('hex');
    return JSON.parse(readFileSync(path.join(folder, 'contexts/meta', id, 'meta.json'), 'utf8')).Endpoints?.docker
      ?.Host;
  } catch {
    return undefined;
  }
}

/** Where the private engine lives: its images stay there between runs. */
export function privateEngineFolder() {
  return `/var/tmp/petri-engine-${process.getuid?.() ?? 0}`;
}

async function privateEngine(log, places) {
  const what = `No container engine answers. Tried: ${places.join(', ')}.`;
  if (process.platform !== 'linux' || process.getuid() !== 0 || !hasCommand('apt-get')) {
    throw new Error(
      `${what}\nInstall and start Docker or Podman, or name an engine by DOCKER_HOST. (On Debian or Ubuntu, run as root, this sets up a private one.)`,
    );
  }
  const folder = ownFolder(privateEngineFolder());
  const dockerHost = `unix://${folder}/docker.sock`;
  if (await answers(dockerHost)) {
    log(`Using the private container engine at ${dockerHost}`);
    return { dockerHost, started: false, stop: async () => undefined };
  }
  log(what);
  installMissing(log, { dockerd: 'docker.io', iptables: 'iptables' }, { optional: { runsc: 'runsc' } });
  if (await answers('unix:///var/run/docker.sock')) {
    log('The engine that was just installed runs already.');
    return { dockerHost: 'unix:///var/run/docker.sock', started: false, stop: async () => undefined };
  }
  await startDaemon(folder, dockerHost, log);
  return { dockerHost, started: true, stop: () => stopDaemon(folder, log) };
}

/** A folder in a place where all may write: it must be a real one and ours alone. */
function ownFolder(folder) {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const stat = lstatSync(folder);
  if (!stat.isDirectory() || stat.uid !== process.getuid() || (stat.mode & 0o022) !== 0) {
    throw new Error(`${folder} is not a private folder of this account. Remove it and try again.`);
  }
  return folder;
}

async function startDaemon(folder, dockerHost, log) {
  const pidFile = path.join(folder, 'pid');
  const running = daemonPid(folder);
  if (running === undefined) {
    // Stale ones, of a daemon that was killed, would keep this one from starting, or have it wait for a containerd that is no more.
    for (const stale of [pidFile, path.join(folder, 'docker.sock')]) rmSync(stale, { force: true });
    const containerd = path.join(folder, 'exec/containerd');
    if (!isRunning(path.join(containerd, 'containerd.pid'), /containerd$/, containerd)) {
      for (const stale of ['containerd.pid', 'containerd.sock', 'containerd.sock.ttrpc', 'containerd-debug.sock'])
        rmSync(path.join(containerd, stale), { force: true });
    }
    const runsc = findCommand('runsc');
    const runtimes = runsc
      ? {
          // This platform works without hardware support; old versions refuse a network of their own on new kernels.
          runsc: { path: runsc, runtimeArgs: ['--platform=ptrace', '--network=none', '--ignore-cgroups'] },
          'runsc-net': { path: runsc, runtimeArgs: ['--platform=ptrace', '--network=host', '--ignore-cgroups'] },
        }
      : {};
    const config = path.join(folder, 'daemon.json');
    writeFileSync(config, `${JSON.stringify({ runtimes }, undefined, 2)}\n`);
    log(`Starting a private container engine in ${folder}`);
    const out = openSync(path.join(folder, 'log'), 'w', 0o600);
    const args = [
      '--config-file',
      config,
      '--data-root',
      path.join(folder, 'data'),
      '--exec-root',
      path.join(folder, 'exec'),
    ];
    const child = spawn(findCommand('dockerd') ?? 'dockerd', [...args, '--pidfile', pidFile, '-H', dockerHost], {
      detached: true,
      stdio: ['ignore', out, out],
      env: { ...process.env, PATH: systemPath() },
    });
    closeSync(out);
    child.on('error', () => undefined);
    child.unref();
  }
  const deadline = Date.now() + startWithinMs;
  while (!(await answers(dockerHost))) {
    const gone = daemonPid(folder) === undefined && Date.now() > deadline - startWithinMs + 10_000;
    if (Date.now() > deadline || gone) {
      throw new Error(`The private engine did not start. Its log ends:\n${tail(path.join(folder, 'log'))}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** The process of the private daemon; undefined when there is none. */
const daemonPid = (folder) => isRunning(path.join(folder, 'pid'), /dockerd$/, folder);

/**
 * The process that a pid file names, if it lives and is the program that wrote it for this folder. The number alone says nothing: numbers are used
 * again, and dead processes that nobody waits for keep theirs.
 */
function isRunning(pidFile, program, folder) {
  try {
    const pid = Number(readFileSync(pidFile, 'utf8').trim());
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return program.test(command[0] ?? '') && command.some((arg) => arg.startsWith(`${folder}/`)) ? pid : undefined;
  } catch {
    return undefined;
  }
}

/** Ends the private engine with all its containers; images stay. */
async function stopDaemon(folder, log) {
  const pid = daemonPid(folder);
  if (pid === undefined) return;
  log('Stopping the private container engine');
  process.kill(pid, 'SIGTERM');
  const deadline = Date.now() + stopWithinMs;
  while (daemonPid(folder) === pid && existsSync(`/proc/${pid}`)) {
    if (Date.now() > deadline) throw new Error(`The private engine (process ${pid}) does not end.`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const tail = (file) => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(-15).join('\n') : '(no log)');

/** Root's PATH of a login: scripts may run with less. */
const systemPath = () => `${process.env.PATH ?? ''}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;

export function findCommand(name) {
  return systemPath()
    .split(':')
    .filter((dir) => dir !== '')
    .map((dir) => path.join(dir, name))
    .find((file) => existsSync(file));
}
const hasCommand = (name) => findCommand(name) !== undefined;

/** Installs the packages of commands that are missing, and says so. Optional ones may not exist on this machine. */
export function installMissing(log, needed, { optional = {} } = {}) {
  const missing = Object.entries(needed)
    .filter(([command]) => !hasCommand(command))
    .map(([, name]) => name);
  const wanted = Object.entries(optional)
    .filter(([command]) => !hasCommand(command))
    .map(([, name]) => name);
  if (missing.length === 0 && (wanted.length === 0 || existsSync(triedMarker(wanted)))) return;
  if (process.getuid?.() !== 0 || !hasCommand('apt-get')) {
    throw new Error(
      `These are missing: ${missing.join(', ')}. Install them (on Debian: apt-get install ${missing.join(' ')}).`,
    );
  }
  log(`Installing with apt-get: ${[...missing, ...wanted].join(' ')}`);
  aptGet(['update', '-q']);
  if (missing.length > 0) aptGet(['install', '-y', '-q', '--no-install-recommends', ...missing]);
  for (const name of wanted) {
    if (aptGet(['install', '-y', '-q', '--no-install-recommends', name], { mayFail: true })) continue;
    log(`${name} is not to be had here; going on without it.`);
    writeFileSync(triedMarker(wanted), '');
  }
}

/** Remembers that optional packages could not be had, so that not every run tries again. */
const triedMarker = (names) => path.join(privateEngineFolder(), `without-${names.join('-')}`);

function aptGet(args, { mayFail = false } = {}) {
  const env = { ...process.env, PATH: systemPath(), DEBIAN_FRONTEND: 'noninteractive' };
  const result = spawnSync('apt-get', args, {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  if (result.status === 0) return true;
  if (mayFail) return false;
  throw new Error(
    `apt-get ${args.join(' ')} failed:\n${`${result.stdout}${result.stderr}`.split('\n').slice(-15).join('\n')}`,
  );
}
