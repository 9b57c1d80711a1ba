/** Typed calls to the agent: find or start it, shake hands, call operations, stream executions, watch changes. */
import { randomUUID } from 'node:crypto';
import { createConnection, type Socket } from 'node:net';
import {
  CancellationTokenSource,
  createMessageConnection,
  ResponseError,
  SocketMessageReader,
  SocketMessageWriter,
  type MessageConnection,
} from 'vscode-jsonrpc/node';
import { cancelled, fromWireError, PetriError } from '../protocol/errors';
import type { ExecInput, Input, OperationName, Output } from '../protocol/operations';
import type { AgentEvent, ExecRecord } from '../protocol/records';
import {
  engineVariables,
  handshakeMethod,
  handshakeOutput,
  notifications,
  protocolVersion,
  type ExecOutputMessage,
  type HandshakeInput,
  type LockFile,
  type Progress,
  type ProgressMessage,
} from '../protocol/wire';
import { agentHome, readLock } from './home';
import { startAgent } from './start';

export interface ConnectOptions {
  /** Data folder; default {@link agentHome}. */
  home?: string;
  /** Start the agent when none runs; default true. */
  start?: boolean;
  client: { name: string; version: string };
  /** Path of the agent's bundle; default: `agent.js` beside the caller's bundle. */
  agentScript?: string;
}

export interface CallOptions {
  signal?: AbortSignal;
  progress?(p: Progress): void;
}

export interface ExecSession {
  readonly result: Promise<ExecRecord>;
  /** Resolves when the socket took the bytes: wait for it between chunks to keep memory bounded. */
  write(data: Uint8Array): Promise<void>;
  end(): void;
  resize(columns: number, rows: number): void;
}

export interface ExecIo {
  stdout(data: Uint8Array): void | Promise<void>;
  stderr(data: Uint8Array): void | Promise<void>;
}

export interface PetriClient {
  readonly agent: { pid: number; version: string };
  /** Rejects with PetriError. */
  call<N extends OperationName>(name: N, input: Input<N>, options?: CallOptions): Promise<Output<N>>;
  exec(input: Omit<ExecInput, 'stream'>, io: ExecIo, options?: CallOptions): ExecSession;
  watch(onEvent: (e: AgentEvent) => void): { dispose(): void };
  onClose(listener: () => void): void;
  dispose(): void;
}

/** Connects to the agent of a data folder. Errors: agent-unreachable, protocol-mismatch, unauthorized. */
export async function connect(options: ConnectOptions): Promise<PetriClient> {
  const home = options.home ?? agentHome();
  const found = await tryConnect(home, options);
  if (found) return found;
  if (options.start === false) {
    throw new PetriError('agent-unreachable', 'The agent is not running.', {
      hint: 'Any command that needs it starts it.',
    });
  }
  return startAgent(home, options.agentScript, () => tryConnect(home, options));
}

/** A client of the agent that the lock file names; undefined when nothing answers there. */
async function tryConnect(home: string, options: ConnectOptions): Promise<PetriClient | undefined> {
  const lock = readLock(home);
  if (!lock) return undefined;
  const socket = await openSocket(lock.socket);
  if (!socket) return undefined;
  return handshake(socket, lock, options);
}

function openSocket(path: string): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = createConnection(path);
    const fail = (): void => resolve(undefined);
    socket.once('error', fail);
    socket.once('connect', () => {
      socket.off('error', fail);
      resolve(socket);
    });
  });
}

async function handshake(socket: Socket, lock: LockFile, options: ConnectOptions): Promise<PetriClient | undefined> {
  const connection = createMessageConnection(new SocketMessageReader(socket), new SocketMessageWriter(socket));
  connection.onError(() => socket.destroy());
  const client = new RpcClient(connection, socket);
  connection.listen();
  const input: HandshakeInput = {
    protocol: protocolVersion,
    token: lock.token,
    client: { ...options.client, pid: process.pid },
    engine: Object.fromEntries(
      engineVariables.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])),
    ),
  };
  let answer;
  try {
    answer = handshakeOutput.parse(await client.request(handshakeMethod, input));
  } catch (error) {
    client.dispose();
    if (error instanceof PetriError && error.code === 'agent-unreachable') return undefined;
    throw error;
  }
  if (!answer.ok) {
    client.dispose();
    if (answer.reason === 'token')
      throw new PetriError('unauthorized', 'The agent did not accept the token of its lock file.');
    throw new PetriError(
      'protocol-mismatch',
      `The running agent (${answer.version}) speaks protocol ${answer.protocol}, this program ${protocolVersion}.`,
      { hint: 'Stop it with the version that started it (`petri agent stop`), then try again.' },
    );
  }
  client.agent = { pid: answer.pid, version: answer.version };
  return client;
}

class RpcClient implements PetriClient {
  agent = { pid: 0, version: '' };
  private readonly progress = new Map<string, (p: Progress) => void>();
  private readonly streams = new Map<string, (m: ExecOutputMessage) => void>();
  private readonly watchers = new Set<(e: AgentEvent) => void>();
  private readonly closeListeners = new Set<() => void>();
  private readonly closed: Promise<never>;
  private watching = false;

  constructor(
    private readonly connection: MessageConnection,
    private readonly socket: Socket,
  ) {
    this.closed = new Promise((_, reject) => {
      connection.onClose(() => {
        reject(
          new PetriError('agent-unreachable', 'The connection to the agent ended.', {
            hint: 'Try again: a new agent picks up where it was.',
          }),
        );
        for (const listener of this.closeListeners) listener();
      });
    });
    this.closed.catch(() => undefined);
    connection.onNotification(notifications.progress, (m: ProgressMessage) => this.progress.get(m.token)?.(m));
    connection.onNotification(notifications.execOutput, (m: ExecOutputMessage) => this.streams.get(m.stream)?.(m));
    connection.onNotification(notifications.event, (e: AgentEvent) => {
      for (const watcher of this.watchers) watcher(e);
    });
  }

  /** One request; wire errors become PetriError. */
  async request(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
    if (signal?.aborted) throw cancelled();
    const source = new CancellationTokenSource();
    const abort = (): void => source.cancel();
    signal?.addEventListener('abort', abort, { once: true });
    try {
      return await Promise.race([this.connection.sendRequest<unknown>(method, params, source.token), this.closed]);
    } catch (error) {
      if (error instanceof ResponseError) throw fromWireError(error.data, error.message);
      if (error instanceof PetriError) throw error;
      throw new PetriError('agent-unreachable', 'The agent did not answer.', { cause: error });
    } finally {
      signal?.removeEventListener('abort', abort);
      source.dispose();
    }
  }

  async call<N extends OperationName>(name: N, input: Input<N>, options: CallOptions = {}): Promise<Output<N>> {
    const token = options.progress ? randomUUID() : undefined;
    if (token && options.progress) this.progress.set(token, (p) => options.progress?.(p));
    try {
      // The agent checked its answer's shape by the same table; the type follows from it.
      return (await this.request(name, { input, ...(token ? { progress: token } : {}) }, options.signal)) as Output<N>;
    } finally {
      if (token) this.progress.delete(token);
    }
  }

  exec(input: Omit<ExecInput, 'stream'>, io: ExecIo, options: CallOptions = {}): ExecSession {
    const stream = randomUUID();
    let written: Promise<void> = Promise.resolve();
    this.streams.set(stream, (m) => {
      const data = Buffer.from(m.data, 'base64');
      const paused = io[m.channel](data);
      if (paused) {
        this.socket.pause();
        written = Promise.all([written, paused]).then(
          () => void this.socket.resume(),
          () => void this.socket.resume(),
        );
      }
    });
    const result = this.call('sandbox.exec', { ...input, stream }, options)
      .then(async (record) => {
        await written;
        return record;
      })
      .finally(() => this.streams.delete(stream));
    const notify = (method: string, params: object): void =>
      void this.connection.sendNotification(method, { stream, ...params });
    return {
      result,
      write: async (data) => {
        await this.connection.sendNotification(notifications.execStdin, {
          stream,
          data: Buffer.from(data).toString('base64'),
        });
        if (this.socket.writableNeedDrain)
          await new Promise((resolve) => this.socket.once('drain', resolve).once('close', resolve));
      },
      end: () => notify(notifications.execStdin, { end: true }),
      resize: (columns, rows) => notify(notifications.execResize, { columns, rows }),
    };
  }

  watch(onEvent: (e: AgentEvent) => void): { dispose(): void } {
    this.watchers.add(onEvent);
    if (!this.watching) {
      this.watching = true;
      void this.connection.sendNotification(notifications.watch, {});
    }
    return { dispose: () => this.watchers.delete(onEvent) };
  }

  onClose(listener: () => void): void {
    this.closeListeners.add(listener);
  }

  dispose(): void {
    this.connection.dispose();
    this.socket.end();
    this.socket.unref();
  }
}
