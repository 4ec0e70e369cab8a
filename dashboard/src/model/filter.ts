/** Which jobs are shown. Written into the address of the page, so that a link shows the same. */

import { FLAGS, hasFailedToday, isWasting, type Flag, type Job } from "./job";
import type { Phase } from "../api/types";
import { isSortKey, type SortKey } from "./sort";

export const PHASES: readonly Phase[] = [
  "Running",
  "Initializing",
  "Pending",
  "Suspended",
  "Failed",
  "Succeeded",
  "Unknown",
];
export type Trouble = Flag | "Wasting" | "Failed today";
export const TROUBLES: readonly Trouble[] = ["Failed today", ...FLAGS, "Wasting"];

/** What day it is: `now` by the server's clock, in the chosen zone. */
export interface Today {
  readonly now: number;
  readonly zone: string | undefined;
}

export interface Filter {
  readonly text: string;
  readonly phases: readonly Phase[];
  readonly troubles: readonly Trouble[];
  readonly namespaces: readonly string[];
  readonly queues: readonly string[];
  readonly kinds: readonly string[];
  readonly sort: SortKey;
  readonly descending: boolean;
}

export const EVERYTHING: Filter = {
  text: "",
  phases: [],
  troubles: [],
  namespaces: [],
  queues: [],
  kinds: [],
  sort: "attention",
  descending: false,
};

/** The queue of jobs that have none, as it is chosen and written. */
export const NO_QUEUE = "-";

export function matcher(filter: Filter, today: Today): (job: Job) => boolean {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const [phases, namespaces, queues, kinds] = [filter.phases, filter.namespaces, filter.queues, filter.kinds].map(
    (chosen) => new Set<string>(chosen),
  ) as [Set<string>, Set<string>, Set<string>, Set<string>];
  const isIn = (chosen: Set<string>, value: string) => chosen.size === 0 || chosen.has(value);
  return (job) =>
    isIn(phases, job.phase) &&
    isIn(namespaces, job.namespace) &&
    isIn(queues, job.queue || NO_QUEUE) &&
    isIn(kinds, job.kind) &&
    (filter.troubles.length === 0 || filter.troubles.some((trouble) => hasTrouble(job, trouble, today))) &&
    words.every((word) => job.searched.includes(word));
}

export function hasTrouble(job: Job, trouble: Trouble, { now, zone }: Today): boolean {
  if (trouble === "Failed today") return hasFailedToday(job, now, zone);
  return trouble === "Wasting" ? isWasting(job) : job.flags.includes(trouble);
}

export function isFiltering(filter: Filter): boolean {
  const { text, phases, troubles, namespaces, queues, kinds } = filter;
  return text.trim() !== "" || [phases, troubles, namespaces, queues, kinds].some((chosen) => chosen.length > 0);
}

/** Of the lists, each value is a parameter of its own: names may contain any character. */
export function toQuery(filter: Filter): URLSearchParams {
  const query = new URLSearchParams();
  if (filter.text) query.set("q", filter.text);
  for (const [name, list] of lists(filter)) for (const value of list) query.append(name, value);
  if (filter.sort !== "attention" || filter.descending) query.set("sort", (filter.descending ? "-" : "") + filter.sort);
  return query;
}

/** What is not understood is left out: the link may be of another version. */
export function fromQuery(query: URLSearchParams): Filter {
  const sort = query.get("sort") ?? "";
  const key = sort.replace(/^-/, "");
  return {
    text: query.get("q") ?? "",
    phases: PHASES.filter((phase) => query.getAll("phase").includes(phase)),
    troubles: TROUBLES.filter((trouble) => query.getAll("is").includes(trouble)),
    namespaces: query.getAll("namespace"),
    queues: query.getAll("queue"),
    kinds: query.getAll("kind"),
    sort: isSortKey(key) ? key : "attention",
    descending: isSortKey(key) && sort.startsWith("-"),
  };
}

function lists(filter: Filter): [string, readonly string[]][] {
  return [
    ["phase", filter.phases],
    ["is", filter.troubles],
    ["namespace", filter.namespaces],
    ["queue", filter.queues],
    ["kind", filter.kinds],
  ];
}
