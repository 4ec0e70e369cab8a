/** What a reason means and what to do about it, as the documentation says it; and where it says more. */

import reasons from "../docs/reasons.json";
import type { Block, DocsLink, Inline } from "../docs/text";

export interface Help extends DocsLink {
  readonly meaning: readonly Inline[];
  readonly advice: readonly Inline[];
}

const HELP = reasons as unknown as Record<string, Help>;

const SHOULD_STOP: Help = {
  page: "troubleshooting",
  at: "shouldstop-is-true",
  meaning: ["the rules of the job's annotation should-stop hold"],
  advice: ["delete or suspend the job, or let what made it do so: nothing is stopped here"],
};

/** What the documentation tells outside of its tables. */
export const MORE: Record<string, Help> = {
  NoAdvance: {
    page: "troubleshooting",
    at: "stalled-or-diverged-is-true",
    meaning: ["steps stand still for far longer than this run's rhythm explains"],
    advice: ["look at the process: a collective that hangs, storage, a data loader that waits"],
  },
  NonFiniteMetric: {
    page: "troubleshooting",
    at: "stalled-or-diverged-is-true",
    meaning: ["what comes after NaN or infinity is lost"],
    advice: [
      "stop the run; begin again from a checkpoint before that, with a lower learning rate or clipped gradients",
    ],
  },
  FarAboveUsual: {
    page: "troubleshooting",
    at: "stalled-or-diverged-is-true",
    meaning: ["the run has most likely lost what it had learned"],
    advice: ["look at the curve; begin again from a checkpoint before the jump, with a lower learning rate"],
  },
  NoImprovement: {
    page: "troubleshooting",
    at: "plateaued-is-true",
    meaning: ["the metric has had no better value for a long part of the run"],
    advice: [],
  },
  NoNewStep: {
    page: "troubleshooting",
    at: "noprogress-is-true",
    meaning: ["three attempts in a row have ended, and none got past the highest step of all before"],
    advice: ["suspend the job until you know why its attempts end: the failure and the log say more"],
  },
  SlowReplica: {
    page: "troubleshooting",
    at: "straggling-is-true",
    meaning: ["one rank works far longer on a step than the others, which wait for it"],
    advice: ["look at its node and its data: the message says which, and what is slow where that is known"],
  },
  NotUsed: {
    page: "troubleshooting",
    at: "acceleratorsidle-is-true",
    meaning: ["the run comes further, and no accelerator that it holds is used"],
    advice: ["see that the program uses them, and that it does not wait for data"],
  },
  NoRecentCheckpoint: {
    page: "troubleshooting",
    at: "atrisk-is-true",
    meaning: ["what was done since the last checkpoint is lost if the run ends"],
    advice: ["see that checkpoints are saved, and save them more often"],
  },
  BelowThreshold: {
    page: "troubleshooting",
    at: "lowgoodput-is-true",
    meaning: ["less of the time makes progress than the job's annotation goodput-below asks for"],
    advice: ["look at where the time went, below: the largest kind beside Productive is where to begin"],
  },
  MedianStop: SHOULD_STOP,
  ThresholdReached: SHOULD_STOP,
};

export function helpFor(reason: string | undefined): Help | undefined {
  if (reason === undefined) return undefined;
  for (const known of [MORE, HELP]) if (Object.hasOwn(known, reason)) return known[reason];
  return undefined;
}

export const hasAnchor = (blocks: readonly Block[], at: string) =>
  blocks.some((block) => "heading" in block && block.id === at);
