/** What the time of a job, or of many, was spent on: docs/goodput.md. */

import type { GoodputOfWindow, ProgressStatus, SecondsByKind } from "../api/types";
import { conditionOf, hasEnded, time } from "./job";

export type KindKey = keyof SecondsByKind;

export interface Kind {
  readonly key: KindKey;
  readonly name: string;
  readonly meaning: string;
  /** Whether accelerators were held for nothing. */
  readonly isWaste?: boolean;
}

/** In the order in which they are drawn: what makes progress first, what does not count towards goodput last. */
export const KINDS: readonly Kind[] = [
  { key: "productive", name: "Productive", meaning: "steps that no earlier attempt had done" },
  { key: "dataLoading", name: "Data loading", meaning: "waiting for the next batch" },
  { key: "evaluation", name: "Evaluation", meaning: "evaluating" },
  { key: "checkpointSave", name: "Saving checkpoints", meaning: "waiting for a checkpoint to be saved" },
  { key: "checkpointRestore", name: "Restoring checkpoints", meaning: "loading a checkpoint" },
  { key: "programStartup", name: "Program startup", meaning: "until the first steps, with compilation" },
  { key: "starting", name: "Starting", meaning: "on a node, until the container runs", isWaste: true },
  {
    key: "recovery",
    name: "Recovery",
    meaning: "after an attempt's end, until the run is as far again",
    isWaste: true,
  },
  { key: "lostProgress", name: "Lost progress", meaning: "steps that an earlier attempt had done", isWaste: true },
  { key: "stalled", name: "Stalled", meaning: "without an advance", isWaste: true },
  { key: "other", name: "Other", meaning: "what nothing explains, and what nothing is known of" },
  { key: "queued", name: "Queued", meaning: "suspended, or without a node; no part of goodput" },
];

export const WINDOWS = { whole: "Whole life", day: "Last 24 hours", hour: "Last hour" } as const;
export type Window = keyof typeof WINDOWS;
export const isWindow = (text: string): text is Window => Object.hasOwn(WINDOWS, text);

export interface Part {
  readonly kind: Kind;
  readonly seconds: number;
  /** Of all. */
  readonly share: number;
}

export function partsOf(seconds: SecondsByKind): Part[] {
  const all = total(seconds);
  return KINDS.flatMap((kind) => {
    const some = seconds[kind.key] ?? 0;
    return some > 0 ? [{ kind, seconds: some, share: some / all }] : [];
  });
}

export const total = (seconds: SecondsByKind) => KINDS.reduce((sum, { key }) => sum + (seconds[key] ?? 0), 0);

/** "Stalled", of "Stalled" or "ProgramStartup" as the document has them; what is not known here as it is. */
export function kindNamed(current: string): string {
  return KINDS.find(({ key }) => key.toLowerCase() === current.toLowerCase())?.name ?? current;
}

/** "37%": as precise as it is told, since 99.96 % is not all. */
export function percentage(value: number): string {
  const rounded = Number(value.toFixed(value > 0 && value < 1 ? 1 : 0));
  if (rounded === 0 && value > 0) return "<0.1%";
  return rounded === 100 && value < 100 ? ">99%" : `${rounded}%`;
}

export interface Spent {
  readonly window: Window;
  readonly goodput: GoodputOfWindow;
}

/** Of a job: each window that it has. */
export function windowsOf({ goodput }: ProgressStatus): Spent[] {
  if (!goodput) return [];
  return (Object.keys(WINDOWS) as Window[]).flatMap((window) => {
    const found = goodput[window];
    return found ? [{ window, goodput: found }] : [];
  });
}

/** With the time in which the job has been queued since it was counted: until it runs the document tells it no more. */
export function withQueue(status: ProgressStatus, spent: Spent, asOf: number): Spent {
  const { goodput, resources } = status;
  if (spent.window !== "whole" || goodput?.current !== "Queued") return spent;
  const more = Math.floor((asOf - time(goodput.time)) / 1000);
  if (!(more > 0)) return spent;
  const { seconds, acceleratorSeconds, percentage: share } = spent.goodput;
  const add = (to: SecondsByKind, some: number) => ({ ...to, queued: (to.queued ?? 0) + some });
  const all = add(seconds, more);
  return {
    window: spent.window,
    goodput: {
      ...(share === undefined ? {} : { percentage: share }),
      schedulingPercentage: 100 * (1 - all.queued / total(all)),
      seconds: all,
      ...(acceleratorSeconds ? { acceleratorSeconds: add(acceleratorSeconds, more * held(resources)) } : {}),
    },
  };
}

const held = (resources: ProgressStatus["resources"]) => resources?.accelerators ?? 0;

export interface Risk {
  readonly step: number;
  readonly savedAt: number;
  /** Seconds of work that would be lost; undefined where the job does not train. */
  readonly lostS: number | undefined;
  readonly accelerators: number;
}

/** What there is of the run if it ends at `asOf`; undefined where it tells of no checkpoint. */
export function riskOf(status: ProgressStatus, asOf: number): Risk | undefined {
  const { checkpoint, phase } = status;
  if (!checkpoint) return undefined;
  const savedAt = time(checkpoint.time);
  const condition = conditionOf(status, "AtRisk");
  const isTraining = phase === "Running" && !hasEnded(phase) && condition?.reason !== "NotTraining";
  return {
    step: checkpoint.step,
    savedAt,
    lostS: isTraining ? Math.max(0, (asOf - workedSince(status, savedAt)) / 1000) : undefined,
    accelerators: held(status.resources),
  };
}

/** What an earlier attempt did after the checkpoint is lost already. */
function workedSince(status: ProgressStatus, savedAt: number): number {
  const began = [savedAt, time(status.startTime), time(status.rank0?.lastTermination?.finishedAt)];
  return Math.max(...began.filter((at) => !Number.isNaN(at)));
}
