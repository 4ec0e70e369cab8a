/** What the page shows, as the part of its address after #: the server never sees it. */

import type { JobRef } from "../api/requests";
import type { DocsLink } from "../docs/text";
import { nameOf } from "./compared";
import { isWindow, type Window } from "./goodput";
import { EVERYTHING, fromQuery, toQuery, type Filter } from "./filter";
import { AXES, type Axis } from "./series";

export interface JobLook {
  readonly axis: Axis | undefined;
  readonly isLog: boolean;
  readonly weight: number;
  /** Metrics that are shown; none means all. */
  readonly metrics: readonly string[];
  /** Jobs that are compared with this one, as namespace/name. */
  readonly others: readonly string[];
  /** What is seen of the axis; undefined is all. */
  readonly range: { readonly min: number; readonly max: number } | undefined;
  /** In its place: the last so many seconds, which move on. */
  readonly last?: number | undefined;
  /** Over which it is told where the time went. */
  readonly window: Window;
}

export type Route =
  { view: "fleet"; filter: Filter } | { view: "job"; ref: JobRef; look: JobLook } | ({ view: "docs" } & SoughtText);

/** A place in the documentation; `reason` is the one that somebody wants explained. */
export interface SoughtText extends DocsLink {
  readonly reason?: string | undefined;
}

export const USUAL_LOOK: JobLook = {
  axis: undefined,
  isLog: false,
  weight: 0.6,
  metrics: [],
  others: [],
  range: undefined,
  window: "whole",
};
export const MOST_OTHERS = 7;
const DOCS = "docs"; // a job's path has three parts, so it is none

export function parseRoute(hash: string): Route {
  const [, path = "", search = ""] = /^#?([^?]*)\??(.*)$/s.exec(hash) ?? []; // what is sought may have a "?" too
  const query = new URLSearchParams(search);
  const parts = path.split("/").filter(Boolean).map(decode);
  const [plural, namespace, name] = parts;
  if (parts.length === 3 && plural && namespace && name) {
    const ref = { plural, namespace, name };
    return { view: "job", ref, look: lookOf(query, nameOf(ref)) };
  }
  if (parts.length === 2 && plural === DOCS && namespace) {
    return { view: "docs", page: namespace, at: query.get("at") ?? "", reason: query.get("reason") ?? undefined };
  }
  lastFilter = fromQuery(query);
  return { view: "fleet", filter: lastFilter };
}

export function formatRoute(route: Route): string {
  const [path, query] = partsOf(route);
  const search = query.toString();
  return `#${path}${search ? `?${search}` : ""}`;
}

function partsOf(route: Route): [path: string, query: URLSearchParams] {
  if (route.view === "fleet") return ["/", toQuery(route.filter)];
  if (route.view === "job") return [jobPath(route.ref), queryOf(route.look)];
  const query = new URLSearchParams();
  if (route.at) query.set("at", route.at);
  if (route.reason) query.set("reason", route.reason);
  return [`/${DOCS}/${encodeURIComponent(route.page)}`, query];
}

let lastFilter: Filter = EVERYTHING;

/** To the list as it was seen last. */
export const backLink = () => fleetLink(lastFilter);

export const docsLink = ({ page, at, reason }: SoughtText) => formatRoute({ view: "docs", page, at, reason });
export const fleetLink = (filter: Filter = EVERYTHING) => formatRoute({ view: "fleet", filter });
export const jobLink = (ref: JobRef, look: JobLook = USUAL_LOOK) => formatRoute({ view: "job", ref, look });

function jobPath({ plural, namespace, name }: JobRef): string {
  return `/${[plural, namespace, name].map(encodeURIComponent).join("/")}`;
}

function lookOf(query: URLSearchParams, own: string): JobLook {
  const [axis, window] = [query.get("x") ?? "", query.get("window") ?? ""];
  const weight = Number(query.get("smooth") ?? USUAL_LOOK.weight);
  return {
    axis: Object.hasOwn(AXES, axis) ? (axis as Axis) : undefined,
    isLog: query.get("log") === "1",
    weight: weight >= 0 && weight < 1 ? weight : USUAL_LOOK.weight,
    metrics: query.getAll("metric"),
    others: [...new Set(query.getAll("with"))].filter((other) => other !== own),
    range: rangeOf(query.get("from"), query.get("to")),
    last: lastOf(Number(query.get("last"))),
    window: isWindow(window) ? window : USUAL_LOOK.window,
  };
}

function queryOf(look: JobLook): URLSearchParams {
  const query = new URLSearchParams();
  if (look.axis) query.set("x", look.axis);
  if (look.isLog) query.set("log", "1");
  if (look.weight !== USUAL_LOOK.weight) query.set("smooth", String(look.weight));
  for (const metric of look.metrics) query.append("metric", metric);
  for (const other of look.others) query.append("with", other);
  if (look.range) {
    query.set("from", rounded(look.range.min));
    query.set("to", rounded(look.range.max));
  }
  if (look.last) query.set("last", String(look.last));
  if (look.window !== USUAL_LOOK.window) query.set("window", look.window);
  return query;
}

const LONGEST_S = 100 * 86400;
const lastOf = (seconds: number) => (seconds >= 60 && seconds <= LONGEST_S ? Math.round(seconds) : undefined);
const rounded = (value: number) => String(Number(value.toPrecision(12)));

function rangeOf(from: string | null, to: string | null): JobLook["range"] {
  const [min, max] = [Number(from), Number(to)];
  return from !== null && to !== null && Number.isFinite(min) && Number.isFinite(max) && min < max
    ? { min, max }
    : undefined;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
