/** The pods of a job, one by one, as `progress?replicas=all` has them. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import type { ReplicaStatus } from "../src/api/types";
import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";
// @ts-expect-error it is a script without types
import { startTrace, stopTrace } from "./tasks.mjs";

let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];
let job: MadeJob;

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: 30 });
  job = fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile)!;
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const route = () => `${fixture.page()}#/${job.plural}/${job.namespace}/${job.name}`;
const squares = () => page.locator('.pods [role="option"]');
const asked = () => fixture.requests.filter((path) => path.includes("/progress?replicas=all")).length;
const panel = () => page.getByRole("region", { name: "Replicas" });

async function show(): Promise<void> {
  ({ page, faults } = await open(browser, route()));
  await panel().scrollIntoViewIfNeeded();
}

function running(rank: number, more: Partial<ReplicaStatus> = {}): ReplicaStatus {
  return { name: `worker-${rank}`, rank, podName: `p-${rank}`, state: "Running", restartCount: 0, ...more };
}

test("each pod of a job of any kind is a square with its state, and the table begins with the worst", async () => {
  Object.assign(job, { plural: "pytorchjobs", kind: "PyTorchJob" });
  const exit = { exitCode: 137, signal: 9, reason: "OOMKilled", finishedAt: new Date().toISOString() };
  job.hasPods = [
    { name: "master-0", rank: 0, podName: "bert-master-0", state: "Running", restartCount: 0, step: 450 },
    running(1, { nodeName: "gpu-7" }),
    running(2, { state: "Failed", reason: "Evicted", nodeName: "gpu-9", restartCount: 2, lastTermination: exit }),
    running(3, { state: "Pending", reason: "Unscheduled" }),
  ];
  await show();
  await page.getByRole("group", { name: "worker: 1 Running, 1 Failed, 1 Pending" }).waitFor();
  await page.getByRole("group", { name: "master: 1 Running" }).waitFor();
  expect(await squares().count()).toBe(4);
  expect(await page.getByRole("option", { name: "worker-2: Failed: Evicted" }).getAttribute("class")).toMatch(
    /^failed/,
  );
  const rows = page.locator(".pod-table tbody tr");
  expect(await rows.allTextContents()).toEqual([
    expect.stringMatching(/^worker-22Failed: Evictedgpu-92OOMKilled \(exit code 137, signal 9\) /),
    expect.stringMatching(/^worker-33Pending: Unscheduled/),
    expect.stringMatching(/^master-00Running0450 $/),
    expect.stringMatching(/^worker-11Runninggpu-70/),
  ]);
  await page.getByRole("option", { name: "worker-1: Running" }).hover();
  await page.getByText("worker-1: rank 1, Running, pod p-1, on gpu-7").waitFor();
});

test("a pod is chosen with the arrows", async () => {
  job.hasPods = Array.from({ length: 5 }, (_, rank) => running(rank));
  await show();
  await page.getByRole("listbox", { name: "Pods" }).focus();
  for (const [key, name] of [
    ["ArrowRight", "worker-0"],
    ["ArrowRight", "worker-1"],
    ["End", "worker-4"],
    ["ArrowRight", "worker-4"],
    ["Home", "worker-0"],
  ] as const) {
    await page.keyboard.press(key);
    await page.locator(".pod", { hasText: `${name}: rank` }).waitFor();
    expect(await page.locator(".pods").getAttribute("aria-activedescendant")).toBe(`pod-${name}`);
  }
});

test("pods are coloured by their time for a step, where rank 0 reports it", async () => {
  job.hasPods = [0.4, 0.41, 0.4, 0.93, undefined].map((stepSeconds, rank) =>
    running(rank, stepSeconds === undefined ? {} : { stepSeconds }),
  );
  await show();
  await page.getByRole("button", { name: "Time for a step" }).click();
  const looks = () => squares().evaluateAll((all) => all.map(({ className }) => className.trim()));
  await until(looks, (all) => all.join() === "speed-0,speed-0,speed-0,speed-4,missing");
  await page.getByText("half of the ranks need 0.4 s for a step or less").waitFor();
  expect(await page.locator(".pod-table tbody tr").first().textContent()).toMatch(/^worker-3.*0\.93 s$/);
});

test("pods are read only while they are seen, again while the job goes on, and once more when it has ended", async () => {
  const opened = await openWithClock(browser, route());
  ({ page, faults } = opened);
  await opened.waitFor("Replicas");
  await page.clock.runFor(60_000);
  expect(asked()).toBe(0); // the panel is below the window
  await panel().scrollIntoViewIfNeeded();
  await until(
    async () => {
      await page.clock.runFor(100);
      return squares().count();
    },
    (count) => count === 5,
  );
  expect(asked()).toBe(1);
  const readAgain = async (count: number) => {
    const before = await page.evaluate(() => Date.now());
    await until(
      async () => {
        await page.clock.runFor(500);
        return asked();
      },
      (all) => all >= count,
    );
    return (await page.evaluate(() => Date.now())) - before;
  };
  expect(await readAgain(2)).toBeGreaterThan(2000);
  await opened.see(false);
  const before = asked();
  await page.clock.runFor(60_000);
  expect(asked()).toBe(before);
  await opened.see(true);
  await readAgain(before + 1);
  job.says = { phase: "Succeeded", endTime: new Date().toISOString() };
  job.hasPods = [running(0, { state: "Gone" })];
  fixture.change(job);
  await opened.waitFor("1 Gone");
  const last = asked();
  await page.clock.runFor(60_000);
  expect(asked()).toBe(last);
});

test("without the right to progress the counts of the document are shown, and the right is named", async () => {
  fixture.mayReadProgress = false;
  job.says = { replicas: [{ name: "node", desired: 8, ready: 3, active: 5, succeeded: 1, failed: 1 }] };
  await show();
  await page.getByRole("img", { name: "node: 1 failed, 2 not ready, 3 ready, 1 succeeded, 1 missing" }).waitFor();
  expect(await page.locator(".pods span").count()).toBe(8);
  await page.getByText(`takes the right to get trainjobs/progress in the namespace ${job.namespace}`).waitFor();
});

test("pods that cannot be read again say so, with their age, and those of a job made anew are not mixed in", async () => {
  const opened = await openWithClock(browser, route());
  ({ page, faults } = opened);
  job.hasPods = [running(0, { lastReportTime: new Date(Date.now() - 5000).toISOString() })];
  await opened.waitFor("Replicas");
  await panel().scrollIntoViewIfNeeded();
  await opened.waitFor(/^As of .*, listed every 10 s while seen\.$/);
  fixture.fault = { path: /\/progress$/, code: 504 };
  await opened.waitFor(/^ ?They cannot be read again: /);
  const table = () => page.locator(".pod-table").textContent();
  const shown = await table();
  await page.clock.runFor(90_000);
  expect(await table()).toBe(shown); // as of when they were read
  await page.getByText(/^As of \d.*\./).waitFor();
  expect(await page.getByText("while seen").count()).toBe(0);
  fixture.fault = undefined;
  await opened.waitFor(/listed every 10 s while seen\.$/);
  job.uid = "11111111-0000-4000-8000-000000000000";
  fixture.change(job, "DELETED");
  fixture.jobs.push(job);
  job.hasPods = [running(0, { state: "Pending" })];
  fixture.change(job, "ADDED");
  await opened.waitFor("1 Pending");
  expect(await squares().count()).toBe(1);
});

test("a thousand pods are drawn without a task over 50 ms, and those beyond in pages", async () => {
  job.says = { replicas: [{ name: "worker", desired: 1500 }] };
  job.hasPods = Array.from({ length: 1500 }, (_, rank) =>
    running(rank, { nodeName: `gpu-${rank >> 3}`, podName: `bert-worker-${rank}`, stepSeconds: 0.4 }),
  );
  ({ page, faults } = await open(browser, route()));
  await page.getByRole("img", { name: /^loss\. .*\d{2} points/ }).waitFor();
  await until(() => fixture.isQuiet, Boolean);
  await startTrace(browser, page);
  await panel().scrollIntoViewIfNeeded();
  await until(
    () => squares().count(),
    (count) => count === 1000,
  );
  await page.getByRole("button", { name: "Time for a step" }).click();
  await page.locator(".speed-0").first().waitFor();
  const { longestCpuMs, inLongest } = await stopTrace(browser); // of a machine that does other things too
  expect(longestCpuMs, inLongest.join()).toBeLessThan(50);
  await page.getByRole("button", { name: "Those that follow" }).click();
  await until(
    () => squares().count(),
    (count) => count === 500,
  );
  await page.getByRole("option", { name: "worker-1499: Running" }).waitFor();
  expect(await page.getByRole("button", { name: "Those that follow" }).isDisabled()).toBe(true);
  await page.getByRole("button", { name: "Those before" }).click();
  await page.getByRole("option", { name: "worker-0: Running" }).waitFor();
});
