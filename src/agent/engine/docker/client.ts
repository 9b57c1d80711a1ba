/** One connection to a Docker API: dockerode loaded on first use, every failure in our own errors. */
import type Dockerode from 'dockerode';
import type http from 'node:http';
import { connectionTo, type Endpoint } from './endpoint';
import { engineError } from './errors';

export class Client {
  private readonly agent: http.Agent;

  private constructor(
    readonly endpoint: Endpoint,
    readonly docker: Dockerode,
    agent: http.Agent,
  ) {
    this.agent = agent;
  }

  static async open(endpoint: Endpoint): Promise<Client> {
    const { default: Docker } = await import('dockerode');
    const { options, agent } = connectionTo(endpoint);
    // Its constructor reads DOCKER_HOST, even when it is told where to go, and throws when that is malformed.
    const { DOCKER_HOST: host } = process.env;
    delete process.env['DOCKER_HOST'];
    try {
      return new Client(endpoint, new Docker(options), agent);
    } finally {
      if (host !== undefined) process.env['DOCKER_HOST'] = host;
    }
  }

  /** Does one thing with the engine. `doing` is for the error's sentence: "creating a container". */
  async call<T>(doing: string, work: (docker: Dockerode) => Promise<T>): Promise<T> {
    try {
      return await work(this.docker);
    } catch (error) {
      throw this.error(error, doing);
    }
  }

  /** A request that dockerode has no method for, or one that hides the answer. Errors as of `call`. */
  request(
    doing: string,
    method: 'GET' | 'POST' | 'PUT' | 'HEAD',
    path: string,
    options: { query?: Record<string, unknown>; body?: unknown } = {},
  ): Promise<unknown> {
    return this.call(
      doing,
      (docker) =>
        new Promise<unknown>((resolve, reject) => {
          const modem = docker.modem as {
            dial(options: unknown, callback: (error: unknown, data: unknown) => void): void;
          };
          const dial = {
            path: `${path}?`,
            method,
            options: { _query: options.query ?? {}, _body: options.body ?? {} },
            statusCodes: { 200: true, 201: true, 204: true },
          };
          modem.dial(dial, (error, data) => (error instanceof Error ? reject(error) : resolve(data)));
        }),
    );
  }

  error(thrown: unknown, doing: string): Error {
    return engineError(thrown, doing, this.endpoint.text);
  }

  /** Lets go of all connections. */
  close(): void {
    this.agent.destroy();
  }
}
