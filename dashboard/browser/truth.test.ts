/** What is shown is so now, or says of when it is. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import type { KubernetesEvent } from "../src/api/types";
import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

const JOBS = 30;
let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: JOBS });
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const show = async (at = "") => ({ page, faults } = await open(browser, fixture.page() + at));
const ago = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();
const pageOf = ({ plural, namespace, name }: MadeJob) => `#/${plural}/${namespace}/${name}`;
const good = () => fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile)!;

test("a job that waits again does not run on, and no probe of it is overdue", async () => {
  const job = good();
  job.says = {
    phase: "Suspended",
    attempts: 1,
    startTime: ago(3600),
    observation: { source: "exec", consecutiveFailures: 0, lastProbeTime: ago(600), nextProbeTime: ago(500) },
  };
  await show(pageOf(job));
  await page.getByText("Started", { exact: true }).waitFor();
  expect(await page.locator(".numbers").textContent()).not.toMatch(/Runs for|Ran for/);
  await page.getByText("Last probed").waitFor();
  expect(await page.getByText("Next probe").count()).toBe(0);
});

test("a probe that found nothing new is not called overdue: the server does not tell of each", async () => {
  const job = good();
  job.says.observation = {
    source: "exec",
    consecutiveFailures: 0,
    lastProbeTime: ago(40),
    nextProbeTime: ago(38),
  };
  await show(pageOf(job));
  await page.getByText("within the last 90 s").waitFor();
  expect(await page.getByText("overdue").count()).toBe(0);
});

test("a job that has not begun is not one that does not report", async () => {
  const job = good();
  const [reporting] = job.document(Date.now()).status.conditions!;
  job.says = { phase: "Initializing", conditions: [{ ...reporting!, status: "False", reason: "Rank0NotRunning" }] };
  await show(`#/?q=${job.name}`);
  const row = page.locator(".body .row");
  await row.getByText("Initializing").waitFor();
  expect(await row.textContent()).not.toContain("Not reporting");
});

test("a job that reports steps and no metric is not told to install what it has", async () => {
  const job = good();
  job.says = { metrics: [] };
  job.hasHistory = { attempts: [], progress: [], series: [] };
  await show(pageOf(job));
  await page.getByText("This job reports how far it is, and no metric.").waitFor();
  expect(await page.getByText("pip install").count()).toBe(0);
});

test("the time that is left goes on between two reports, and past the end it says so", async () => {
  const job = good();
  job.says = { estimatedRemainingSeconds: 600, estimatedCompletionTime: ago(-600) };
  const opened = await openWithClock(browser, `${fixture.page()}#/?q=${job.name}`);
  ({ page, faults } = opened);
  await opened.waitFor(/9 min \d+ s|10 min/);
  job.says = { estimatedRemainingSeconds: 600, estimatedCompletionTime: ago(-300) };
  await page.goto(fixture.page() + pageOf(job));
  await opened.waitFor(/About (5 min|4 min \d+ s) left, ends/);
  job.says = { estimatedRemainingSeconds: 600, estimatedCompletionTime: ago(60) };
  fixture.change(job);
  await opened.waitFor(/About to end, by the estimate of \d\d:\d\d/);
});

test("a deleted job does not stand still for longer and longer", async () => {
  const job = fixture.jobs.find(({ trouble }) => trouble === "Stalled")!;
  const opened = await openWithClock(browser, fixture.page() + pageOf(job));
  ({ page, faults } = opened);
  await opened.waitFor("The run does not advance (for 25 min).");
  fixture.change(job, "DELETED");
  await opened.waitFor("This job has been deleted.");
  await page.clock.runFor(180_000);
  await page.getByText("The run does not advance (for 25 min).").waitFor();
});

test("the newest events are shown, and none of an earlier job of this name", async () => {
  const job = good();
  const event = (at: number, uid: string, reason: string): KubernetesEvent => ({
    metadata: { uid: `e${at}`, name: `e${String(at).padStart(5, "0")}` },
    reason,
    lastTimestamp: ago(1000 - at),
    involvedObject: { kind: "TrainJob", name: job.name, uid },
  });
  job.hasEvents = Array.from({ length: 620 }, (_, at) => event(at, job.uid, at === 619 ? "Newest" : "Usual"));
  job.hasEvents.push(event(900, "another", "OfTheOldOne"));
  await show(pageOf(job));
  await page.getByText("Newest", { exact: true }).waitFor();
  await page.getByText("The newest 100 of 620 events.").waitFor();
  expect(await page.getByText("OfTheOldOne").count()).toBe(0);
});

test("after one refusal all kinds come back by themselves", async () => {
  for (const job of fixture.jobs) if (job.number % 3 === 0) Object.assign(job, { plural: "jobs", kind: "Job" });
  const opened = await openWithClock(browser, fixture.page());
  ({ page, faults } = opened);
  await opened.waitFor(`${JOBS} jobs`);
  fixture.options.allKinds = "forbidden";
  fixture.expireWatches();
  await opened.waitFor("Only TrainJobs are shown");
  fixture.options.allKinds = "served";
  await page.clock.runFor(65_000);
  await opened.waitFor(new RegExp(`^${JOBS} jobs$`));
  expect(await page.getByText("Only TrainJobs are shown").count()).toBe(0);
});

test("after a step back within an attempt the chart tells the last value", async () => {
  const job = good();
  const times = [0, 1, 2, 3, 4].map((at) => Date.now() / 1000 - 100 + at);
  const steps = [10, 500, 1000, 500, 600];
  job.says = { steps: { current: 600 }, metrics: [{ name: "loss", value: "0.9" }], lastUpdatedTime: ago(96) };
  job.hasHistory = {
    attempts: [{ number: 0, startTime: ago(200), lastTime: ago(96), firstStep: 10, lastStep: 600 }],
    progress: [{ attempt: 0, times, steps }],
    series: [{ metric: "loss", attempt: 0, times, steps, values: ["5", "9", "14.9", "1.2", "0.9"] }],
  };
  await show(pageOf(job));
  await until(
    () => page.locator(".legend-line").textContent(),
    (text) => text === "loss0.9step 600",
  );
  await page.getByRole("img", { name: /step back to step 500\.$/ }).waitFor();
});
