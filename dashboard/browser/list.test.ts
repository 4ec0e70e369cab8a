/** How a list is arranged: groups, columns, time, views, and what is taken out of it. */

import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

const JOBS = 120;
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

async function show(route = ""): Promise<void> {
  ({ page, faults } = await open(browser, fixture.page() + route));
  await page.getByText(`${JOBS} jobs`).first().waitFor();
}

const documentOf = (job: MadeJob) => job.document(Date.now());
const labels = (job: MadeJob) => documentOf(job).metadata.labels ?? {};
const isGood = (job: MadeJob) => job.isTraining && job.trouble === "" && !job.isHostile;
const matches = () => page.locator(".matches").textContent();
const heads = () => page.locator(".row.group").allTextContents();

test.each([
  ["namespace", (job: MadeJob) => job.namespace],
  ["queue", (job: MadeJob) => labels(job)["kueue.x-k8s.io/queue-name"] ?? ""],
  ["owner", (job: MadeJob) => labels(job)["app.kubernetes.io/created-by"] ?? ""],
  ["node", (job: MadeJob) => documentOf(job).status.rank0?.nodeName ?? ""],
  ["label:team", (job: MadeJob) => labels(job)["team"] ?? ""],
])("jobs in groups by %s have subtotals of accelerators and of waste", async (by, nameOf) => {
  await show(`#/?group=${by}`);
  const first = page.locator(".row.group").first();
  const shown = (await first.locator("b").textContent()) ?? "";
  const name = shown === "(none)" ? "" : shown;
  const own = fixture.jobs.filter((one) => nameOf(one) === name);
  const resources = own.map((one) => documentOf(one).status).filter(({ phase }) => /Running|Initializing/.test(phase));
  const held = resources.reduce((sum, { resources: r }) => sum + (r?.accelerators ?? 0), 0);
  const told = await first.textContent();
  expect(told).toContain(`${own.length} job`);
  expect(told).toContain(`${held.toLocaleString("en")} accelerator`);
  const wasted = own.some((one) => (documentOf(one).status.resources?.wastedAcceleratorSeconds ?? 0) > 600);
  expect(told?.includes("wasted")).toBe(wasted);
  expect(await page.locator(".body .row:not(.group)").count()).toBe(0);
  await first.getByRole("button").click();
  await until(
    () => page.locator(".body .row:not(.group)").count(),
    (count) => count > 0,
  );
  expect(new URL(page.url()).hash).toContain("open=");
  await page.reload();
  await until(
    () => page.locator(".body .row:not(.group)").count(),
    (count) => count > 0,
  );
});

test("a grouping is chosen from a menu, and the keyboard opens a group", async () => {
  await show();
  await page.getByRole("button", { name: "Group" }).click();
  await page.getByLabel("Namespace", { exact: true }).check();
  await until(heads, (texts) => texts.length === 5);
  await page.keyboard.press("Escape");
  await page.locator(".fold").first().focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await until(
    () => page.locator('.fold[aria-expanded="true"]').count(),
    (count) => count === 1,
  );
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.locator(".numbers").waitFor(); // the first job of the group
  await page.getByRole("link", { name: "All jobs" }).click();
  await until(
    () => page.locator('.fold[aria-expanded="true"]').count(),
    (count) => count === 1,
  );
});

test("rows that are ticked are compared, with a table", async () => {
  const jobs = fixture.jobs.filter(isGood).slice(0, 3);
  await show();
  for (const job of jobs) {
    await page.getByRole("searchbox").fill(job.name);
    await page.getByLabel(`Compare ${job.name}`).check();
  }
  await page.getByText("3 jobs ticked").waitFor();
  await page.getByRole("link", { name: "Compare" }).click();
  await until(
    () => page.getByRole("table", { name: "Last and best values" }).locator("tbody tr").count(),
    (count) => count === 3,
  );
  await page.goBack();
  await page.getByText("3 jobs ticked").waitFor();
  fixture.change(jobs[0]!, "DELETED");
  await page.getByText("2 jobs ticked").waitFor();
  await page.getByRole("button", { name: "Clear" }).click();
  await until(
    () => page.getByRole("region", { name: "Ticked jobs" }).count(),
    (count) => count === 0,
  );
});

test("one tells the page who one is, and sees one's own jobs", async () => {
  await show();
  const own = fixture.jobs.filter((job) => labels(job)["app.kubernetes.io/created-by"] === "chloe").length;
  await page.getByRole("button", { name: "Owner" }).click();
  await page.getByLabel("Mine are those of").selectOption("chloe");
  await page.keyboard.press("Escape");
  await page.reload();
  await page.getByRole("button", { name: `Mine ${own}` }).click();
  await until(matches, (text) => text === `${own} of ${JOBS} jobs`);
  expect(page.url()).toContain("owner=chloe");
});

test("labels have columns", async () => {
  await show();
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByLabel("team").check();
  await page.keyboard.press("Escape");
  await page.getByRole("columnheader", { name: "team" }).waitFor();
  const job = fixture.jobs.find(isGood)!;
  await page.getByRole("searchbox").fill(job.name);
  await until(
    () => page.locator(".body .cell.label").allTextContents(),
    (texts) => texts.length === 1 && texts[0] === labels(job)["team"],
  );
  expect(page.url()).toContain("column=team");
});

test("labels that a link names may be called anything", async () => {
  await show("#/?column=__proto__&column=constructor&column=<b>&group=label:__proto__&open=");
  await page.getByRole("columnheader", { name: "__proto__" }).waitFor();
  await page.locator(".body .row:not(.group)").first().waitFor();
  expect((await page.locator(".body .cell.label").allTextContents()).join("")).toBe("");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "CSV", exact: true }).click(),
  ]);
  expect(readFileSync(await download.path(), "utf8")).toMatch(/,__proto__,constructor,<b>\r\n/);
});

test("a view is saved under a name, and is there again", async () => {
  await show("#/?phase=Running&group=queue&column=team");
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByLabel("Name of this view").fill("queues <b>");
  await page.getByRole("button", { name: "Save" }).click();
  await page.goto(fixture.page());
  await until(matches, (text) => text === `${JOBS} jobs`);
  await page.reload();
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByRole("link", { name: "queues <b>" }).click();
  await until(heads, (texts) => texts.length > 0);
  expect(new URL(page.url()).hash).toBe("#/?phase=Running&group=queue&column=team");
  await page.getByRole("button", { name: "Remove the view queues <b>" }).click();
  await until(
    () => page.getByRole("list", { name: "Saved views" }).count(),
    (count) => count === 0,
  );
});

test("the list is taken along as CSV, as it is narrowed and arranged", async () => {
  await show("#/?phase=Failed&column=team");
  const failed = fixture.jobs.filter((job) => job.phase === "Failed");
  await until(matches, (text) => text === `${failed.length} of ${JOBS} jobs`);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "CSV", exact: true }).click(),
  ]);
  expect(download.suggestedFilename()).toMatch(/^training-jobs-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\.csv$/);
  const lines = readFileSync(await download.path(), "utf8")
    .trim()
    .split("\r\n");
  expect(lines).toHaveLength(failed.length + 1);
  expect(lines[0]).toMatch(/^namespace,name,kind,phase,.*,team$/);
  for (const job of failed) expect(lines.some((line) => line.startsWith(`${job.namespace},${job.name},`))).toBe(true);
});

test("jobs and their attempts are shown over time", async () => {
  await show();
  await page.getByLabel("Show as").selectOption("24h");
  const job = fixture.jobs.find((one) => isGood(one) && one.number % 7 === 0)!;
  await page.getByRole("searchbox").fill(job.name);
  const told = () => page.locator(".body .bars").first().getAttribute("aria-label");
  await until(told, (text) => /^waited .*, an attempt of .*, runs for /.test(text ?? ""));
  expect(page.url()).toContain("timeline=24h");
  const end = async () => {
    const bar = page.locator(".body .bars .runs").first();
    return parseFloat((await bar.getAttribute("x")) ?? "") + parseFloat((await bar.getAttribute("width")) ?? "");
  };
  expect(Math.round(await end())).toBe(100);
  await page.reload();
  await until(told, (text) => /runs for/.test(text ?? ""));
});

test.each([1280, 320])("what the timeline's axis names is at its place (%s px)", async (width) => {
  await show();
  await page.setViewportSize({ width, height: 800 });
  await page.getByLabel("Show as").selectOption("24h");
  const places = () =>
    page.evaluate(() => {
      const bars = document.querySelector(".body .bars")!.getBoundingClientRect();
      const texts = [...document.querySelectorAll(".header .timeline span")].map((one) => one.getBoundingClientRect());
      const at = (text: DOMRect) =>
        [text.left, (text.left + text.right) / 2, text.right].map((x) => (x - bars.left) / bars.width);
      return texts.filter((text) => text.width > 0).map(at);
    });
  await page.locator(".body .bars").first().waitFor();
  const found = await places();
  expect(found.length).toBeGreaterThanOrEqual(3);
  found.forEach((found3, index) => {
    const share = index / (found.length - 1);
    const own = found3[share === 0 ? 0 : share === 1 ? 2 : 1] ?? NaN;
    expect(Math.abs(own - share)).toBeLessThan(0.01);
  });
});

test("no bar goes on beyond what is known", async () => {
  ({ page, faults } = await open(browser, "about:blank"));
  await page.addInitScript(() => Reflect.deleteProperty(window, "SharedWorker"));
  await page.clock.install({ time: Date.now() });
  await page.goto(`${fixture.page()}#/?timeline=6h`);
  const end = () => page.locator(".header .timeline span").last().textContent();
  const runs = (text: string) =>
    until(
      async () => {
        await page.clock.runFor(300);
        return page.getByText(text).count();
      },
      (count) => count > 0,
    );
  await runs(`${JOBS} jobs`);
  const before = await end();
  fixture.isDown = true;
  fixture.cut();
  await runs("Connection lost.");
  await page.clock.runFor(600_000);
  expect(await end()).toBe(before);
});
