/**
 * Labels travel: a container takes its image's labels, an image made of a container takes the container's. A box of a cached layer
 * would then look like that layer. Labels can't be taken away, so those of ours that don't belong are set empty, and empty ones aren't read.
 */
import type { Labels } from '../engine';

const ours = 'dev.petri.';

/** `own`, and every other of our labels that would be inherited, empty. */
export function labelsOver(own: Labels, inherited: Labels): Labels {
  const blank = Object.keys(inherited).filter((key) => key.startsWith(ours) && !(key in own));
  return { ...Object.fromEntries(blank.map((key) => [key, ''])), ...own };
}

/** Labels as they were meant. */
export function readLabels(labels: Labels | null | undefined): Labels {
  return Object.fromEntries(
    Object.entries(labels ?? {}).filter(([key, value]) => !(key.startsWith(ours) && value === '')),
  );
}

/** The filter of the engine's lists for objects that carry all these labels. */
export function labelFilter(labels: Labels): string[] {
  return Object.entries(labels).map(([key, value]) => `${key}=${value}`);
}
