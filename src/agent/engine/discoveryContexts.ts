/** The docker command's contexts: which one is current, and the endpoint and TLS material that it names. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import * as z from 'zod';
import { PetriError } from '../../protocol/errors';
import { parseEndpoint, type Endpoint, type Tls } from './docker/endpoint';

const configFile = z.object({ currentContext: z.string().optional() });
const metaFile = z.object({
  Name: z.string(),
  Endpoints: z.object({
    docker: z.object({ Host: z.string().optional(), SkipTLSVerify: z.boolean().optional() }).optional(),
  }),
});

export interface Context {
  name: string;
  /** Errors: no such context, or one that names no docker endpoint. */
  endpoint(): Endpoint;
}

/** `DOCKER_CONTEXT`, else the configuration's current one; undefined for none and for `default`, which names no place. */
export function currentContext(env: NodeJS.ProcessEnv, home: string): Context | undefined {
  const folder = env['DOCKER_CONFIG'] || path.join(home, '.docker');
  const name = env['DOCKER_CONTEXT'] || fromConfig(folder);
  if (!name || name === 'default') return undefined;
  return { name, endpoint: () => readContext(folder, name) };
}

function fromConfig(folder: string): string | undefined {
  try {
    return configFile.parse(JSON.parse(readFileSync(path.join(folder, 'config.json'), 'utf8'))).currentContext;
  } catch {
    return undefined; // None, or one that the docker command couldn't read either.
  }
}

function readContext(folder: string, name: string): Endpoint {
  const id = createHash('sha256').update(name).digest('hex');
  const file = path.join(folder, 'contexts', 'meta', id, 'meta.json');
  if (!existsSync(file)) throw new PetriError('usage', `there is no context of this name in ${folder}`);
  let meta;
  try {
    meta = metaFile.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch {
    throw new PetriError('usage', `its file ${file} can't be read`);
  }
  const docker = meta.Endpoints.docker;
  if (!docker?.Host) throw new PetriError('usage', 'it names no Docker endpoint');
  return parseEndpoint(
    docker.Host,
    `docker context ${name}`,
    readTls(path.join(folder, 'contexts', 'tls', id, 'docker'), docker.SkipTLSVerify ?? false),
  );
}

function readTls(folder: string, skipVerify: boolean): Tls | undefined {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const read = (name: string): Buffer | undefined =>
    names.includes(name) ? readFileSync(path.join(folder, name)) : undefined;
  const [ca, cert, key] = [read('ca.pem'), read('cert.pem'), read('key.pem')];
  if (!ca && !cert && !skipVerify) return undefined;
  return { ...(ca ? { ca } : {}), ...(cert ? { cert } : {}), ...(key ? { key } : {}), skipVerify };
}
