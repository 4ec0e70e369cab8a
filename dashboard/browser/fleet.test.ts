import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

const JOBS = 400;
let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: JOBS });
  ({ page, faults } = await open(browser, fixture.page()));
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const rows = () => page.locator(".body .row");
const firstNames = async (count: number) =>
  (await page.locator(".body .row .name a").allTextContents()).slice(0, count);
const matches = () => page.locator(".matches").textContent();
const labels = (job: MadeJob) => job.document(Date.now()).metadata.labels ?? {};
const row = (job: MadeJob) => page.locator(`[data-key="trainjobs/${job.namespace}/${job.name}"]`);

test("stalled and wasting jobs come first, and only rows in view are drawn", async () => {
  expect(await rows().first().locator(".state").textContent()).toMatch(/Stalled|Diverged/);
  expect(await rows().count()).toBeLessThan(60);
  expect(await page.getByRole("table").getAttribute("aria-rowcount")).toBe(String(JOBS + 1));
});

test("curves are asked for rows in view only, with few points", async () => {
  const asked = () => fixture.requests.filter((path) => path.includes("/history"));
  await until(
    async () => asked().length,
    (count) => count > 10,
  );
  await page.locator(".spark path").first().waitFor({ state: "attached" });
  // Those in view now, and those that were before the rest of the list came: not all.
  expect(new Set(asked().map((path) => path.split("?")[0])).size).toBeLessThan(JOBS / 4);
  expect(asked().every((path) => path.includes("metric=loss") && path.includes("maxPoints=80"))).toBe(true);
});

test("rows are drawn as one scrolls", async () => {
  const before = await firstNames(1);
  await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
  await until(
    () => firstNames(1),
    (now) => now[0] !== before[0],
  );
  await page.locator(`[aria-rowindex="${JOBS + 1}"]`).waitFor();
});

test("filters narrow the list, live in the address, and survive a reload", async () => {
  const failed = fixture.jobs.filter((job) => job.phase === "Failed").length;
  await page.getByRole("button", { name: /^Failed \d/ }).click();
  await until(matches, (text) => text === `${failed} of ${JOBS} jobs`);
  expect(page.url()).toContain("#/?phase=Failed");
  await page.reload();
  await until(matches, (text) => text === `${failed} of ${JOBS} jobs`);
  await page.goBack();
  await until(matches, (text) => text === `${JOBS} jobs`);
});

test("a namespace is chosen from those that are there", async () => {
  await page.getByRole("button", { name: "Namespace" }).click();
  await page.getByLabel("research").check();
  const there = fixture.jobs.filter((job) => job.namespace === "research").length;
  await until(matches, (text) => text === `${there} of ${JOBS} jobs`);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Namespace: research" }).waitFor();
  expect(page.url()).toContain("namespace=research");
});

test("a queue and a kind are chosen from those that are there, and are in the address", async () => {
  await page.getByRole("button", { name: "Queue" }).click();
  await page.getByLabel("spot").check();
  const there = fixture.jobs.filter((job) => labels(job)["kueue.x-k8s.io/queue-name"] === "spot").length;
  expect(there).toBeGreaterThan(0);
  await until(matches, (text) => text === `${there} of ${JOBS} jobs`);
  expect(page.url()).toContain("queue=spot");
  // One kind is no choice; a link that names another says so and can be undone.
  await page.goto(`${fixture.page()}#/?kind=RayJob`);
  await page.getByText("No job matches").waitFor();
  await page.getByRole("button", { name: "Kind: RayJob" }).click();
  await page.getByRole("group", { name: "Kind" }).getByLabel("TrainJob").check();
  await until(matches, (text) => text === `${JOBS} of ${JOBS} jobs`);
});

test("the figures on top are those of the jobs that are there", async () => {
  const count = (is: (job: MadeJob) => boolean) => String(fixture.jobs.filter(is).length);
  const figures = (await page.getByRole("list", { name: "Summary" }).getByRole("listitem").allTextContents()).join("|");
  expect(figures).toContain(`${count((job) => job.phase === "Running")} running`);
  expect(figures).toContain(`${count((job) => job.trouble === "Stalled")} stalled`);
  expect(figures).toContain(`${count((job) => job.trouble === "Diverged")} diverged`);
  expect(figures).toMatch(/\d+ failed today/);
  expect(figures).toMatch(/[\d,]+ accelerators · \d+ idle/);
  expect(figures).toMatch(/[\d,.]+ h wasted/);
});

test("the search takes parts of names; nothing found is said and can be undone", async () => {
  await page.keyboard.press("/");
  await page.keyboard.type("whisper 0193");
  await until(
    () => rows().count(),
    (count) => count === 1,
  );
  await page.getByRole("searchbox").fill("no such job");
  await page.getByText("No job matches").waitFor();
  await page.getByRole("button", { name: "Remove all filters" }).click();
  await until(matches, (text) => text === `${JOBS} jobs`);
});

test("a column's head sorts by it, in turn the other way, and back", async () => {
  const head = page.getByRole("columnheader", { name: "Progress" });
  await head.getByRole("button").click();
  await until(
    () => head.getAttribute("aria-sort"),
    (sort) => sort === "descending", // the furthest first, as one looks for
  );
  const percents = (await page.locator(".body .percent").allTextContents()).slice(0, 10).map(parseFloat);
  expect(percents).toEqual([...percents].sort((one, other) => other - one));
  await head.getByRole("button").click();
  await until(
    () => head.getAttribute("aria-sort"),
    (sort) => sort === "ascending",
  );
  await head.getByRole("button").click();
  await until(
    () => head.getAttribute("aria-sort"),
    (sort) => sort === "none",
  );
});

test("what changes is shown at once; new jobs come and deleted ones go", async () => {
  const job = fixture.jobs[0]!;
  await page.getByRole("searchbox").fill(job.name);
  const steps = () => row(job).locator(".progress small").textContent();
  const before = await steps();
  fixture.change(job);
  await until(steps, (text) => text !== before);
  fixture.change(job, "DELETED");
  await page.getByText("No job matches").waitFor();
  await page.getByRole("searchbox").fill("");
  await until(matches, (text) => text === `${JOBS - 1} jobs`);
  fixture.add(JOBS + 1);
  await until(matches, (text) => text === `${JOBS} jobs`);
});

test("the keyboard goes from row to row, also to rows that are not drawn yet", async () => {
  await page.locator(".body .row .name a").first().focus();
  await page.keyboard.press("ArrowDown");
  const focused = () =>
    page.evaluate(() => document.activeElement?.closest("[aria-rowindex]")?.getAttribute("aria-rowindex"));
  await until(focused, (index) => index === "3");
  await page.keyboard.press("End");
  await until(focused, (index) => index === String(JOBS + 1));
  await page.keyboard.press("Home");
  await until(focused, (index) => index === "2");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "All jobs" }).waitFor();
});

test("a figure of the summary shows what it counts", async () => {
  await page.getByRole("button", { name: /stalled$/ }).click();
  const stalled = fixture.jobs.filter((job) => job.trouble === "Stalled").length;
  await until(matches, (text) => text === `${stalled} of ${JOBS} jobs`);
});

test("what failed today comes above what runs, and the figure shows those and no others", async () => {
  const failed = fixture.jobs.filter((job) => job.phase === "Failed");
  const midnight = new Date().setHours(0, 0, 0, 0);
  const old = failed[0]!;
  old.says = { endTime: new Date(midnight - 3 * 86_400_000).toISOString() };
  fixture.change(old);
  await page.getByRole("button", { name: /failed today/ }).click();
  const figure = async () =>
    Number((await page.getByRole("button", { name: /failed today/ }).textContent())?.match(/\d+/)?.[0]);
  const [count] = await until(
    async () => [await figure(), await matches()] as const,
    ([shown, text]) => shown < failed.length && text === `${shown} of ${JOBS} jobs`,
  );
  await page.getByRole("button", { name: "Remove filters" }).click();
  await until(matches, (text) => text === `${JOBS} jobs`);
  const states = await page.locator(".body .row .state").allTextContents();
  const first = (is: (text: string) => boolean) => states.findIndex(is);
  const [failure, running] = [first((text) => text.includes("Failed")), first((text) => text.includes("Running"))];
  if (count > 0) expect(failure).toBeGreaterThanOrEqual(0);
  expect(running === -1 || failure < running).toBe(true); // of the rows that are drawn
});

test("nothing wasted is no warning", async () => {
  for (const job of fixture.jobs) {
    job.says = { resources: { accelerators: 8, byName: [], acceleratorSeconds: 9, wastedAcceleratorSeconds: 0 } };
    fixture.change(job);
  }
  const wasted = page.getByRole("listitem").filter({ hasText: "wasted" });
  await until(
    () => wasted.textContent(),
    (text) => /^0 wasted/.test(text ?? ""),
  );
  await until(
    () => wasted.getAttribute("class"),
    (names) => !names?.includes("warn"),
  );
});

test("all rows are on the pages of a print", async () => {
  const pdf = (await page.pdf()).toString("latin1");
  const pages = Math.max(...[...pdf.matchAll(/\/Count (\d+)/g)].map(([, count]) => Number(count)));
  expect(pages).toBeGreaterThan(8); // 400 rows
  await page.emulateMedia({ media: "print" });
  await page.setViewportSize({ width: 720, height: 1000 }); // a sheet of A4
  await page.getByText(/^As of \d/).waitFor();
  for (const pressed of [".filters", ".list-tools .button", ".tick"])
    expect(await page.locator(pressed).first().isVisible(), pressed).toBe(false);
  const held = (await page.locator(".body .cell.accelerators").first().boundingBox())!;
  expect(held.x + held.width).toBeLessThan(720);
});

test("back from a job, the filters are as they were and the focus is on its row", async () => {
  await page.getByRole("button", { name: /^Running/ }).click();
  await until(
    () => page.url(),
    (url) => url.includes("phase=Running"),
  );
  const link = page.locator(".body .row .name a").nth(3);
  const name = await link.textContent();
  await link.focus();
  await page.keyboard.press("Enter");
  await page.locator(".numbers").waitFor();
  await page.locator("#content:focus").waitFor();
  await page.goBack();
  await until(
    () => page.evaluate(() => document.activeElement?.textContent),
    (text) => text === name,
  );
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "All jobs" }).click();
  await until(
    () => page.url(),
    (url) => url.includes("phase=Running"),
  );
});

test("where the system sets the colours, the bars are still seen", async () => {
  await page.emulateMedia({ forcedColors: "active" });
  const [bar, done] = await page
    .locator(".body .bar .done")
    .first()
    .evaluate((element) => {
      const of = (one: Element) => getComputedStyle(one).backgroundColor;
      return [of(document.body), of(element)];
    });
  expect(done).not.toBe(bar);
});

test("all rows are printed", async () => {
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  await until(
    () => rows().count(),
    (count) => count === JOBS,
  );
  await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
  await until(
    () => rows().count(),
    (count) => count < JOBS,
  );
});

test("numbers stand below the heads of their columns", async () => {
  for (const name of ["seen", "accelerators"]) {
    const right = (within: string) =>
      page
        .locator(`${within} .cell.${name}`)
        .filter({ hasText: /./ })
        .first()
        .evaluate((cell) => {
          const text = document.createRange();
          text.selectNodeContents(cell.querySelector("button")?.firstChild ?? cell);
          return text.getBoundingClientRect().right;
        });
    expect(Math.abs((await right(".header")) - (await right(".body"))), name).toBeLessThan(6);
  }
});
