/** What is shown where something is missing, cut, too much, or read with other means than a mouse. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

const JOBS = 30;
let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];
let job: MadeJob;

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: JOBS });
  job = fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile && one.number % 7 !== 0)!;
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const routeOf = ({ plural, namespace, name }: MadeJob) => `#/${plural}/${namespace}/${name}`;
const show = async (at = "", options = {}) => ({ page, faults } = await open(browser, fixture.page() + at, options));
const row = ({ plural, namespace, name }: MadeJob) => page.locator(`[data-key="${plural}/${namespace}/${name}"]`);
const iso = (agoS: number) => new Date(Date.now() - agoS * 1000).toISOString().replace(/\.\d+Z$/, "Z");

/** The job has one curve: a loss at each of these steps, a second apart, the last `agoS` ago. */
function reports(one: MadeJob, steps: readonly number[], agoS = 5): void {
  const from = Math.floor(Date.now() / 1000) - agoS - steps.length + 1;
  const times = steps.map((_, at) => from + at);
  const values = steps.map((step) => (1 + 1 / (1 + step)).toPrecision(5));
  const startTime = new Date(from * 1000).toISOString();
  one.hasHistory = {
    attempts: [{ number: 0, startTime, lastTime: iso(agoS) }],
    progress: [],
    series: [{ metric: "loss", attempt: 0, times, steps: [...steps], values }],
  };
  one.says = {
    steps: { current: steps.at(-1)! },
    metrics: [{ name: "loss", value: values.at(-1)! }],
    startTime,
    lastUpdatedTime: iso(agoS),
  };
}

const upTo = (last: number) => Array.from({ length: last }, (_, at) => at + 1);

test("curves of compared jobs stay when they cannot be read again, and each is named", async () => {
  const [b, c] = fixture.jobs.filter((one) => one.isTraining && one !== job && !one.isHostile);
  const others = [b!, c!].map(({ namespace, name }) => `&with=${namespace}/${name}`).join("");
  const opened = await openWithClock(browser, `${fixture.page()}${routeOf(job)}?metric=loss${others}`);
  ({ page, faults } = opened);
  const values = () => page.locator(".compare-table tbody td:nth-child(2)").allTextContents();
  await until(values, (all) => all.length === 3 && all.every(Boolean));
  fixture.fault = {
    path: new RegExp(`(${b!.name}|${c!.name})/history`),
    code: 503,
    reason: "ServiceUnavailable",
    message: "busy",
  };
  await page.clock.runFor(31_000);
  await opened.waitFor("cannot be read again");
  await page.locator(".curves .notice", { hasText: `${b!.name}, ${c!.namespace}/${c!.name}` }).waitFor();
  expect((await values()).every(Boolean)).toBe(true);
});

test("attempts of which no report is kept are counted, and nothing runs on after the last report", async () => {
  const attempt = (number: number, start: number, last: number) => ({
    number,
    startTime: iso(start),
    lastTime: iso(last),
    firstStep: 1,
    lastStep: 9,
  });
  reports(job, upTo(20), 1500);
  job.hasHistory = { ...job.hasHistory!, attempts: [attempt(0, 4000, 3000), attempt(1, 2000, 1500)] };
  job.says = { ...job.says, attempts: 4 };
  await show(routeOf(job));
  await page.getByText("Of 2 more attempts no report is kept.").waitFor();
  const told = await page.locator(".attempts .bars").first().getAttribute("aria-label");
  expect(told).toMatch(/runs for 8 min.*, no report for 25 min/);
  job.hasHistory = { ...job.hasHistory, attempts: [attempt(1, 2000, 1500)] };
  await page.reload();
  await page.getByText("Of 3 more attempts no report is kept.").waitFor();
});

test("a zoom on a part without points is said to show nothing, and another axis drops it", async () => {
  reports(job, upTo(400));
  await show(`${routeOf(job)}?from=100000&to=200000`);
  await page.getByText("Nothing lies between step 100,000 and step 200,000.").waitFor();
  await page.getByRole("button", { name: "Show all" }).click();
  await page.getByText("Nothing lies between").waitFor({ state: "hidden" });
  expect(page.url()).not.toContain("from=");
  job.hasHistory!.series[0]!.steps = [];
  delete job.hasHistory!.series[0]!.steps;
  delete job.says.steps;
  await page.goto(`${fixture.page()}${routeOf(job)}?x=step&from=100&to=200`);
  await page.reload();
  await page.getByRole("button", { name: "Time", exact: true, pressed: true }).waitFor();
  expect(await page.getByRole("button", { name: "Show all" }).isDisabled()).toBe(true);
  expect(await page.getByText("Nothing lies between").count()).toBe(0);
});

test("elapsed time counts from the beginning of the run, though the server has lost what came before", async () => {
  const other = fixture.jobs.find((one) => one.isTraining && one !== job && !one.isHostile && one.number % 7 !== 0)!;
  for (const one of [job, other]) {
    reports(one, upTo(100));
    one.says = { ...one.says, startTime: iso(7200), attempts: 1 };
  }
  await show(`${routeOf(job)}?x=relative&with=${other.namespace}/${other.name}`);
  await page.locator(".where", { hasText: /^after 1 h 59 min|^after 2 h/ }).waitFor();
  await until(
    () => page.locator(".legend li small").allTextContents(),
    (all) => !all.some((text) => /after (\d+ s|1 min)/.test(text)),
  );
});

test("elapsed time of a run whose first attempts are lost says what it counts from", async () => {
  reports(job, upTo(100));
  job.says = { ...job.says, attempts: 3 };
  await show(`${routeOf(job)}?x=relative`);
  await page.getByText(`Elapsed time counts from the first report that is kept of ${job.name}`).waitFor();
});

test("the only metric that is chosen cannot be taken away", async () => {
  await show(`${routeOf(job)}?metric=loss`);
  await page.getByRole("button", { name: /^1 of \d+ metrics/ }).click();
  const box = page.getByRole("checkbox", { name: "loss", exact: true });
  expect(await box.isChecked()).toBe(true);
  expect(await box.isDisabled()).toBe(true);
  await page.getByRole("checkbox", { name: "accuracy" }).check();
  expect(await box.isDisabled()).toBe(false);
});

test("values of a curve are read with the keyboard", async () => {
  reports(job, upTo(50));
  await show(`${routeOf(job)}?smooth=0`);
  const where = () => page.locator(".where").first().textContent();
  await until(where, (text) => text === "step 50");
  await page.getByRole("img", { name: /^loss\. .*50 points/ }).focus();
  await page.keyboard.press("Home");
  await until(where, (text) => text === "step 1");
  await page.keyboard.press("ArrowRight");
  await until(where, (text) => text === "step 2");
  await page.keyboard.press("End");
  await page.keyboard.press("ArrowLeft");
  await until(where, (text) => text === "step 49");
  const pressed = async (key: string) => {
    await page.keyboard.press(key); // in vain while the chart is made anew
    return page.url();
  };
  const range = await until(
    () => pressed("+"),
    (url) => url.includes("from="),
  );
  await until(
    () => pressed("Shift+ArrowLeft"),
    (url) => url !== range,
  );
});

test("a chart is zoomed with a finger that is drawn across it", async () => {
  reports(job, upTo(200));
  await show(routeOf(job), { hasTouch: true, viewport: { width: 390, height: 800 } });
  const plot = page.locator(".plot .u-over").first();
  await page.getByRole("img", { name: /^loss\. .*200 points/ }).waitFor(); // what comes above it has come
  await plot.scrollIntoViewIfNeeded();
  const box = (await plot.boundingBox())!;
  const client = await page.context().newCDPSession(page);
  const touch = (type: string, share?: number) =>
    client.send("Input.dispatchTouchEvent", {
      type: type as "touchStart",
      touchPoints: share === undefined ? [] : [{ x: box.x + share * box.width, y: box.y + box.height / 2 }],
    });
  await touch("touchStart", 0.25);
  for (const share of [0.3, 0.4, 0.5, 0.6, 0.75]) await touch("touchMove", share);
  await touch("touchEnd");
  await until(
    () => page.url(),
    (url) => url.includes("from="),
  );
  const [, from = 0, to = 0] = (/from=([\d.]+)&to=([\d.]+)/.exec(page.url()) ?? []).map(Number);
  expect(from).toBeGreaterThan(30);
  expect(from).toBeLessThan(70);
  expect(to).toBeGreaterThan(130);
  expect(to).toBeLessThan(170);
});

test("names that begin alike are told apart in a menu of labels", async () => {
  const prefix = "a-very-long-prefix-of-a-platform-team.example.com/some-longer-name-of-a-label";
  for (const one of fixture.jobs) {
    const document = one.document.bind(one);
    one.document = (now) => {
      const found = document(now);
      return {
        ...found,
        metadata: {
          ...found.metadata,
          labels: { ...found.metadata.labels, [`${prefix}-a`]: "1", [`${prefix}-b`]: "2" },
        },
      };
    };
  }
  await show("", { viewport: { width: 320, height: 700 } });
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  for (const menu of ["Columns", "Group"]) {
    await page.getByRole("button", { name: menu }).click();
    const names = page.locator(".option-name", { hasText: prefix });
    expect(await names.count()).toBe(2);
    const cut = await names.evaluateAll(
      (all) =>
        all.filter((one) => {
          const text = document.createRange();
          text.selectNodeContents(one);
          return text.getBoundingClientRect().right > one.closest(".sheet")!.getBoundingClientRect().right;
        }).length,
    );
    expect(cut).toBe(0);
    await page.keyboard.press("Escape");
  }
});

test("views are kept until somebody removes them, and a long list of them scrolls", async () => {
  const views = Array.from({ length: 30 }, (_, at) => ({ name: `v${at}`, query: `q=${at}` }));
  await show("", { viewport: { width: 900, height: 600 } });
  await page.evaluate((kept) => localStorage.setItem("trainjob-visibility", JSON.stringify({ views: kept })), views);
  await page.reload();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByPlaceholder("Name of this view").fill("one more");
  await page.getByText("At most 30 views are kept: remove one first.").waitFor();
  expect(await page.getByRole("button", { name: "Save", exact: true }).isDisabled()).toBe(true);
  await page.getByPlaceholder("Name of this view").fill("v7");
  await page.getByRole("button", { name: "Replace", exact: true }).waitFor();
  const sheet = (await page.locator(".sheet:not([hidden])").boundingBox())!;
  expect(sheet.y + sheet.height).toBeLessThanOrEqual(600 + (await page.evaluate(() => scrollY)));
});

test("a view that the browser cannot keep is said to last as long as the page", async () => {
  await show();
  await page.evaluate(() => {
    Storage.prototype.setItem = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
  });
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByPlaceholder("Name of this view").fill("W".repeat(60));
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("The browser keeps nothing for this page: what is chosen lasts until it is closed.").waitFor();
  const cut = await page.locator(".views").evaluate((list) => list.scrollWidth - list.clientWidth);
  expect(cut).toBe(0); // what removes it is there, however long its name
});

test("what another tab saves while a page opens is kept", async () => {
  ({ page, faults } = await open(browser, "about:blank"));
  await page.addInitScript(() => {
    const read = Storage.prototype.getItem;
    let isRead = false;
    Storage.prototype.getItem = function (key) {
      const found = read.call(this, key);
      if (key === "trainjob-visibility" && !isRead) {
        isRead = true;
        localStorage.setItem(key, JSON.stringify({ views: [{ name: "of another tab", query: "q=1" }] }));
      }
      return found;
    };
  });
  await page.goto(fixture.page());
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  expect(await page.evaluate(() => localStorage.getItem("trainjob-visibility"))).toContain("of another tab");
});

test("what waste a job has is told where its column has no room", async () => {
  const stuck = fixture.jobs.find((one) => one.trouble === "Stalled")!;
  stuck.says = {
    ...stuck.says,
    conditions: ["Stalled", "Straggling"].map((type) => ({
      type,
      status: "True" as const,
      reason: "R",
      message: "",
      lastTransitionTime: iso(1500),
    })),
    resources: { accelerators: 8, byName: [], acceleratorSeconds: 90_000, wastedAcceleratorSeconds: 36_000 },
  };
  for (const width of [900, 320]) {
    await show(`#/?q=${stuck.name}&column=team`, { viewport: { width, height: 700 } });
    await row(stuck).waitFor();
    await row(stuck)
      .getByText(/10 h wasted/)
      .filter({ visible: true })
      .waitFor();
    const value = row(stuck).locator(".cell.metric .value > span").first();
    const cell = (await row(stuck).locator(".cell.metric").boundingBox())!;
    const box = (await value.boundingBox())!;
    expect(box.x + box.width).toBeLessThanOrEqual(cell.x + cell.width + 1);
    await row(stuck).locator(".cell.seen").filter({ visible: true, hasText: "25m" }).waitFor();
    await row(stuck)
      .getByText(/nlp|vision|speech/)
      .filter({ visible: true })
      .last()
      .waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
    if (width === 900) await page.context().close();
  }
});

test("a pod that has failed beyond those that are shown is told of", async () => {
  const pod = (rank: number, state: "Running" | "Failed") => ({
    name: `worker-${rank}`,
    rank,
    state,
    restartCount: 0,
  });
  job.says = { replicas: [{ name: "worker", desired: 1500, active: 1499, failed: 1 }] };
  job.hasPods = Array.from({ length: 1500 }, (_, rank) => pod(rank, rank === 1499 ? "Failed" : "Running"));
  await show(routeOf(job));
  await page.getByRole("heading", { name: "Replicas" }).scrollIntoViewIfNeeded();
  await page.getByText("These are 1,000 of 1,500 pods, rank 0 to 999.").waitFor();
  await page.getByText("1 that has failed is not among them.").waitFor();
  await page.getByRole("button", { name: "Those that follow" }).click();
  await page.getByText("These are 500 of 1,500 pods, rank 1,000 to 1,499.").waitFor();
  expect(await page.getByText("not among them").count()).toBe(0);
});

test("whoever may read one kind only is told which rights the list takes", async () => {
  fixture.options.allKinds = "forbidden";
  fixture.readable = ["pytorchjobs"];
  await show();
  await page.getByText('cannot list resource "trainingjobs"').filter({ visible: true }).first().waitFor();
  await page.getByText(/It takes the right to list and watch trainingjobs and each kind that is to be seen/).waitFor();
});

test("the choices of the settings lie within their sheet on a small screen", async () => {
  await show("", { viewport: { width: 320, height: 568 } });
  await page.getByRole("button", { name: "Settings" }).click();
  const sheet = (await page.locator(".sheet:not([hidden])").boundingBox())!;
  for (const choice of await page.locator(".sheet:not([hidden]) :is(select, input)").all()) {
    const box = (await choice.boundingBox())!;
    expect(box.x + box.width).toBeLessThanOrEqual(sheet.x + sheet.width);
    expect(box.x).toBeGreaterThanOrEqual(sheet.x);
  }
});

test("a PNG of a chart names its axis and its smoothing", async () => {
  reports(job, upTo(50));
  await show(`${routeOf(job)}?smooth=0.8`);
  await page.locator(".plot canvas").first().waitFor();
  await page.evaluate(() => {
    const written: string[] = [];
    Object.assign(window, { written });
    const real = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
      written.push(text);
      return real.call(this, text, x, y);
    };
  });
  await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "PNG of loss" }).click()]);
  const written = await page.evaluate(() => (window as unknown as { written: string[] }).written);
  expect(written.some((text) => text.includes(" · by step, smoothed by 0.8 · as of "))).toBe(true);
});

test("a chart that comes while the print begins is on white too", async () => {
  ({ page, faults } = await open(browser, "about:blank", { colorScheme: "dark" }));
  await page.addInitScript(() => {
    const colours = new Set<unknown>();
    Object.assign(window, { colours });
    const watcher = new MutationObserver(() => {
      if (!document.querySelector(".plot")) return;
      watcher.disconnect();
      window.dispatchEvent(new Event("beforeprint")); // it is drawn, and listens to nothing yet
      const real = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        colours.clear();
        colours.add(this.fillStyle);
        return real.call(this, text, x, y);
      };
    });
    watcher.observe(document, { childList: true, subtree: true });
  });
  reports(job, upTo(50));
  await page.goto(`${fixture.page()}${routeOf(job)}`);
  await until(
    () => page.evaluate(() => [...(window as unknown as { colours: Set<unknown> }).colours].join()),
    (colours) => colours === "#5c666d",
  );
});

test("what does not run or advance is given no pace and no end", async () => {
  const condition = (type: string) => ({
    type,
    status: "True" as const,
    reason: "R",
    message: "",
    lastTransitionTime: iso(900),
  });
  for (const [says, why] of [
    [{ phase: "Suspended" as const }, undefined],
    [{ conditions: [condition("Stalled")] }, "the run does not advance"],
    [{ conditions: [condition("NoProgress")] }, "attempts end before they come further"],
  ] as const) {
    job.says = says as unknown as MadeJob["says"];
    await show(routeOf(job));
    await page.locator(".numbers").waitFor();
    const told = (await page.locator(".job-head").textContent()) ?? "";
    expect(told).not.toMatch(/About |ends /);
    if (why) expect(told).toContain(`No estimate of the end: ${why}.`);
    if (why !== "attempts end before they come further") expect(told).not.toContain("Pace");
    await page.goto(`${fixture.page()}#/?q=${job.name}`);
    await row(job).waitFor();
    expect(await row(job).locator(".cell.end").textContent()).toBe("");
    if (says !== undefined) await page.context().close();
  }
  await show();
});

test("a failure whose cause is known is called by it, as kubectl does", async () => {
  const failed = fixture.jobs.find(({ phase }) => phase === "Failed")!;
  const known = {
    class: "AcceleratorOutOfMemory",
    cause: "The accelerator ran out of memory.",
    hint: "Use a smaller batch.",
  };
  failed.says = { failure: { reason: "Error", exitCode: 1, time: iso(300), ...known } } as MadeJob["says"];
  await show(`#/?q=${failed.name}`);
  await row(failed).getByText("AcceleratorOutOfMemory (exit 1)").waitFor();
  await page.goto(fixture.page() + routeOf(failed));
  await page.locator(".failure strong", { hasText: "AcceleratorOutOfMemory" }).waitFor();
});

test("on a small screen events need no scrolling, and in a middle one each job has its accelerators", async () => {
  await show(routeOf(job), { viewport: { width: 320, height: 700 } });
  const events = page.getByRole("group", { name: "Events" });
  await events.scrollIntoViewIfNeeded();
  expect(await events.evaluate((box) => box.scrollWidth - box.clientWidth)).toBeLessThanOrEqual(0);
  await events.getByText(`TrainJob ${job.name}`).filter({ visible: true }).first().waitFor();
  job.says = { resources: { accelerators: 8, byName: [], acceleratorSeconds: 9, wastedAcceleratorSeconds: 0 } };
  fixture.change(job);
  await page.goto(`${fixture.page()}#/?q=${job.name}`);
  await page.setViewportSize({ width: 900, height: 700 });
  await row(job).getByText("8 accelerators").filter({ visible: true }).waitFor();
});
