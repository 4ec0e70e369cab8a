/** What is told is so: of answers that mean something else, of rights that are there in part, and in small windows. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

const JOBS = 40;
let browser: Browser;
let fixture: Fixture;
let job: MadeJob;
let page: Page;
let faults: string[];

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: JOBS });
  job = fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile)!;
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const route = () => `#/${job.plural}/${job.namespace}/${job.name}`;
const show = async (at = "", options = {}) => ({ page, faults } = await open(browser, fixture.page() + at, options));
const isListed = (count = JOBS) => page.getByText(`${count} jobs`, { exact: true }).waitFor();

test("what one tab chooses does not take away what another one has chosen", async () => {
  await show();
  const other = await page.context().newPage();
  await other.goto(fixture.page());
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByPlaceholder("Name of this view").fill("mine");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  const knows = () => other.evaluate(() => localStorage.getItem("trainjob-visibility")?.includes('"mine"') ?? false);
  await until(knows, Boolean); // another process of the browser
  await other.getByRole("button", { name: "Settings" }).click();
  await other.getByLabel("Colours").selectOption("dark");
  const kept = () => page.evaluate(() => JSON.parse(localStorage.getItem("trainjob-visibility") ?? "{}") as object);
  await until(kept, (found) => JSON.stringify(found).includes('"dark"'));
  expect(await kept()).toMatchObject({ theme: "dark", views: [{ name: "mine" }] });
  await until(
    () => page.evaluate(() => document.documentElement.dataset["theme"]),
    (theme) => theme === "dark", // and the tabs follow each other
  );
});

const NOT_OF_A_JOB = [
  { code: 404, reason: "NotFound", message: "the server could not find the requested resource" },
  { code: 404 },
];
test.each(NOT_OF_A_JOB)("a 404 that is not of the job deletes none (%o)", async (fault) => {
  fixture.mayList = false; // so that the job is asked for
  await show(route());
  await page.locator(".numbers").waitFor();
  fixture.fault = { path: /\/v1alpha1\/.*jobs/, ...fault };
  await page.getByText("Connection lost.").waitFor();
  expect(await page.getByText("This job has been deleted.").count()).toBe(0);
  await page.reload();
  await page.getByText("This job cannot be shown").waitFor();
  fixture.fault = undefined;
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByText("Connection lost.").waitFor({ state: "hidden" });
  await page.locator(".numbers").waitFor();
});

test("while nothing is served, the tabs of jobs say so as the list does: no right was taken away", async () => {
  await show();
  await isListed();
  const tab = await page.context().newPage();
  await tab.goto(fixture.page() + route());
  await tab.locator(".numbers").waitFor();
  fixture.fault = { path: /\/v1alpha1\/.*jobs/, ...NOT_OF_A_JOB[0]! };
  fixture.cut();
  for (const one of [page, tab]) {
    await one.getByText(NOT_OF_A_JOB[0]!.message!).waitFor();
    await one.getByText("Connection lost.").waitFor();
  }
});

test("JSON that is no document is said to be none", async () => {
  fixture.mayList = false;
  await show(route());
  await page.locator(".numbers").waitFor();
  fixture.fault = { path: /\/v1alpha1\/.*jobs/, code: 200, reason: "", message: "log in" };
  await page.getByText("The answer is no job.").waitFor();
});

test("a job that is deleted does not go on running", async () => {
  const opened = await openWithClock(browser, fixture.page() + route());
  ({ page, faults } = opened);
  await opened.waitFor(/[Rr]uns for/);
  await until(() => fixture.watching, Boolean);
  fixture.change(job, "DELETED");
  await opened.waitFor("This job has been deleted.");
  const ran = page.locator(".numbers div", { hasText: /^(Last attempt ran|Ran) for/ });
  const before = await ran.textContent();
  await page.clock.runFor(200_000);
  expect(await ran.textContent()).toBe(before);
  expect(await page.getByText(/left, ends/).count()).toBe(0);
});

test("pods of a kind that counts none as ready are not told to be not ready, nor twice when they have ended", async () => {
  fixture.mayReadProgress = false;
  job.says = { replicas: [{ name: "worker", desired: 4, active: 4, succeeded: 0, failed: 0 }] };
  await show(route());
  await page.getByRole("img", { name: "worker: 4 active", exact: true }).waitFor();
  job.says = { replicas: [{ name: "worker", desired: 4, active: 4, succeeded: 4, failed: 0 }] };
  fixture.change(job);
  await page.getByRole("img", { name: "worker: 4 succeeded", exact: true }).waitFor();
});

test("who may list and not watch is shown the list, which is read anew each half minute", async () => {
  fixture.mayWatch = false;
  const opened = await openWithClock(browser, fixture.page());
  ({ page, faults } = opened);
  await opened.waitFor(`${JOBS} jobs`);
  await page.clock.runFor(5000);
  expect(await page.locator(".connection .lost").count()).toBe(0);
  fixture.add(900);
  await page.clock.runFor(32_000);
  await opened.waitFor(`${JOBS + 1} jobs`);
  fixture.mayList = false;
  await page.clock.runFor(32_000);
  await opened.waitFor("You may not see this any more.");
});

test("a right that was taken away is told until it is there again, while it is tried in vain too", async () => {
  await show(`#/?q=${job.name}`);
  await page.getByText(job.name, { exact: true }).first().waitFor();
  await until(() => fixture.watching, Boolean);
  fixture.options.allowed = [];
  fixture.cut();
  await page.getByText("You may not see this any more.").waitFor();
  const release = fixture.hold(/jobs/);
  const before = fixture.requests.length;
  await page.getByRole("button", { name: "Try again" }).click();
  await until(
    () => fixture.requests.length,
    (count) => count > before,
  );
  await page.waitForTimeout(500);
  expect(await page.getByText("You may not see this any more.").count()).toBe(1);
  fixture.options.allowed = undefined;
  release();
  const again = page.getByRole("button", { name: "Try again" });
  await again.click({ timeout: 5_000 }).catch(() => undefined); // it goes when what was held has been answered
  await page.getByText("You may not see this any more.").waitFor({ state: "hidden" });
});

test.each(["list", "job"])(
  "a %s that was refused comes back by itself, and is said to be refused until then",
  async (what) => {
    const at = what === "job" ? route() : `#/?q=${job.name}`;
    const opened = await openWithClock(browser, fixture.page() + at);
    ({ page, faults } = opened);
    await opened.waitFor(job.name);
    await until(() => fixture.watching, Boolean);
    fixture.isLoggedOut = true;
    fixture.cut();
    await opened.waitFor("You are logged out.");
    const asked = () => fixture.requests.length;
    const before = asked();
    const release = fixture.hold(/jobs/);
    await page.clock.runFor(62_000);
    await until(asked, (count) => count > before);
    expect(await page.getByText("You are logged out.").count()).toBe(1); // while nothing has answered
    release();
    fixture.isLoggedOut = false;
    await until(
      async () => {
        await page.clock.runFor(5000);
        return page.getByText("You are logged out.").count();
      },
      (count) => count === 0,
    );
  },
);

test("the command for the log of another kind names its pod", async () => {
  Object.assign(job, { plural: "pytorchjobs", kind: "PyTorchJob" });
  fixture.mayReadMore = false;
  await show(route());
  await page.getByRole("heading", { name: "Log", exact: true }).click();
  await page.getByText(`kubectl logs -n ${job.namespace} ${job.name}-node-0-0-x7k2p --tail=50`).waitFor();
});

test("a metric that the job has not is said to be missing, and all are shown again", async () => {
  await show(`${route()}?metric=nosuch`);
  await page.getByText("There is no metric nosuch.").waitFor();
  await page.getByRole("button", { name: "Show all metrics" }).click();
  await page.getByRole("img", { name: /^loss\./ }).waitFor();
});

test("long names widen no window, and menus open within it", async () => {
  job.says = {
    metrics: [{ name: "m".repeat(120), value: "1" }],
  };
  job.hasHistory = {
    attempts: [],
    progress: [],
    series: [{ metric: "m".repeat(120), attempt: 0, steps: [1, 2, 3], times: [1, 2, 3], values: ["1", "2", "3"] }],
  };
  Object.assign(job, { namespace: "n".repeat(63), name: "j".repeat(120) });
  await show(route(), { viewport: { width: 320, height: 700 } });
  await page.locator(".curve-panel").first().scrollIntoViewIfNeeded(); // charts are drawn when they are seen
  await page.locator(".plot canvas").waitFor();
  const wide = () =>
    page.evaluate(() =>
      document.documentElement.scrollWidth <= 320
        ? [] // nothing is to be scrolled sideways
        : [...document.querySelectorAll("*")]
            .filter((one) => one.getBoundingClientRect().right > 321)
            .map((one) => `${one.tagName}.${one.className}`),
    );
  expect((await wide()).filter((one) => !/^(T[RDH]|TABLE|THEAD|TBODY|TIME|BDI)\./.test(one))).toEqual([]); // in a box that scrolls
  await page.goto(fixture.page());
  await isListed();
  for (const name of ["Group", "Columns", "Views", "Owner", "Namespace"]) {
    await page.getByRole("button", { name, exact: true }).click();
    const box = (await page.locator(".sheet:not([hidden])").boundingBox())!;
    expect(box.x, name).toBeGreaterThanOrEqual(0);
    expect(box.x + box.width, name).toBeLessThanOrEqual(320);
    await page.keyboard.press("Escape");
  }
});

test("a narrow row has its metric, whatever is wrong; badges are told in full", async () => {
  const is = (type: "Stalled" | "Straggling" | "Diverged") =>
    ({ type, status: "True", reason: "R", message: "", lastTransitionTime: new Date().toISOString() }) as const;
  job.says = { conditions: [is("Stalled"), is("Diverged"), is("Straggling")] };
  await show(`#/?q=${job.name}`, { viewport: { width: 320, height: 700 } });
  const row = page.locator(".body .row");
  await row.locator(".badges").waitFor();
  expect(await row.locator(".badges").getAttribute("title")).toBe("Stalled, Diverged, Straggling");
  expect((await row.locator(".cell.metric .value").boundingBox())!.width).toBeGreaterThan(40);
});

test("the head of a group tells how many jobs it has, however long its name", async () => {
  for (const one of fixture.jobs) one.namespace = "namespace-".repeat(6);
  await show("#/?group=namespace");
  const number = page.locator(".row.group .number");
  await number.waitFor();
  const cell = (await page.locator(".row.group .cell").first().boundingBox())!;
  const box = (await number.boundingBox())!;
  expect(box.x + box.width).toBeLessThanOrEqual(cell.x + cell.width + 1);
});

test("the focus stays on a job that moves, and goes to the next one when it is deleted", async () => {
  fixture.jobs = Array.from({ length: 300 }, (_, number) => fixture.jobs[number] ?? fixture.add(1000 + number));
  await show("#/?sort=state");
  await isListed(300);
  await page.locator(".body .row .name a").first().focus();
  const focused = () => page.evaluate(() => document.activeElement?.closest<HTMLElement>("[data-key]")?.dataset["key"]);
  const first = await until(focused, Boolean);
  await page.keyboard.press("End");
  const last = await until(focused, (key) => key !== undefined && key !== first);
  const moving = fixture.jobs.find((one) => `${one.plural}/${one.namespace}/${one.name}` === last)!;
  moving.says = { phase: "Running" };
  fixture.change(moving); // to the top, far from what is drawn
  await page.waitForTimeout(1500);
  expect(await focused()).toBe(last);
  fixture.change(moving, "DELETED");
  await isListed(299);
  await page.waitForTimeout(500);
  expect(await focused()).toBeDefined();
});

test("a print tells what it is narrowed to, and how much of a long list it has", async () => {
  fixture.jobs = Array.from({ length: 2010 }, (_, number) => fixture.jobs[number] ?? fixture.add(1000 + number));
  await show();
  await page.getByText("2,010 jobs", { exact: true }).waitFor();
  await page.emulateMedia({ media: "print" });
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  await page.getByText("The first 2,000 of 2,010 rows.").waitFor();
  const height = await page.locator(".body").evaluate((body) => body.clientHeight);
  expect(height).toBe(2000 * 46);
  await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
  await page.goto(`${fixture.page()}#/?q=bert&phase=Running`);
  await page.getByText('Narrowed to "bert", Running').waitFor();
});

test("where the jobs may not be listed, a job to compare is named", async () => {
  const other = fixture.jobs.find((one) => one !== job && one.isTraining)!;
  fixture.mayList = false;
  await show(route());
  await page.getByRole("button", { name: "Compare with" }).click();
  await page.getByText(/The jobs cannot be listed; .*User "bob" cannot list/).waitFor();
  await page.getByLabel("Find a job").fill(`${other.namespace}/${other.name}`);
  await page.getByRole("button", { name: `Compare with ${other.namespace}/${other.name}` }).click();
  await page.locator(".compare-table").waitFor();
});
