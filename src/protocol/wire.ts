/** What goes over the socket beside the operations themselves: the handshake and the notifications. */
import * as z from 'zod';
import type { AgentEvent } from './records';

/** Raised with every change that an older peer would misunderstand. */
export const protocolVersion = 1;

/** The variables of the environment that say which engine is meant. */
export const engineVariables = [
  'PETRI_ENGINE',
  'DOCKER_HOST',
  'DOCKER_CONTEXT',
  'DOCKER_CONFIG',
  'DOCKER_TLS_VERIFY',
  'DOCKER_CERT_PATH',
  'XDG_RUNTIME_DIR',
] as const;

/** First request of a connection; anything before it ends the connection. */
export const handshakeMethod = 'handshake';
export const handshakeInput = z.object({
  protocol: z.number().int(),
  token: z.string(),
  client: z.object({ name: z.string(), version: z.string(), pid: z.number().int() }),
  /** The caller's variables by which an engine is found; an agent that has none yet looks with the newest caller's. */
  engine: z.partialRecord(z.enum(engineVariables), z.string()),
});
export type HandshakeInput = z.infer<typeof handshakeInput>;

export const handshakeOutput = z.discriminatedUnion('ok', [
  z.object({ ok: z.literal(true), protocol: z.number(), version: z.string(), pid: z.number() }),
  z.object({ ok: z.literal(false), reason: z.enum(['protocol', 'token']), protocol: z.number(), version: z.string() }),
]);
export type HandshakeOutput = z.infer<typeof handshakeOutput>;

/** Every operation's request: `op` is the method; `params` this. The token names its progress notifications. */
export interface RequestEnvelope {
  input: unknown;
  progress?: string;
}

/** Agent → client, on the way to the answer of a request that gave a progress token. */
export interface ProgressMessage {
  token: string;
  message: string;
  /** Units are the message's own; both absent when the end is not known. */
  done?: number;
  total?: number;
}
/** How an operation reports progress to whoever called it. */
export type Progress = Omit<ProgressMessage, 'token'>;

/** Agent → client: output of an execution, base64. */
export interface ExecOutputMessage {
  stream: string;
  channel: 'stdout' | 'stderr';
  data: string;
}
/** Client → agent: input of an execution, base64; `end` closes it. */
export const execStdinMessage = z.object({
  stream: z.string(),
  data: z.string().optional(),
  end: z.boolean().optional(),
});
export type ExecStdinMessage = z.infer<typeof execStdinMessage>;
/** Client → agent: the terminal's size. */
export const execResizeMessage = z.object({
  stream: z.string(),
  columns: z.number().int().positive(),
  rows: z.number().int().positive(),
});
export type ExecResizeMessage = z.infer<typeof execResizeMessage>;

export const notifications = {
  progress: 'progress',
  execOutput: 'exec/output',
  execStdin: 'exec/stdin',
  execResize: 'exec/resize',
  /** Client → agent: send me every change from now on. */
  watch: 'watch',
  event: 'event',
} as const;

export type EventMessage = AgentEvent;

/** The lock file by which clients find the agent, `agent.lock` in the data folder, mode 0600. */
export const lockFile = z.object({
  pid: z.number().int(),
  socket: z.string(),
  token: z.string(),
  protocol: z.number().int(),
  version: z.string(),
  startedAt: z.string(),
});
export type LockFile = z.infer<typeof lockFile>;
