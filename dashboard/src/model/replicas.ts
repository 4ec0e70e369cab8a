/** The pods of a job, one by one: which need a look, what each shows, and by what they are coloured. */

import type { ReplicaStatus } from "../api/types";
import { count, duration, exactValue } from "./format";
import { visible } from "./text";

/** How a pod is drawn. */
export type Look = "failed" | "not-ready" | "ready" | "succeeded" | "missing";

const LOOKS: Partial<Record<ReplicaStatus["state"], Look>> = {
  Failed: "failed",
  Pending: "not-ready",
  Terminating: "not-ready",
  Running: "ready",
  Succeeded: "succeeded",
};

/** A container that waits, as in CrashLoopBackOff, is in a pod that runs. */
export function lookOf({ state, reason }: ReplicaStatus): Look {
  return state === "Running" && reason ? "not-ready" : (LOOKS[state] ?? "missing");
}

/** By the name without its index; a pod that has none is a group of its own. */
export function groupsOf(replicas: readonly ReplicaStatus[]): [name: string, of: ReplicaStatus[]][] {
  const groups = new Map<string, ReplicaStatus[]>();
  for (const replica of replicas) {
    const name = /^(.+)-\d{1,9}$/.exec(replica.name)?.[1] ?? replica.name;
    const group = groups.get(name);
    if (group) group.push(replica);
    else groups.set(name, [replica]);
  }
  return [...groups];
}

/** "5 Running, 1 Failed", the most first. */
export function told(replicas: readonly ReplicaStatus[]): string {
  const numbers = new Map<string, number>();
  for (const { state } of replicas) numbers.set(state, (numbers.get(state) ?? 0) + 1);
  return [...numbers]
    .sort(([, one], [, other]) => other - one)
    .map(([state, number]) => `${count(number)} ${state}`)
    .join(", ");
}

/** ", rank 0 to 999"; "" where not all have one. */
export function ranksOf(replicas: readonly ReplicaStatus[]): string {
  const ranks = replicas.flatMap(({ rank }) => rank ?? []);
  if (ranks.length === 0 || ranks.length < replicas.length) return "";
  const [least, most] = [Math.min(...ranks), Math.max(...ranks)];
  return `, rank ${count(least)} to ${count(most)}`;
}

const ORDER: readonly Look[] = ["failed", "not-ready", "missing", "ready", "succeeded"];

/** What needs a look first: what failed, then what was restarted, then what is slow. */
export function worstFirst(replicas: readonly ReplicaStatus[]): ReplicaStatus[] {
  return [...replicas].sort(
    (one, other) =>
      ORDER.indexOf(lookOf(one)) - ORDER.indexOf(lookOf(other)) ||
      other.restartCount - one.restartCount ||
      (other.stepSeconds ?? 0) - (one.stepSeconds ?? 0),
  );
}

/** Steps of colour, of a time for one step beside the median of all: 0 is usual, 4 twice as long or more. */
export type Speeds = { readonly median: number; readonly of: (replica: ReplicaStatus) => number | undefined };

export function speedsOf(replicas: readonly ReplicaStatus[]): Speeds | undefined {
  const all = replicas.flatMap(({ stepSeconds }) => stepSeconds ?? []).sort((one, other) => one - other);
  const median = all[Math.floor((all.length - 1) / 2)];
  if (all.length < 2 || !median) return undefined;
  const of = ({ stepSeconds }: ReplicaStatus) =>
    stepSeconds === undefined ? undefined : Math.max(0, Math.min(4, Math.floor((stepSeconds / median - 1) * 4 + 0.2)));
  return { median, of };
}

export function lastExit({ lastTermination: last }: ReplicaStatus): string {
  if (!last) return "";
  const signal = last.signal === undefined ? "" : `, signal ${last.signal}`;
  return `${visible(last.reason ?? "")} (exit code ${last.exitCode}${signal})`.trim();
}

export const stateOf = ({ state, reason }: ReplicaStatus) => (reason ? `${state}: ${visible(reason)}` : state);

export function stepTime(seconds: number | undefined): string {
  if (seconds === undefined) return "";
  return seconds < 60 ? `${exactValue(Number(seconds.toPrecision(3)))} s` : duration(seconds);
}
