import { expect, test } from "vitest";

import type { ProgressStatus } from "../api/types";
import { KINDS, kindNamed, partsOf, percentage, riskOf, windowsOf, withQueue } from "./goodput";
import { flagsOf } from "./job";
import { urgency } from "./sort";
import { toJob } from "./job";

const AT = Date.parse("2026-11-26T12:00:00Z");
const iso = (minutes: number) => new Date(AT + minutes * 60_000).toISOString();
const condition = (type: string, status: string, reason = "R", since = 0) =>
  ({ type, status, reason, message: "", lastTransitionTime: iso(since) }) as never;
const status = (more: Partial<ProgressStatus>) => ({ phase: "Running", ...more }) as ProgressStatus;

test("every kind of the document is drawn, and what is drawn sums to the whole", () => {
  const seconds = Object.fromEntries(KINDS.map(({ key }, at) => [key, at + 1]));
  const parts = partsOf(seconds);
  expect(parts).toHaveLength(12);
  expect(parts.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1);
  expect(partsOf({ productive: 0 })).toEqual([]);
  expect(["ProgramStartup", "Queued", "Sleeping"].map(kindNamed)).toEqual(["Program startup", "Queued", "Sleeping"]);
});

test.each([
  [0, "0%"],
  [0.04, "<0.1%"],
  [0.26, "0.3%"],
  [37.4, "37%"],
  [99.7, ">99%"],
  [100, "100%"],
])("a share of %d is told as %s: what is not all is not called all", (value, text) => {
  expect(percentage(value)).toBe(text);
});

test("a job that waits since hours has been queued since hours, and its goodput is that of before", () => {
  const goodput = {
    time: iso(-120),
    current: "Queued",
    whole: { percentage: 50, schedulingPercentage: 100, seconds: { productive: 1800, other: 1800 } },
    hour: { percentage: 50, seconds: { productive: 1800, other: 1800 } },
  };
  const job = status({ phase: "Suspended", goodput });
  const [whole, hour] = windowsOf(job);
  expect(withQueue(job, whole!, AT).goodput).toEqual({
    percentage: 50,
    schedulingPercentage: expect.closeTo(33.3, 1) as number,
    seconds: { productive: 1800, other: 1800, queued: 7200 },
  });
  expect(withQueue(job, hour!, AT)).toBe(hour);
  const held = status({ goodput: { ...goodput, current: "Productive" } });
  expect(withQueue(held, whole!, AT)).toBe(whole);
});

const checkpoint = { step: 4000, time: iso(-26) };
const held = { resources: { accelerators: 64, byName: [], acceleratorSeconds: 0 } };

test.each<[string, Partial<ProgressStatus>, number | undefined]>([
  ["since the checkpoint", {}, 26],
  ["since the attempt began, where that was later", { startTime: iso(-10) }, 10],
  [
    "since the attempt before ended",
    {
      rank0: {
        podName: "p",
        containerName: "c",
        restartCount: 1,
        lastTermination: { exitCode: 1, finishedAt: iso(-5) },
      },
    },
    5,
  ],
  [
    "of a run that stands still up to now, as AtRisk tells it",
    { conditions: [condition("Stalled", "True", "NoAdvance", -20)] },
    26,
  ],
  ["nothing when it does not train", { conditions: [condition("AtRisk", "False", "NotTraining")] }, undefined],
  ["nothing when it is suspended", { phase: "Suspended" }, undefined],
  ["nothing when it has ended", { phase: "Succeeded" }, undefined],
])("what is at risk: %s", (_, more, minutes) => {
  const risk = riskOf(status({ checkpoint, ...held, ...more }), AT);
  expect(risk).toMatchObject({ step: 4000, accelerators: 64 });
  expect(risk?.lostS).toBe(minutes === undefined ? undefined : minutes * 60);
});

test("a run that tells of no checkpoint is at no risk that is known", () => {
  expect(riskOf(status(held), AT)).toBeUndefined();
});

test("a job that comes no further is shown among those that waste, one at risk below those that are slow", () => {
  const of = (type: string) => {
    const document = { metadata: { name: type }, status: status({ ...held, conditions: [condition(type, "True")] }) };
    return toJob("trainjobs", document);
  };
  expect(flagsOf(status({ conditions: [condition("LowGoodput", "True"), condition("NoProgress", "True")] }))).toEqual([
    "No progress",
    "Low goodput",
  ]);
  const order = ["NoProgress", "Straggling", "AtRisk", "LowGoodput", "Reporting"].map((type) =>
    urgency(of(type), { now: AT, zone: "UTC" }),
  );
  expect(order[0]).toBe(0);
  expect([...order].sort((a, b) => a - b)).toEqual(order);
});
