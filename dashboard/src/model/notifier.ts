/** Tells listeners that something has changed: once a frame, and once a second while nobody sees the page. */
export class Notifier {
  private readonly listeners = new Set<() => void>();
  private isDue = false;

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(): void {
    if (this.isDue) return;
    this.isDue = true;
    const run = () => {
      this.isDue = false;
      for (const listener of [...this.listeners]) listener();
    };
    if (document.hidden) setTimeout(run, 1000);
    else requestAnimationFrame(run);
  }
}
