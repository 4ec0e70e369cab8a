import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";

const JOBS = 30;
let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

test("a lost connection is said, and what has changed meanwhile is there when it is healed", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, faults } = await open(browser, fixture.page());
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  fixture.isDown = true;
  fixture.cut();
  await page.getByText("Connection lost.").waitFor();
  expect(await page.locator(".body .row").count()).toBeGreaterThan(0);
  await page.getByRole("button", { name: "Try now" }).click(); // in vain, and it is tried again by itself
  const gone = fixture.jobs[0]!;
  fixture.jobs = fixture.jobs.slice(1);
  fixture.forget(); // as after a restart of the server
  fixture.isDown = false;
  await until(
    () => page.locator(".matches").textContent(),
    (text) => text === `${JOBS - 1} jobs`,
  );
  await page.getByText("Connection lost.").waitFor({ state: "hidden" });
  expect(await page.getByText(gone.name).count()).toBe(0);
  fixture.add(500);
  await until(
    () => page.locator(".matches").textContent(),
    (text) => text === `${JOBS} jobs`,
  );
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("a job's page heals as well", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const job = fixture.jobs[0]!;
  const { page, faults } = await open(browser, `${fixture.page()}#/trainjobs/${job.namespace}/${job.name}`);
  await page.getByRole("heading", { name: "Metrics" }).waitFor();
  fixture.isDown = true;
  fixture.cut();
  await page.getByText("Connection lost.").waitFor();
  fixture.forget();
  fixture.isDown = false;
  await page.getByText("Connection lost.").waitFor({ state: "hidden" });
  const step = () => page.locator(".numbers").textContent();
  const before = await step();
  fixture.change(job);
  await until(step, (text) => text !== before);
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("without the right to list the page says which it takes, and leads to a namespace", async () => {
  const fixture = await Fixture.start({ jobs: JOBS, allowed: ["research"], prefix: "/some/proxy" });
  const { page, faults } = await open(browser, fixture.page());
  await page.getByRole("heading", { name: "You may not list the jobs of all namespaces" }).waitFor();
  await page.getByText('User "bob" cannot list resource "trainjobs"').waitFor();
  await page.getByLabel("Open a namespace").fill("research");
  await page.getByRole("button", { name: "Open", exact: true }).click();
  const there = fixture.jobs.filter((job) => job.namespace === "research").length;
  await page.getByText(`${there} jobs`, { exact: true }).waitFor();
  expect(page.url()).toContain(
    "/some/proxy/apis/visibility.trainer.kubeflow.org/v1alpha1/namespaces/research/dashboard",
  );
  await page.goto(fixture.page());
  await page.getByRole("list", { name: "Namespaces" }).getByRole("link", { name: "research" }).waitFor();
  expect(fixture.requests.every((path) => path.startsWith("/some/proxy/"))).toBe(true);
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("a watch that ends again and again, as they do, is no lost connection", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, faults } = await open(browser, fixture.page());
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  const watches = () => fixture.requests.filter((path) => path.includes("watch=1")).length;
  for (let turn = 1; turn <= 3; turn++) {
    await until(() => fixture.watching, Boolean);
    await page.waitForTimeout(1100); // one that ends sooner is a fault of the server's
    fixture.endWatches();
    await until(watches, (count) => count > turn);
    fixture.add(1000 + turn);
    await page.getByText(`${JOBS + turn} jobs`, { exact: true }).waitFor();
    expect(await page.getByText("Connection lost.").count()).toBe(0);
  }
  expect(fixture.requests.filter((path) => path.includes("limit=")).length).toBe(1); // one list, of one page
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("a right that is taken away while somebody looks is said, and asked for again when told", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const job = fixture.jobs.find((one) => one.isTraining)!;
  for (const route of ["", `#/trainjobs/${job.namespace}/${job.name}`]) {
    fixture.options.allowed = undefined;
    const { page, faults } = await open(browser, fixture.page() + route);
    await page.getByText(job.name, { exact: true }).first().waitFor();
    await until(() => fixture.watching, Boolean);
    fixture.options.allowed = [];
    fixture.cut();
    await page.getByText("You may not see this any more.").waitFor();
    await page.getByText('User "bob" cannot list resource "trainjobs"').waitFor();
    expect(await page.getByText(job.name, { exact: true }).count()).toBeGreaterThan(0);
    fixture.options.allowed = undefined;
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("You may not see this any more.").waitFor({ state: "hidden" });
    expect(faults).toEqual([]);
    await page.context().close();
    await until(
      () => fixture.watching,
      (count) => count === 0,
    );
  }
  await fixture.stop();
});

test("a tab that nobody looks at gives its connection back, and is current when it is seen again", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, faults } = await open(browser, "about:blank");
  await page.clock.install();
  await page.goto(fixture.page());
  await page.clock.runFor(1000);
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  const see = (isSeen: boolean) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }, !isSeen);
  await see(false);
  await page.clock.fastForward("01:00:00");
  await until(
    () => fixture.watching,
    (count) => count === 0,
  );
  fixture.change(fixture.jobs[0]!, "DELETED");
  fixture.forget();
  await see(true);
  await until(
    async () => {
      await page.clock.runFor(300);
      return page.locator(".matches").textContent();
    },
    (text) => text === `${JOBS - 1} jobs`,
  );
  expect(await page.getByText("Connection lost.").count()).toBe(0);
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("a part of the page that cannot be loaded is said, and is there after a reload", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, faults } = await open(browser, "about:blank");
  let isThere = false;
  await page.route(/job-view-.*\.js$/, (route) => (isThere ? route.continue() : route.fulfill({ status: 404 })));
  const job = fixture.jobs.find((one) => one.isTraining)!;
  await page.goto(`${fixture.page()}#/trainjobs/${job.namespace}/${job.name}`);
  await page.getByRole("heading", { name: "A part of the page cannot be loaded" }).waitFor();
  isThere = true;
  await page.getByRole("button", { name: "Load the page again" }).click();
  await page.getByRole("heading", { name: job.name }).waitFor();
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("without any job the page teaches how to report", async () => {
  const fixture = await Fixture.start({ jobs: 0 });
  const { page } = await open(browser, fixture.page());
  await page.getByRole("heading", { name: "No training job yet" }).waitFor();
  await page.getByText("from trainjob_progress import report").waitFor();
  fixture.add(1);
  await page.getByText("1 job", { exact: true }).waitFor();
  await page.context().close();
  await fixture.stop();
});
