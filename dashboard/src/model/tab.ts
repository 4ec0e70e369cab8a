/** What a tab says where only its title and its icon are seen, and what it notifies of. */

import type { ProgressStatus } from "../api/types";
import { count } from "./format";
import { flagsOf, hasFailedToday, isOfToday, isStuck, isStuckBy, type Job } from "./job";
import type { Filter, Today } from "./filter";
import { visible } from "./text";

/** `old`: what is known is not live, so the title tells no state. */
export type Mark = "plain" | "good" | "bad" | "old";

export interface TabState {
  readonly title: string;
  readonly mark: Mark;
}

export function jobTab(name: string, status: ProgressStatus | undefined, isLive: boolean): TabState {
  const shown = visible(name);
  if (!status || !isLive) return { title: `${shown} · training jobs`, mark: status ? "old" : "plain" };
  const { phase, progressPercentage: percent } = status;
  const [flag] = flagsOf(status);
  const isBad = phase === "Failed" || isStuckBy(flag);
  const state = [
    phase === "Running" ? (flag ?? "") : phase,
    percent === undefined || phase === "Succeeded" ? "" : `${percent}%`,
  ];
  const told = state.filter(Boolean).join(" ");
  return {
    title: `${told ? `${told} · ` : ""}${shown}`,
    mark: isBad ? "bad" : phase === "Succeeded" ? "good" : "plain",
  };
}

const needsLook = (job: Job, { now, zone }: Today) =>
  hasFailedToday(job, now, zone) || (isStuck(job) && isOfToday(job, now, zone));

export function listTab(jobs: Iterable<Job>, today: Today, isLive: boolean): TabState {
  if (!isLive) return { title: "Training jobs", mark: "old" };
  let bad = 0;
  for (const job of jobs) if (needsLook(job, today)) bad++;
  return bad > 0 ? { title: `(${count(bad)}) Training jobs`, mark: "bad" } : { title: "Training jobs", mark: "plain" };
}

/** What of a job is worth a notification; "" is nothing. */
export type Outcome =
  "has failed" | "has succeeded" | "has diverged" | "has stalled" | "comes no further" | "should be stopped" | "";

export function outcomeOf(job: Pick<Job, "phase" | "flags">): Outcome {
  if (job.phase === "Failed") return "has failed";
  if (job.phase === "Succeeded") return "has succeeded";
  if (job.flags.includes("Diverged")) return "has diverged";
  if (job.flags.includes("Stalled")) return "has stalled";
  if (job.flags.includes("No progress")) return "comes no further";
  return job.flags.includes("Should stop") ? "should be stopped" : "";
}

export interface NotifiedJob {
  readonly job: Job;
  readonly outcome: Outcome;
}

/** Remembers how each job of a list was, and tells which have got worse since. */
export class Outcomes {
  private known: Map<string, Outcome> | undefined;
  private lookedAt = NaN;

  /** The first call is what later ones are compared with. A job that comes into the list need not be new. */
  take(jobs: Iterable<Job>, now: number): NotifiedJob[] {
    const [before, since] = [this.known, this.lookedAt];
    this.known = new Map();
    this.lookedAt = now;
    const found: NotifiedJob[] = [];
    for (const job of jobs) {
      const outcome = outcomeOf(job);
      const key = `${job.key} ${job.uid}`;
      this.known.set(key, outcome);
      const known = before?.get(key) ?? (job.created > since || job.ended > since ? "" : outcome);
      if (before && outcome !== known && outcome && outcome !== "has succeeded") found.push({ job, outcome });
    }
    return found;
  }
}

/** The filter without what changes when a job fails: it would leave the list, and nothing would be told. */
export const withoutState = (filter: Filter): Filter => ({ ...filter, phases: [], troubles: [] });
