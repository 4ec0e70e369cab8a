/** The server's clock: ages are told by it, for the browser's may be an hour off. */

let aheadMs = 0; // by how much the server's clock is ahead of ours
const EXACT_MS = 2000; // the header has whole seconds; what is closer counts as equal

/** Takes the time of an answer's `Date` header, between the request and the answer (ms). */
export function readClock(date: string | null, askedAt: number, answeredAt: number): void {
  const server = Date.parse(date ?? "");
  if (Number.isNaN(server) || answeredAt - askedAt > 10_000) return;
  const measured = server + 500 - (askedAt + answeredAt) / 2;
  aheadMs = Math.abs(measured) < EXACT_MS ? 0 : measured;
}

/** Milliseconds since the epoch by the server's clock; by the browser's own until an answer has told. */
export const serverNow = () => Date.now() + aheadMs;
