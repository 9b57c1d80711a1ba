/** Sizes and durations as people write them in files and on the command line. */
import * as z from 'zod';

const sizeUnits: Record<string, number> = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };
const timeUnits: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Bytes of "512m", "2g", "1.5g", "1024" or 1024; undefined when it is none of these. Units are powers of 1024. */
export function parseBytes(text: string | number): number | undefined {
  if (typeof text === 'number') return Number.isFinite(text) && text > 0 ? Math.round(text) : undefined;
  const m = /^(\d+(?:\.\d+)?)\s*([bkmgt])?(?:i?b)?$/i.exec(text.trim());
  if (!m) return undefined;
  const bytes = Math.round(Number(m[1]) * (sizeUnits[(m[2] ?? 'b').toLowerCase()] ?? 1));
  return bytes > 0 ? bytes : undefined;
}

/** Milliseconds of "30m", "5s", "250ms", "1h", or of a plain number of seconds; undefined when it is none of these. */
export function parseDuration(text: string | number): number | undefined {
  const m = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/i.exec(String(text).trim());
  if (!m) return undefined;
  const ms = Math.round(Number(m[1]) * (timeUnits[(m[2] ?? 's').toLowerCase()] ?? 1));
  return ms > 0 ? ms : undefined;
}

/** A size in a file or an option, read into bytes. */
export const bytesInput = z.union([z.string(), z.number()]).transform((value, ctx) => {
  const bytes = parseBytes(value);
  if (bytes === undefined) ctx.addIssue({ code: 'custom', message: 'expected a size such as "512m" or "2g"' });
  return bytes ?? 0;
});

/** A duration in a file or an option, read into milliseconds. */
export const durationInput = z.union([z.string(), z.number()]).transform((value, ctx) => {
  const ms = parseDuration(value);
  if (ms === undefined) ctx.addIssue({ code: 'custom', message: 'expected a duration such as "30s", "5m" or "1h"' });
  return ms ?? 0;
});

/** "1.2 kB" style text, powers of 1024. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  let value = bytes;
  let unit = '';
  for (const u of ['kB', 'MB', 'GB', 'TB']) {
    if (value < 1024) break;
    value /= 1024;
    unit = u;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** "350 ms", "3.1 s", "2 min 5 s", "1 h 4 min" style text. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const min = Math.floor(s / 60);
  if (min < 60) return `${min} min ${Math.round(s % 60)} s`;
  return `${Math.floor(min / 60)} h ${min % 60} min`;
}
