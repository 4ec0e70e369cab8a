import { expect, test } from "vitest";

import type { History, ProgressStatus } from "../api/types";
import { fromHistory, groupMetrics, isEvaluation, NOTHING, usableAxes, withLatest, withUnkept } from "./series";

const HISTORY: History = {
  metadata: {},
  attempts: [{ number: 0 }, { number: 1 }],
  progress: [{ attempt: 0, times: [10, 20], epochs: [0.5, 1] }],
  series: [
    { metric: "loss", attempt: 0, times: [9, 11, 20], steps: [1, 2, null], values: ["3", "NaN", "1e-3"] },
    { metric: "loss", attempt: 1, times: [30], steps: [2], values: ["2"] },
  ],
};

function status(at: string, metrics: Record<string, string>, step?: number): ProgressStatus {
  const found = Object.entries(metrics).map(([name, value]) => ({ name, value }));
  return {
    phase: "Running",
    lastUpdatedTime: at,
    metrics: found,
    ...(step === undefined ? {} : { steps: { current: step } }),
  };
}

test("history becomes numbers, and epochs come from the progress before each point", () => {
  const { curves } = fromHistory(HISTORY);
  expect(curves[0]).toMatchObject({ values: [3, NaN, 0.001], steps: [1, 2, null], epochs: [null, 0.5, 1] });
  expect(usableAxes(curves)).toEqual(["step", "time", "relative", "epoch"]);
  expect(usableAxes([{ ...curves[0]!, steps: [null], epochs: [null] }])).toEqual(["time", "relative"]);
});

test("the watch continues the curves of the last attempt", () => {
  const known = fromHistory(HISTORY);
  const next = withLatest(known, status("1970-01-01T00:00:40Z", { loss: "1.5" }, 3));
  expect(next.curves[1]).toMatchObject({ attempt: 1, times: [30, 40], steps: [2, 3], values: [2, 1.5] });
  expect(next.curves[0]).toBe(known.curves[0]);
});

test("what is known already changes nothing", () => {
  const known = fromHistory(HISTORY);
  expect(withLatest(known, status("1970-01-01T00:00:25Z", { loss: "1" }, 1))).toBe(known);
  expect(withLatest(known, { phase: "Pending" })).toBe(known);
});

test("a metric that is measured seldom is not repeated at each step", () => {
  let known = withLatest(NOTHING, status("1970-01-01T00:00:01Z", { loss: "3", eval_loss: "9" }, 1));
  known = withLatest(known, status("1970-01-01T00:00:02Z", { loss: "3", eval_loss: "9" }, 2));
  const points = known.curves.map(({ metric, values }) => [metric, values.length]);
  expect(points).toEqual([
    ["loss", 2],
    ["eval_loss", 1],
  ]);
});

test("training and evaluation of one thing belong into one chart", () => {
  const groups = groupMetrics(["loss", "train_loss", "eval/loss", "lr", "val_accuracy", "train_"]);
  expect([...groups]).toEqual([
    ["loss", ["loss", "train_loss", "eval/loss"]],
    ["lr", ["lr"]],
    ["accuracy", ["val_accuracy"]],
    ["train_", ["train_"]],
  ]);
  expect(["eval_loss", "val/acc", "value", "test"].map(isEvaluation)).toEqual([true, true, false, true]);
});

test("a metric that is text has no curve, one that is NaN or infinite has", () => {
  const { curves } = withLatest(
    NOTHING,
    status("1970-01-01T00:00:01Z", { t: "text value", loss: "nan", lr: "-inf" }, 1),
  );
  expect(curves.map(({ metric }) => metric)).toEqual(["loss", "lr"]);
});

const reported = (times: number[], steps?: number[]): History => ({
  metadata: {},
  attempts: [{ number: 0 }],
  progress: [{ attempt: 0, times, ...(steps ? { steps } : {}) }],
  series: [],
});
const dense = (from: number) => Array.from({ length: 20 }, (_, at) => from + at);

test.each([
  ["the server lost what it had", [10, ...dense(3000)], [1, ...dense(3100)], [[1, 3100]]],
  ["a long evaluation: no steps are missing", [...dense(10), ...dense(900)], [...dense(1), ...dense(21)], []],
  ["a thinned beginning", [...dense(0).map((at) => at * 600), ...dense(11500)], undefined, []],
  ["a pause between reports without steps", [...dense(0), ...dense(9000)], undefined, [[null, null]]],
  ["few reports", [0, 10, 9000], [1, 2, 9000], []],
])("where reports are missing: %s", (_, times, steps, gaps) => {
  expect(fromHistory(reported(times, steps)).gaps.map((gap) => gap.steps)).toEqual(gaps);
});

test("of a metric that the server does not keep, what the page has seen outlives a new history", () => {
  const seen = status("1970-01-01T00:00:40Z", { loss: "1.5", further: "7" }, 3);
  const names = ["loss", "further"];
  let known = withLatest(withUnkept(fromHistory(HISTORY), NOTHING, names), seen);
  expect([...(known.unkept ?? [])]).toEqual(["further"]);
  known = withUnkept(fromHistory(HISTORY), known, names);
  known = withLatest(known, status("1970-01-01T00:00:50Z", { loss: "1.4", further: "8" }, 4));
  expect(known.curves.find(({ metric }) => metric === "further")?.values).toEqual([7, 8]);
  expect(withUnkept(fromHistory(HISTORY), known, ["loss"]).unkept).toBeUndefined();
});
