/**
 * Takes the stream of an execution apart: Docker's frames into stdout and stderr, and off the front the line by which our wrapper tells
 * its process id. No frame is held whole: whoever reads slowly holds the command back, and memory stays bounded.
 */
import { Readable, type Duplex } from 'node:stream';

/** A frame's header: channel, three zeros, length. */
const headerSize = 8;
/** A process id and the end of its line. */
const maxPidLine = 24;

export class Demux {
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** The process id inside; undefined when the command ended or spoke without telling it. */
  readonly pid: Promise<number | undefined>;
  /** When everything has come; rejects when the stream breaks or is not as it should be. */
  readonly ended: Promise<void>;

  private readonly full = new Set<Readable>();
  private header = Buffer.alloc(0);
  private left = 0;
  private channel: 'stdout' | 'stderr' | 'none' = 'stdout';
  private pidLine: Buffer | undefined = Buffer.alloc(0);
  private tellPid: (pid: number | undefined) => void = () => undefined;

  constructor(
    private readonly socket: Duplex,
    private readonly framed: boolean,
    /** False when no wrapper runs in front and the first line is the command's own. */
    tellsPid = true,
  ) {
    if (!tellsPid) this.pidLine = undefined;
    this.stdout = this.makeStream();
    this.stderr = this.makeStream();
    this.pid = new Promise((resolve) => (this.tellPid = resolve));
    this.ended = new Promise((resolve, reject) => {
      const stop = (error?: Error): void => {
        this.flushPidLine();
        this.tellPid(undefined);
        if (error) reject(error);
        else resolve();
      };
      socket.on('data', (data: Buffer) => {
        try {
          if (this.framed) this.frames(data);
          else this.deliver('stdout', data);
        } catch (error) {
          socket.destroy(error as Error);
        }
      });
      socket.once('end', () => {
        const cut = this.framed && (this.left > 0 || this.header.length > 0);
        stop(cut ? new Error('socket hang up in the middle of a frame') : undefined);
      });
      socket.once('error', stop);
      socket.once('close', () => stop(new Error('socket hang up')));
    });
    this.ended.catch(() => undefined);
  }

  /** Ends both streams, with an error where the end isn't the command's own. */
  finish(error?: Error): void {
    for (const stream of [this.stdout, this.stderr]) {
      if (stream.destroyed) continue;
      if (error) {
        // Nobody may be listening; whoever awaits the exit code gets the error in any case.
        stream.on('error', () => undefined);
        stream.destroy(error);
      } else stream.push(null);
    }
  }

  private makeStream(): Readable {
    const stream: Readable = new Readable({
      highWaterMark: 64 * 1024,
      read: () => this.wanted(stream),
      destroy: (error, done) => {
        this.wanted(stream);
        done(error);
      },
    });
    return stream;
  }

  private wanted(stream: Readable): void {
    if (this.full.delete(stream) && this.full.size === 0) this.socket.resume();
  }

  private frames(data: Buffer): void {
    let rest = data;
    while (rest.length > 0) {
      if (this.left === 0) {
        const need = headerSize - this.header.length;
        this.header = Buffer.concat([this.header, rest.subarray(0, need)]);
        rest = rest.subarray(need);
        if (this.header.length < headerSize) return;
        const kind = this.header[0];
        if (kind === undefined || kind > 3) throw new Error('the engine sent a malformed frame');
        this.channel = kind === 2 || kind === 3 ? 'stderr' : kind === 1 ? 'stdout' : 'none';
        this.left = this.header.readUInt32BE(4);
        this.header = Buffer.alloc(0);
        continue;
      }
      const part = rest.subarray(0, this.left);
      this.left -= part.length;
      rest = rest.subarray(part.length);
      if (this.channel !== 'none') this.deliver(this.channel, part);
    }
  }

  private deliver(channel: 'stdout' | 'stderr', data: Buffer): void {
    if (channel === 'stdout' && this.pidLine) {
      this.pidLine = Buffer.concat([this.pidLine, data]);
      const end = this.pidLine.indexOf(0x0a);
      if (end < 0 && this.pidLine.length < maxPidLine) return;
      const m = /^([1-9]\d{0,9})\r?$/.exec(this.pidLine.toString('latin1', 0, Math.max(0, end)));
      const rest = m ? this.pidLine.subarray(end + 1) : this.pidLine;
      this.pidLine = undefined;
      this.tellPid(m ? Number(m[1]) : undefined);
      this.put(this.stdout, rest);
      return;
    }
    this.put(channel === 'stdout' ? this.stdout : this.stderr, data);
  }

  private flushPidLine(): void {
    const line = this.pidLine;
    this.pidLine = undefined;
    if (line) this.put(this.stdout, line);
  }

  private put(stream: Readable, data: Buffer): void {
    if (data.length === 0 || stream.destroyed) return;
    if (!stream.push(data)) {
      this.full.add(stream);
      this.socket.pause();
    }
  }
}

/** Resolves when what was put into a stream has been taken out, or when nobody ever began to read it. */
export async function taken(stream: Readable): Promise<void> {
  const untouched = stream.readableFlowing === null && stream.listenerCount('readable') === 0;
  if (untouched || stream.destroyed || stream.readableEnded || stream.readableLength === 0) return;
  await new Promise<void>((resolve) => {
    stream.once('end', resolve);
    stream.once('close', resolve);
    stream.once('error', () => resolve());
  });
}
