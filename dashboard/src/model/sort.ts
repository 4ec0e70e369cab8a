/** The order of the fleet. The usual one shows first what somebody should look at, and changes seldom. */

import { isWasting, type Job } from "./job";

export const SORTS = {
  attention: "Needs attention",
  name: "Name",
  state: "State",
  progress: "Progress",
  metric: "Metric",
  end: "Ends",
  seen: "Last report",
  accelerators: "Accelerators",
  age: "Age",
} as const;
export type SortKey = keyof typeof SORTS;

export const isSortKey = (text: string): text is SortKey => Object.hasOwn(SORTS, text);

type Order = (one: Job, other: Job) => number;

const PHASE_ORDER = ["Running", "Initializing", "Pending", "Suspended", "Unknown", "Failed", "Succeeded"];

/** 0 is the most urgent. Does not depend on the clock, so that rows keep their places. */
export function urgency(job: Job): number {
  if (isWasting(job)) return 0;
  const [worst] = job.flags;
  if (worst && job.phase !== "Succeeded" && job.phase !== "Failed") {
    return { Stalled: 1, Diverged: 2, Straggling: 3, Plateaued: 4, "Not reporting": 6, "Not fresh": 5 }[worst];
  }
  return 7 + PHASE_ORDER.indexOf(job.phase);
}

const byName: Order = (one, other) =>
  compare(one.namespace, other.namespace) || compare(one.name, other.name) || compare(one.plural, other.plural);
const newestFirst: Order = (one, other) => missingLast(-one.created, -other.created);

const ORDERS: Record<SortKey, Order> = {
  attention: (one, other) =>
    urgency(one) - urgency(other) || other.accelerators - one.accelerators || newestFirst(one, other),
  name: (one, other) => compare(one.name, other.name),
  state: (one, other) => PHASE_ORDER.indexOf(one.phase) - PHASE_ORDER.indexOf(other.phase),
  progress: (one, other) => missingLast(-(one.percent ?? NaN), -(other.percent ?? NaN)),
  metric: (one, other) => missingLast(metric(one), metric(other)),
  end: (one, other) => missingLast(one.remainingS ?? NaN, other.remainingS ?? NaN),
  seen: (one, other) => missingLast(-one.updated, -other.updated),
  accelerators: (one, other) => other.accelerators - one.accelerators || other.wastedS - one.wastedS,
  age: newestFirst,
};

/** A new array. What is not known comes last, whichever the direction. */
export function sorted(jobs: readonly Job[], key: SortKey, descending: boolean): Job[] {
  const order = ORDERS[key];
  const turned: Order = descending ? (one, other) => turn(key, order(one, other), one, other) : order;
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
  age: (job) => job.created,
};

const metric = (job: Job) => (job.metric ? Number(job.metric.value) : NaN);

function missingLast(one: number, other: number): number {
  if (Number.isNaN(one)) return Number.isNaN(other) ? 0 : 1;
  if (Number.isNaN(other)) return -1;
  return one - other || 0; // the difference of equal infinities is no number
}

const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
