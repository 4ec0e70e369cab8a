/** What strangers' programs may report, and what may happen to a job while somebody looks at it. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import type { History } from "../src/api/types";
import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

let browser: Browser;
let fixture: Fixture;
let job: MadeJob;
let page: Page;
let faults: string[];

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: 20 });
  job = fixture.jobs.find((one) => one.isTraining && !one.isHostile)!;
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

async function show(look = ""): Promise<void> {
  ({ page, faults } = await open(browser, `${fixture.page()}#/trainjobs/${job.namespace}/${job.name}${look}`));
  await page.locator(".numbers").waitFor(); // its name is there before the job is
}

type Values = Record<string, readonly string[]>;

/** The job reports these, a point a second, in attempts of one length. */
function reports(values: Values, attempts = 1): void {
  const now = Math.floor(Date.now() / 1000) - 5;
  job.says.metrics = Object.entries(values).flatMap(([name, all]) => {
    const value = all.at(-1);
    return value === undefined ? [] : [{ name, value }];
  });
  const series: History["series"] = Object.entries(values).flatMap(([metric, all]) =>
    Array.from({ length: attempts }, (_, attempt) => ({
      metric,
      attempt,
      times: all.map((_, at) => now - (attempts - attempt) * all.length + at),
      steps: all.map((_, at) => at),
      values: [...all],
    })),
  );
  job.hasHistory = {
    attempts: Array.from({ length: attempts }, (_, number) => ({
      number,
      startTime: new Date((now - (attempts - number) * 10) * 1000).toISOString(),
      firstStep: 0,
      lastStep: 9,
    })),
    progress: [],
    series,
  };
}

const wave = (length: number) => Array.from({ length }, (_, at) => String(2 + Math.sin(at / 9)));
const charts = () => page.locator(".curve-panel").count();

test("metrics may be called anything", async () => {
  const names = [
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "<img src=x onerror=\"document.title='owned'\">",
    "\u202eloss",
    "loss\nof\ttwo",
    "\ud800",
    "مقياس",
    "eval_",
    "train/",
    "x".repeat(10_000),
    ...Array.from({ length: 10 }, (_, at) => `a/b c&d=${at}#?%`),
  ];
  reports(Object.fromEntries(names.map((name) => [name, wave(20)])));
  // As JSON.parse makes it of a server's answer, not as an object's literal would.
  job.hasHistory!.series.push({ ...job.hasHistory!.series[0]!, metric: "__proto__" });
  await show();
  await until(charts, (count) => count >= names.length);
  expect(await page.title()).not.toContain("owned");
  expect(await page.locator("img, script:not([src])").count()).toBe(0);
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth)).toBe(true);
  await page.getByRole("button", { name: "All metrics" }).click();
  await page.getByRole("button", { name: "Only constructor" }).click();
  await until(charts, (count) => count === 1);
  await page.reload();
  await until(charts, (count) => count === 1);
  await page.goto(fixture.page());
  await page.locator(".body .row").first().waitFor();
});

test("values may be anything", async () => {
  reports({
    nan: Array<string>(20).fill("NaN"),
    infinite: ["Infinity", "-Infinity", "1", "Infinity"],
    huge: ["1e308", "-1e308", "1e308", "1.7976931348623157e308"],
    tiny: ["5e-324", "1e-310", "0", "-0"],
    same: Array<string>(30).fill("0.1"),
    one: ["3"],
    none: [],
    words: ["abc", "", " ", "0x10", "1_000", "1e999"],
    edges: ["9007199254740993", "9007199254740992", "9007199254740994"],
  });
  await show("?smooth=0.9");
  await until(charts, (count) => count >= 8);
  await page.getByLabel("Log scale").check();
  for (const axis of ["Time", "Elapsed", "Step"]) {
    await page.getByRole("button", { name: axis, exact: true }).click();
    await until(
      () => page.getByRole("button", { name: axis, exact: true }).getAttribute("aria-pressed"),
      (pressed) => pressed === "true",
    );
  }
  await page.getByLabel("Log scale").uncheck();
  await page.locator(".plot").first().focus();
  for (const key of ["+", "+", "ArrowLeft", "-", "-", "-", "-", "0"]) await page.keyboard.press(key);
  await page
    .getByText(/values are NaN or infinite/)
    .first()
    .waitFor();
});

test("a hundred metrics, five thousand points, fifty attempts", async () => {
  const names = Array.from({ length: 100 }, (_, at) => `metric_${at}`);
  reports(Object.fromEntries(names.map((name) => [name, wave(50)])));
  await show();
  await page.getByText("100 of 100 charts").waitFor();
  await until(charts, (count) => count > 0 && count < 25); // drawn when they are seen
  fixture.change(job);
  reports({ loss: wave(100) }, 50);
  await page.reload();
  await page.locator(".curve-panel").first().scrollIntoViewIfNeeded(); // charts are drawn when they are seen
  await page.getByRole("img", { name: /attempt 50 began at/ }).waitFor();
  reports({ loss: wave(5000) });
  await page.reload();
  await page.locator(".curve-panel").first().scrollIntoViewIfNeeded();
  await page.getByRole("img", { name: /: 5000 points/ }).waitFor();
});

test("a clock that is wrong makes no negative age", async () => {
  const ahead = new Date(Date.now() + 3_600_000).toISOString();
  job.says = { lastUpdatedTime: ahead, startTime: ahead, estimatedRemainingSeconds: -5 };
  reports({ loss: wave(10) });
  await show();
  const numbers = await page.locator(".numbers").textContent();
  expect(numbers).toMatch(/Last report0s/);
  expect(numbers).not.toMatch(/[-−]\d/);
  await page.goto(fixture.page());
  await page.locator(".body .row").first().waitFor();
  expect(await page.locator(".body").textContent()).not.toMatch(/[-−]\d+s/);
});

test("a job of the same name that is another one takes the place of the first", async () => {
  reports({ old_metric: wave(30) });
  await show();
  await page.getByRole("heading", { name: "old_metric" }).waitFor();
  fixture.change(job, "DELETED");
  await page.getByText("This job has been deleted.").waitFor();
  job.uid = "00000000-0000-4000-8000-ffffffffffff";
  job.says = {};
  reports({ new_metric: wave(3) });
  fixture.jobs.push(job);
  fixture.change(job, "ADDED");
  await page.getByText("This job has been deleted.").waitFor({ state: "hidden" });
  await page.getByRole("heading", { name: "new_metric" }).waitFor();
  expect(await page.getByRole("heading", { name: "old_metric" }).count()).toBe(0);
});

test("when a namespace goes its jobs go", async () => {
  ({ page, faults } = await open(browser, fixture.page(job.namespace)));
  await page.locator(".body .row").first().waitFor();
  for (const one of fixture.jobs.filter(({ namespace }) => namespace === job.namespace)) fixture.change(one, "DELETED");
  await page.getByRole("heading", { name: "No training job yet" }).waitFor();
});
