/** Where a Docker API is served: what people write (`unix://…`, `tcp://…`, `ssh://…`, `npipe://…`), read and made into connection options. */
import http from 'node:http';
import https from 'node:https';
import { PetriError } from '../../../protocol/errors';
import { SshAgent } from './ssh';

export interface Tls {
  ca?: Buffer;
  cert?: Buffer;
  key?: Buffer;
  /** True when the server's certificate is taken without a check, as a context may say. */
  skipVerify?: boolean;
}

export type Endpoint = {
  /** Which rule of the search found it, for people. */ foundBy: string;
  /** As people write it. */ text: string;
} & (
  | { kind: 'socket'; path: string }
  | { kind: 'tcp'; host: string; port: number; tls?: Tls }
  | { kind: 'ssh'; user: string; host: string; port: number | undefined }
);

/** Reads an endpoint as `DOCKER_HOST` writes it. A path alone is a Unix socket, `host:port` alone is tcp. Errors: usage. */
export function parseEndpoint(text: string, foundBy: string, tls?: Tls): Endpoint {
  const base = { foundBy, text };
  const wrong = (why: string): PetriError =>
    new PetriError('usage', `The engine's address "${text}" (${foundBy}) is not understood: ${why}.`, {
      hint: 'Write it as unix:///path/docker.sock, npipe:////./pipe/name, tcp://host:port or ssh://user@host.',
    });
  if (text.startsWith('/')) return { ...base, kind: 'socket', path: text };
  if (text.startsWith('unix://')) return { ...base, kind: 'socket', path: text.slice(7) || '/var/run/docker.sock' };
  if (text.startsWith('npipe://')) {
    return { ...base, kind: 'socket', path: (text.slice(8) || '//./pipe/docker_engine').replaceAll('\\', '/') };
  }
  let url: URL;
  try {
    url = new URL(text.includes('://') ? text : `tcp://${text}`);
  } catch {
    throw wrong('it is no address');
  }
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? undefined : Number(url.port);
  if (host === '') throw wrong('it names no host');
  if (url.protocol === 'ssh:') {
    if (url.password !== '') throw wrong('a password can not be given in it');
    // What starts with a dash would be an option to ssh.
    if (host.startsWith('-') || url.username.startsWith('-')) throw wrong('it names no host');
    return { ...base, kind: 'ssh', user: decodeURIComponent(url.username), host, port };
  }
  if (url.protocol === 'tcp:' || url.protocol === 'http:' || url.protocol === 'https:') {
    const secure = tls !== undefined || url.protocol === 'https:';
    return { ...base, kind: 'tcp', host, port: port ?? (secure ? 2376 : 2375), ...(secure ? { tls: tls ?? {} } : {}) };
  }
  throw wrong(`"${url.protocol}//" is no way to an engine`);
}

export interface Connection {
  /** Options for dockerode. Every one is given, for those that aren't are taken from the environment of this process. */
  options: Record<string, unknown>;
  agent: http.Agent;
}

/** How dockerode reaches an endpoint. Connections are kept open between calls until the agent is destroyed. */
export function connectionTo(endpoint: Endpoint): Connection {
  const nothing = {
    socketPath: undefined,
    host: undefined,
    port: undefined,
    protocol: 'http',
    ca: undefined,
    cert: undefined,
    key: undefined,
  };
  const common = { ...nothing, username: undefined, pathPrefix: '/', timeout: undefined };
  if (endpoint.kind === 'socket') {
    const agent = new http.Agent({ keepAlive: true });
    return { options: { ...common, socketPath: endpoint.path, agent }, agent };
  }
  if (endpoint.kind === 'ssh') {
    const agent = new SshAgent(endpoint);
    return { options: { ...common, host: 'docker', port: 80, agent }, agent };
  }
  const { host, port, tls } = endpoint;
  const address = host.includes(':') ? `[${host}]` : host;
  if (!tls) {
    const agent = new http.Agent({ keepAlive: true });
    return { options: { ...common, host: address, port, agent }, agent };
  }
  const agent = new https.Agent({
    keepAlive: true,
    ...(tls.ca ? { ca: tls.ca } : {}),
    ...(tls.cert ? { cert: tls.cert } : {}),
    ...(tls.key ? { key: tls.key } : {}),
    rejectUnauthorized: !tls.skipVerify,
  });
  return { options: { ...common, host: address, port, protocol: 'https', agent }, agent };
}
