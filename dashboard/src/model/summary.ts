/** The figures above the list. */

import { hasFailedToday, holdsAccelerators, isOfToday, isWasting, type Job } from "./job";

export interface Summary {
  readonly all: number;
  readonly running: number;
  readonly waiting: number;
  readonly stalled: number;
  readonly diverged: number;
  readonly failedToday: number;
  /** Accelerators of jobs that run, and of those of them that do not advance. */
  readonly held: number;
  readonly idle: number;
  /** Accelerator-seconds that were held without use, of every job that is still there. */
  readonly wastedS: number;
}

export function summarise(jobs: Iterable<Job>, now: number, zone: string | undefined): Summary {
  const sum = { all: 0, running: 0, waiting: 0, stalled: 0, diverged: 0, failedToday: 0, held: 0, idle: 0, wastedS: 0 };
  for (const job of jobs) {
    sum.all++;
    if (job.phase === "Running") sum.running++;
    if (job.phase === "Pending" || job.phase === "Initializing" || job.phase === "Suspended") sum.waiting++;
    if (job.flags.includes("Stalled")) sum.stalled++;
    if (job.flags.includes("Diverged") && isOfToday(job, now, zone)) sum.diverged++;
    if (hasFailedToday(job, now, zone)) sum.failedToday++;
    if (holdsAccelerators(job)) sum.held += job.accelerators;
    if (isWasting(job)) sum.idle += job.accelerators;
    sum.wastedS += job.wastedS;
  }
  return sum;
}
