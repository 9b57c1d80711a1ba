/** Text that came out of a sandbox or a file system, made safe to show. */

/**
 * Replaces every control character (C0 but tab and newline, DEL, C1), bidirectional override and other invisible
 * formatting character by a visible escape, so that no log, name or path can move the cursor, hide text or
 * reorder a line. With `oneLine`, newlines and tabs are escaped too.
 */
export function visible(text: string, oneLine = false): string {
  return text.replace(hostile, (c) => {
    if (!oneLine && (c === '\n' || c === '\t')) return c;
    if (c === '\n') return '\\n';
    if (c === '\r') return '\\r';
    if (c === '\t') return '\\t';
    const code = c.codePointAt(0) ?? 0;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
  });
}

const hostile =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** One line of text, made visible and cut to `max` characters with an ellipsis. */
export function shorten(text: string, max: number): string {
  const line = visible(text, true);
  return line.length <= max ? line : `${line.slice(0, Math.max(0, max - 1))}…`;
}

/**
 * A path whose every char is one byte (0–255), so that names that are not UTF-8 survive. The agent uses it wherever
 * a path meets git, a tar stream or the file system; everyone else sees the text of {@link pathText}.
 */
export type BytePath = string & { readonly __bytePath: unique symbol };

/** The text of a byte path: UTF-8 where it is valid, `\xNN` for each byte that is not, and a backslash doubled. */
export function pathText(path: BytePath): string {
  const bytes = Uint8Array.from(path, (c) => c.charCodeAt(0));
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes).replaceAll('\\', '\\\\');
  } catch {
    return Array.from(bytes, (b) =>
      b === 0x5c ? '\\\\' : b < 0x80 ? String.fromCharCode(b) : `\\x${b.toString(16)}`,
    ).join('');
  }
}

/** The inverse of {@link pathText}. */
export function parsePathText(text: string): BytePath {
  const out: string[] = [];
  for (const m of text.matchAll(/\\\\|\\x([0-9a-f]{2})|[^\\]+|\\/gu)) {
    if (m[0] === '\\\\') out.push('\\');
    else if (m[1] !== undefined) out.push(String.fromCharCode(parseInt(m[1], 16)));
    else out.push(String.fromCharCode(...new TextEncoder().encode(m[0])));
  }
  return out.join('') as BytePath;
}
