/** The one place where an error becomes words for people or a JSON value for machines. */
import { PetriError, toWireError } from '../protocol/errors';
import { visible } from '../protocol/text';
import { blank, line, paragraph, t, type Line } from './render/text';

/** The JSON value of an error. */
export function failureJson(error: PetriError): unknown {
  const { code, message, hint, data } = toWireError(error);
  return { id: null, state: 'error', error: { code, message, hint: hint ?? null, data: data ?? {} } };
}

/** What happened, then what to do. */
export function failureLines(error: PetriError, width: number): Line[] {
  // Some messages, such as those of a file with several mistakes, have lines of their own.
  const [first = '', ...rest] = visible(error.message).trimEnd().split('\n');
  const out = paragraph(first, width, line(t('✗ ', 'bad')));
  for (const more of rest) out.push(...(more.trim() === '' ? [blank] : paragraph(more, width, line('  '))));
  if (error.hint !== undefined && error.hint !== '') {
    for (const hint of visible(error.hint).split('\n')) out.push(...paragraph(hint, width, line('  '), 'dim'));
  }
  return out;
}

/** Anything thrown as a PetriError; what is none is a mistake of the program itself. */
export function asPetriError(thrown: unknown): PetriError {
  if (thrown instanceof PetriError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new PetriError('internal', `Petri itself failed: ${message}`, { cause: thrown });
}
