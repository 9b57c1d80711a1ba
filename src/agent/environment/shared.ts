/** Work that many callers ask for at once, done once for those who came before it began. */

/**
 * Callers get the result of a run of `task` that began after they asked. While one runs, all who ask share the next.
 */
export class Shared<T> {
  private running: Promise<T> | undefined;
  private next: Promise<T> | undefined;

  constructor(private readonly task: () => Promise<T>) {}

  get(): Promise<T> {
    if (!this.running) {
      const running = this.task().finally(() => (this.running = undefined));
      this.running = running;
      return running;
    }
    this.next ??= this.running
      .then(
        () => undefined,
        () => undefined,
      )
      .then(() => {
        this.next = undefined;
        return this.get();
      });
    return this.next;
  }
}
