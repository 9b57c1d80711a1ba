/**
 * Finding the container engine: the setting, `DOCKER_HOST`, the current docker context, then the sockets of the usual products. What the user
 * named is used or fails; only where nothing is named are the usual places looked through.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { messageOf, PetriError } from '../../protocol/errors';
import { visible } from '../../protocol/text';
import { currentContext } from './discoveryContexts';
import { parseEndpoint, type Endpoint, type Tls } from './docker/endpoint';
import { openDockerEngine } from './docker/engine';
import type { Engine } from './engine';

export interface DiscoveryOptions {
  /** The explicit setting: an address, or empty for none. */
  setting?: string | undefined;
  env: NodeJS.ProcessEnv;
  home: string;
  platform: NodeJS.Platform;
}

/** One place that was looked at, and what was there. */
export interface Tried {
  where: string;
  result: string;
}

export interface Discovery {
  engine: Engine;
  tried: Tried[];
}

interface Place {
  where: string;
  /** True when the user named it: nothing else is used instead. */
  explicit: boolean;
  endpoint(): Endpoint;
}

/** Errors: no-engine, with everything that was tried in `data.tried`; unsupported (an engine for Windows containers). */
export async function discoverEngine(options: DiscoveryOptions): Promise<Discovery> {
  const tried: Tried[] = [];
  const seen = new Set<string>();
  for (const place of places(options)) {
    try {
      const endpoint = place.endpoint();
      if (!place.explicit && seen.has(endpoint.text)) continue;
      seen.add(endpoint.text);
      if (endpoint.kind === 'socket' && !isPipe(endpoint.path) && !existsSync(endpoint.path)) {
        tried.push({ where: place.where, result: 'no socket there' });
        if (place.explicit) throw noEngine(tried, place.where);
        continue;
      }
      const engine = await openDockerEngine(endpoint);
      tried.push({ where: place.where, result: 'answers' });
      return { engine, tried };
    } catch (error) {
      if (error instanceof PetriError && error.code === 'no-engine') throw error;
      tried.push({ where: place.where, result: visible(messageOf(error), true) });
      if (place.explicit) throw noEngine(tried, place.where, error);
    }
  }
  throw noEngine(tried);
}

const isPipe = (p: string): boolean => p.startsWith('//./pipe/');

function noEngine(tried: Tried[], named?: string, cause?: unknown): PetriError {
  const last = tried.at(-1);
  const message = named
    ? `The container engine that is named can't be used: ${named}: ${last?.result ?? 'nothing there'}`
    : `No container engine was found. Tried: ${tried.map((t) => `${t.where} (${t.result})`).join('; ')}.`;
  const hint = named
    ? 'Start that engine, or correct or remove the setting, DOCKER_HOST, or docker context that names it.'
    : 'Install and start Docker, Podman, Colima, OrbStack or Rancher Desktop, or name an engine by DOCKER_HOST.';
  return new PetriError('no-engine', message.replace(/\.\.$/, '.'), { hint, data: { tried }, cause });
}

/** In the order of the search. */
function* places(options: DiscoveryOptions): Generator<Place> {
  const { env, home, platform, setting } = options;
  const add = (where: string, explicit: boolean, endpoint: () => Endpoint): Place => ({ where, explicit, endpoint });
  if (setting)
    yield add(`setting ${visible(setting, true)}`, true, () =>
      parseEndpoint(setting, 'setting', tlsFromEnv(env, setting, home)),
    );
  const host = env['DOCKER_HOST'];
  if (host)
    yield add(`DOCKER_HOST ${visible(host, true)}`, true, () =>
      parseEndpoint(host, 'DOCKER_HOST', tlsFromEnv(env, host, home)),
    );
  const context = currentContext(env, home);
  // Like the docker command: a context that is only in the configuration file is as explicit as one in the environment.
  if (context) yield add(`docker context ${visible(context.name, true)}`, true, () => context.endpoint());
  for (const [product, address] of wellKnown(env, home, platform)) {
    yield add(`${product} ${address.replace(/^unix:\/\/|^npipe:\/\//, '')}`, false, () =>
      parseEndpoint(address, product),
    );
  }
}

/** TLS as the docker command reads it from the environment, for tcp only. */
function tlsFromEnv(env: NodeJS.ProcessEnv, address: string, home: string): Tls | undefined {
  if (/^(unix|npipe|ssh):|^\//.test(address)) return undefined;
  const verify = (env['DOCKER_TLS_VERIFY'] ?? '') !== '';
  const asked = verify || (env['DOCKER_TLS'] ?? '') !== '' || address.startsWith('https:');
  if (!asked) return undefined;
  const folder = env['DOCKER_CERT_PATH'] ?? path.join(env['DOCKER_CONFIG'] ?? path.join(home, '.docker'));
  const read = (name: string): Buffer | undefined => {
    const file = path.join(folder, name);
    return existsSync(file) ? readFileSync(file) : undefined;
  };
  const [ca, cert, key] = [read('ca.pem'), read('cert.pem'), read('key.pem')];
  if (env['DOCKER_CERT_PATH'] && !ca && !cert) {
    throw new PetriError('usage', `DOCKER_CERT_PATH ${folder} holds no ca.pem and no cert.pem`);
  }
  return {
    ...(ca ? { ca } : {}),
    ...(cert ? { cert } : {}),
    ...(key ? { key } : {}),
    skipVerify: !verify && !address.startsWith('https:'),
  };
}

/** Product and address, the likeliest first. */
function wellKnown(
  env: NodeJS.ProcessEnv,
  home: string,
  platform: NodeJS.Platform,
): [product: string, address: string][] {
  if (platform === 'win32') {
    return [
      ['Docker', 'npipe:////./pipe/docker_engine'],
      ['Docker Desktop', 'npipe:////./pipe/dockerDesktopLinuxEngine'],
      ['Podman', 'npipe:////./pipe/podman-machine-default'],
    ];
  }
  const at = (...parts: string[]): string => `unix://${path.posix.join(home, ...parts)}`;
  const runtime = env['XDG_RUNTIME_DIR'];
  const colima = env['COLIMA_HOME']
    ? `unix://${env['COLIMA_HOME']}/default/docker.sock`
    : at('.colima', 'default', 'docker.sock');
  const out: [string, string][] = [['Docker', 'unix:///var/run/docker.sock']];
  if (runtime) out.push(['rootless Docker', `unix://${runtime}/docker.sock`]);
  out.push(
    ['Docker Desktop', at('.docker', 'run', 'docker.sock')],
    ['Docker Desktop', at('.docker', 'desktop', 'docker.sock')],
    ['Colima', colima],
    ['Colima', at('.config', 'colima', 'default', 'docker.sock')],
    ['OrbStack', at('.orbstack', 'run', 'docker.sock')],
    ['Rancher Desktop', at('.rd', 'docker.sock')],
  );
  if (runtime) out.push(['rootless Podman', `unix://${runtime}/podman/podman.sock`]);
  if (platform === 'darwin')
    out.push(['Podman', at('.local', 'share', 'containers', 'podman', 'machine', 'podman.sock')]);
  out.push(['Podman', 'unix:///run/podman/podman.sock']);
  return out;
}
