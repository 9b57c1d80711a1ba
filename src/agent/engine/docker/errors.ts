/** What the engine or the way to it says went wrong, as our own errors. Nothing of dockerode's passes. */
import { cancelled, isCancelled, messageOf, PetriError, type ErrorCode } from '../../../protocol/errors';
import { shorten } from '../../../protocol/text';

/** Codes of node for "nobody answers there" and "the connection broke". */
const gone = new Set([
  'ECONNREFUSED',
  'ENOENT',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ERR_STREAM_PREMATURE_CLOSE',
  'ENOTSOCK',
  'EACCES',
  'EPERM',
  'ERR_SOCKET_CLOSED',
]);

/** The HTTP status of an answer that was an error. */
export function statusOf(thrown: unknown): number | undefined {
  const status = (thrown as { statusCode?: unknown } | null)?.statusCode;
  return typeof status === 'number' ? status : undefined;
}

/** The engine's own words for what went wrong, one line. */
export function reasonOf(thrown: unknown): string {
  const json = (thrown as { json?: unknown } | null)?.json;
  const told = typeof json === 'object' && json !== null && 'message' in json ? json.message : undefined;
  const text = typeof told === 'string' ? told : messageOf(thrown).replace(/^\(HTTP code \d+\) [^-]*- /, '');
  return shorten(text.trim(), 600);
}

/** The error for something thrown while `doing` ("creating a container"). A PetriError passes as it is. */
export function engineError(thrown: unknown, doing: string, endpoint: string): PetriError {
  if (thrown instanceof PetriError) return thrown;
  if (isCancelled(thrown)) return cancelled(sentence(doing));
  const status = statusOf(thrown);
  const reason = reasonOf(thrown);
  const make = (code: ErrorCode, message: string, hint: string): PetriError =>
    new PetriError(code, message, {
      hint,
      cause: thrown,
      data: { endpoint, ...(status === undefined ? {} : { status }) },
    });
  if (/no space left on device|disk quota exceeded/i.test(reason)) {
    return make(
      'disk-full',
      `The engine's disk is full (while ${doing}).`,
      'Make room: `petri prune`, `docker system df`.',
    );
  }
  if (status === undefined) {
    const code = (thrown as NodeJS.ErrnoException | null)?.code ?? '';
    if (code === 'EACCES' || code === 'EPERM') {
      return make(
        'engine-gone',
        `The engine at ${endpoint} may not be used by this account.`,
        'Add the account to the group of the socket, or use a rootless engine.',
      );
    }
    if (gone.has(code) || /socket hang up|aborted|premature close/i.test(messageOf(thrown))) {
      return make(
        'engine-gone',
        `The engine at ${endpoint} does not answer (while ${doing}).`,
        'Start it and try again; `petri doctor` shows what is found.',
      );
    }
    return make(
      'engine-failed',
      `The engine failed while ${doing}: ${reason}`,
      '`petri doctor` shows the state of the engine.',
    );
  }
  if (status === 404 && /no such image|manifest .*unknown|image not known|no such object/i.test(reason)) {
    return make(
      'image-missing',
      `The engine has no such image (while ${doing}): ${reason}`,
      'Check the name, or get it with `docker pull`.',
    );
  }
  if (status === 404)
    return make('not-found', `It is not there (while ${doing}): ${reason}`, 'It may have been removed meanwhile.');
  if (status === 409 && /not running|is paused|stopped|state improper/i.test(reason)) {
    return make(
      'state',
      `The container is not running (while ${doing}).`,
      'It has ended or was stopped; `petri sandbox show` tells why.',
    );
  }
  return make('engine-failed', `The engine failed while ${doing}: ${reason}`, 'Its own log says more.');
}

const sentence = (doing: string): string => doing.charAt(0).toUpperCase() + doing.slice(1);
