/** Which jobs are shown. Written into the address of the page, so that a link shows the same. */

import { FLAGS, hasFailedToday, isOfToday, isWasting, type Flag, type Job } from "./job";
import type { Phase } from "../api/types";
import { isGrouping, type Grouping } from "./groups";
import { isSortKey, type SortKey } from "./sort";
import { isWindow, type Window } from "./goodput";
import { isSumming, type Summing } from "./sums";
import { isSpan, type Span } from "./timeline";

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
  readonly owners: readonly string[];
  readonly sort: SortKey;
  readonly descending: boolean;
  /** What jobs are grouped by, "" for nothing; and the groups that are open. */
  readonly group: Grouping | "";
  readonly open: readonly string[];
  /** Labels that have a column. */
  readonly columns: readonly string[];
  readonly extras: readonly Extra[];
  /** What the time of all jobs is summed by, above the list, and over which window; undefined: it is not. */
  readonly sums: { readonly by: Summing; readonly window: Window } | undefined;
  /** How much of the time is shown as bars; undefined is the usual table. */
  readonly span: Span | undefined;
}

export const EVERYTHING: Filter = {
  text: "",
  phases: [],
  troubles: [],
  namespaces: [],
  queues: [],
  kinds: [],
  owners: [],
  sort: "attention",
  descending: false,
  group: "",
  open: [],
  columns: [],
  extras: [],
  sums: undefined,
  span: undefined,
};

export const MOST_COLUMNS = 3;

/** Columns that are there when they are asked for. */
export const EXTRAS = { goodput: "Goodput", checkpoint: "Checkpoint" } as const;
export type Extra = keyof typeof EXTRAS;

/** The queue or owner of jobs that have none, as it is chosen and written. */
export const NONE = "-";

/** The same list, whole. */
export const unfiltered = (filter: Filter): Filter => ({
  ...filter,
  text: "",
  phases: [],
  troubles: [],
  namespaces: [],
  queues: [],
  kinds: [],
  owners: [],
});

/** What the list is narrowed to, in words. */
export function narrowedTo(filter: Filter): string {
  const { text, phases, troubles, namespaces, queues, kinds, owners } = filter;
  const named = (what: string, all: readonly string[]) => all.map((one) => `${what} ${one === NONE ? "none" : one}`);
  return [
    ...(text ? [`"${text}"`] : []),
    ...phases,
    ...troubles,
    ...kinds,
    ...named("namespace", namespaces),
    ...named("queue", queues),
    ...named("owner", owners),
  ].join(", ");
}

export function matcher(filter: Filter, today: Today): (job: Job) => boolean {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const phases = new Set<string>(filter.phases);
  const [namespaces, queues] = [new Set(filter.namespaces), new Set(filter.queues)];
  const [kinds, owners] = [new Set(filter.kinds), new Set(filter.owners)];
  const isIn = (chosen: Set<string>, value: string) => chosen.size === 0 || chosen.has(value);
  return (job) =>
    isIn(phases, job.phase) &&
    isIn(namespaces, job.namespace) &&
    isIn(queues, job.queue || NONE) &&
    isIn(kinds, job.kind) &&
    isIn(owners, job.owner || NONE) &&
    (filter.troubles.length === 0 || filter.troubles.some((trouble) => hasTrouble(job, trouble, today))) &&
    words.every((word) => job.searched.includes(word));
}

export function hasTrouble(job: Job, trouble: Trouble, { now, zone }: Today): boolean {
  if (trouble === "Failed today") return hasFailedToday(job, now, zone);
  return trouble === "Wasting" ? isWasting(job) : job.flags.includes(trouble) && isOfToday(job, now, zone);
}

export function isFiltering(filter: Filter): boolean {
  const { text, phases, troubles, namespaces, queues, kinds, owners } = filter;
  const chosen = [phases, troubles, namespaces, queues, kinds, owners];
  return text.trim() !== "" || chosen.some((one) => one.length > 0);
}

/** Of the lists, each value is a parameter of its own: names may contain any character. */
export function toQuery(filter: Filter): URLSearchParams {
  const query = new URLSearchParams();
  if (filter.text) query.set("q", filter.text);
  for (const [name, list] of lists(filter)) for (const value of list) query.append(name, value);
  if (filter.sort !== "attention" || filter.descending) query.set("sort", (filter.descending ? "-" : "") + filter.sort);
  if (filter.group) query.set("group", filter.group);
  for (const name of filter.open) query.append("open", name);
  for (const label of filter.columns) query.append("column", label);
  for (const extra of filter.extras) query.append("show", extra);
  if (filter.sums) {
    query.set("time", filter.sums.by);
    query.set("window", filter.sums.window);
  }
  if (filter.span) query.set("timeline", filter.span);
  return query;
}

/** What is not understood is left out: the link may be of another version. */
export function fromQuery(query: URLSearchParams): Filter {
  const sort = query.get("sort") ?? "";
  const key = sort.replace(/^-/, "");
  const [group, span] = [query.get("group") ?? "", query.get("timeline") ?? ""];
  const [by, window] = [query.get("time") ?? "", query.get("window") ?? "day"];
  return {
    text: query.get("q") ?? "",
    phases: PHASES.filter((phase) => query.getAll("phase").includes(phase)),
    troubles: TROUBLES.filter((trouble) => query.getAll("is").includes(trouble)),
    namespaces: query.getAll("namespace"),
    queues: query.getAll("queue"),
    kinds: query.getAll("kind"),
    owners: query.getAll("owner"),
    sort: isSortKey(key) ? key : "attention",
    descending: isSortKey(key) && sort.startsWith("-"),
    group: isGrouping(group) ? group : "",
    open: query.getAll("open"),
    columns: [...new Set(query.getAll("column"))].slice(0, MOST_COLUMNS),
    extras: (Object.keys(EXTRAS) as Extra[]).filter((extra) => query.getAll("show").includes(extra)),
    sums: isSumming(by) && isWindow(window) ? { by, window } : undefined,
    span: isSpan(span) ? span : undefined,
  };
}

function lists(filter: Filter): [string, readonly string[]][] {
  return [
    ["phase", filter.phases],
    ["is", filter.troubles],
    ["namespace", filter.namespaces],
    ["queue", filter.queues],
    ["kind", filter.kinds],
    ["owner", filter.owners],
  ];
}
