/** Tells listeners that something has changed: in a frame, at most every `ms`; once a second while nobody sees the page.
 * All are told together, so that no part of the page is ahead of another. */
export class Notifier {
  private readonly listeners = new Set<() => void>();
  private isDue = false;
  private toldAt = -Infinity;
  private stop: () => void = () => undefined;

  constructor(private readonly ms = 0) {}

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** `atOnce`: what has changed says whether the rest is current. */
  tell(atOnce = false): void {
    if (this.isDue && !atOnce) return;
    this.stop();
    this.isDue = true;
    const wait = atOnce ? 0 : this.toldAt + this.ms - performance.now();
    const late = setTimeout(() => this.run(), wait > 0 ? wait : 1000); // a hidden page has no frames
    const frame = wait > 0 || document.hidden ? undefined : requestAnimationFrame(() => this.run());
    this.stop = () => {
      clearTimeout(late);
      if (frame !== undefined) cancelAnimationFrame(frame);
    };
  }

  private run(): void {
    this.stop();
    this.isDue = false;
    this.toldAt = performance.now();
    for (const listener of [...this.listeners]) listener();
  }
}
