import { expect, test } from "vitest";

import type { JobDocument, ProgressStatus } from "../api/types";
import { EVERYTHING, fromQuery, isFiltering, matcher, toQuery, type Filter } from "./filter";
import { bestOf } from "./best";
import cases from "../../../tests/unit/best_values.json";
import { isWasting, toJob } from "./job";
import { mainMetric } from "./main-metric";
import { formatRoute, parseRoute, USUAL_LOOK } from "./routes";
import { sorted } from "./sort";
import { summarise } from "./summary";
import { listTab } from "./tab";

const TODAY = { now: Date.parse("2026-11-22T12:00:00Z"), zone: "UTC" };
const NOW = Date.parse("2026-11-22T12:00:00Z");

/** Accelerators that are held, and seconds of them that were wasted. */
const holding = (accelerators: number, wastedAcceleratorSeconds = 0) => ({
  resources: { accelerators, byName: [], acceleratorSeconds: 0, wastedAcceleratorSeconds },
});

function job(name: string, status: Partial<ProgressStatus> = {}, metadata: JobDocument["metadata"] = {}) {
  const document = { metadata: { name, namespace: "team-a", ...metadata }, status: { phase: "Running", ...status } };
  return toJob("trainjobs", document as JobDocument);
}

const is = (type: string, status = "True") =>
  ({ type, status, reason: "R", message: "", lastTransitionTime: "" }) as never;
const names = (jobs: readonly { name: string }[]) => jobs.map(({ name }) => name).join(" ");

test("the main metric is the loss, then what looks like one, never the learning rate before another", () => {
  const of = (...list: string[]) => mainMetric(list.map((name) => ({ name, value: "1" })))?.name;
  expect(of("lr", "train_loss", "loss")).toBe("loss");
  expect(of("accuracy", "mlm_loss")).toBe("mlm_loss");
  expect(of("learning_rate", "reward")).toBe("reward");
  expect(of("lr")).toBe("lr");
  expect(of()).toBeUndefined();
});

test("a job that has ended is not stalled any more, but stays diverged", () => {
  expect(job("a", { conditions: [is("Stalled"), is("Diverged")] }).flags).toEqual(["Stalled", "Diverged"]);
  expect(job("a", { phase: "Succeeded", conditions: [is("Stalled"), is("Diverged")] }).flags).toEqual(["Diverged"]);
});

test("old numbers are no second fault of a job that does not advance", () => {
  expect(job("a", { conditions: [is("Stalled"), is("Fresh", "False")] }).flags).toEqual(["Stalled"]);
  expect(job("a", { conditions: [is("Fresh", "False")] }).flags).toEqual(["Not fresh"]);
});

test("stalled and wasting jobs come first, jobs that ended last", () => {
  const jobs = [
    job("done", { phase: "Succeeded" }),
    job("good"),
    job("failed", { phase: "Failed" }),
    job("slow", { conditions: [is("Straggling")] }),
    job("unread", { conditions: [is("Reporting", "False")] }),
    job("advised", { conditions: [is("ShouldStop")] }),
    job("stalled", { conditions: [is("Stalled")] }),
    job("wasting", { conditions: [is("Diverged")], ...holding(8) }),
  ];
  expect(names(sorted(jobs, "attention", false, TODAY))).toBe("wasting stalled slow advised unread good failed done");
});

test("what is not known comes last in either direction", () => {
  const jobs = [job("none"), job("low", { progressPercentage: 5 }), job("high", { progressPercentage: 90 })];
  expect(names(sorted(jobs, "progress", false, TODAY))).toBe("high low none");
  expect(names(sorted(jobs, "progress", true, TODAY))).toBe("low high none");
});

test("equal infinities keep the order of names", () => {
  const metric = (value: string) => ({ metrics: [{ name: "loss", value }] });
  const jobs = [job("b", metric("Infinity")), job("a", metric("Infinity")), job("c", metric("1"))];
  expect(names(sorted(jobs, "metric", false, TODAY))).toBe("c a b");
});

test("filters add up, and several values of one are alternatives", () => {
  const jobs = [
    job("a", {}, { labels: { "kueue.x-k8s.io/queue-name": "gpu" } }),
    job("b", { phase: "Failed" }),
    job("c", { phase: "Pending" }, { namespace: "team-b" }),
  ];
  const shown = (filter: Partial<Filter>) => names(jobs.filter(matcher({ ...EVERYTHING, ...filter }, TODAY)));
  expect(shown({})).toBe("a b c");
  expect(shown({ phases: ["Failed", "Pending"] })).toBe("b c");
  expect(shown({ phases: ["Failed", "Pending"], namespaces: ["team-b"] })).toBe("c");
  expect(shown({ queues: ["gpu"] })).toBe("a");
  expect(shown({ queues: ["-"] })).toBe("b c");
  expect(shown({ kinds: ["TrainJob"] })).toBe("a b c");
  expect(shown({ kinds: ["RayJob"] })).toBe("");
  expect(shown({ text: "TEAM-A gpu" })).toBe("a");
});

test("filters survive the address of the page, with whatever characters", () => {
  const filter: Filter = {
    ...EVERYTHING,
    text: "a&b #1",
    phases: ["Running", "Failed"],
    troubles: ["Stalled", "Wasting"],
    namespaces: ["x,y", "z=1&q"],
    sort: "metric",
    descending: true,
  };
  expect(fromQuery(new URLSearchParams(toQuery(filter).toString()))).toEqual(filter);
  expect(parseRoute(formatRoute({ view: "fleet", filter }))).toEqual({ view: "fleet", filter });
  expect(isFiltering(filter)).toBe(true);
});

test("what is not understood in an address is left out", () => {
  expect(parseRoute("#/?q=a?b&phase=Running")).toMatchObject({ filter: { text: "a?b", phases: ["Running"] } });
  const twice = parseRoute("#/trainjobs/n/a?with=n/a&with=n/b&with=n/b");
  expect(twice).toMatchObject({ look: { others: ["n/b"] } });
  const route = parseRoute("#/?phase=Exploded&sort=__proto__&is=toString");
  expect(route).toEqual({ view: "fleet", filter: EVERYTHING });
});

test("a job's address says how its curves are drawn", () => {
  const ref = { plural: "trainjobs", namespace: "n", name: "a/b?c#d" };
  const look = {
    ...USUAL_LOOK,
    axis: "time" as const,
    isLog: true,
    weight: 0.9,
    metrics: ["loss/a&b"],
    others: ["n/x"],
  };
  expect(parseRoute(formatRoute({ view: "job", ref, look }))).toEqual({ view: "job", ref, look });
  expect(parseRoute("#/trainjobs/n/j?smooth=7&x=constructor")).toMatchObject({
    look: { weight: 0.6, axis: undefined },
  });
});

test("the figures count what runs, what is wrong, and accelerators that nobody uses", () => {
  const jobs = [
    job("a", { ...holding(8) }),
    job("b", { conditions: [is("Stalled")], ...holding(16, 7200) }),
    job("c", { phase: "Failed", endTime: "2026-11-22T01:00:00Z" }),
    job("d", { phase: "Failed", endTime: "2026-11-21T23:00:00Z" }),
    job("e", { phase: "Suspended" }),
  ];
  expect(summarise(jobs, NOW, "UTC")).toEqual({
    all: 5,
    running: 2,
    waiting: 1,
    stalled: 1,
    diverged: 0,
    failedToday: 1,
    held: 24,
    idle: 16,
    wastedS: 7200,
  });
  expect(summarise(jobs, NOW, "America/New_York").failedToday).toBe(0);
  expect(jobs.filter(isWasting).map(({ name }) => name)).toEqual(["b"]);
});

test.each(cases as [string, string | null][])("the best %s is the %s: words tell, not parts of words", (name, best) => {
  expect(bestOf(name, [1, 2])?.name ?? null).toBe(best);
});

test("a best value that only rounding makes better than the last is the last", () => {
  expect(bestOf("accuracy", [0.5, 1, 0.9999999999568642])?.value).toBe(0.9999999999568642);
  expect(bestOf("loss", [0.4, 0.41])?.value).toBe(0.4);
});

test("the scale of a loss is not the job's main metric", () => {
  const metrics = ["loss_scale", "accuracy"].map((name) => ({ name, value: "1" }));
  expect(mainMetric(metrics)?.name).toBe("accuracy");
});

test("of the runs that have diverged and ended those of today count, as of those that have failed", () => {
  const diverged = { conditions: [is("Diverged")] };
  const jobs = [
    job("runs", diverged),
    job("today", { ...diverged, phase: "Succeeded", endTime: "2026-11-22T09:00:00Z" }),
    job("old", { ...diverged, phase: "Succeeded", endTime: "2026-11-20T09:00:00Z" }),
  ];
  expect(summarise(jobs, NOW, "UTC").diverged).toBe(2);
  expect(names(jobs.filter(matcher({ ...EVERYTHING, troubles: ["Diverged"] }, TODAY)))).toBe("runs today");
  expect(listTab(jobs, TODAY, true).title).toBe("(2) Training jobs");
});

test("names are sorted as people count", () => {
  const jobs = ["job-10", "job-2", "job-1", "job-b", "job"].map((name) => job(name));
  expect(names(sorted(jobs, "name", false, TODAY))).toBe("job job-1 job-2 job-10 job-b");
});

test("no end is foretold of what does not advance: not in a sort, and not in the CSV", () => {
  const ending = (seconds: number) => ({ estimatedRemainingSeconds: seconds });
  const stalled = job("stalled", { ...ending(10), conditions: [is("Stalled")] });
  expect(stalled.remainingS).toBeUndefined();
  expect(job("suspended", { ...ending(10), phase: "Suspended" }).remainingS).toBeUndefined();
  expect(names(sorted([stalled, job("runs", ending(90))], "end", false, TODAY))).toBe("runs stalled");
});
