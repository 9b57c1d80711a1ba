/** Checks the text of a file that people write against its schema, and says what is wrong, where, and what is expected. */
import path from 'node:path';
import { findNodeAtLocation, parseTree, printParseErrorCode, type Node, type ParseError } from 'jsonc-parser';
import * as z from 'zod';
import { PetriError } from '../../protocol/errors';
import { shorten, visible } from '../../protocol/text';
import { listWords } from '../../protocol/words';

/** One thing that is wrong. Line and column count from 1, in UTF-16 units as editors do. */
export interface FileIssue {
  line: number;
  column: number;
  /** Such as `approaches[1].run`; empty for the whole file. */
  path: string;
  /** The expected form, in words. */
  expected: string;
  message: string;
}

type Keys = (string | number)[];
interface Problem {
  offset: number;
  path: Keys;
  expected: string;
  /** Says it all, without position and path. */
  text: string;
  /** The key that an unknown one stands for, or "" where there is none near. */
  slip?: string;
}

/** The parsed value of `text`. Throws invalid-file with every issue in `data.issues`, in the order of the file. */
export function checkDocument<S extends z.ZodType>(file: string, text: string, schema: S): z.output<S> {
  const errors: ParseError[] = [];
  let root: Node | undefined;
  try {
    root = parseTree(text, errors, { allowTrailingComma: true, disallowComments: false, allowEmptyContent: true });
    if (errors.length > 0)
      throw invalid(
        file,
        text,
        errors.slice(0, 1).map((e) => syntaxProblem(text, e)),
      );
    if (root === undefined) {
      throw invalid(file, text, [
        { offset: 0, path: [], expected: 'an object', text: 'expected an object, found an empty file' },
      ]);
    }
    const twice: Problem[] = [];
    const value = valueOf(root, [], twice);
    const known = new WeakMap<object, string[]>();
    const result = schema.safeParse(value, {
      error: (issue) => {
        if (issue.code === 'unrecognized_keys' && issue.inst instanceof z.ZodObject) {
          known.set(issue.keys, Object.keys(issue.inst.shape));
        }
        return issue.code === 'invalid_union' ? '' : expectedForm(issue);
      },
    });
    const tree = root;
    const problems = result.success
      ? []
      : result.error.issues.flatMap((issue) => explain(issue, [], value, tree, known));
    if (twice.length > 0 || !result.success) throw invalid(file, text, [...twice, ...withoutEchoes(problems)]);
    return result.data;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    // The parser's recursion: nobody writes such a file by hand.
    throw invalid(file, text, [
      {
        offset: 0,
        path: [],
        expected: 'an object',
        text: 'expected an object, found lists or objects nested too deeply',
      },
    ]);
  }
}

/** Leaves out what only follows from an unknown key beside it: that the right key is missing, that neither of two is there. */
function withoutEchoes(problems: Problem[]): Problem[] {
  const slips = new Set(
    problems.flatMap((p) => (p.slip === undefined ? [] : [pathOf([...p.path, p.slip]), pathOf(p.path)])),
  );
  return problems.filter(
    (p) => p.slip !== undefined || !/found (?:nothing|neither)$/.test(p.text) || !slips.has(pathOf(p.path)),
  );
}

function invalid(file: string, text: string, problems: Problem[]): PetriError {
  const issues = problems
    .sort((a, b) => a.offset - b.offset)
    .map(({ offset, path: keys, expected, text: what }): FileIssue => {
      const shown = visible(pathOf(keys), true);
      return {
        ...positionOf(text, offset),
        path: shown,
        expected,
        message: visible(shown === '' ? what : `${shown}: ${what}`, true),
      };
    });
  const [first] = issues;
  const { line, column, path: at, expected } = first ?? { line: 1, column: 1, path: '', expected: '' };
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more)` : '';
  const name = visible(path.basename(file), true);
  return new PetriError('invalid-file', `${name}:${line}:${column}: ${first?.message ?? 'it is wrong'}${more}`, {
    hint: 'Correct the file and try again; editors show the expected form as you type.',
    data: { file, line, column, path: at, expected, issues: issues.slice(0, 100) },
  });
}

function positionOf(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, offset);
  const start = before.lastIndexOf('\n') + 1;
  return { line: before.split('\n').length, column: offset - start + 1 };
}

function pathOf(keys: Keys): string {
  return keys
    .map((key, i) => {
      if (typeof key === 'number') return `[${key}]`;
      if (!/^[A-Za-z_$][\w$]*$/.test(key)) return `[${JSON.stringify(shorten(key, 60))}]`;
      return i === 0 ? key : `.${key}`;
    })
    .join('');
}

const syntaxWords: Record<string, string> = {
  InvalidSymbol: 'a value: a string in double quotes, a number, true, false, null, an object or a list',
  InvalidNumberFormat: 'a number',
  PropertyNameExpected: 'a key in double quotes',
  ValueExpected: 'a value',
  ColonExpected: 'a colon',
  CommaExpected: 'a comma',
  CloseBraceExpected: 'a closing brace }',
  CloseBracketExpected: 'a closing bracket ]',
  EndOfFileExpected: 'the end of the file',
  UnexpectedEndOfComment: 'the end of the comment */',
  UnexpectedEndOfString: 'a closing double quote',
  UnexpectedEndOfNumber: 'more digits',
  InvalidUnicode: 'four hex digits after \\u',
  InvalidEscapeCharacter: 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX',
  InvalidCharacter: 'no control characters; write \\n or \\t inside a string',
};

function syntaxProblem(text: string, error: ParseError): Problem {
  const expected = syntaxWords[printParseErrorCode(error.error)] ?? 'JSON';
  const found = text.slice(error.offset, error.offset + Math.max(1, error.length));
  const what = error.offset >= text.trimEnd().length ? 'the end of the file' : shorten(found, 40);
  return { offset: error.offset, path: [], expected, text: `expected ${expected}, found ${what}` };
}

/** The value of a node. Unlike the parser's own it makes no prototypes, and it notes keys that are given twice. */
function valueOf(node: Node, at: Keys, twice: Problem[]): unknown {
  if (node.type === 'array') return (node.children ?? []).map((child, i) => valueOf(child, [...at, i], twice));
  if (node.type !== 'object') return node.value as unknown;
  const entries = new Map<string, unknown>();
  for (const property of node.children ?? []) {
    const [keyNode, valueNode] = property.children ?? [];
    if (!keyNode || !valueNode) continue;
    const key = String(keyNode.value);
    if (entries.has(key)) {
      twice.push({
        offset: keyNode.offset,
        path: [...at, key],
        expected: 'each key once',
        text: 'expected each key once, found it a second time',
      });
    } else entries.set(key, valueOf(valueNode, [...at, key], twice));
  }
  return Object.fromEntries(entries);
}

const nouns: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
};

/** "expected …" for an issue that the schema has no own words for. */
function expectedForm(issue: z.core.$ZodRawIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${nouns[issue.expected] ?? issue.expected}`;
    case 'invalid_value':
      return `expected ${listWords(
        issue.values.map((value) => JSON.stringify(value)),
        'or',
      )}`;
    case 'too_small':
      if (issue.origin === 'array')
        return issue.minimum === 1 ? 'expected at least one entry' : `expected at least ${issue.minimum} entries`;
      if (issue.origin === 'string') return 'expected text that is not empty';
      return `expected a number ${issue.inclusive === false ? `greater than ${issue.minimum}` : `of at least ${issue.minimum}`}`;
    case 'too_big':
      return `expected a number of at most ${issue.maximum}`;
    default:
      return 'expected another form';
  }
}

function explain(
  issue: z.core.$ZodIssue,
  prefix: Keys,
  root: unknown,
  tree: Node,
  known: WeakMap<object, string[]>,
): Problem[] {
  const at: Keys = [...prefix, ...issue.path.map((key) => (typeof key === 'number' ? key : String(key)))];
  if (issue.code === 'unrecognized_keys') {
    const keys = known.get(issue.keys) ?? [];
    return issue.keys.map((key) => {
      const near = nearest(key, keys);
      const expected = `one of ${keys.map((k) => `\`${k}\``).join(', ')}`;
      const text = `unknown key "${shorten(key, 60)}"; ${near === undefined ? `expected ${expected}` : `did you mean "${near}"?`}`;
      return { offset: keyOffset(tree, [...at, key]), path: at, expected, text, slip: near ?? '' };
    });
  }
  const value = at.reduce<unknown>(
    (v, key) => (typeof v === 'object' && v !== null ? (v as Record<string, unknown>)[key] : undefined),
    root,
  );
  if (issue.code === 'invalid_union') {
    const close = issue.errors.filter((branch) => !branch.every((inner) => isOtherKind(inner)));
    const [only] = close;
    if (close.length === 1 && only) return only.flatMap((inner) => explain(inner, at, root, tree, known));
    const forms = issue.errors.flatMap((branch) =>
      branch.slice(0, 1).map((inner) => inner.message.replace(/^expected /, '')),
    );
    const message = issue.message || `expected ${listWords([...new Set(forms)], 'or')}`;
    const found = typeof value === 'string' ? literal(value) : kindOf(value);
    return [problem(message, found, at, nearestOffset(tree, at))];
  }
  if (issue.code === 'invalid_key') {
    const message = issue.issues[0]?.message ?? 'expected another key';
    return [problem(message, JSON.stringify(at.at(-1)), at.slice(0, -1), keyOffset(tree, at))];
  }
  const otherKind = issue.code === 'invalid_type' && !(typeof value === 'number' && issue.expected === 'int');
  const found = otherKind || typeof value === 'object' ? kindOf(value) : literal(value);
  return [problem(issue.message, found, at, nearestOffset(tree, at))];
}

/** Whether an issue says that the value is of another kind altogether, so that this branch of a union was not meant. */
function isOtherKind(issue: z.core.$ZodIssue): boolean {
  return issue.path.length === 0 && (issue.code === 'invalid_type' || issue.code === 'invalid_value');
}

/** A message that says what was found is left as it is. */
function problem(message: string, found: string, at: Keys, offset: number): Problem {
  const expected = /expected (.*?)(?:, found .*)?$/.exec(message)?.[1] ?? message;
  const whole =
    message.startsWith('expected ') && !message.includes(', found ') ? `${message}, found ${found}` : message;
  return { offset, path: at, expected, text: whole };
}

function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (typeof value === 'boolean') return String(value);
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

function literal(value: unknown): string {
  return value === undefined ? 'nothing' : shorten(JSON.stringify(value), 60);
}

/** Where the value at `at` begins; for one that is missing, the object that it is missing from. */
function nearestOffset(tree: Node, at: Keys): number {
  for (let length = at.length; length > 0; length--) {
    const node = findNodeAtLocation(tree, at.slice(0, length));
    if (node) return node.offset;
  }
  return tree.offset;
}

function keyOffset(tree: Node, at: Keys): number {
  const parent = findNodeAtLocation(tree, at.slice(0, -1));
  const property = parent?.children?.find((child) => child.children?.[0]?.value === at.at(-1));
  return property?.offset ?? nearestOffset(tree, at);
}

/** The known key that this one is a slip of: at most a third of its letters differ, two swapped ones count once. */
function nearest(key: string, known: string[]): string | undefined {
  if (key.length > 60) return undefined;
  const ranked = known
    .map((k) => ({ k, d: k.toLowerCase() === key.toLowerCase() ? 0 : distance(key, k) }))
    .sort((a, b) => a.d - b.d);
  const [best] = ranked;
  return best && best.d <= Math.max(1, Math.floor(Math.max(best.k.length, key.length) / 3)) ? best.k : undefined;
}

function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const cell = (di: number, dj: number): number => (di === 0 ? row : rows[i - di])?.[j - dj] ?? Infinity;
      let best = Math.min(cell(1, 0) + 1, cell(0, 1) + 1, cell(1, 1) + (a[i - 1] === b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) best = Math.min(best, cell(2, 2) + 1);
      row.push(best);
    }
    rows.push(row);
  }
  return rows[a.length]?.[b.length] ?? Infinity;
}
