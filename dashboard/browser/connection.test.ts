import type { Browser } from "playwright-core";
import { beforeAll, expect, test } from "vitest";

import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";

const JOBS = 30;
let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});

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
  await page.getByText('User "bob" cannot list resource "trainjobs"').first().waitFor(); // it is read out, too
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
    await page.waitForTimeout(2000); // one that the page has for less than a second is a fault of the server's
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
  for (const route of [`#/?q=${job.name}`, `#/trainjobs/${job.namespace}/${job.name}`]) {
    fixture.options.allowed = undefined;
    const { page, faults } = await open(browser, fixture.page() + route);
    await page.getByText(job.name, { exact: true }).first().waitFor();
    await until(() => fixture.watching, Boolean);
    fixture.options.allowed = [];
    fixture.cut();
    await page.getByText("You may not see this any more.").waitFor();
    await page.getByText('User "bob" cannot list resource "trainjobs"').first().waitFor(); // it is read out, too
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
  const { page, faults, see, waitFor } = await openWithClock(browser, fixture.page());
  await waitFor(`${JOBS} jobs`);
  await until(() => fixture.watching, Boolean);
  await see(false);
  await page.clock.runFor(60_000);
  await until(
    () => fixture.watching,
    (count) => count === 0,
  );
  fixture.change(fixture.jobs[0]!, "DELETED");
  fixture.forget();
  await see(true);
  await waitFor(`${JOBS - 1} jobs`);
  expect(await page.getByText("Connection lost.").count()).toBe(0);
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("a login that has ended is told until it is there again, however often it is tried", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const job = fixture.jobs.find((one) => one.isTraining)!;
  for (const route of [`#/?q=${job.name}`, `#/trainjobs/${job.namespace}/${job.name}`]) {
    const { page, faults } = await open(browser, fixture.page() + route);
    await page.getByText(job.name, { exact: true }).first().waitFor();
    await until(() => fixture.watching, Boolean);
    fixture.isLoggedOut = true;
    fixture.cut();
    await page.getByText("You are logged out.").waitFor();
    await page.getByText(/What is shown is as of \d\d:\d\d/).waitFor();
    const asked = fixture.requests.length;
    await page.getByRole("button", { name: "Try again" }).click();
    await until(
      () => fixture.requests.length,
      (count) => count > asked,
    );
    await page.waitForTimeout(500); // the refusal has come
    await page.getByText("You are logged out.").waitFor();
    fixture.isLoggedOut = false;
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("You are logged out.").waitFor({ state: "hidden" });
    expect(faults).toEqual([]);
    await page.context().close();
    await until(
      () => fixture.watching,
      (count) => count === 0,
    );
  }
  await fixture.stop();
});

test("a login that ended while nobody looked is told when the tab is seen again", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, see, waitFor } = await openWithClock(browser, fixture.page());
  await waitFor(`${JOBS} jobs`);
  await see(false);
  await page.clock.fastForward("01:00:00");
  fixture.isLoggedOut = true;
  fixture.cut();
  await see(true);
  await waitFor("You are logged out.");
  await waitFor(/What is shown is as of .*/);
  await page.context().close();
  await fixture.stop();
});

test("silence of a connection that stays open is noticed, and said with the age of what is shown", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const job = fixture.jobs.find((one) => one.isTraining)!;
  for (const route of [`#/?q=${job.name}`, `#/trainjobs/${job.namespace}/${job.name}`]) {
    const { page, waitFor } = await openWithClock(browser, fixture.page() + route);
    await waitFor(job.name);
    await until(() => fixture.watching, Boolean);
    fixture.isSilent = true;
    await page.clock.runFor(76_000);
    await waitFor("Connection lost.");
    await waitFor("Nothing has come for 75 s.");
    await waitFor(/What is shown is as of \d\d:\d\d/);
    fixture.isSilent = false;
    await page.getByRole("button", { name: "Try now" }).click();
    await until(
      async () => {
        await page.clock.runFor(300);
        return page.getByText("Connection lost.").count();
      },
      (count) => count === 0,
    );
    await page.context().close();
    fixture.cut();
  }
  await fixture.stop();
});

test("after the machine has slept the watch is opened anew, for its connection may be dead", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, waitFor } = await openWithClock(browser, fixture.page());
  await waitFor(`${JOBS} jobs`);
  await until(() => fixture.watching, Boolean);
  fixture.isSilent = true; // of the old connection, nothing more comes
  fixture.change(fixture.jobs[0]!, "DELETED");
  fixture.isSilent = false;
  await page.clock.fastForward("01:00:00"); // timers run once, as after a sleep
  await waitFor(`${JOBS - 1} jobs`);
  await page.context().close();
  await fixture.stop();
});

test("ages are told by the server's clock when the browser's is an hour off", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const job = fixture.jobs.find((one) => one.isTraining && one.trouble === "")!;
  for (const aheadMs of [3600_000, -3600_000]) {
    const { page } = await openWithClock(browser, fixture.page() + `#/trainjobs/${job.namespace}/${job.name}`, {
      aheadMs,
    });
    job.says = { lastUpdatedTime: new Date(Date.now() - 30_000).toISOString() };
    fixture.change(job);
    await until(
      async () => {
        await page.clock.runFor(300); // the first drawing is of before the clock was measured, for a second at most
        return page.locator(".numbers div", { hasText: "Last report" }).textContent();
      },
      (text) => /^Last report([2-9]\ds|[1-4]m) ago$/.test(text ?? ""),
    );
    await page.context().close();
  }
  await fixture.stop();
});

test("a clock that is set while the page is open makes no age wrong for long", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const job = fixture.jobs.find((one) => one.isTraining && one.trouble === "")!;
  const { page, waitFor } = await openWithClock(browser, fixture.page() + `#/?q=${job.name}`);
  await waitFor(job.name);
  await until(() => fixture.watching, Boolean);
  for (const byMs of [3600_000, -7200_000]) {
    await page.clock.setSystemTime((await page.evaluate(() => Date.now())) + byMs);
    fixture.change(job);
    await until(
      async () => {
        await page.clock.runFor(1000);
        return page.locator(".body .seen").first().textContent();
      },
      (text) => /^[1-9]\d?s$/.test(text ?? ""),
    );
  }
  await page.context().close();
  await fixture.stop();
});

test.each(["with a worker for all tabs", "with a hub in each tab"])(
  "ten job tabs and two lists are live over the six connections of a browser, %s",
  async (how) => {
    const fixture = await Fixture.start({ jobs: JOBS });
    const context = await browser.newContext();
    if (how.includes("each tab")) await context.addInitScript(() => Reflect.deleteProperty(window, "SharedWorker"));
    const jobs = fixture.jobs.filter((one) => one.isTraining && one.trouble === "").slice(0, 10);
    const isHidden = how.includes("each tab"); // then only the tab in front has a connection
    const pages = [];
    for (const route of ["", "", ...jobs.map((job) => `#/trainjobs/${job.namespace}/${job.name}`)]) {
      const page = await context.newPage();
      if (isHidden) {
        for (const other of pages) {
          await other.evaluate(() => {
            Object.defineProperty(document, "hidden", { configurable: true, value: true });
            document.dispatchEvent(new Event("visibilitychange"));
          });
        }
      }
      await page.goto(fixture.page() + route);
      await page
        .locator(route ? ".numbers" : ".body .row")
        .first()
        .waitFor();
      pages.push(page);
    }
    await until(
      () => fixture.watching,
      (count) => count <= (isHidden ? 4 : 1),
    );
    const last = pages.at(-1)!;
    const numbers = () => last.locator(".numbers").textContent();
    const before = await numbers();
    fixture.change(jobs.at(-1)!);
    await until(numbers, (text) => text !== before);
    if (!isHidden) {
      fixture.add(700);
      for (const page of pages.slice(0, 2)) await page.getByText(`${JOBS + 1} jobs`, { exact: true }).waitFor();
    }
    await context.close();
    await until(
      () => fixture.watching,
      (count) => count === 0,
    );
    await fixture.stop();
  },
);

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
