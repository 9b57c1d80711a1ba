/** The contract of the workspace store: exact states of a workspace as git trees in a private repository. */
import type { Readable } from 'node:stream';
import type { DiffFile, DiffStat } from '../../protocol/records';
import type { BytePath } from '../../protocol/text';

/** A git object id, 40 hex digits (SHA-1) or 64 (SHA-256). */
export type Oid = string;

export interface TreeEntry {
  path: BytePath;
  /** `100644`, `100755` or `120000`. */
  mode: string;
  oid: Oid;
}

/** One path that differs between two trees; null on the side where it does not exist. */
export interface TreeChange {
  path: BytePath;
  before: { mode: string; oid: Oid } | null;
  after: { mode: string; oid: Oid } | null;
}

export interface Capture {
  tree: Oid;
  /** HEAD of the workspace's own repository; null without a repository or commits. */
  commit: string | null;
  /** Files changed on disk between listing and reading; already captured in their newest state. */
  files: number;
  /** A hash of the names and of what is staged: what a repository's state depends on beside HEAD. */
  listing: string;
}

export interface CaptureOptions {
  /** Ignored paths (git pathspecs) that belong to the workspace all the same. */
  include: string[];
  signal?: AbortSignal;
}

export interface MergeResult {
  /** The merged tree; null when there are conflicts. */
  tree: Oid | null;
  conflicts: { path: string; reason: string }[];
}

export interface DiffResult {
  stat: DiffStat;
  files: DiffFile[];
}

/** One file as it will be written, for the journal of an apply. */
export interface ApplyStep {
  change: TreeChange;
}

/**
 * The store of one workspace. It reads the workspace's own `.git` and never writes it.
 * Errors everywhere: workspace-missing, git-failed, disk-full, cancelled.
 */
export interface WorkspaceStore {
  readonly workspace: string;
  /** The bare repository, for reading its objects. */
  readonly gitDir: string;

  /** The exact state of the workspace now. Two calls at once share no state and give sound trees. */
  capture(options: CaptureOptions): Promise<Capture>;
  /** The tree of a commit (any revision) of the workspace's own repository, copied into the store. Errors: not-found. */
  importCommit(revision: string): Promise<{ tree: Oid; commit: string }>;
  /**
   * A self-contained copy of the workspace's repository for a sandbox's `.git`: HEAD, branch, index as staged, `depth` commits of
   * history, no remotes, no hooks, no credentials. Written into the empty folder `into`. False when the workspace has no repository
   * whose top it is.
   */
  exportRepository(into: string, depth: number | 'full'): Promise<boolean>;

  entries(tree: Oid): Promise<TreeEntry[]>;
  changes(before: Oid, after: Oid): Promise<TreeChange[]>;
  /** Names and line counts, sensitive paths marked. */
  diff(before: Oid, after: Oid): Promise<DiffResult>;
  /** Unified diff with binary patches, UTF-8 text as git prints it. At most `maxBytes`, cut at a line end and marked. */
  patch(
    before: Oid,
    after: Oid,
    options?: { paths?: string[]; maxBytes?: number },
  ): Promise<{ text: string; cut: boolean }>;

  /** Contents of blobs, in order; one git process for all. */
  readBlobs(oids: Oid[]): AsyncIterable<{ oid: Oid; data: Buffer }>;
  /** Sizes in bytes, by one git process. */
  blobSizes(oids: Oid[]): Promise<Map<Oid, number>>;
  openBlob(oid: Oid): Readable;
  /** Writes a blob from a stream, at most `maxBytes` (error too-large). */
  writeBlob(data: Readable | Buffer, maxBytes?: number): Promise<Oid>;

  /** A tree equal to `base` with these paths set or removed. Refuses unsafe paths (untrusted-data). */
  editTree(base: Oid, changes: { path: BytePath; entry: { mode: string; oid: Oid } | null }[]): Promise<Oid>;
  /** A tree equal to `base` with a unified diff applied. Errors: conflict (says which hunk), untrusted-data. */
  applyPatch(base: Oid, patch: Buffer): Promise<Oid>;

  /**
   * Takes a pack from a sandbox: strict check in quarantine, size bound, then into the store. Returns when `tree` and all it
   * reaches are there and safe (no `.git` in any spelling, no `..`, only modes 100644, 100755, 120000 and trees).
   * Errors: untrusted-data, too-large.
   */
  importPack(pack: Readable, tree: Oid, options: { maxBytes: number; signal?: AbortSignal }): Promise<void>;
  /** A pack of everything that `tree` consists of, for another store. */
  packAll(tree: Oid): Readable;
  /** Ignore rules that are in no `.gitignore` of the workspace: `.git/info/exclude` and the user's global ones, as one text. */
  ignoreRules(): Promise<string>;
  /** A pack of the trees (no blobs) that `tree` consists of: what a sandbox's bookkeeping needs to send only what is new. */
  packTrees(tree: Oid): Promise<Buffer>;

  /** Three-way: what changed from `base` to `theirs`, onto `ours`. */
  merge(base: Oid, ours: Oid, theirs: Oid): Promise<MergeResult>;

  /** Keeps a tree from garbage collection under a name (`refs/petri/<name>`); null lets it go. */
  keep(name: string, tree: Oid | null): Promise<void>;
}
