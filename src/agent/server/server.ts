/** The socket side of the agent: handshake first, then operations by the table, streams and events. */
import { timingSafeEqual } from 'node:crypto';
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import {
  createMessageConnection,
  ResponseError,
  SocketMessageReader,
  SocketMessageWriter,
  type CancellationToken,
  type MessageConnection,
} from 'vscode-jsonrpc/node';
import * as z from 'zod';
import { PetriError, toWireError } from '../../protocol/errors';
import { operations, type OperationName, type Output, type ParsedInput } from '../../protocol/operations';
import type { AgentEvent } from '../../protocol/records';
import {
  execResizeMessage,
  execStdinMessage,
  handshakeInput,
  handshakeMethod,
  notifications,
  protocolVersion,
  type ExecOutputMessage,
  type HandshakeInput,
  type HandshakeOutput,
  type LockFile,
  type Progress,
} from '../../protocol/wire';

/** What a handler gets beside its input. */
export interface CallContext {
  signal: AbortSignal;
  progress(p: Progress): void;
  client: ClientHandle;
}

/** The calling client, as far as streams need it. */
export interface ClientHandle {
  /** Resolves when the client's socket took it: this is the back-pressure of an execution. */
  output(message: ExecOutputMessage): Promise<void>;
  /** Where input for a stream goes, until disposed. */
  onInput(stream: string, sink: InputSink): { dispose(): void };
}

export interface InputSink {
  /** Resolves when the bytes are handed on; until then the client is not read further. */
  write(data: Uint8Array): Promise<void>;
  end(): void;
  resize(columns: number, rows: number): void;
}

export type Handlers = {
  [N in OperationName]: (input: ParsedInput<N>, context: CallContext) => Promise<Output<N>>;
};

/** How long a new connection may take to shake hands, ms. */
const handshakeDeadlineMs = 5000;
/** Input on its way into a sandbox before the client is paused, bytes; messages kept for executions that have not begun. */
const maxUnwrittenBytes = 4 * 1024 * 1024;
const maxEarly = 256;
const envelope = z.object({ input: z.unknown(), progress: z.string().max(100).optional() });

export class AgentServer {
  private readonly server: Server;
  private readonly clients = new Set<Client>();

  constructor(
    private readonly lock: LockFile,
    private readonly handlers: Handlers,
    private readonly onActivity: () => void,
    /** Hears of every caller that has shaken hands. */
    private readonly onWelcome: (input: HandshakeInput) => void,
  ) {
    this.server = createServer((socket) => this.accept(socket));
  }

  /** Resolves when clients can connect. The socket is readable by the user alone. */
  async listen(): Promise<void> {
    if (process.platform !== 'win32') rmSync(this.lock.socket, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(this.lock.socket, resolve);
    });
    if (process.platform !== 'win32') chmodSync(this.lock.socket, 0o600);
  }

  get clientCount(): number {
    return this.clients.size;
  }

  /** Tells every watching client. */
  broadcast(event: AgentEvent): void {
    for (const client of this.clients) client.tell(event);
  }

  close(): void {
    this.server.close();
    for (const client of this.clients) client.close();
  }

  private accept(socket: Socket): void {
    const client = new Client(socket, this.lock, this.handlers, this.onWelcome, (up) => {
      if (up) this.clients.add(client);
      else this.clients.delete(client);
      this.onActivity();
    });
  }
}

class Client implements ClientHandle {
  private readonly connection: MessageConnection;
  private readonly inputs = new Map<string, InputSink>();
  /** Input that came before its execution had begun, in order. */
  private readonly early = new Map<string, ((sink: InputSink) => void)[]>();
  private unwritten = 0;
  private welcome = false;
  private watching = false;
  private readonly deadline: NodeJS.Timeout;

  constructor(
    private readonly socket: Socket,
    private readonly lock: LockFile,
    private readonly handlers: Handlers,
    private readonly onWelcome: (input: HandshakeInput) => void,
    private readonly onState: (up: boolean) => void,
  ) {
    this.connection = createMessageConnection(new SocketMessageReader(socket), new SocketMessageWriter(socket));
    this.deadline = setTimeout(() => this.end(), handshakeDeadlineMs);
    socket.on('error', () => this.end());
    this.connection.onError(() => this.end());
    this.connection.onClose(() => {
      clearTimeout(this.deadline);
      for (const sink of this.inputs.values()) sink.end();
      this.onState(false);
    });
    this.connection.onRequest(handshakeMethod, (params: unknown) => this.handshake(params));
    this.connection.onRequest((method: string, params: object | unknown[] | undefined, token: CancellationToken) =>
      this.dispatch(method, params, token),
    );
    this.connection.onNotification((method: string, params: unknown) => this.notified(method, params));
    this.connection.listen();
  }

  async output(message: ExecOutputMessage): Promise<void> {
    await this.connection.sendNotification(notifications.execOutput, message).catch(() => undefined);
    if (this.socket.writableNeedDrain) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          this.socket.off('drain', done);
          this.socket.off('close', done);
          resolve();
        };
        this.socket.on('drain', done);
        this.socket.on('close', done);
      });
    }
  }

  onInput(stream: string, sink: InputSink): { dispose(): void } {
    this.inputs.set(stream, sink);
    for (const deliver of this.early.get(stream) ?? []) deliver(sink);
    this.early.delete(stream);
    return { dispose: () => this.inputs.delete(stream) };
  }

  tell(event: AgentEvent): void {
    if (this.watching) void this.connection.sendNotification(notifications.event, event).catch(() => undefined);
  }

  /** Ends the connection when what was sent has gone out. */
  close(): void {
    clearTimeout(this.deadline);
    this.socket.end();
  }

  end(): void {
    clearTimeout(this.deadline);
    this.socket.destroy();
  }

  private handshake(params: unknown): HandshakeOutput {
    const parsed = handshakeInput.safeParse(params);
    const base = { protocol: protocolVersion, version: this.lock.version };
    const refuse = (reason: 'protocol' | 'token'): HandshakeOutput => {
      setImmediate(() => this.socket.end());
      return { ok: false, reason, ...base };
    };
    if (!parsed.success || !sameToken(parsed.data.token, this.lock.token)) return refuse('token');
    if (parsed.data.protocol !== protocolVersion) return refuse('protocol');
    clearTimeout(this.deadline);
    this.welcome = true;
    this.onWelcome(parsed.data);
    this.onState(true);
    return { ok: true, pid: process.pid, ...base };
  }

  private async dispatch(method: string, params: unknown, token: CancellationToken): Promise<unknown> {
    if (!this.welcome) {
      this.end();
      throw wire(new PetriError('unauthorized', 'Shake hands first.'));
    }
    try {
      if (!isOperation(method)) throw new PetriError('usage', `There is no operation "${method}".`);
      const request = envelope.parse(params);
      const input = operations[method].input.safeParse(request.input);
      if (!input.success) throw new PetriError('usage', `Wrong input for ${method}: ${z.prettifyError(input.error)}`);
      const abort = new AbortController();
      if (token.isCancellationRequested) abort.abort();
      token.onCancellationRequested(() => abort.abort());
      // The table's types guarantee that the handler of `method` takes what its schema gave.
      const handler = this.handlers[method] as (input: unknown, context: CallContext) => Promise<unknown>;
      return await handler(input.data, {
        signal: abort.signal,
        client: this,
        progress: (p) => {
          if (request.progress)
            void this.connection
              .sendNotification(notifications.progress, { token: request.progress, ...p })
              .catch(() => undefined);
        },
      });
    } catch (error) {
      throw wire(error);
    }
  }

  private notified(method: string, params: unknown): void {
    if (!this.welcome) return this.end();
    if (method === notifications.watch) this.watching = true;
    if (method === notifications.execStdin) {
      const m = execStdinMessage.safeParse(params);
      if (!m.success) return;
      const data = m.data.data === undefined ? undefined : Buffer.from(m.data.data, 'base64');
      this.deliver(m.data.stream, (sink) => {
        if (data) this.write(sink, data);
        if (m.data.end) sink.end();
      });
    }
    if (method === notifications.execResize) {
      const m = execResizeMessage.safeParse(params);
      if (m.success) this.deliver(m.data.stream, (sink) => sink.resize(m.data.columns, m.data.rows));
    }
  }

  private deliver(stream: string, action: (sink: InputSink) => void): void {
    const sink = this.inputs.get(stream);
    if (sink) return action(sink);
    const queue = this.early.get(stream) ?? [];
    if (queue.length < maxEarly && (this.early.size < maxEarly || this.early.has(stream)))
      this.early.set(stream, [...queue, action]);
  }

  /** Hands input on; while much of it is not taken yet, nothing more is read from this client. */
  private write(sink: InputSink, data: Buffer): void {
    this.unwritten += data.length;
    if (this.unwritten > maxUnwrittenBytes) this.socket.pause();
    const done = (): void => {
      this.unwritten -= data.length;
      if (this.unwritten <= maxUnwrittenBytes) this.socket.resume();
    };
    sink.write(data).then(done, done);
  }
}

function isOperation(method: string): method is OperationName {
  return Object.hasOwn(operations, method);
}

function wire(error: unknown): ResponseError<unknown> {
  const data = toWireError(error);
  if (data.code === 'internal') console.error(error);
  return new ResponseError(1, data.message, data);
}

function sameToken(a: string, b: string): boolean {
  const x = Buffer.from(a);
  const y = Buffer.from(b);
  return x.length === y.length && timingSafeEqual(x, y);
}
