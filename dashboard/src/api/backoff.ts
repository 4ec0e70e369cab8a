/** How long to wait before the next try: doubled each time up to a cap, and spread, so that pages do not come at once. */
export class Backoff {
  private failures = 0;

  constructor(
    private readonly firstMs = 500,
    private readonly capMs = 15_000,
    private readonly random: () => number = Math.random,
  ) {}

  reset(): void {
    this.failures = 0;
  }

  nextMs(): number {
    const full = Math.min(this.capMs, this.firstMs * 2 ** Math.min(this.failures++, 30));
    return full * (0.5 + this.random() / 2);
  }
}

/** Ends early when the signal aborts; never throws. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
  });
}
