/**
 * Errors that travel between the agent and its callers: a stable code, a sentence that says what happened,
 * and a hint that says what to do. No stack crosses the wire.
 */

/** Every code, with the exit code that the command line gives for it. */
export const errorCodes = {
  usage: 2,
  'not-found': 1,
  ambiguous: 1,
  'invalid-file': 2,
  'no-engine': 3,
  'engine-failed': 1,
  'engine-gone': 3,
  'image-missing': 1,
  'command-missing': 1,
  unsupported: 1,
  conflict: 4,
  'gate-refused': 4,
  'sensitive-paths': 4,
  'workspace-missing': 1,
  'workspace-changed': 4,
  'disk-full': 1,
  'too-large': 1,
  cancelled: 1,
  timeout: 1,
  busy: 4,
  state: 1,
  'untrusted-data': 1,
  'git-failed': 1,
  'protocol-mismatch': 1,
  unauthorized: 1,
  'agent-unreachable': 1,
  internal: 1,
} as const;

export type ErrorCode = keyof typeof errorCodes;

export interface PetriErrorOptions {
  /** What the reader can do about it, one sentence. */
  hint?: string;
  /** Facts for machines, JSON values only. */
  data?: Record<string, unknown>;
  cause?: unknown;
}

/** The one error class of the product. `message` says what happened; `hint` what to do. */
export class PetriError extends Error {
  override readonly name = 'PetriError';
  readonly hint: string | undefined;
  readonly data: Record<string, unknown>;

  constructor(
    readonly code: ErrorCode,
    message: string,
    options: PetriErrorOptions = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.hint = options.hint;
    this.data = options.data ?? {};
  }

  /** The exit code of a command that ends with this error. */
  get exitCode(): number {
    return errorCodes[this.code];
  }
}

/** The shape an error has on the wire (JSON-RPC `error.data`). */
export interface WireError {
  code: ErrorCode;
  message: string;
  hint?: string;
  data?: Record<string, unknown>;
}

/** Turns anything thrown into the wire shape. Unknown throwables become `internal` with their message only. */
export function toWireError(thrown: unknown): WireError {
  if (thrown instanceof PetriError) {
    return {
      code: thrown.code,
      message: thrown.message,
      ...(thrown.hint === undefined ? {} : { hint: thrown.hint }),
      data: thrown.data,
    };
  }
  return { code: 'internal', message: messageOf(thrown) };
}

/** The inverse of {@link toWireError}; anything that does not fit becomes `internal`. */
export function fromWireError(value: unknown, fallback = 'The agent failed.'): PetriError {
  if (typeof value === 'object' && value !== null && 'code' in value && 'message' in value) {
    const { code, message, hint, data } = value as Partial<WireError>;
    if (typeof code === 'string' && code in errorCodes && typeof message === 'string') {
      return new PetriError(code, message, {
        ...(typeof hint === 'string' ? { hint } : {}),
        ...(typeof data === 'object' ? { data } : {}),
      });
    }
  }
  return new PetriError('internal', fallback);
}

/** The message of anything thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** True for errors that mean "the caller asked to stop". */
export function isCancelled(thrown: unknown): boolean {
  return (
    (thrown instanceof PetriError && thrown.code === 'cancelled') ||
    (thrown instanceof Error && thrown.name === 'AbortError')
  );
}

/** The error for an operation that its caller cancelled. */
export function cancelled(what = 'The operation'): PetriError {
  return new PetriError('cancelled', `${what} was cancelled.`);
}
