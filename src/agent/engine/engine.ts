/**
 * The narrow interface to whatever runs sandboxes. Nothing of a vendor's types comes through it. Everything that
 * comes out of a box (archives, output) is untrusted.
 */
import type { Readable } from 'node:stream';
import type { EngineReport } from '../../protocol/operations';
import type { NetworkMode, TrustTier } from '../../protocol/records';
import type { BytePath } from '../../protocol/text';
import type { Progress } from '../../protocol/wire';

/** Labels on every object the engine makes for us. Values are plain text. */
export type Labels = Record<string, string>;

export const label = {
  /** The data folder's id: whose object it is. On everything. */
  owner: 'dev.petri.owner',
  /** `sandbox`, `bake`, `layer` or `snapshot`. */
  role: 'dev.petri.role',
  workspace: 'dev.petri.workspace',
  sandbox: 'dev.petri.sandbox',
  generation: 'dev.petri.generation',
  snapshot: 'dev.petri.snapshot',
  /** Content key of a cached layer. */
  key: 'dev.petri.key',
  /** JSON: what a cached layer was made from. */
  meta: 'dev.petri.meta',
  /** ISO time after which the object may be reaped. */
  expires: 'dev.petri.expires',
} as const;

export interface Image {
  /** Content id, `sha256:…`. */
  id: string;
  /** The name it was asked for by, or the id. */
  ref: string;
  labels: Labels;
  /** Default user, environment and folder of its configuration. */
  user: string;
  env: string[];
  workdir: string;
  sizeBytes: number;
  /** How many file-system layers it has; engines have a bound (overlay: 128). */
  layers: number;
  createdAt: string;
}

export interface LayerSpec {
  parent: Image;
  /** Name of the tag that keeps the image from being taken for dangling, `petri/…:…`. */
  tag: string;
  labels: Labels;
  /** A tar stream of what the layer adds or replaces. Paths relative to `/`. Opened once per attempt. */
  open(): Readable;
  /** Paths relative to `/` that the layer removes (files or whole folders). */
  removals: BytePath[];
  /** About how many bytes `open()` gives, for progress; 0 when unknown. */
  sizeHint: number;
  /** Exactly how many bytes `open()` gives, where the caller can tell: the layer is then sent as it is made, with no copy on disk. */
  sizeBytes?: number;
  /** Owner of the folders above `removals`, should the engine have to write them (mode 0755). Default root. */
  owner?: { uid: number; gid: number };
  signal?: AbortSignal;
  progress?(p: Progress): void;
}

export interface BoxSpec {
  name: string;
  image: Image;
  labels: Labels;
  cpus?: number;
  memoryBytes?: number;
  pids?: number;
  network: NetworkMode;
  tier: TrustTier;
  /** Environment beside the image's own. Never secrets. */
  env: Record<string, string>;
  /** Folder the box works in. */
  workdir: string;
  /** `uid[:gid]` or a name; empty for the image's default. */
  user: string;
  /** The box ends by itself after this time, whatever becomes of the agent. */
  lifetimeMs?: number;
  signal?: AbortSignal;
}

export interface Box {
  id: string;
  name: string;
  labels: Labels;
  state: 'running' | 'stopped' | 'paused';
  imageId: string;
  createdAt: string;
}

export interface BoxStats {
  /** CPU time used since the box began. */
  cpuSeconds: number;
  memoryBytes: number;
  /** Highest use so far, or null where the engine doesn't say (the caller samples then). */
  peakMemoryBytes: number | null;
  pids: number;
  /** Processes killed for want of memory, forks refused for want of pids; null when it can't be told. */
  oomKills: number | null;
  pidsDenied: number | null;
}

export interface ExecSpec {
  command: string[];
  tty?: boolean;
  /** True when the caller will write to `stdin`; else the command reads an empty one. */
  stdin?: boolean;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  size?: { columns: number; rows: number };
}

export interface ExecHandle {
  /** With a TTY everything comes on stdout. Back-pressure reaches the command. Both end when the command has ended. */
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves when the bytes are handed on. */
  write(data: Uint8Array): Promise<void>;
  closeStdin(): void;
  resize(columns: number, rows: number): Promise<void>;
  /** Sends a signal (`TERM`, `KILL`, `INT` …) to the command and everything in its process group. */
  kill(signal: string): Promise<void>;
  /** Resolves with the exit code once the command has ended and its output was read. 126/127 as shells give them. */
  readonly exit: Promise<number>;
}

export interface EngineEvent {
  kind: 'oom' | 'died';
  boxId: string;
  labels: Labels;
}

export interface Engine {
  /** `docker`, `local`, … */
  readonly kind: string;
  report(): Promise<EngineReport>;

  /** Finds an image here, by name or id. Errors: none; undefined when it is not here. */
  findImage(ref: string): Promise<Image | undefined>;
  /** Gets an image from its registry. Errors: image-missing, engine-failed, cancelled. */
  pullImage(ref: string, opts: { signal?: AbortSignal; progress?(p: Progress): void }): Promise<Image>;
  /** Images that carry all these labels. */
  listImages(labels: Labels): Promise<Image[]>;
  /** Removes an image and its tags; absent is fine; one in use stays and gives false. */
  removeImage(id: string): Promise<boolean>;
  /** Makes a new image of a parent and one layer. Half-made ones are never left. */
  addLayer(spec: LayerSpec): Promise<Image>;

  /** Creates and starts. Errors: image-missing, unsupported (tier, limit or policy can't be enforced), engine-failed. */
  createBox(spec: BoxSpec): Promise<Box>;
  listBoxes(labels: Labels): Promise<Box[]>;
  findBox(id: string): Promise<Box | undefined>;
  /** Saves the box's file system as an image; running commands are paused meanwhile. */
  commitBox(id: string, opts: { tag: string; labels: Labels }): Promise<Image>;
  /** Stops at once (no grace). Absent or stopped is fine. */
  killBox(id: string): Promise<void>;
  startBox(id: string): Promise<void>;
  /** Removes with its volumes, running or not. Absent is fine. */
  removeBox(id: string): Promise<void>;
  /** Kills every process in it but the one that keeps it alive. */
  killProcesses(id: string): Promise<void>;
  exec(id: string, spec: ExecSpec): Promise<ExecHandle>;
  stats(id: string): Promise<BoxStats>;

  /** A tar stream unpacked at `path`, ownership as in the archive. */
  putArchive(id: string, path: string, tar: Readable): Promise<void>;
  /** A tar stream of `path`. Untrusted. Errors: not-found. */
  getArchive(id: string, path: string): Promise<Readable>;

  /** Calls back for boxes of this owner until disposed. */
  watch(owner: string, onEvent: (e: EngineEvent) => void): { dispose(): void };
  dispose(): void;
}
