/** The order of the fleet. The usual one shows first what somebody should look at, and changes seldom. */

import type { Today } from "./filter";
import { hasFailedToday, isWasting, type Flag, type Job } from "./job";

export const SORTS = {
  attention: "Needs attention",
  name: "Name",
  state: "State",
  progress: "Progress",
  metric: "Metric",
  end: "Ends",
  seen: "Last report",
  accelerators: "Accelerators",
  goodput: "Goodput",
  checkpoint: "Checkpoint",
  age: "Age",
  kind: "Kind",
} as const;
export type SortKey = keyof typeof SORTS;

/** Whether the usual direction is from the most to the least. */
export const beginsWithMost = (key: SortKey) => key === "progress" || key === "accelerators";

export const isSortKey = (text: string): text is SortKey => Object.hasOwn(SORTS, text);

type Order = (one: Job, other: Job, today: Today) => number;

const PHASE_ORDER = ["Running", "Initializing", "Pending", "Suspended", "Unknown", "Failed", "Succeeded"];

const URGENCY: Record<Exclude<Flag, "Not fresh">, number> = {
  Stalled: 1,
  Diverged: 2,
  "No progress": 3,
  Straggling: 5,
  "Should stop": 6,
  Plateaued: 7,
  "At risk": 8,
  "Low goodput": 9,
  "Accelerators idle": 10,
  "Not reporting": 11,
};

/** 0 is the most urgent. Of the clock it depends on the day alone, so that rows keep their places. */
export function urgency(job: Job, { now, zone }: Today): number {
  if (isWasting(job)) return 0;
  if (hasFailedToday(job, now, zone)) return 4;
  const [worst] = job.flags;
  // A report that is late is usual of an evaluation or a checkpoint: such jobs stay among those that run.
  if (worst && worst !== "Not fresh" && job.phase !== "Succeeded" && job.phase !== "Failed") {
    return URGENCY[worst];
  }
  return 12 + PHASE_ORDER.indexOf(job.phase);
}

const byName = (one: Job, other: Job) =>
  compare(one.namespace, other.namespace) || compare(one.sorted, other.sorted) || compare(one.plural, other.plural);
const newestFirst = (one: Job, other: Job) => missingLast(-one.created, -other.created);

const ORDERS: Record<SortKey, Order> = {
  attention: (one, other, today) =>
    urgency(one, today) - urgency(other, today) || other.accelerators - one.accelerators || newestFirst(one, other),
  name: (one, other) => compare(one.sorted, other.sorted),
  state: (one, other) => PHASE_ORDER.indexOf(one.phase) - PHASE_ORDER.indexOf(other.phase),
  progress: (one, other) => missingLast(-(one.percent ?? NaN), -(other.percent ?? NaN)),
  metric: (one, other) => missingLast(metric(one), metric(other)),
  end: (one, other) => missingLast(one.remainingS ?? NaN, other.remainingS ?? NaN),
  seen: (one, other) => missingLast(-one.updated, -other.updated),
  accelerators: (one, other) => other.accelerators - one.accelerators || other.wastedS - one.wastedS,
  goodput: (one, other) => missingLast(one.goodput ?? NaN, other.goodput ?? NaN),
  checkpoint: (one, other) => missingLast(one.checkpoint?.at ?? NaN, other.checkpoint?.at ?? NaN),
  age: newestFirst,
  kind: (one, other) => compare(one.kind, other.kind),
};

/** A new array. What is not known comes last, whichever the direction. */
export function sorted(jobs: readonly Job[], key: SortKey, descending: boolean, today: Today): Job[] {
  const order = ORDERS[key];
  const compared = (one: Job, other: Job) => order(one, other, today);
  const turned = descending ? (one: Job, other: Job) => turn(key, compared(one, other), one, other) : compared;
  return [...jobs].sort((one, other) => turned(one, other) || byName(one, other));
}

function turn(key: SortKey, result: number, one: Job, other: Job): number {
  const isMissing = (job: Job) => Number.isNaN(VALUES[key]?.(job) ?? 0);
  return isMissing(one) !== isMissing(other) ? result : -result;
}

const VALUES: Partial<Record<SortKey, (job: Job) => number>> = {
  progress: (job) => job.percent ?? NaN,
  metric: (job) => metric(job),
  end: (job) => job.remainingS ?? NaN,
  seen: (job) => job.updated,
  goodput: (job) => job.goodput ?? NaN,
  checkpoint: (job) => job.checkpoint?.at ?? NaN,
  age: (job) => job.created,
};

const metric = (job: Job) => (job.metric ? Number(job.metric.value) : NaN);

function missingLast(one: number, other: number): number {
  if (Number.isNaN(one)) return Number.isNaN(other) ? 0 : 1;
  if (Number.isNaN(other)) return -1;
  return one - other || 0; // the difference of equal infinities is no number
}

const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
