/**
 * Docker over ssh, as the docker command does it: the machine's own `ssh` runs `docker system dial-stdio` there. So the user's ssh
 * configuration, keys and known hosts count, and an unknown host is refused.
 */
import { spawn } from 'node:child_process';
import http from 'node:http';
import { Duplex } from 'node:stream';

interface Target {
  user: string;
  host: string;
  port: number | undefined;
}

/** A connection whose two directions are a child's stdin and stdout. */
class ChildSocket extends Duplex {
  private readonly child;
  private complaint = '';

  constructor(target: Target) {
    super({ allowHalfOpen: true });
    const args = ['-T', '-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10'];
    if (target.user !== '') args.push('-l', target.user);
    if (target.port !== undefined) args.push('-p', String(target.port));
    this.child = spawn('ssh', [...args, '--', target.host, 'docker', 'system', 'dial-stdio'], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.child.on('error', (error) => this.destroy(error));
    this.child.stdin.on('error', (error) => this.destroy(error));
    this.child.stdout.on('data', (data: Buffer) => {
      if (!this.push(data)) this.child.stdout.pause();
    });
    this.child.stderr.on('data', (data: Buffer) => {
      this.complaint = (this.complaint + data.toString()).slice(-500);
    });
    this.child.on('close', (code) => {
      if (code !== 0 && !this.destroyed) {
        const error: NodeJS.ErrnoException = new Error(
          `ssh ended with ${code ?? 'a signal'}: ${this.complaint.trim()}`,
        );
        error.code = 'ECONNREFUSED';
        this.destroy(error);
      } else this.push(null);
    });
  }

  override _read(): void {
    this.child.stdout.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    if (this.child.stdin.write(chunk)) done();
    else this.child.stdin.once('drain', done);
  }

  override _final(done: () => void): void {
    this.child.stdin.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.child.kill();
    done(error);
  }

  // What node's http asks of a socket.
  setKeepAlive(): this {
    return this;
  }
  setNoDelay(): this {
    return this;
  }
  setTimeout(): this {
    return this;
  }
  ref(): this {
    this.child.ref();
    return this;
  }
  unref(): this {
    this.child.unref();
    return this;
  }
}

export class SshAgent extends http.Agent {
  constructor(private readonly target: Target) {
    super({ keepAlive: true });
  }

  override createConnection(): Duplex {
    return new ChildSocket(this.target);
  }
}
