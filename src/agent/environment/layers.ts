/** The labels by which cached layers are known, and the keys they are found by. */
import { createHash } from 'node:crypto';
import * as z from 'zod';
import { label, type Image, type Labels } from '../engine/engine';

/** What a workspace layer was made from; kept as JSON in its label. */
export const layerMeta = z.object({
  /** Version of the layout inside; a layer of another version is never used. */
  v: z.literal(1),
  /** The workspace state in it. */
  tree: z.string(),
  /** The state that the bookkeeping index and tree pack inside know: `tree` of the full layer at the bottom. */
  known: z.string(),
  /** Fingerprint of the user's repository that its `.git` stands for; null without one. */
  repository: z.string().nullable(),
  /** Id of the image below the workspace. */
  below: z.string(),
  /** How many small layers lie on the full one. */
  depth: z.number().int(),
  /** True when the index inside is right for the layer (see the settle script). */
  settled: z.boolean(),
  /** How many files the state has. */
  files: z.number().int(),
  /** Owner of the files inside. */
  uid: z.number().int(),
  gid: z.number().int(),
});
export type LayerMeta = z.infer<typeof layerMeta>;

/** The meta of an image that we made, or undefined when it carries none that fits. */
export function readMeta(image: Image): LayerMeta | undefined {
  try {
    return layerMeta.parse(JSON.parse(image.labels[label.meta] ?? 'null'));
  } catch {
    return undefined;
  }
}

/** A key over JSON values, 32 hex digits. */
export function contentKey(...parts: unknown[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32);
}

export function layerLabels(owner: string, workspace: string, key: string, meta: LayerMeta): Labels {
  return {
    [label.owner]: owner,
    [label.role]: 'layer',
    [label.workspace]: workspace,
    [label.key]: key,
    [label.meta]: JSON.stringify(meta),
  };
}

/** The tag of a cached layer. The owner is in it, so that two data folders never share or remove each other's. */
export function layerTag(owner: string, key: string): string {
  return `petri/layer-${owner}:${key}`;
}
