/** Identifiers: a letter for the kind and ten random characters without look-alikes, so that a short prefix is enough. */
import { randomInt } from 'node:crypto';
import { PetriError } from '../../protocol/errors';

const alphabet = '23456789abcdefghjkmnpqrstvwxyz';

export type IdKind = 's' | 'n' | 'e' | 'r' | 'p' | 'x';

/** A new id of a kind: s sandbox, n snapshot, e experiment, r run, p promotion, x execution. */
export function newId(kind: IdKind): string {
  return kind + Array.from({ length: 10 }, () => alphabet[randomInt(alphabet.length)]).join('');
}

/**
 * The one record that `ref` names: by id, by a unique prefix of an id, or by a unique name among the live ones.
 * Errors: not-found, ambiguous.
 */
export function resolveRef<T extends { id: string }>(
  records: Iterable<T>,
  ref: string,
  what: string,
  names: (record: T) => string | undefined = () => undefined,
): T {
  const all = [...records];
  const exact = all.find((r) => r.id === ref);
  if (exact) return exact;
  const named = all.filter((r) => names(r) === ref);
  const found = named.length > 0 ? named : all.filter((r) => r.id.startsWith(ref));
  const [first, second] = found;
  if (!first) {
    throw new PetriError('not-found', `There is no ${what} "${ref}".`, {
      hint: `List them to see what there is.`,
      data: { ref },
    });
  }
  if (second) {
    throw new PetriError(
      'ambiguous',
      `"${ref}" fits ${found.length} ${what}s: ${found
        .slice(0, 5)
        .map((r) => r.id)
        .join(', ')}${found.length > 5 ? ' …' : ''}.`,
      {
        hint: 'Give more characters of the id.',
        data: { ref, candidates: found.map((r) => r.id) },
      },
    );
  }
  return first;
}
