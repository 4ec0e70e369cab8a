/** Sums over many jobs, of what their time was spent on: what they are summed by, and how much of it there is. */

import type { SecondsByKind, SumsOfJobs } from "../api/types";
import { LABEL } from "./labels";
import { total } from "./goodput";

/** As the server's `sumBy` has them. */
export const SUMMINGS = { namespace: "Namespace", queue: "Queue", kind: "Kind", nodePool: "Node pool" } as const;
export type Summing = keyof typeof SUMMINGS | `${typeof LABEL}${string}`;

export const isSumming = (text: string): text is Summing =>
  Object.hasOwn(SUMMINGS, text) || (text.startsWith(LABEL) && text.length > LABEL.length);

export const summingName = (by: Summing): string =>
  Object.hasOwn(SUMMINGS, by) ? SUMMINGS[by as keyof typeof SUMMINGS] : by.slice(LABEL.length);

/** Of accelerators, where they have any, as the percentages are. */
export interface Weighed {
  readonly seconds: SecondsByKind;
  readonly all: number;
  readonly unit: "accelerators" | "jobs";
}

export function weighed({ goodput }: SumsOfJobs): Weighed {
  const { seconds, acceleratorSeconds } = goodput;
  const shown = acceleratorSeconds ?? seconds;
  return { seconds: shown, all: total(shown), unit: acceleratorSeconds ? "accelerators" : "jobs" };
}
