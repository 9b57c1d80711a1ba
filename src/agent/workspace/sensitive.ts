/**
 * Sensitive paths: what runs by itself later (when a folder is opened, a shell starts, something is committed, installed or
 * pushed). A change to one needs its own consent before it reaches the workspace.
 */
import { isDotGit } from './safePath';

export interface SensitiveSide {
  /** Git file mode. */
  mode: string;
  /** The file's bytes, or a link's target; undefined when they were not read. */
  content: Buffer | undefined;
}

export interface SensitiveChange {
  before: SensitiveSide | null;
  after: SensitiveSide | null;
}

/** Over the whole path, in lower case. */
const rules: [RegExp, string][] = [
  [/(^|\/)\.vscode(\/|$)|\.code-workspace$/, 'editor settings and tasks can run commands'],
  [/(^|\/)\.devcontainer(\/|$)|(^|\/)\.?devcontainer\.json$/, 'dev container settings run commands'],
  [
    /(^|\/)\.(idea|fleet|zed)(\/|$)|(^|\/)\.(vimrc|exrc|nvimrc|nvim\.lua|dir-locals\.el|project\.el)$/,
    'editor settings can run commands',
  ],
  [/(^|\/)\.git(attributes|modules|config)$/, 'git acts on it'],
  [
    /(^|\/)(\.husky|\.?git-?hooks)(\/|$)|(^|\/)hooks\/(applypatch-msg|(pre|post)-[a-z-]+|prepare-commit-msg|commit-msg|update|fsmonitor-watchman|sendemail-validate)[^/]*$|(^|\/)(\.pre-commit-config\.ya?ml|\.?lefthook(-local)?\.(ya?ml|json|toml)|\.huskyrc[^/]*|\.lintstagedrc[^/]*|\.simple-git-hooks\.[^/]*)$/,
    'hooks run by themselves',
  ],
  [
    /(^|\/)\.github\/(workflows|actions)(\/|$)|(^|\/)\.(gitea|forgejo)\/workflows(\/|$)|(^|\/)\.(circleci|buildkite|woodpecker|gitlab\/ci)(\/|$)|(^|\/)(\.gitlab-ci\.ya?ml|[^/]*\.gitlab-ci\.ya?ml|jenkinsfile[^/]*|azure-pipelines[^/]*\.ya?ml|bitbucket-pipelines\.ya?ml|\.travis\.ya?ml|\.drone\.ya?ml|\.woodpecker\.ya?ml|\.cirrus\.(ya?ml|star)|appveyor\.ya?ml|\.appveyor\.ya?ml|cloudbuild\.ya?ml|buildspec\.ya?ml|action\.ya?ml|\.ci\/[^/]+)$/,
    'continuous integration runs it',
  ],
  [
    /(^|\/)\.(npmrc|yarnrc(\.ya?ml)?|pnpmfile\.c?js|pnp\.c?js|bunfig\.toml)$|(^|\/)(bunfig\.toml|\.?pnpmfile\.c?js)$|(^|\/)\.yarn\/(plugins|releases)\//,
    'the package manager acts on it',
  ],
  [
    /(^|\/)(\.cargo\/config(\.toml)?|pip\.conf|\.pypirc|\.condarc|sitecustomize\.py|usercustomize\.py|[^/]*\.pth)$/,
    'tools load it by themselves',
  ],
  [
    /(^|\/)\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin|zlogout|kshrc|cshrc|tcshrc|login|inputrc|xprofile|xinitrc)$|(^|\/)\.config\/fish\/|(^|\/)config\.fish$/,
    'shells run it when they start',
  ],
  [
    /(^|\/)\.(envrc|env\.fish|autoenv|autoenv\.zsh|in|out)$|(^|\/)(\.?mise(\.local)?\.toml|\.tool-versions|\.rtx\.toml)$/,
    'it runs when a shell enters the folder',
  ],
  [/(^|\/)petri\.json$|\.experiment\.json$/, 'it says what Petri runs'],
  [
    /(^|\/)\.(claude|cursor|codex|gemini|windsurf|continue|aider|cline|roo|kiro|amp|opencode)(\/|$)|(^|\/)\.(mcp\.json|cursorrules|windsurfrules|clinerules[^/]*|aider\.conf\.ya?ml)$|(^|\/)(mcp\.json|agents\.md|claude\.md|gemini\.md)$|(^|\/)\.github\/(copilot-instructions\.md|instructions\/|prompts\/|chatmodes\/|agents\/|hooks\/)/,
    'coding agents act on it',
  ],
];

/** Fields of package.json that run something, or that say what is installed from where by whom. */
const packageFields = [
  'scripts',
  'husky',
  'simple-git-hooks',
  'lint-staged',
  'gitHooks',
  'pre-commit',
  'packageManager',
  'pnpm',
  'trustedDependencies',
];

/** Why a change of this path needs its own consent, or null. The path has one char per byte. */
export function sensitiveReason(path: string, change: SensitiveChange): string | null {
  const folded = Buffer.from(path, 'latin1').toString('utf8').normalize('NFKC').toLowerCase();
  if (path.split('/').some(isDotGit)) return 'git acts on it';
  for (const [pattern, reason] of rules) if (pattern.test(folded)) return reason;
  if (/(^|\/)package\.json$/.test(folded)) {
    const reason = packageReason(change);
    if (reason !== null) return reason;
  }
  if (change.after?.mode === '120000' && leadsOutside(path, change.after.content))
    return 'the link leads outside the workspace';
  return null;
}

function packageReason({ before, after }: SensitiveChange): string | null {
  const old = packageFieldsOf(before);
  const now = packageFieldsOf(after);
  if (old === undefined || now === undefined) return 'package scripts may have changed: it can’t be read as JSON';
  const changed = packageFields.filter((field) => stable(old[field]) !== stable(now[field]));
  return changed.length > 0
    ? `it changes ${changed.map((f) => (f === 'scripts' ? 'package scripts' : `"${f}"`)).join(', ')}`
    : null;
}

/** The object in package.json; empty for a side that does not exist; undefined when it can't be read. */
function packageFieldsOf(side: SensitiveSide | null): Record<string, unknown> | undefined {
  if (side === null) return {};
  if (side.content === undefined || side.mode === '120000') return undefined;
  try {
    const value: unknown = JSON.parse(side.content.toString('utf8').replace(/^\ufeff/, ''));
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/** JSON text in which the order of an object's fields does not count. */
function stable(value: unknown): string {
  return (
    JSON.stringify(value, (_key, v: unknown) =>
      typeof v === 'object' && v !== null && !Array.isArray(v)
        ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)))
        : v,
    ) ?? ''
  );
}

/**
 * True when a link's target is absolute, climbs out of the workspace, goes into a git folder, or is unknown. Also when it climbs
 * after it went down: what it went down through may be a link itself, so the way can't be told from the text.
 */
function leadsOutside(path: string, target: Buffer | undefined): boolean {
  if (target === undefined) return true;
  const text = target.toString('latin1');
  if (/^[/\\]|^[a-z]:/i.test(text)) return true;
  const at = path.split('/').slice(0, -1);
  let down = false;
  for (const part of text.split(/[/\\]/)) {
    if (part === '' || part === '.') continue;
    if (part !== '..') {
      down = true;
      at.push(part);
    } else if (down || at.pop() === undefined) return true;
  }
  return at.some(isDotGit);
}
