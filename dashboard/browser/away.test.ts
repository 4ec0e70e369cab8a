/** What a browser does to pages that nobody looks at, and answers that are neither data nor a refusal. */

import { chromium, type Browser, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { findChromium, launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";

const JOBS = 30;
let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});

const routeOf = (fixture: Fixture) => {
  const job = fixture.jobs.find((one) => one.isTraining && one.trouble === "")!;
  return { job, route: `#/trainjobs/${job.namespace}/${job.name}` };
};

describe.each(["with a worker for all tabs", "with a hub in the tab"])("back from another page, %s", (how) => {
  let kept: Browser;
  beforeAll(async () => {
    // Playwright takes the cache away unless it is told not to.
    const ignoreDefaultArgs = ["--disable-back-forward-cache"];
    kept = await chromium.launch({ executablePath: findChromium()!, chromiumSandbox: false, ignoreDefaultArgs });
  });
  afterAll(() => kept.close());

  /** The page is frozen, `meanwhile` happens, and it comes back as it was. */
  async function leave(fixture: Fixture, page: Page, meanwhile: () => void): Promise<void> {
    await until(() => fixture.isQuiet, Boolean); // a page with open requests is not kept
    await page.goto(`${fixture.origin}/apis/visibility.trainer.kubeflow.org/v1alpha1`);
    await until(
      () => fixture.watching,
      (count) => count === 0,
    );
    meanwhile();
    await page.goBack({ waitUntil: "commit", timeout: 3000 }).catch(() => undefined); // it is not loaded: it is there
    const isKept = () => page.evaluate(() => (window as unknown as { isKept?: boolean }).isKept);
    await until(() => isKept().catch(() => false), Boolean); // it may be cut off by the page that comes
  }

  async function show(url: string): Promise<Page> {
    const page = await (await kept.newContext()).newPage();
    if (how.includes("in the tab")) await page.addInitScript(() => Reflect.deleteProperty(window, "SharedWorker"));
    await page.addInitScript(() =>
      addEventListener("pageshow", ({ persisted }) => persisted && Object.assign(window, { isKept: true })),
    );
    await page.goto(url);
    return page;
  }

  test("the list has what has changed, and goes on", async () => {
    const fixture = await Fixture.start({ jobs: JOBS });
    const page = await show(fixture.page());
    await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
    await until(() => fixture.watching, Boolean);
    await leave(fixture, page, () => fixture.add(900));
    await page.getByText(`${JOBS + 1} jobs`, { exact: true }).waitFor();
    fixture.add(901);
    await page.getByText(`${JOBS + 2} jobs`, { exact: true }).waitFor();
    await page.context().close();
    await fixture.stop();
  });

  test.each(["list", "job"])("a %s says at once that it is old, when nothing answers", async (what) => {
    const fixture = await Fixture.start({ jobs: JOBS });
    const { job, route } = routeOf(fixture);
    const page = await show(fixture.page() + (what === "job" ? route : `#/?q=${job.name}`));
    await page.getByText(job.name, { exact: true }).first().waitFor();
    await until(() => fixture.watching, Boolean);
    await leave(fixture, page, () => (fixture.isSilent = true));
    await page.getByText("Connecting again.").waitFor({ timeout: 20_000 });
    await page.getByText(/What is shown is as of \d\d:\d\d/).waitFor();
    fixture.isSilent = false;
    fixture.cut();
    await page.getByText("Connecting again.").waitFor({ state: "hidden" });
    await page.context().close();
    await fixture.stop();
  });

  test("a job has what has changed, and goes on", async () => {
    const fixture = await Fixture.start({ jobs: JOBS });
    const { job, route } = routeOf(fixture);
    const page = await show(fixture.page() + route);
    const numbers = () => page.locator(".numbers").textContent();
    const shown = await numbers();
    await until(() => fixture.watching, Boolean);
    await leave(fixture, page, () => fixture.change(job));
    const after = await until(numbers, (text) => text !== shown);
    fixture.change(job);
    await until(numbers, (text) => text !== after);
    await page.context().close();
    await fixture.stop();
  });

  test.each(["list", "job"])("a login that has ended meanwhile is told of a %s", async (what) => {
    const fixture = await Fixture.start({ jobs: JOBS });
    const { job, route } = routeOf(fixture);
    const page = await show(fixture.page() + (what === "job" ? route : `#/?q=${job.name}`));
    await page.getByText(job.name, { exact: true }).first().waitFor();
    await until(() => fixture.watching, Boolean);
    await leave(fixture, page, () => (fixture.isLoggedOut = true));
    await page.getByText("You are logged out.").waitFor();
    await page.getByText(/What is shown is as of \d\d:\d\d/).waitFor();
    await page.context().close();
    await fixture.stop();
  });
});

const BUSY = { code: 429, reason: "TooManyRequests", message: "Too many requests of this user.", retryAfterSeconds: 9 };
const ANSWERS = [
  ["429", BUSY, "The server is busy."],
  ["504 of a gateway", { code: 504 }, "Connection lost."],
  ["500", { code: 500, reason: "InternalError", message: "An error." }, "The server has failed."],
] as const;

test.each(ANSWERS)("an answer of %s is told as what it is, with the age of what is shown", async (_, fault, told) => {
  for (const what of ["list", "job"]) {
    const fixture = await Fixture.start({ jobs: JOBS });
    const { job, route } = routeOf(fixture);
    const url = fixture.page() + (what === "job" ? route : `#/?q=${job.name}`);
    const { page, faults, waitFor } = await openWithClock(browser, url);
    await waitFor(job.name);
    await until(() => fixture.watching, Boolean);
    fixture.fault = { path: /\/v1alpha1\/.*jobs/, ...fault };
    const asked = () => fixture.requests.filter((path) => /v1alpha1.*(watch=1|limit=)/.test(path)).length; // Events are not refused
    const before = asked();
    fixture.endWatches();
    await waitFor(told);
    await waitFor(/What is shown is as of \d\d:\d\d/);
    if (fault.code === 429) {
      const refused = asked();
      await page.clock.runFor(5000); // nearly as long as the server asks for
      expect(asked()).toBe(refused);
      expect(refused - before).toBeLessThan(4); // a list and its watch, before it is told
    }
    fixture.fault = undefined;
    await until(
      async () => {
        await page.clock.runFor(1000);
        return page.getByText(told).count();
      },
      (count) => count === 0,
    );
    expect(faults).toEqual([]);
    await page.context().close();
    await fixture.stop();
  }
});

test("a job that is asked for only now and then is not asked for sooner than a busy server says", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { job, route } = routeOf(fixture);
  fixture.mayList = false;
  const { page, waitFor } = await openWithClock(browser, fixture.page() + route);
  await waitFor(job.name);
  fixture.fault = { path: new RegExp(`/${job.name}$`), ...BUSY, retryAfterSeconds: 20 };
  await waitFor("The server is busy.");
  const asked = () => fixture.requests.filter((path) => path.endsWith(`/${job.name}`)).length;
  const before = asked();
  await page.clock.runFor(12_000);
  expect(asked()).toBe(before);
  await page.context().close();
  await fixture.stop();
});

test("no age is ever drawn by a clock of the browser that is an hour off", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { job, route } = routeOf(fixture);
  const before = () => {
    Reflect.deleteProperty(window, "SharedWorker"); // its clock would be that of the machine
    const drawn = new Set<string>();
    Object.assign(window, { drawn });
    new MutationObserver(() => {
      for (const one of document.querySelectorAll(".body .row:has(.phase-running) .seen, .numbers div"))
        if (!one.closest(".numbers") || one.textContent?.startsWith("Last report")) drawn.add(one.textContent ?? "");
    }).observe(document, { subtree: true, childList: true, characterData: true });
  };
  for (const aheadMs of [3600_000, -3600_000]) {
    for (const at of [route, `#/?q=${job.name}`]) {
      job.says = { lastUpdatedTime: new Date(Date.now() - 30_000).toISOString() };
      const { page, waitFor } = await openWithClock(browser, fixture.page() + at, { aheadMs, before });
      await waitFor(job.name);
      await page.clock.runFor(3000);
      const drawn = await page.evaluate(() => [...(window as unknown as { drawn: Set<string> }).drawn]);
      expect(drawn.length).toBeGreaterThan(0);
      for (const text of drawn) expect(text).toMatch(/^(Last report)?([2-9]\ds|[1-4]m)( ago)?$/);
      await page.context().close();
    }
  }
  await fixture.stop();
});

test("a login that ended while nobody looked at a job is told when it is seen again", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { job, route } = routeOf(fixture);
  const { page, faults, see, waitFor } = await openWithClock(browser, fixture.page() + route);
  await waitFor(job.name);
  await until(() => fixture.watching, Boolean);
  await see(false);
  await page.clock.fastForward("01:00:00");
  fixture.isLoggedOut = true;
  fixture.cut();
  await see(true);
  await waitFor("You are logged out.");
  await waitFor(/What is shown is as of .*/);
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("until the list of a server that has begun anew is there, what is shown is not called live", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, faults } = await open(browser, fixture.page());
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  fixture.isDown = true;
  fixture.cut();
  await page.getByText("Connection lost.").waitFor();
  fixture.forget();
  fixture.jobs = fixture.jobs.slice(1);
  const isList = /trainingjobs\?limit=150/;
  const release = fixture.hold(isList);
  const asked = fixture.requests.length;
  fixture.isDown = false;
  await until(
    () => fixture.requests.slice(asked).some((path) => isList.test(path)),
    (isAsked) => isAsked,
  );
  expect(await page.getByText("Connection lost.").count()).toBe(1);
  expect(await page.title()).toBe("Training jobs");
  release();
  await page.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  await page.getByText("Connection lost.").waitFor({ state: "hidden" });
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("a server that has begun anew is followed, by a list and by a job", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { job, route } = routeOf(fixture);
  const { page, faults } = await open(browser, fixture.page());
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  const other = await page.context().newPage();
  await other.goto(fixture.page() + route);
  const numbers = () => other.locator(".numbers").textContent();
  const before = await numbers();
  fixture.isDown = true;
  fixture.cut();
  await page.getByText("Connection lost.").waitFor();
  await other.getByText("Connection lost.").waitFor();
  fixture.forget();
  const [gone] = fixture.jobs.filter((one) => one !== job);
  fixture.jobs = fixture.jobs.filter((one) => one !== gone);
  fixture.isDown = false;
  await page.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  fixture.change(job);
  await until(numbers, (text) => text !== before);
  await other.getByText("Connection lost.").waitFor({ state: "hidden" });
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

describe("while nobody sees it", () => {
  let own: Browser;

  beforeAll(async () => {
    own = await chromium.launch({ executablePath: findChromium()!, chromiumSandbox: false });
  });
  afterAll(() => own.close());

  async function opened(fixture: Fixture): Promise<[list: Page, one: Page]> {
    const context = await own.newContext();
    const [list, one] = [await context.newPage(), await context.newPage()];
    await list.goto(fixture.page());
    await list.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
    await one.goto(fixture.page() + routeOf(fixture).route);
    await one.locator(".numbers").waitFor();
    await until(() => fixture.watching, Boolean);
    return [list, one];
  }

  test("a frozen tab has what has changed when it goes on", async () => {
    const fixture = await Fixture.start({ jobs: JOBS });
    const { job } = routeOf(fixture);
    const pages = await opened(fixture);
    for (const page of pages)
      await (await page.context().newCDPSession(page)).send("Page.setWebLifecycleState", { state: "frozen" });
    fixture.add(900);
    fixture.change(job, "DELETED");
    await until(() => fixture.isQuiet, Boolean);
    for (const page of pages)
      await (await page.context().newCDPSession(page)).send("Page.setWebLifecycleState", { state: "active" });
    await pages[0].getByText(`${JOBS} jobs`, { exact: true }).waitFor();
    await until(
      () => pages[0].getByText(job.name, { exact: true }).count(),
      (count) => count === 0,
    );
    await pages[1].getByText("This job has been deleted.").waitFor();
    await pages[0].context().close();
    await fixture.stop();
  });

  test("after the machine has slept nothing of before is shown as live", async () => {
    const fixture = await Fixture.start({ jobs: JOBS });
    const { job } = routeOf(fixture);
    const [list, one] = await opened(fixture);
    const session = await own.newBrowserCDPSession();
    const pids = (await session.send("SystemInfo.getProcessInfo")).processInfo.map(({ id }) => id);
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    try {
      await new Promise((resolve) => setTimeout(resolve, 25_000)); // longer than a tick of the page may be late
      fixture.change(job, "DELETED");
      fixture.expireWatches();
      fixture.forget();
    } finally {
      for (const pid of pids) process.kill(pid, "SIGCONT");
    }
    await list.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
    await one.getByText("This job has been deleted.").waitFor();
    fixture.add(901);
    await list.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
    await list.context().close();
    await fixture.stop();
  });
});
