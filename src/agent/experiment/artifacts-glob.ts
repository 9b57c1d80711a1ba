/**
 * Matches globs in time that grows with pattern × path, whatever stands in either. Paths come out of sandboxes, and a regular
 * expression made of a few stars takes minutes on a path that was made for it; so there is none here.
 * `*` and `?` stay within a part of the path, `**` as a whole part takes any number of parts, `[a-z]` and `[!a-z]` one
 * character, `{a,b}` alternatives (they nest, and may hold slashes), a backslash takes the next character as it is.
 */

/** One character's worth of a pattern, or a star. */
type Piece =
  | { kind: 'char'; char: string }
  | { kind: 'any' }
  | { kind: 'star' }
  | { kind: 'set'; not: boolean; ranges: [string, string][] };
type Part = Piece[] | 'globstar';

/** Alternatives that braces may come to. */
const maxAlternatives = 1000;

/** Thrown for a glob that can't be read; the message begins with "expected". */
export class GlobError extends Error {}

/** Compiles a glob. Throws {@link GlobError}. */
export function compileGlob(glob: string): (path: string) => boolean {
  const alternatives = expandBraces(glob).map((flat) => splitParts(flat).map(compilePart));
  return (path) => {
    const parts = path.split('/').map((part) => Array.from(part));
    return alternatives.some((pattern) => matchParts(pattern, parts));
  };
}

/** Row by row: `reach[j]` says whether the pattern so far takes the first j parts. */
function matchParts(pattern: Part[], parts: string[][]): boolean {
  let reach: boolean[] = [true, ...parts.map(() => false)];
  for (const part of pattern) {
    const next = parts.map(() => false);
    next.unshift(false);
    for (let j = 0; j <= parts.length; j++) {
      if (part === 'globstar') next[j] = reach[j] === true || (j > 0 && next[j - 1] === true);
      else if (j > 0 && reach[j - 1] === true) next[j] = matchPart(part, parts[j - 1] ?? []);
    }
    reach = next;
  }
  return reach[parts.length] === true;
}

/** The usual two pointers: on a mismatch the last star takes one character more. */
function matchPart(pattern: Piece[], text: string[]): boolean {
  let p = 0;
  let t = 0;
  let star = -1;
  let starText = 0;
  while (t < text.length) {
    const piece = pattern[p];
    if (piece?.kind === 'star') {
      star = p++;
      starText = t;
    } else if (piece && matchOne(piece, text[t] ?? '')) {
      p++;
      t++;
    } else if (star !== -1) {
      p = star + 1;
      t = ++starText;
    } else return false;
  }
  while (pattern[p]?.kind === 'star') p++;
  return p === pattern.length;
}

function matchOne(piece: Piece, char: string): boolean {
  if (piece.kind === 'char') return piece.char === char;
  if (piece.kind === 'set') return piece.ranges.some(([from, to]) => from <= char && char <= to) !== piece.not;
  return true;
}

function compilePart(part: string): Part {
  if (part === '**') return 'globstar';
  const chars = Array.from(part);
  const pieces: Piece[] = [];
  for (let i = 0; i < chars.length; i++) {
    const char = chars[i] ?? '';
    if (char === '*') {
      if (pieces.at(-1)?.kind !== 'star') pieces.push({ kind: 'star' });
    } else if (char === '?') pieces.push({ kind: 'any' });
    else if (char === '\\') pieces.push({ kind: 'char', char: chars[++i] ?? '\\' });
    else if (char === '[') {
      const set = readSet(chars, i);
      if (set) {
        pieces.push(set.piece);
        i = set.end;
      } else pieces.push({ kind: 'char', char });
    } else pieces.push({ kind: 'char', char });
  }
  return pieces;
}

/** A set from its `[` on; undefined when it is not closed (then the bracket stands for itself). */
function readSet(chars: string[], start: number): { piece: Piece; end: number } | undefined {
  let i = start + 1;
  const not = chars[i] === '!' || chars[i] === '^';
  if (not) i++;
  const ranges: [string, string][] = [];
  for (let first = true; i < chars.length; first = false) {
    let char = chars[i] ?? '';
    if (char === ']' && !first) return { piece: { kind: 'set', not, ranges }, end: i };
    if (char === '\\') char = chars[++i] ?? '\\';
    i++;
    if (chars[i] === '-' && i + 1 < chars.length && chars[i + 1] !== ']') {
      ranges.push([char, chars[i + 1] ?? char]);
      i += 2;
    } else ranges.push([char, char]);
  }
  return undefined;
}

/** Splits at slashes that are not escaped. */
function splitParts(glob: string): string[] {
  return glob.match(/(?:\\[^]|[^/\\]|\\$)+/g) ?? [];
}

function expandBraces(glob: string): string[] {
  let done: string[] = [];
  let open: string[] = [glob];
  while (open.length > 0) {
    const next: string[] = [];
    for (const one of open) {
      const brace = firstBrace(one);
      if (!brace) done = [...done, one];
      else next.push(...brace.options.map((option) => one.slice(0, brace.start) + option + one.slice(brace.end + 1)));
      if (done.length + next.length > maxAlternatives)
        throw new GlobError(`expected a glob with at most ${maxAlternatives} alternatives`);
    }
    open = next;
  }
  return done;
}

/** The first pair of braces that holds a comma of its own. */
function firstBrace(glob: string): { start: number; end: number; options: string[] } | undefined {
  for (let start = 0; start < glob.length; start++) {
    if (glob[start] === '\\') start++;
    else if (glob[start] === '{') {
      const found = readBrace(glob, start);
      if (found && found.options.length > 1) return { start, ...found };
    }
  }
  return undefined;
}

function readBrace(glob: string, start: number): { end: number; options: string[] } | undefined {
  let depth = 0;
  let from = start + 1;
  const options: string[] = [];
  for (let i = start; i < glob.length; i++) {
    const char = glob[i];
    if (char === '\\') i++;
    else if (char === '{') depth++;
    else if (char === ',' && depth === 1) {
      options.push(glob.slice(from, i));
      from = i + 1;
    } else if (char === '}' && --depth === 0) return { end: i, options: [...options, glob.slice(from, i)] };
  }
  return undefined;
}
