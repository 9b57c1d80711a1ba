/** Which files of a sandbox an experiment keeps: globs over paths relative to the workspace. */
import { compileGlob, GlobError } from './artifacts-glob';

const globSigns = /[*?[\]{}\\]/;

/** Why a glob can't name files of the workspace ("expected …"), or undefined when it can. */
export function globProblem(glob: string): string | undefined {
  if (glob.trim() === '') return 'expected a glob, found only spaces';
  if (glob.length > 1000) return 'expected a glob of at most 1000 characters';
  if (glob.includes('\0')) return 'expected a glob without NUL characters';
  if (/^(?:[/\\]|[A-Za-z]:)/.test(glob)) return 'expected a path relative to the workspace, found an absolute one';
  if (glob.split(/[/\\{},]/).includes('..')) return 'expected a path inside the workspace, found ".."';
  if (/(?<!\\)[@!?*+]\(/.test(glob))
    return 'expected a glob of *, **, ?, [a-z] and {a,b}, found a ( behind one of @!?*+';
  try {
    compileGlob(normal(glob));
    return undefined;
  } catch (error) {
    if (error instanceof GlobError) return error.message;
    throw error;
  }
}

/**
 * A predicate over relative paths with `/` between the parts. Files whose names begin with a dot match like others;
 * a glob without any sign (`coverage`) also takes everything below that folder. A path that is absolute or has a
 * `.`, `..` or empty part never matches, nor does a glob that {@link globProblem} objects to.
 */
export function matchArtifacts(globs: string[]): (path: string) => boolean {
  const usable = globs.filter((glob) => globProblem(glob) === undefined).map(normal);
  const tests = usable.map((glob) =>
    globSigns.test(glob) ? compileGlob(glob) : (path: string) => path === glob || path.startsWith(`${glob}/`),
  );
  return (path) => isRelative(path) && tests.some((test) => test(path));
}

/**
 * The folder (or, for a glob without signs, the path) that everything a glob matches lies under; empty for the whole
 * workspace. `coverage/**` → `coverage`, `out/*.log` → `out`, `**` → ``.
 */
export function staticPrefix(glob: string): string {
  const parts = normal(glob).split('/');
  const first = parts.findIndex((part) => globSigns.test(part));
  return (first === -1 ? parts : parts.slice(0, first)).join('/');
}

/** Without `./` in front, `/` behind and doubled slashes. */
function normal(glob: string): string {
  return glob
    .replace(/^(?:\.\/+)+/, '')
    .replace(/\/+/g, '/')
    .replace(/\/$/, '');
}

function isRelative(path: string): boolean {
  return (
    path !== '' && !path.includes('\0') && !path.split('/').some((part) => part === '' || part === '.' || part === '..')
  );
}
