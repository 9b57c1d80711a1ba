// The rows in the order in which they are measured and shown. A row has an id, words, an aim (a ratio, or bytes) and `measure(context, n)`,
// which gives lists of milliseconds (or bytes) as `{ ours, base }`; `n(times)` is how often to repeat.
import bake from './bake.mjs';
import capture from './capture.mjs';
import create from './create.mjs';
import diff from './diff.mjs';
import exec from './exec.mjs';
import memory from './memory.mjs';
import { changed, rebake } from './rebake.mjs';
import rollback from './rollback.mjs';
import scale from './scale.mjs';
import snapshot from './snapshot.mjs';
import ten from './ten.mjs';
import version from './version.mjs';

export const rows = [
  create,
  scale,
  bake,
  rebake,
  changed,
  capture,
  snapshot,
  rollback,
  diff,
  ten,
  exec,
  memory,
  version,
];
