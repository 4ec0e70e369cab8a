/** A job over time: how long it waited, its attempts, and how long it has stood still. */

import { duration } from "../model/format";
import type { Job } from "../model/job";
import { barsOf, placed, type AttemptTimes, type Bar, type Window } from "../model/timeline";

interface Props {
  job: Job;
  attempts: readonly AttemptTimes[];
  window: Window;
  until: number;
}

const NAMES: Record<Bar["kind"], string> = {
  waits: "waited",
  earlier: "an attempt of",
  runs: "runs for",
  silent: "no report for",
  stalled: "stalled for",
  failed: "ran, and failed after",
  succeeded: "ran, and succeeded after",
};

const isThin = (kind: string) => kind === "waits" || kind === "silent";

export function TimelineBars({ job, attempts, window, until }: Props) {
  const bars = barsOf(job, attempts, until);
  const told = bars.map(({ kind, from, to }) => `${NAMES[kind]} ${duration((to - from) / 1000)}`).join(", ");
  return (
    <svg class="bars" role="img" aria-label={told || "not begun"} width="100%" height="16">
      <title>{told}</title>
      {bars.map((bar) => {
        const at = placed(bar, window);
        return (
          at && (
            <rect
              key={`${bar.kind} ${bar.from}`}
              class={bar.kind}
              x={`${at.x}%`}
              width={`${at.width}%`}
              y={isThin(bar.kind) ? 6 : 2}
              height={isThin(bar.kind) ? 4 : 12}
              rx="2"
            />
          )
        );
      })}
    </svg>
  );
}

const KEY: Record<Bar["kind"], string> = {
  waits: "waits",
  earlier: "earlier attempt",
  runs: "runs",
  silent: "no report",
  stalled: "stalled",
  failed: "failed",
  succeeded: "succeeded",
};

export function TimelineKey() {
  return (
    <ul class="timeline-key" aria-label="Colours of the bars">
      {Object.entries(KEY).map(([kind, name]) => (
        <li key={kind}>
          <svg class="bars" width="14" height="10" aria-hidden="true">
            <rect class={kind} width="14" {...(isThin(kind) ? { y: 3, height: 4 } : { height: 10 })} rx="2" />
          </svg>
          {name}
        </li>
      ))}
    </ul>
  );
}
