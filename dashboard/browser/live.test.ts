/** Nothing is shown as live that is not: other users, other servers, answers that are none, answers that come late. */

import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

const JOBS = 30;
let browser: Browser;
let fixture: Fixture;
const contexts: BrowserContext[] = [];
let faults: string[] = [];

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: JOBS });
});
afterEach(async () => {
  for (const context of contexts.splice(0)) await context.close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const route = (job: MadeJob) => `#/trainjobs/${job.namespace}/${job.name}`;
const training = () => fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile)!;

async function first(at = "", options = {}): Promise<Page> {
  const opened = await open(browser, fixture.page() + at, options);
  contexts.push(opened.page.context());
  ({ faults } = opened);
  return opened.page;
}

/** One more tab of the browser that `page` is of. */
async function another(page: Page, at = ""): Promise<Page> {
  const next = await page.context().newPage();
  await next.goto(fixture.page() + at);
  return next;
}

async function withClock(at = "", before?: () => void) {
  const opened = await openWithClock(browser, fixture.page() + at, { before });
  contexts.push(opened.page.context());
  ({ faults } = opened);
  return opened;
}

test("a tab is told nothing that another user of the browser has read, and the other's tab says that it is over", async () => {
  const old = await first();
  await old.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  fixture.options.allowed = []; // another user has logged in; the first one's watch is still open
  const job = training();
  const list = await another(old);
  await list.getByRole("heading", { name: "You may not list the jobs of all namespaces" }).waitFor();
  expect(await list.locator(".body .row").count()).toBe(0);
  await old.getByText("You may not see this any more.").waitFor();
  const page = await another(old, route(job));
  await page.getByRole("heading", { name: "You may not see this job" }).waitFor();
  expect(await page.locator(".numbers").count()).toBe(0);
});

test("a job that is open in a tab of another user is read anew for this one", async () => {
  const job = training();
  const old = await first(route(job));
  await old.locator(".numbers").waitFor();
  await until(() => fixture.watching, Boolean);
  fixture.options.allowed = [];
  const page = await another(old, route(job));
  await page.getByRole("heading", { name: "You may not see this job" }).waitFor();
  expect(await page.locator(".numbers").count()).toBe(0);
  await old.getByText("You may not see this any more.").waitFor();
});

test("who logs in after another user's login has ended sees a live list, and so does the older tab", async () => {
  const old = await first();
  await old.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  fixture.isLoggedOut = true;
  fixture.cut();
  await old.getByText("You are logged out.").waitFor();
  fixture.isLoggedOut = false;
  const page = await another(old);
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  expect(await page.getByText("You are logged out.").count()).toBe(0);
  await old.getByText("You are logged out.").waitFor({ state: "hidden" });
  fixture.add(700);
  await page.getByText(`${JOBS + 1} jobs`, { exact: true }).waitFor();
});

test.each(["html", "redirect"] as const)(
  "a login that a proxy asks for (%s) is told as such, and the age of what is shown stays",
  async (login) => {
    const job = training();
    for (const at of [`#/?q=${job.name}`, route(job)]) {
      fixture.login = undefined;
      const page = await first(at);
      await page.getByText(job.name, { exact: true }).first().waitFor();
      await until(() => fixture.watching, Boolean);
      fixture.login = login;
      fixture.cut();
      await page.getByText("You are logged out.").waitFor();
      const asOf = await page.getByText(/What is shown is as of/).textContent();
      const before = fixture.requests.length;
      await page.getByRole("button", { name: "Try again" }).click();
      await until(
        () => fixture.requests.length,
        (count) => count > before,
      );
      await until(() => fixture.isQuiet, Boolean); // the second answer has come
      expect(await page.getByText(/What is shown is as of/).textContent()).toBe(asOf);
      await page.getByRole("button", { name: "Load the page again" }).waitFor();
      await page.context().close();
    }
  },
);

test("a proxy's page of HTML is no log, no YAML and no CSV", async () => {
  const job = training();
  const page = await first(route(job));
  await page.locator("summary", { hasText: "of the pod that reports" }).click();
  await page.getByText("step 2 loss 2.4").waitFor();
  fixture.login = "html";
  await page.getByText("It cannot be read again").waitFor();
  await page.locator("summary", { hasText: "YAML and kubectl" }).click();
  await page.getByRole("button", { name: "CSV", exact: true }).click();
  await page.getByText(/^No CSV: /).waitFor();
  await until(
    () => page.locator("details", { hasText: "YAML and kubectl" }).textContent(),
    (text) => /page of HTML/.test(text ?? ""),
  );
  expect(await page.getByText("<title>Log in").count()).toBe(0);
});

test("what a list is missing when its revision is gone reaches the tabs of its jobs too", async () => {
  const [job, other] = fixture.jobs.filter((one) => one.isTraining && one.trouble === "" && !one.isHostile) as [
    MadeJob,
    MadeJob,
  ];
  const list = await first();
  await list.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  const page = await another(list, route(job));
  const gone = await another(list, route(other));
  await page.locator(".numbers").waitFor();
  await gone.locator(".numbers").waitFor();
  job.says = { phase: "Succeeded" };
  fixture.jobs = fixture.jobs.filter((one) => one !== other);
  fixture.forget();
  job.version = fixture.revision;
  fixture.expireWatches();
  await list.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  await page.locator(".job-head, main").getByText("Succeeded", { exact: true }).first().waitFor();
  await gone.getByText("This job has been deleted.").waitFor();
});

test("a tab whose worker has died keeps the age of what it shows", async () => {
  const job = training();
  for (const at of [`#/?q=${job.name}`, route(job)]) {
    const { page, waitFor } = await withClock(at, () => {
      window.SharedWorker = class extends window.SharedWorker {
        constructor(url: string | URL) {
          super(url);
          Object.assign(window, { worker: this });
        }
      };
    });
    await waitFor(job.name);
    await until(() => fixture.watching, Boolean);
    const release = fixture.hold(/\/trainjobs/);
    await page.evaluate(() => {
      const { worker } = window as unknown as { worker: SharedWorker };
      worker.onerror?.(new ErrorEvent("error"));
    });
    await page.clock.runFor(61_000);
    await waitFor("Connection lost.");
    await waitFor(/What is shown is as of \d\d:\d\d/);
    release();
    await page.context().close();
  }
});

test("a change that comes right before a tab is hidden is in its title", async () => {
  const job = training();
  const page = await first();
  await page.addInitScript(() => {
    const draw = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (callback) => draw((at) => document.hidden || callback(at)); // no frame while hidden
    window.SharedWorker = class extends window.SharedWorker {
      constructor(url: string | URL) {
        super(url);
        const { port } = this;
        Object.defineProperty(port, "onmessage", {
          set(take: (event: MessageEvent) => void) {
            port.addEventListener("message", (event: MessageEvent<{ jobs?: { phase: string }[] }>) => {
              take(event);
              if (event.data.jobs?.length !== 1 || event.data.jobs[0]?.phase !== "Failed") return;
              Object.defineProperty(document, "hidden", { configurable: true, value: true });
              document.dispatchEvent(new Event("visibilitychange"));
            });
            port.start();
          },
        });
      }
    };
  });
  await page.goto("about:blank");
  await page.goto(fixture.page());
  const bad = async () => Number(/^\((\d+)\) Training jobs$/.exec(await page.title())?.[1]);
  const before = await until(bad, (count) => count > 0);
  await until(() => fixture.watching, Boolean);
  job.says = { phase: "Failed", endTime: new Date().toISOString() };
  fixture.change(job); // it is told for the next frame, and then the tab is hidden
  await until(() => page.evaluate(() => document.hidden), Boolean);
  await until(bad, (count) => count === before + 1);
});

test("behind a proxy that holds back what the watch writes the list is read anew, not called live", async () => {
  fixture.isBuffered = true;
  const { page, waitFor } = await withClock();
  await waitFor(`${JOBS} jobs`);
  fixture.change(fixture.jobs[0]!, "DELETED");
  await page.clock.runFor(76_000);
  await waitFor(`${JOBS - 1} jobs`);
});

test("another server at the same address, as of another kubectl proxy, is listed anew", async () => {
  const page = await first();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  const port = Number(new URL(fixture.origin).port);
  await fixture.stop();
  await page.getByText("Connection lost.").waitFor();
  await page.waitForTimeout(1500); // it has been tried again in vain
  fixture = await Fixture.start({ jobs: 3, port });
  await page.getByText("3 jobs", { exact: true }).waitFor();
  await page.getByText("Connection lost.").waitFor({ state: "hidden" });
});

test("a job that is made again under its name has no curve of the old one", async () => {
  const job = training();
  const list = await first(`#/?q=${job.name}`);
  const points = async () => {
    const spark = await list
      .locator(".body .spark path")
      .first()
      .getAttribute("d", { timeout: 1000 })
      .catch(() => "");
    return (spark ?? "").split(/[ML]/).length;
  };
  await until(points, (count) => count > 10);
  const page = await another(list, route(job));
  const chart = () => page.getByRole("img", { name: /^loss\./ }).getAttribute("aria-label");
  await until(chart, (text) => /loss: \d\d+ points/.test(text ?? ""));
  const release = fixture.hold(/\/history$/);
  const asked = () => fixture.requests.filter((path) => path.includes("/history")).length;
  const before = asked();
  fixture.change(job);
  await until(asked, (count) => count > before); // the answer is of the old job
  fixture.change(job, "DELETED");
  const again = fixture.add(job.number);
  again.uid = again.uid.replace(/^0/, "9");
  again.hasHistory = { attempts: [], progress: [], series: [] };
  again.says = { metrics: [{ name: "loss", value: "9.5" }] };
  fixture.change(again);
  release();
  await until(points, (count) => count < 5);
  await until(chart, (text) => /loss: \d points?/.test(text ?? ""));
  await until(() => fixture.isQuiet, Boolean);
  expect(await chart()).toMatch(/loss: \d points?/);
});

test("an answer that was on its way when a job was deleted does not bring it back", async () => {
  const job = training();
  const list = await first();
  await list.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  const release = fixture.hold(new RegExp(`/${job.name}$`));
  const page = await another(list, route(job));
  await until(
    () => fixture.requests.filter((path) => path.endsWith(`/${job.name}`)).length,
    (count) => count > 0,
  );
  fixture.change(job, "DELETED");
  await list.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  release();
  await page.getByText(/This job has been deleted|There is no such job/).waitFor();
  await page.waitForTimeout(1000);
  expect(await page.getByText(/This job has been deleted|There is no such job/).count()).toBe(1);
});

test("events and compared curves of a server that does not answer tell when they were read", async () => {
  const job = training();
  const other = fixture.jobs.find((one) => one.isTraining && one !== job && !one.isHostile)!;
  const { page, waitFor } = await withClock(`${route(job)}?with=${other.namespace}/${other.name}`);
  await waitFor(/, last and best/);
  await waitFor(/^Events$/);
  await until(
    async () => {
      await page.clock.runFor(300);
      return page.getByRole("group", { name: "Events" }).count();
    },
    (count) => count > 0,
  );
  fixture.hold(/\/(history|events)$/);
  for (let minute = 0; minute < 3; minute++) {
    await page.clock.runFor(60_000);
    fixture.change(job);
  }
  await waitFor(/Events are as of \d\d:\d\d/);
  await waitFor(/Compared jobs are as of \d\d:\d\d/);
});

test("before anything was read no figure is told", async () => {
  const release = fixture.hold(/jobs$/);
  const page = await first();
  const figures = () => page.getByRole("list", { name: "Summary" }).locator("b").allTextContents();
  await until(figures, (texts) => texts.length === 6);
  expect((await figures()).join("")).toBe("––––––");
  release();
  await until(figures, (texts) => texts.every((text) => /\d/.test(text)));
});

test("when the list's connection is lost, the tabs of its jobs say so too, though nothing answers them", async () => {
  const list = await first();
  await list.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  const page = await another(list, route(training()));
  await page.locator(".numbers").waitFor();
  await until(() => fixture.isQuiet, Boolean);
  fixture.isSilent = true;
  fixture.cut();
  await list.getByText("Connection lost.").waitFor();
  await page.getByText("Connection lost.").waitFor({ timeout: 20_000 });
  await page.getByText(/What is shown is as of/).waitFor();
});

test.each(["list", "job"])("on a %s the last report is as old as it was when the connection was lost", async (what) => {
  const job = training();
  const { page, waitFor } = await withClock(what === "job" ? route(job) : `#/?q=${job.name}`);
  await waitFor(job.name);
  await until(() => fixture.watching, Boolean);
  fixture.isDown = true;
  fixture.cut();
  await waitFor("Connection lost.");
  const seen = () =>
    page.locator(what === "job" ? ".numbers div:has-text('Last report')" : ".body .row .seen").textContent();
  const before = await seen();
  await page.clock.runFor(180_000);
  expect(await seen()).toBe(before);
});
