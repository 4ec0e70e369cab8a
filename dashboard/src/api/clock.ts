/** The server's clock: ages are told by it, for the browser's may be an hour off. */

let aheadMs: number | undefined; // by how much the server's clock is ahead of ours; undefined until an answer has told
const EXACT_MS = 2000; // the header has whole seconds; what is closer counts as equal
const listeners = new Set<() => void>();
// Of our clock beside one that nobody sets, which may stand still while the machine sleeps.
const offset = () => Date.now() - performance.now();
let lastOffset = offset();

/** Our clock does not go back by itself: somebody has set it, and the server's is as far ahead of it as before. */
function noticeSetBack(): void {
  const now = offset();
  if (now < lastOffset - EXACT_MS) aheadMs = (aheadMs ?? 0) + lastOffset - now;
  lastOffset = now;
}

/** `listener` is called when the clock is another than it was. Returns how to end it. */
export function onClockChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function set(measuredMs: number | undefined): void {
  const isOther = (measuredMs ?? 0) !== (aheadMs ?? 0);
  aheadMs = measuredMs;
  if (isOther) for (const listener of [...listeners]) listener();
}

/** Takes the time of an answer's `Date` header, between the request and the answer (ms). */
export function readClock(date: string | null, askedAt: number, answeredAt: number): void {
  const server = Date.parse(date ?? "");
  if (Number.isNaN(server) || Math.abs(answeredAt - askedAt) > 10_000) return;
  noticeSetBack();
  const measured = server + 500 - (askedAt + answeredAt) / 2;
  const known = Math.abs(measured) < EXACT_MS ? 0 : (aheadMs ?? 0);
  set(Math.abs(measured - known) < EXACT_MS ? known : measured);
}

/** By how much the server is ahead of this machine, for the other tabs of this browser; undefined: not measured yet. */
export function clockAheadMs(): number | undefined {
  noticeSetBack();
  return aheadMs;
}

/** What the worker has measured: a list makes no request of its own in the tab. */
export function adoptClock(measuredMs: number | undefined): void {
  noticeSetBack();
  set(measuredMs ?? aheadMs);
}

/** Milliseconds since the epoch by the server's clock; by the browser's own until an answer has told. */
export const serverNow = () => Date.now() + (clockAheadMs() ?? 0);

const ASLEEP_MS = 20_000; // a beat is due each few seconds
let beatAt = Date.now();

/** To be called again and again. */
export const beat = () => void (beatAt = Date.now());

/** Whether the machine has slept since the last beat, or somebody has set the clock: connections may be dead. */
export function hasSlept(): boolean {
  const since = Date.now() - beatAt;
  return since > ASLEEP_MS || since < 0;
}
