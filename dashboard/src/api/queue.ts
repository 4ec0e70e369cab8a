/** Work of which only so many parts run at a time; what is asked last is done first, for it is what is looked at. */
export class BoundedQueue {
  private running = 0;
  private readonly waiting: { work: () => Promise<void>; isWanted: () => boolean }[] = [];

  constructor(
    private readonly parallel: number,
    private readonly longest = 200,
  ) {}

  /** `isWanted` is asked again when its turn comes. Rejections are the work's own to handle. */
  add(work: () => Promise<void>, isWanted: () => boolean): void {
    this.waiting.push({ work, isWanted });
    if (this.waiting.length > this.longest) this.waiting.shift();
    this.next();
  }

  private next(): void {
    while (this.running < this.parallel) {
      const one = this.waiting.pop();
      if (!one) return;
      if (!one.isWanted()) continue;
      this.running++;
      void one
        .work()
        .catch(() => undefined)
        .finally(() => {
          this.running--;
          this.next();
        });
    }
  }
}
