/** Where things are inside a sandbox, and the shell that Petri's own bookkeeping runs there. */
import type { BytePath } from '../../protocol/text';

/** The workspace inside. */
export const workdir = '/workspace';
/** Petri's own folder inside: the bookkeeping repository. Nothing in it is trusted on the way out. */
export const petriFolder = '.petri';
export const bookkeepingDir = `/${petriFolder}/git`;

/** Paths relative to `/`, as layers name them. */
export const workspacePrefix = 'workspace' as BytePath;

/** Switches every conversion off, so that git inside hashes the bytes as they are. Outranks every `.gitattributes`. */
export const rawAttributes = '* -text -eol -filter -ident -working-tree-encoding -export-ignore -export-subst\n';

export const bookkeepingConfig = `[core]
	repositoryformatversion = 0
	bare = false
	autocrlf = false
	safecrlf = false
	fileMode = true
	symlinks = true
	logAllRefUpdates = false
	looseCompression = 1
	fsmonitor = false
	untrackedCache = false
	hooksPath = /dev/null
	excludesFile = /dev/null
	attributesFile = /dev/null
[gc]
	auto = 0
[pack]
	threads = 1
[index]
	version = 2
`;

/** Fixed environment of bookkeeping commands: neither the image's nor the workspace's configuration reaches them. */
export const bookkeepingEnv: Record<string, string> = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: `/${petriFolder}`,
  GIT_DIR: bookkeepingDir,
  GIT_WORK_TREE: workdir,
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_TERMINAL_PROMPT: '0',
  GIT_OPTIONAL_LOCKS: '0',
  LC_ALL: 'C',
};

/**
 * Lists what changed since the index was last right, feeds it to the index, writes the tree and prints `petri1 <tree>` and then, when the
 * tree is not the known one, a pack of what is new. `$1` is the known tree, the rest are pathspecs of ignored paths that belong to the workspace.
 * Nested repositories (entries that end in `/`) are taken file by file; what is no file any more leaves the index.
 */
export const extractScript = `
set -e
cd "$GIT_WORK_TREE"
known=$1; shift
rm -f "$GIT_DIR/index.lock"
if [ ! -f "$GIT_DIR/index" ]; then git read-tree "$known"; fi
list=/${petriFolder}/changed
{ git ls-files -m -d -o --exclude-standard -z
  if [ $# -gt 0 ]; then git ls-files -o -z -- "$@"; fi
} > "$list"
if [ -s "$list" ]; then
  rm -f "$list.files" "$list.gone" "$list.nested"
  xargs -0 -n 1000 /bin/sh -c '
    l=$1; shift
    for f; do
      if [ -h "$f" ] || [ -f "$f" ]; then printf "%s\\0" "$f" >> "$l.files"
      else case "$f" in */) printf "%s\\0" "$f" >> "$l.nested" ;; *) printf "%s\\0" "$f" >> "$l.gone" ;; esac
      fi
    done' sh "$list" < "$list"
  if [ -s "$list.nested" ]; then
    xargs -0 -n 1 /bin/sh -c '
      GIT_DIR="$1.git" GIT_WORK_TREE="$1" git ls-files -co --exclude-standard -z |
        xargs -0 -n 1000 /bin/sh -c '"'"'d=$1; shift; for f; do if [ -h "$d$f" ] || [ -f "$d$f" ]; then printf "%s%s\\0" "$d" "$f"; fi; done'"'"' sh "$1"
    ' sh < "$list.nested" >> "$list.files"
  fi
  if [ -s "$list.gone" ]; then git update-index --force-remove -z --stdin < "$list.gone"; fi
  if [ -s "$list.files" ]; then git update-index --add --remove --replace -z --stdin < "$list.files"; fi
fi
tree=$(git write-tree --missing-ok)
printf 'petri1 %s\\n' "$tree"
if [ "$tree" != "$known" ]; then
  printf '%s\\n^%s\\n' "$tree" "$known" | git pack-objects -q --revs --missing=allow-any --stdout
fi
`;

/** Makes the index right for the layer it runs on, so that later only changed files are read. `$1` is the tree. */
export const settleScript = `
set -e
cd "$GIT_WORK_TREE"
git read-tree "$1"
git update-index -q --really-refresh >/dev/null || true
git write-tree --missing-ok
`;
