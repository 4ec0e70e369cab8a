/** Jobs in groups, with what each group holds and wastes. */

import { holdsAccelerators, isStuck, isWasting, type Job } from "./job";
import { LABEL, labelOf } from "./labels";

export const GROUPINGS = {
  namespace: "Namespace",
  queue: "Queue",
  node: "Node of rank 0",
  owner: "Owner",
  kind: "Kind",
} as const;

export type Grouping = keyof typeof GROUPINGS | `label:${string}`;

export const isGrouping = (text: string): text is Grouping =>
  Object.hasOwn(GROUPINGS, text) || (text.startsWith(LABEL) && text.length > LABEL.length);

export const byLabel = (label: string): Grouping => `label:${label}`;

export function groupingName(grouping: Grouping): string {
  return Object.hasOwn(GROUPINGS, grouping)
    ? GROUPINGS[grouping as keyof typeof GROUPINGS]
    : grouping.slice(LABEL.length);
}

export interface Group {
  readonly key: string;
  /** What its jobs have in common; "" for those that have none. */
  readonly name: string;
  readonly jobs: Job[];
  running: number;
  waiting: number;
  stuck: number;
  failed: number;
  /** Accelerators of jobs that run, and of those of them that do not advance. */
  held: number;
  idle: number;
  /** Accelerator-seconds. */
  wastedS: number;
}

export const isGroup = (row: Job | Group): row is Group => "jobs" in row;

function nameOf(job: Job, by: Grouping): string {
  if (by === "namespace" || by === "queue" || by === "node" || by === "owner" || by === "kind") return job[by];
  return labelOf(job, by.slice(LABEL.length));
}

/** In the order of what they hold; within a group jobs keep their order. */
export function grouped(jobs: readonly Job[], by: Grouping): Group[] {
  const groups = new Map<string, Group>();
  for (const job of jobs) {
    const name = nameOf(job, by);
    let group = groups.get(name);
    if (!group) {
      const nothing = { running: 0, waiting: 0, stuck: 0, failed: 0, held: 0, idle: 0, wastedS: 0 };
      group = { key: `group ${by} ${name}`, name, jobs: [], ...nothing };
      groups.set(name, group);
    }
    group.jobs.push(job);
    if (job.phase === "Running") group.running++;
    if (job.phase === "Pending" || job.phase === "Initializing" || job.phase === "Suspended") group.waiting++;
    if (job.phase === "Failed") group.failed++;
    if (isStuck(job)) group.stuck++;
    if (holdsAccelerators(job)) group.held += job.accelerators;
    if (isWasting(job)) group.idle += job.accelerators;
    group.wastedS += job.wastedS;
  }
  return [...groups.values()].sort(
    (one, other) =>
      other.held - one.held ||
      other.running - one.running ||
      other.jobs.length - one.jobs.length ||
      (one.name < other.name ? -1 : 1),
  );
}

/** Heads of groups, and below those that are open their jobs. */
export function rowsOf(groups: readonly Group[], open: readonly string[]): (Job | Group)[] {
  const isOpen = new Set(open);
  return groups.flatMap((group) => (isOpen.has(group.name) ? [group, ...group.jobs] : [group]));
}
