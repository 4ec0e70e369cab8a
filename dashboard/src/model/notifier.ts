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
    let frame: number | undefined;
    const run = () => {
      clearTimeout(late);
      if (frame !== undefined) cancelAnimationFrame(frame);
      this.isDue = false;
      for (const listener of [...this.listeners]) listener();
    };
    const late = setTimeout(run, 1000); // when the page is hidden before the frame, there is none
    if (!document.hidden) frame = requestAnimationFrame(run);
  }
}
