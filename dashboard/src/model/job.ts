/** A job as the page keeps it: what of its document is shown in a list, read once when the document comes. */

import type { JobRef } from "../api/requests";
import type { Condition, JobDocument, Phase, ProgressStatus } from "../api/types";
import { isSameDay } from "./format";
import { keptLabels, ownerOf, QUEUE_LABEL } from "./labels";
import { mainMetric } from "./main-metric";

export interface Job extends JobRef {
  readonly key: string;
  readonly kind: string;
  readonly uid: string;
  readonly queue: string;
  /** Of the pod that reports. */
  readonly node: string;
  readonly owner: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Milliseconds since the epoch, as all times here; NaN where there is none. */
  readonly created: number;
  readonly phase: Phase;
  readonly flags: readonly Flag[];
  readonly why: string;
  readonly percent: number | undefined;
  readonly step: number | undefined;
  readonly totalSteps: number | undefined;
  readonly rate: number | undefined;
  readonly epoch: number | undefined;
  readonly totalEpochs: number | undefined;
  readonly remainingS: number | undefined;
  readonly completion: number;
  readonly updated: number;
  readonly started: number;
  readonly ended: number;
  /** Seconds until it ran: without a node, and until the container of rank 0 ran. */
  readonly waitedS: number | undefined;
  readonly attempts: number | undefined;
  readonly metric: { readonly name: string; readonly value: string } | undefined;
  readonly accelerators: number;
  readonly wastedS: number;
  /** What it was wasted on, by kind. */
  readonly wastedOn: string;
  /** Of its whole life; undefined before it ran. */
  readonly goodput: number | undefined;
  /** The last one that is complete. */
  readonly checkpoint: { readonly step: number; readonly at: number } | undefined;
  readonly searched: string;
  /** Its name, with which names are sorted: 2 comes before 10. */
  readonly sorted: string;
}

/** What is wrong with a job, the worst first. */
export const FLAGS = [
  "Stalled",
  "Diverged",
  "No progress",
  "Straggling",
  "Should stop",
  "Plateaued",
  "At risk",
  "Low goodput",
  "Accelerators idle",
  "Not reporting",
  "Not fresh",
] as const;
export type Flag = (typeof FLAGS)[number];

export const RAISED: Record<Flag, readonly [type: string, status: string]> = {
  Stalled: ["Stalled", "True"],
  Diverged: ["Diverged", "True"],
  "No progress": ["NoProgress", "True"],
  Straggling: ["Straggling", "True"],
  "Should stop": ["ShouldStop", "True"],
  Plateaued: ["Plateaued", "True"],
  "At risk": ["AtRisk", "True"],
  "Low goodput": ["LowGoodput", "True"],
  "Accelerators idle": ["AcceleratorsIdle", "True"],
  "Not reporting": ["Reporting", "False"],
  "Not fresh": ["Fresh", "False"],
};
const ACTIVE: ReadonlySet<Phase> = new Set(["Pending", "Initializing", "Running"]);
const ENDED: ReadonlySet<Phase> = new Set(["Succeeded", "Failed"]);

export const hasEnded = (phase: Phase) => ENDED.has(phase);

export function keyOf(plural: string, namespace: string, name: string): string {
  return `${plural}/${namespace}/${name}`;
}

/** What its kind is called. Several groups have a Job: that of volcanojobs is a VolcanoJob. */
export function kindName(plural: string, kind: string | undefined): string {
  const name = (kind ?? "").replace(/Progress$/, "");
  const own = plural.slice(0, -1);
  if (own.length <= name.length || !own.endsWith(name.toLowerCase())) return name;
  return own.charAt(0).toUpperCase() + own.slice(1, own.length - name.length) + name;
}

export function toJob(plural: string, { kind, metadata, status }: JobDocument): Job {
  const namespace = metadata.namespace ?? "";
  const name = metadata.name ?? "";
  const queue = metadata.labels?.[QUEUE_LABEL] ?? "";
  const resources = status.resources;
  const node = status.rank0?.nodeName ?? "";
  const owner = ownerOf(metadata.labels ?? {});
  const flags = flagsOf(status);
  const isOn = isOnItsWay({ phase: status.phase, flags });
  const waited = status.goodput?.whole.seconds;
  return {
    plural,
    kind: kindName(plural, kind ?? (plural === "trainjobs" ? "TrainJob" : plural)),
    namespace,
    name,
    queue,
    node,
    owner,
    labels: keptLabels(metadata.labels ?? {}),
    key: keyOf(plural, namespace, name),
    uid: metadata.uid ?? "",
    created: time(metadata.creationTimestamp),
    phase: status.phase,
    flags,
    why: whyOf(status),
    percent: status.progressPercentage,
    step: status.steps?.current,
    totalSteps: status.steps?.total,
    rate: status.steps?.perSecond,
    epoch: status.epochs?.current,
    totalEpochs: status.epochs?.total,
    remainingS: isOn ? status.estimatedRemainingSeconds : undefined,
    completion: isOn ? time(status.estimatedCompletionTime) : NaN,
    updated: time(status.lastUpdatedTime),
    started: time(status.startTime),
    ended: time(status.endTime),
    waitedS: waited && (waited.queued ?? 0) + (waited.starting ?? 0),
    attempts: status.attempts,
    metric: mainMetric(status.metrics ?? []),
    accelerators: resources?.accelerators ?? 0,
    wastedS: resources?.wastedAcceleratorSeconds ?? 0,
    wastedOn: status.goodput?.wastedMessage ?? "",
    goodput: status.goodput?.whole.percentage,
    checkpoint: status.checkpoint && { step: status.checkpoint.step, at: time(status.checkpoint.time) },
    searched: `${namespace}/${name} ${queue} ${node} ${owner}`.toLowerCase(),
    sorted: name.replace(
      /0*(\d+)/g,
      (_, digits: string) => String.fromCharCode(48 + Math.min(digits.length, 9)) + digits,
    ),
  };
}

export function time(text: string | null | undefined): number {
  return text ? Date.parse(text) : NaN;
}

/** Of a job that has ended only what remains true of it: that its numbers were not finite, that none came. */
export function flagsOf(status: ProgressStatus): Flag[] {
  const conditions = status.conditions ?? [];
  const isActive = ACTIVE.has(status.phase);
  const raised = FLAGS.filter((flag) => {
    const [type, value] = RAISED[flag];
    if (!isActive && flag !== "Diverged") return false;
    // What does not run yet has nothing to report.
    if ((flag === "Not fresh" || flag === "Not reporting") && status.phase !== "Running") return false;
    return conditions.some((one) => one.type === type && one.status === value);
  });
  // What does not advance has old numbers, and what is not read too: that is no second fault.
  return raised.some((flag) => flag === "Stalled" || flag === "Not reporting")
    ? raised.filter((flag) => flag !== "Not fresh")
    : raised;
}

export function conditionOf(status: ProgressStatus, type: string): Condition | undefined {
  return status.conditions?.find((one) => one.type === type);
}

/** In a few words, why the job is where it is; empty when there is nothing to say. */
function whyOf(status: ProgressStatus): string {
  const { failure, phase } = status;
  if (phase === "Failed") {
    const code = failure?.exitCode === undefined ? "" : ` (exit ${failure.exitCode})`;
    return (failure?.class ?? failure?.reason ?? conditionOf(status, "Failed")?.reason ?? "") + code;
  }
  if (phase !== "Running") return phase === "Succeeded" ? "" : (status.phaseReason ?? reportingReason(status));
  return reportingReason(status);
}

function reportingReason(status: ProgressStatus): string {
  const reporting = conditionOf(status, "Reporting");
  return reporting && reporting.status !== "True" ? reporting.reason : "";
}

/** Whether it holds accelerators while it does not advance towards anything. */
export function isWasting(job: Job): boolean {
  return holdsAccelerators(job) && isStuck(job);
}

/** What is worst of all: it stands still, has lost what it learned, or ends again and again before it comes further. */
const STUCK: ReadonlySet<Flag> = new Set(["Stalled", "Diverged", "No progress"]);
export const isStuckBy = (flag: Flag | undefined) => flag !== undefined && STUCK.has(flag);
/** Whether it is on its way to an end that can be foretold. */
export const isOnItsWay = ({ phase, flags }: Pick<Job, "phase" | "flags">) =>
  phase === "Running" && !flags.some(isStuckBy);
export const isStuck = ({ flags }: Job) => flags.some(isStuckBy);

/** What ended on another day needs no look any more. */
export const isOfToday = (job: Job, now: number, zone: string | undefined) =>
  !hasEnded(job.phase) || (now - job.ended < 48 * 3600_000 && isSameDay(job.ended, now, zone));

export const hasFailedToday = (job: Job, now: number, zone: string | undefined) =>
  job.phase === "Failed" && isOfToday(job, now, zone);

export const holdsAccelerators = (job: Job) =>
  job.accelerators > 0 && (job.phase === "Running" || job.phase === "Initializing");
