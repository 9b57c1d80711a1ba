/** Progress on standard error: a block of lines drawn over in place, or lines appended where that can't be done. */
import type { Host, Surface } from './host';
import { surface } from './host';
import { paint, paintLine, type Line } from './render/text';

/** How often the block is drawn again, ms: smooth enough for a turning symbol. */
const interval = 100;

export class LiveBlock {
  private drawn = 0;
  private tick = 0;
  private timer: NodeJS.Timeout | undefined;
  private content: ((tick: number, s: Surface) => readonly Line[]) | undefined;
  private readonly restore: { dispose(): void };

  constructor(private readonly host: Host) {
    // The cursor is hidden while the block moves, and shown again whichever way the process ends.
    this.restore = host.atExit(() => host.stderr.write('\x1b[?25h'));
    host.stderr.write('\x1b[?25l');
  }

  /** What is drawn from now on, until {@link clear}. */
  show(content: (tick: number, s: Surface) => readonly Line[]): void {
    this.content = content;
    this.draw();
    this.timer ??= setInterval(() => this.draw(), interval);
  }

  /** Takes the block away. */
  clear(): void {
    clearInterval(this.timer);
    this.timer = undefined;
    this.host.stderr.write(`${this.up()}\x1b[J\x1b[?25h`);
    this.drawn = 0;
    this.restore.dispose();
  }

  private up(): string {
    return this.drawn === 0 ? '\r' : `\r\x1b[${this.drawn}A`;
  }

  private draw(): void {
    if (!this.content) return;
    const s = surface(this.host.stderr, this.host.env);
    // One column is left free: a full line would make some terminals begin a new one.
    const lines = this.content(this.tick++, { ...s, columns: s.columns - 1 });
    this.host.stderr.write(this.up() + lines.map((l) => `${paintLine(l, s.color)}\x1b[K\n`).join('') + '\x1b[J');
    this.drawn = lines.length;
  }
}

/** Writes lines below each other on standard error. */
export function append(host: Host, lines: readonly Line[]): void {
  host.stderr.write(paint(lines, surface(host.stderr, host.env).color));
}
