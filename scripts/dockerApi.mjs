// The little of Docker's API that the scripts need, with node alone: they run before anything is installed.
import { execFile } from 'node:child_process';
import http from 'node:http';
import https from 'node:https';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Where an address of `DOCKER_HOST`'s kind leads; undefined for ssh, which needs the docker command. */
function target(dockerHost) {
  if (dockerHost.startsWith('unix://')) return { socketPath: dockerHost.slice(7) };
  if (dockerHost.startsWith('npipe://')) return { socketPath: dockerHost.slice(8) };
  if (dockerHost.startsWith('ssh://')) return undefined;
  const url = new URL(dockerHost.includes('://') ? dockerHost : `tcp://${dockerHost}`);
  const secure = Boolean(process.env.DOCKER_TLS_VERIFY) || url.protocol === 'https:';
  const base = { host: url.hostname.replace(/^\[|\]$/g, ''), port: url.port || (secure ? 2376 : 2375) };
  if (!secure) return base;
  const folder = process.env.DOCKER_CERT_PATH ?? path.join(process.env.HOME ?? '', '.docker');
  const read = (name) => (existsSync(path.join(folder, name)) ? readFileSync(path.join(folder, name)) : undefined);
  return { ...base, secure: true, ca: read('ca.pem'), cert: read('cert.pem'), key: read('key.pem') };
}

/**
 * One request. `body` is an object (sent as JSON), a stream (sent as it is) or nothing. Gives the answer's text; rejects with the engine's words
 * on any status of 400 and above, with the status in `status`.
 */
export function api(dockerHost, method, pathAndQuery, { body, timeoutMs, contentType } = {}) {
  const where = target(dockerHost);
  if (!where) return Promise.reject(new Error('this script does not speak ssh'));
  return new Promise((resolve, reject) => {
    const isStream = typeof body?.pipe === 'function';
    const json = body === undefined || isStream ? undefined : JSON.stringify(body);
    const request = (where.secure ? https : http).request({
      ...where,
      method,
      path: pathAndQuery,
      headers: {
        Host: 'docker',
        ...(json === undefined
          ? {}
          : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(json) }),
        ...(isStream ? { 'Content-Type': contentType ?? 'application/x-tar', 'Transfer-Encoding': 'chunked' } : {}),
      },
      ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }),
      agent: false,
    });
    request.on('timeout', () => request.destroy(new Error('no answer')));
    request.on('error', reject);
    request.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part) => (text += part));
      response.on('error', reject);
      response.on('end', () => {
        if ((response.statusCode ?? 500) < 400) return resolve(text);
        let message = text.trim();
        try {
          message = JSON.parse(text).message ?? message;
        } catch {
          // Not JSON: the text itself.
        }
        reject(Object.assign(new Error(message), { status: response.statusCode }));
      });
    });
    if (isStream) {
      body.on('error', (error) => request.destroy(error));
      body.pipe(request);
    } else request.end(json);
  });
}

/** Whether a Linux container engine answers there. */
export async function answers(dockerHost) {
  try {
    if (dockerHost.startsWith('ssh://')) {
      await run('docker', ['-H', dockerHost, 'version'], { timeout: 15_000 });
      return true;
    }
    if (dockerHost.startsWith('unix://') && !existsSync(dockerHost.slice(7))) return false;
    const info = JSON.parse(await api(dockerHost, 'GET', '/info', { timeoutMs: 3000 }));
    return (info.OSType ?? 'linux') === 'linux';
  } catch {
    return false;
  }
}

/** Streams of progress lines end with an error line when they fail, under status 200. */
export function failIn(text) {
  for (const line of text.split('\n')) {
    if (!line.includes('"error"')) continue;
    try {
      const { error } = JSON.parse(line);
      if (error) throw new Error(error);
    } catch (failure) {
      if (!(failure instanceof SyntaxError)) throw failure;
    }
  }
}
