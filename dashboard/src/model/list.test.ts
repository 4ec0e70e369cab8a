import { expect, test } from "vitest";

import type { JobDocument, ProgressStatus } from "../api/types";
import { EVERYTHING, fromQuery, toQuery } from "./filter";
import { byLabel, grouped, isGroup, rowsOf } from "./groups";
import { toJob } from "./job";
import { ownerOf } from "./labels";
import { listCsv } from "./list-csv";
import { barsOf, placed, windowOf } from "./timeline";

const AT = Date.parse("2026-11-22T12:00:00Z");
const iso = (minutes: number) => new Date(AT + minutes * 60_000).toISOString();

function job(name: string, status: Partial<ProgressStatus> = {}, labels: Record<string, string> = {}) {
  const metadata = { name, namespace: "team-a", creationTimestamp: iso(-60), labels };
  return toJob("trainjobs", { metadata, status: { phase: "Running", ...status } } as JobDocument);
}

const holding = (accelerators: number, wastedAcceleratorSeconds = 0) => ({
  resources: { accelerators, byName: [], acceleratorSeconds: 0, wastedAcceleratorSeconds },
});
const is = (type: string, status = "True") =>
  ({ type, status, reason: "R", message: "", lastTransitionTime: "" }) as never;

test("groups have subtotals, and those that hold most come first", () => {
  const jobs = [
    job("a", holding(8), { team: "nlp" }),
    job("b", { ...holding(16, 3600), conditions: [is("Stalled")] }, { team: "cv" }),
    job("c", { phase: "Failed", ...holding(0, 60) }, { team: "cv" }),
    job("d", { phase: "Suspended" }),
  ];
  const groups = grouped(jobs, byLabel("team"));
  expect(groups.map(({ name }) => name)).toEqual(["cv", "nlp", ""]);
  expect(groups[0]).toMatchObject({ held: 16, idle: 16, wastedS: 3660, stuck: 1, failed: 1, running: 1 });
  const rows = rowsOf(groups, ["cv"]);
  expect(rows.map((row) => (isGroup(row) ? `[${row.name}]` : row.name)).join(" ")).toBe("[cv] b c [nlp] []");
  expect(grouped(jobs, byLabel("__proto__"))).toHaveLength(1);
});

test("how a list is arranged is in its address", () => {
  const filter = {
    ...EVERYTHING,
    owners: ["ann"],
    group: byLabel("team/a&b"),
    open: ["x", ""],
    columns: ["team"],
    span: "7d" as const,
  };
  expect(fromQuery(new URLSearchParams(toQuery(filter).toString()))).toEqual(filter);
  const unknown = new URLSearchParams("group=phase&timeline=9y&column=a&column=b&column=c&column=d&column=a");
  expect(fromQuery(unknown)).toMatchObject({ group: "", span: undefined, columns: ["a", "b", "c"] });
});

test("an owner is named by a label that says so", () => {
  expect(ownerOf({ app: "x", "example.com/created-by": "ann" })).toBe("ann");
  expect(ownerOf({ owner: "bob" })).toBe("bob");
  expect(ownerOf({ "app.kubernetes.io/part-of": "user-service" })).toBe("");
});

test("a list becomes lines that a spreadsheet reads as text", () => {
  const csv = listCsv(
    [job("a", { metrics: [{ name: '=HYPERLINK("x")', value: "-1.5" }], phase: "Failed" }, { team: 'n,"l' })],
    ["team"],
  );
  const [head, line, rest] = csv.split("\r\n");
  expect(head).toMatch(/^namespace,name,.*,team$/);
  expect(line).toContain(`"'=HYPERLINK(""x"")",-1.5,`);
  expect(line).toMatch(/,"n,""l"$/);
  expect(rest).toBe("");
});

test("a job's bars are its wait, its attempts, and how long it has stood still", () => {
  const running = job("a", { startTime: iso(-50), conditions: [is("Stalled")], lastUpdatedTime: iso(-10) });
  const attempts = [
    { start: AT - 50 * 60_000, last: AT - 40 * 60_000 },
    { start: AT - 30 * 60_000, last: NaN },
  ];
  const told = barsOf(running, attempts, AT).map(
    ({ kind, from, to }) => `${kind} ${(from - AT) / 60_000} ${(to - AT) / 60_000}`,
  );
  expect(told).toEqual(["waits -60 -50", "earlier -50 -40", "silent -40 -30", "runs -30 -10", "stalled -10 0"]);
  const failed = job("b", { phase: "Failed", startTime: iso(-50), endTime: iso(-20) });
  expect(barsOf(failed, [], AT).map(({ kind, to }) => [kind, (to - AT) / 60_000])).toEqual([
    ["waits", -50],
    ["failed", -20],
  ]);
  expect(barsOf(job("c", { phase: "Suspended" }), [], AT).map(({ kind }) => kind)).toEqual(["waits"]);
});

test("a run that reports nothing any more runs on no further than its last report", () => {
  const silent = job("a", { startTime: iso(-50), lastUpdatedTime: iso(-30), conditions: [is("Fresh", "False")] });
  const told = (one: ReturnType<typeof job>, attempts: Parameters<typeof barsOf>[1]) =>
    barsOf(one, attempts, AT).map(({ kind, to }) => `${kind} ${(to - AT) / 60_000}`);
  expect(told(silent, [])).toEqual(["waits -50", "runs -30", "silent 0"]);
  // Of two attempts that came later nothing is known: the last that is known need not go on.
  const restarted = job("b", { startTime: iso(-50), lastUpdatedTime: iso(-30), attempts: 4 });
  const attempts = [
    { start: AT - 50 * 60_000, last: AT - 45 * 60_000 },
    { start: AT - 40 * 60_000, last: AT - 30 * 60_000 },
  ];
  expect(told(restarted, attempts)).toEqual(["waits -50", "earlier -45", "silent -40", "runs -30", "silent 0"]);
  expect(told({ ...restarted, attempts: 2 }, attempts)).toEqual(["waits -50", "earlier -45", "silent -40", "runs 0"]);
});

test("what ran and reported nothing is no wait", () => {
  const told = (one: ReturnType<typeof job>, attempts: Parameters<typeof barsOf>[1]) =>
    barsOf(one, attempts, AT).map(({ kind, to }) => `${kind} ${(to - AT) / 60_000}`);
  const minutes = (...at: [start: number, last: number][]) =>
    at.map(([start, last]) => ({ start: AT + start * 60_000, last: AT + last * 60_000 }));
  const goodput = {
    time: iso(0),
    whole: { schedulingPercentage: 90, seconds: { queued: 120, starting: 60, programStartup: 1200 } },
  };
  const quiet = job("a", { startTime: iso(-57), goodput });
  expect(told(quiet, minutes([-40, 0]))).toEqual(["waits -57", "silent -40", "runs 0"]);
  expect(told(quiet, [])).toEqual(["waits -57", "runs 0"]);
  // Six attempts without a report after the first; the document tells when the last of them began.
  const restarted = job("b", { phase: "Failed", attempts: 7, startTime: iso(-12), endTime: iso(-10), goodput });
  expect(told(restarted, minutes([-40, -38]))).toEqual([
    "waits -57",
    "silent -40",
    "earlier -38",
    "silent -12",
    "failed -10",
  ]);
});

test("of too many labels those are kept that people chose, not those that tools write", () => {
  const tools = Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`app.kubernetes.io/part-${at}`, "x"]));
  const { labels } = job("a", {}, { ...tools, team: "nlp", "zone.example.com/owner": "ann" });
  expect(labels).toMatchObject({ team: "nlp", "zone.example.com/owner": "ann" });
  expect(Object.keys(labels)).toHaveLength(24);
});

test("bars are cut at the window, and are never too small to be seen", () => {
  const within = windowOf("6h", AT);
  expect(placed({ from: AT - 9e9, to: AT - 8e9 }, within)).toBeUndefined();
  expect(placed({ from: AT - 9e9, to: within.to }, within)).toEqual({ x: 0, width: 100 });
  expect(placed({ from: AT - 1000, to: AT }, within)?.width).toBe(0.3);
  expect(placed({ from: NaN, to: AT }, within)).toBeUndefined();
});
