import { expect, test } from "vitest";

import type { Curve } from "../model/series";
import { divisible, logTicks } from "./range";
import { describe, newest, plan, stepsBack } from "./series-plan";
import { smooth } from "./smoothing";
import { spark } from "./sparkline";

const curve = (values: number[], extra: Partial<Curve> = {}): Curve => ({
  metric: "loss",
  attempt: 0,
  times: values.map((_, at) => 100 + at),
  steps: values.map((_, at) => at * 10),
  epochs: values.map(() => null),
  values,
  ...extra,
});
const step = { axis: "step", isLog: false, weight: 0 } as const;

test("smoothing is TensorBoard's: debiased, so that it begins at the first value", () => {
  const [first, second, third] = smooth([1, 2, 3], 0.5);
  expect(first).toBeCloseTo(1);
  expect(second).toBeCloseTo((0.5 * (0.5 * 1) + 0.5 * 2) / 0.75);
  expect(third).toBeCloseTo((0.25 * 0.5 + 0.5 * 0.5 * 2 + 0.5 * 3) / 0.875);
});

test("a thinned history is smoothed by how far its points are apart: a straight line stays one", () => {
  const xs = [
    1,
    ...Array.from({ length: 20 }, (_, at) => 20 + at * 25),
    ...Array.from({ length: 15 }, (_, at) => 500 + at),
  ];
  const smoothed = smooth(xs, 0.6, xs);
  smoothed.forEach((value, at) => expect(Math.abs((value ?? NaN) - (xs[at] ?? NaN))).toBeLessThan(2));
  const [, after] = smooth([2.4, 0.4, 0.4], 0.9, [1, 3100, 3101]);
  expect(after).toBeCloseTo(0.4); // begins anew after a gap
});

test("what is no number is a gap in the smoothed line and disturbs nothing after it", () => {
  const whole = smooth([1, 3], 0.6);
  expect(smooth([1, null, 3], 0.6)).toEqual([whole[0], null, whole[1]]);
  expect(smooth([2, 2, 2], 0.9)).toEqual([2, 2, 2]);
  expect(smooth([1, 2], 0)).toEqual([1, 2]);
});

test("curves of several metrics share the axis; a place where one has no point is no gap", () => {
  const rare = curve([5, 6], { metric: "eval_loss", steps: [0, 15] });
  const { columns, lines } = plan(
    [curve([1, 2, 3]), rare].map((one) => ({ curve: one, job: 0, start: 0 })),
    step,
  );
  expect(columns).toEqual([
    [0, 10, 15, 20],
    [1, 2, undefined, 3],
    [5, undefined, 6, undefined],
  ]);
  expect(lines.map(({ metric, showsPoints }) => [metric, showsPoints])).toEqual([
    ["loss", true],
    ["eval_loss", true],
  ]);
});

test("with smoothing there is a raw line and a smoothed one, and none of evaluations", () => {
  const owned = [curve([1, 2, 3]), curve([1, 2, 3], { metric: "eval_loss" })].map((one) => ({
    curve: one,
    job: 0,
    start: 0,
  }));
  const { lines } = plan(owned, { ...step, weight: 0.6 });
  expect(lines.map(({ metric, isRaw }) => [metric, isRaw])).toEqual([
    ["loss", true],
    ["loss", false],
    ["eval_loss", false],
  ]);
});

test("values that are not finite are gaps and marked, values that a log axis cannot show are counted", () => {
  const owned = [{ curve: curve([1, NaN, Infinity, -1]), job: 0, start: 0 }];
  expect(plan(owned, step)).toMatchObject({
    broken: [10, 20],
    hidden: 0,
    columns: [
      [0, 10, 20, 30],
      [1, null, null, -1],
    ],
  });
  expect(plan(owned, { ...step, isLog: true })).toMatchObject({ broken: [10, 20], hidden: 1 });
});

test("a step that is reported again counts once, with its last value", () => {
  const again = curve([1, 2, 3], { steps: [5, 6, 6] });
  expect(plan([{ curve: again, job: 0, start: 0 }], step).columns).toEqual([
    [5, 6],
    [1, 3],
  ]);
});

test("elapsed time counts from the start of the curve's own job", () => {
  const owned = [{ curve: curve([1, 2]), job: 0, start: 90 }];
  expect(plan(owned, { ...step, axis: "relative" }).columns[0]).toEqual([10, 11]);
});

test("a chart can be told in a sentence", () => {
  const drawn = plan([{ curve: curve([3, 1, 2]), job: 0, start: 0 }], step);
  expect(describe(drawn, "Step", String)).toBe("By step. loss: 3 points, from 3 to 2, between 1 and 3.");
  expect(describe(plan([], step), "Step", String)).toBe("No points.");
  const smoothed = { ...step, weight: 0.9 };
  const two = [curve([9, NaN, 1, 0.5]), curve([3, 2, 1], { attempt: 1 })].map((one) => ({
    curve: one,
    job: 0,
    start: 0,
  }));
  expect(describe(plan(two, smoothed), "Step", String)).toBe(
    "By step. loss of attempt 1: 3 points, from 9 to 0.5, between 0.5 and 9, and 1 that are not finite or too large." +
      " loss: 3 points, from 3 to 1, between 1 and 3.",
  );
});

test("a sparkline stays within its box, and what is not finite interrupts it", () => {
  const { path, end } = spark([0, 1, 2, 3], [5, NaN, 1, 3], 92, 26);
  expect(path).toBe("M2 2h0M60.7 24L90 13");
  expect(spark([0, 1, 2], [5, 1, Infinity], 92, 26)).toEqual({ path: "M2 2L90 24", end: undefined });
  expect(end).toEqual([90, 13]);
  expect(spark([1], [1], 92, 26).end).toEqual([90, 13]);
  expect(spark([], [], 92, 26).path).toBe("");
});

test.each([
  [0, 0],
  [1, 1 + Number.EPSILON],
  [9.2e18, 9.2e18],
  [-1e300, -1e300],
  [1763819000, 1763819000.0000002],
])("an axis from %s to %s can be divided into steps", (min, max) => {
  const [low, high] = divisible(min, max);
  expect(low + (high - low) / 1000).toBeGreaterThan(low);
  expect(high - (high - low) / 1000).toBeLessThan(high);
});

test("an axis that is long enough stays as it is", () => {
  expect(divisible(0, 1)).toEqual([0, 1]);
  expect(divisible(-1e300, 1e300)).toEqual([-1e300, 1e300]);
});

test("values whose difference would be infinite are as good as infinite, and marked", () => {
  const owned = [{ curve: curve([1.7e308, -1.7e308, 1]), job: 0, start: 0 }];
  expect(plan(owned, step)).toMatchObject({
    broken: [0, 10],
    columns: [
      [0, 10, 20],
      [null, null, 1],
    ],
  });
  const tiny = [{ curve: curve([5e-324, 1]), job: 0, start: 0 }];
  expect(plan(tiny, { ...step, isLog: true }).hidden).toBe(1);
});

test("after a step back within an attempt the last value is the one that came last, and what it undid is told apart", () => {
  const back = curve([5, 9, 14.9, 1.2, 0.9], { steps: [10, 500, 1000, 500, 600] });
  const drawn = plan([{ curve: back, job: 0, start: 0 }], step);
  expect(drawn.curves.map(({ line, xs, values }) => [line.isLastAttempt, xs, values])).toEqual([
    [false, [10, 500, 1000], [5, 9, 14.9]],
    [true, [500, 600], [1.2, 0.9]],
  ]);
  expect([newest(drawn), stepsBack(drawn)]).toEqual([600, [500]]);
  expect(describe(drawn, "Step", String)).toContain(
    "loss before a step back in attempt 1: 3 points, from 5 to 14.9, between 5 and 14.9. loss: 2 points, from 1.2 to 0.9",
  );
  const byTime = plan([{ curve: back, job: 0, start: 0 }], { ...step, axis: "time" });
  expect(byTime.curves).toHaveLength(1);
  const jumping = curve(
    Array.from({ length: 100 }, (_, at) => at),
    { steps: Array.from({ length: 100 }, (_, at) => at + (at % 2 ? -2 : 2)) },
  );
  expect(plan([{ curve: jumping, job: 0, start: 0 }], step).curves).toHaveLength(1); // lines of a log, in disorder
});

test.each([
  [1e-30, 1],
  [1e-300, 1],
  [1e-100, 1e100],
  [1e-300, 1e300],
  [1e-300, 1.3e-300],
  [0.87, 1.15],
  [3.1, 4.9],
  [0.1, 1],
  [5e-4, 2.5],
  [1e300 / 1.15, 1e300 * 1.15],
])("a logarithmic axis from %s to %s has some ticks, in order and between its ends", (min, max) => {
  const ticks = logTicks(min, max, 6);
  expect(ticks.length).toBeGreaterThanOrEqual(2);
  expect(ticks.length).toBeLessThanOrEqual(9);
  expect(ticks).toEqual([...new Set(ticks)].sort((one, other) => one - other));
  expect(ticks.every((tick) => tick >= min && tick <= max)).toBe(true);
});

test("ticks of a logarithmic axis are powers of ten, with 2 and 5 between them where there is room", () => {
  expect(logTicks(0.09, 12, 9)).toEqual([0.1, 0.2, 0.5, 1, 2, 5, 10]);
  expect(logTicks(1e-6, 1, 6)).toEqual([1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1]);
  expect(logTicks(1e-30, 1, 6)).toEqual([1e-30, 1e-25, 1e-20, 1e-15, 1e-10, 1e-5, 1]);
});

test("no line leads over a part of the run of which no report is kept", () => {
  const gap = { attempt: 0, times: [100, 101], steps: [0, 10], epochs: [null, null] };
  const drawn = plan([{ curve: curve([9, 1, 1]), job: 0, start: 0, gaps: [gap] }], step);
  expect(drawn.columns).toEqual([
    [0, 5, 10, 20],
    [9, null, 1, 1],
  ]);
  expect(drawn.curves[0]?.xs).toEqual([0, 10, 20]);
});
