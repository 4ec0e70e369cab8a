/** Jobs and their attempts over time, as bars. */

import { hasEnded, type Job } from "./job";

const HOUR = 3600_000;
export const SPANS = { "6h": 6 * HOUR, "24h": 24 * HOUR, "7d": 168 * HOUR, "30d": 720 * HOUR } as const;
export const SPAN_NAMES: Record<Span, string> = {
  "6h": "6 hours",
  "24h": "24 hours",
  "7d": "7 days",
  "30d": "30 days",
};
export type Span = keyof typeof SPANS;
export const isSpan = (text: string): text is Span => Object.hasOwn(SPANS, text);

/** Milliseconds since the epoch. */
export interface Window {
  readonly from: number;
  readonly to: number;
}

/** Up to `until`, which moves on in steps that can be seen. */
export function windowOf(span: Span, until: number): Window {
  const step = SPANS[span] / 720;
  const to = Math.ceil(until / step) * step;
  return { from: to - SPANS[span], to };
}

/** Of one attempt, as the history has them; NaN where it is not known. */
export interface AttemptTimes {
  readonly start: number;
  readonly last: number;
}

export interface Bar extends Window {
  readonly kind: "waits" | "earlier" | "runs" | "silent" | "stalled" | "failed" | "succeeded";
}

const SILENT_MS = 120_000;

/** `until`: as of when the job is known; what goes on is not drawn beyond. */
export function barsOf(job: Job, attempts: readonly AttemptTimes[], until: number): Bar[] {
  const isOver = hasEnded(job.phase);
  const end = isOver ? orElse(job.ended, job.updated, until) : until;
  const known = attempts.filter(({ start }) => !Number.isNaN(start));
  // Attempts of which nothing is known may have followed the last that is; a document tells when that of now began.
  const lacksAttempts = known.length < (job.attempts ?? 1);
  const latest = known.at(-1);
  const isLater = latest
    ? lacksAttempts && job.started > orElse(latest.last, latest.start)
    : !Number.isNaN(job.started);
  const starts = isLater ? [...known, { start: job.started, last: NaN }] : known;
  const isSilent =
    job.flags.some((flag) => flag === "Not fresh" || flag === "Not reporting") ||
    (latest && !isLater && lacksAttempts && end - job.updated > SILENT_MS);
  const bars: Bar[] = [];
  const add = (kind: Bar["kind"], from: number, to: number) => {
    if (to > from) bars.push({ kind, from, to });
  };
  const first = Math.min(starts[0]?.start ?? end, end);
  const [started, ran] = [(job.attempts ?? 1) > 1 ? NaN : job.started, job.created + (job.waitedS ?? NaN) * 1000];
  const began = starts.length === 0 ? first : Math.min(first, orElse(started, first), orElse(ran, first));
  add("waits", job.created, began);
  add("silent", began, first); // it ran, and had reported nothing yet
  starts.forEach(({ start, last }, at) => {
    const next = starts[at + 1]?.start;
    if (next !== undefined) {
      const stopped = Math.min(orElse(last, next), next);
      add("earlier", start, stopped);
      return add("silent", stopped, next);
    }
    if (isOver) return add(job.phase === "Failed" ? "failed" : "succeeded", start, Math.max(end, start + 1000));
    if (job.phase !== "Running") {
      const stopped = Math.min(orElse(last, job.updated, start), end);
      add("earlier", start, stopped);
      return add("waits", stopped, end);
    }
    const isStalled = job.flags.includes("Stalled");
    const moved = isStalled || isSilent ? Math.max(start, Math.min(orElse(job.updated, start), end)) : end;
    add("runs", start, moved);
    add(isStalled ? "stalled" : "silent", moved, end);
  });
  return bars;
}

const orElse = (...values: number[]) => values.find((value) => !Number.isNaN(value)) ?? NaN;

/** The part of a bar that is in the window, in percent of it; undefined when there is none. */
export function placed({ from, to }: Window, within: Window): { x: number; width: number } | undefined {
  const [left, right] = [Math.max(from, within.from), Math.min(to, within.to)];
  if (!(right > left)) return undefined;
  const all = within.to - within.from;
  return { x: (100 * (left - within.from)) / all, width: Math.max(0.3, (100 * (right - left)) / all) };
}

/** Of what is seen, in percent: places that an axis names. */
export const TICKS = [0, 25, 50, 75, 100];

export const tickAt = ({ from, to }: Window, percent: number): number => from + (percent * (to - from)) / 100;
