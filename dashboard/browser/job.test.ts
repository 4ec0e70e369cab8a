import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";
import { HOSTILE, type MadeJob } from "./fixture-jobs";

let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: 200 });
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

async function show(is: (job: MadeJob) => boolean, look = ""): Promise<MadeJob> {
  const job = fixture.jobs.find(is)!;
  ({ page, faults } = await open(browser, `${fixture.page()}#/trainjobs/${job.namespace}/${job.name}${look}`));
  await page.getByRole("heading", { name: job.name }).waitFor();
  await page.getByText("Reading the job").waitFor({ state: "hidden" }); // the heading is there before the job is
  return job;
}

const isGood = (job: MadeJob) => job.isTraining && job.trouble === "" && !job.isHostile;

test("progress, the end with its range, and every metric are shown", async () => {
  await show(isGood);
  await page.getByText(/About .* left, ends .* \(between .* and .*\)/).waitFor();
  for (const name of ["loss", "accuracy", "learning_rate", "grad_norm"]) {
    await page.getByRole("heading", { name, exact: true }).waitFor();
  }
  await until(
    () => page.locator(".plot canvas").count(),
    (count) => count === 4, // a few in each frame
  );
  await page.getByRole("img", { name: /^loss\..*eval_loss: \d+ points, from/ }).waitFor();
});

test("curves are drawn over steps, time, elapsed time and epochs", async () => {
  await show(isGood, "?metric=loss");
  for (const [button, told] of [
    ["Time", "By time"],
    ["Elapsed", "By elapsed"],
    ["Epoch", "By epoch"],
    ["Step", "By step"],
  ] as const) {
    await page.getByRole("button", { name: button, exact: true }).click();
    await page.getByRole("img", { name: new RegExp(`^loss\\. ${told}\\. .*loss: \\d{2,} points`) }).waitFor();
  }
});

test("axis, scale, smoothing and choice of metrics are in the address", async () => {
  await show(isGood);
  await page.getByRole("button", { name: "Time", exact: true }).click();
  await page.getByLabel("Log scale").check();
  await page.getByLabel("Smoothing").fill("0.9");
  await page.getByRole("button", { name: "All metrics" }).click();
  await page.getByRole("checkbox", { name: "accuracy" }).uncheck();
  await until(
    () => page.locator(".plot canvas").count(),
    (count) => count === 3,
  );
  expect(page.url()).toMatch(/x=time&log=1&smooth=0.9&metric=loss/);
  await page.reload();
  await until(
    () => page.locator(".plot canvas").count(),
    (count) => count === 3,
  );
  expect(await page.getByRole("button", { name: "Time", exact: true }).getAttribute("aria-pressed")).toBe("true");
});

test("a chart is zoomed with the pointer and with keys, and shows all again", async () => {
  await show(isGood);
  const reset = page.getByRole("button", { name: "Show all" });
  await page.getByRole("img", { name: /^loss\. .*\d{2} points/ }).waitFor(); // drawn anew when the history comes
  const drag = async () => {
    await page.locator(".curve-panel").first().scrollIntoViewIfNeeded();
    const box = (await page.locator(".plot .u-over").first().boundingBox())!;
    await page.mouse.move(box.x + box.width * 0.3, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2, { steps: 4 });
    await page.mouse.up();
    return reset.isEnabled({ timeout: 1000 });
  };
  await until(drag, Boolean); // in vain while the chart is made anew
  await reset.click();
  await until(() => reset.isDisabled(), Boolean);
  await page.locator(".plot").first().focus();
  const pressed = async (key: string) => {
    await page.keyboard.press(key);
    return reset.isEnabled();
  };
  await until(() => pressed("+"), Boolean);
  await until(
    () => pressed("0"),
    (isZoomed) => !isZoomed,
  );
});

test("another job is found and compared", async () => {
  const job = await show(isGood, "?metric=loss");
  await page.getByRole("button", { name: "Compare with" }).click();
  await page.locator(".found button").first().click();
  await page.getByRole("list", { name: "Compared jobs" }).getByRole("link").waitFor();
  expect(page.url()).toContain("with=");
  await until(
    () => page.locator(".legend li").count(),
    (count) => count === 2,
  );
  await page.getByRole("button", { name: /^Do not compare/ }).click();
  await until(
    () => page.url(),
    (url) => !url.includes("with="),
  );
  expect(page.url()).toContain(job.name);
});

test("new values are drawn as they come", async () => {
  const job = await show(isGood);
  const value = () => page.locator(".legend b").first().textContent();
  const before = await until(value, (text) => text !== "");
  fixture.change(job);
  await until(value, (text) => text !== before);
});

test("why a job died is told with its place, what to do, and the last lines of its log", async () => {
  const job = await show((one) => one.phase === "Failed");
  await page.getByRole("heading", { name: "Why it failed" }).waitFor();
  await page.locator("#failure ~ p", { hasText: `${job.name}-node-0-2-q8fzt` }).waitFor();
  await page.getByText("What to do:").first().waitFor();
  await page.getByText("[U+001B][31mRuntimeError[U+001B][0m: [U+202E]<b>device-side assert</b>").waitFor();
  await page.getByText("before its last restart; what came before is left out").waitFor();
});

test("of a job that stands still the rank that others wait for is named, and where all ranks are", async () => {
  await show((one) => one.trouble === "Stalled" && one.phase === "Running");
  await page.getByRole("heading", { name: "Why it stands still" }).waitFor();
  await page
    .getByText("Rank 37 (gpu-9) is in the data loader for 6 min; 63 ranks wait for it in all_reduce.")
    .waitFor();
  await page.getByRole("cell", { name: "0-36,38-63" }).waitFor();
});

test("who may not read logs or list events is told which right it takes", async () => {
  fixture.mayReadMore = false;
  const job = await show((one) => one.phase === "Failed");
  await page.getByText('cannot get resource "pods/log"').waitFor();
  await page.getByText(`kubectl logs -n ${job.namespace}`).waitFor();
  await page.getByText(`It takes the right to list events in the namespace ${job.namespace}.`).waitFor();
  await page.getByText('cannot list resource "events"').waitFor();
});

test("the pods of each group are counted, and the one that reports is named", async () => {
  const job = await show(isGood);
  const row = page.getByRole("group", { name: "Pods of each group" }).getByRole("row", { name: /^node/ });
  await row.waitFor();
  expect(await row.getByRole("cell").allTextContents()).toEqual(["node", "4", "4", "4", "0", "0"]);
  await page.getByText(`${job.name}-node-0-0-x7k2p`).first().waitFor();
});

test("attempts are counted and marked, curves of earlier ones are there", async () => {
  const job = await show((one) => isGood(one) && one.number % 7 === 0, "?metric=loss");
  await page.getByRole("term").filter({ hasText: "Attempts" }).waitFor();
  const told = await page
    .getByRole("img", { name: /^loss\. .*loss of attempt 1: .*loss: / })
    .getAttribute("aria-label");
  expect(told).toContain("attempt 2 began at"); // a dashed line, on the canvas
  expect(job.name).toBeTruthy();
});

test("a job that cannot be read says why and what to do", async () => {
  await show((one) => one.trouble === "Silent");
  await page.getByText("No progress file at /tmp/trainjob-progress.json").waitFor();
  await page.getByText("What to do:").waitFor();
  await page.getByText("from trainjob_progress import report").waitFor();
  const asked = fixture.requests.length;
  await page.getByRole("link", { name: "More about NoProgressFile" }).click();
  await page.getByRole("heading", { name: "A job shows no progress" }).waitFor();
  await page.locator("tr.sought", { hasText: "NoProgressFile" }).waitFor();
  await page.getByRole("link", { name: "instrument the loop" }).click();
  await page.getByRole("heading", { name: "Instrument", exact: false }).first().waitFor();
  expect(fixture.requests.slice(asked).every((path) => path.startsWith("/apis/"))).toBe(true); // and no other host
  await page.goBack();
  await page.goBack();
  await page.getByText("No progress file at /tmp/trainjob-progress.json").waitFor();
});

test("the documentation of another version is said to be missing", async () => {
  await show(isGood);
  for (const name of ["__proto__", "no-such-page"]) {
    await page.goto(`${fixture.page()}#/docs/${name}`);
    await page.getByRole("heading", { name: `There is no page "${name}"` }).waitFor();
  }
});

test("what is wrong is told in words, and values that are not finite are counted", async () => {
  await show((one) => one.trouble === "Diverged");
  await page.getByText(/^A loss or gradient is not finite \(for /).waitFor();
  await page.getByText(/values? (is|are) NaN or infinite/).waitFor();
  await page.locator(".legend li", { hasText: /^loss\s*NaN/ }).waitFor(); // no older value in place of the last one
});

test("events and the YAML are there", async () => {
  const job = await show(isGood);
  await page.getByText("All Jobs of the TrainJob have been created").waitFor();
  await page.getByText("YAML and kubectl").click();
  await page.getByText(`kubectl get tjp ${job.name} -n ${job.namespace} -o yaml`).waitFor();
  await page.getByText("resourceVersion").waitFor();
});

test("a hostile text is shown as text, with what it hides made visible", async () => {
  await show((one) => one.isHostile);
  await page.getByRole("heading", { name: HOSTILE.metric }).waitFor();
  await page.getByRole("heading", { name: "los[U+202E]s_eslaf" }).waitFor();
  await page.getByText("[U+0007][U+001B][31mred").waitFor();
  await page.getByText("q[U+200B]ueue").waitFor();
  expect(await page.title()).not.toContain("owned");
  expect(await page.locator("img, script:not([src])").count()).toBe(0);
});

test("a server without history still shows the values as they come", async () => {
  fixture.hasHistory = false;
  const job = await show(isGood);
  await page.getByRole("heading", { name: "Metrics" }).waitFor();
  fixture.change(job);
  await until(
    () => page.locator(".plot canvas").count(),
    (count) => count > 0,
  );
});

test("a job that does not exist, and one that is deleted, are told", async () => {
  const job = await show(isGood);
  fixture.change(job, "DELETED");
  await page.getByText("This job has been deleted.").waitFor();
  await page.goto(`${fixture.page()}#/trainjobs/research/no-such-job`);
  await page.getByRole("heading", { name: "There is no such job" }).waitFor();
});

test("a stalled job says its age once, and why there is no end", async () => {
  await show((one) => one.trouble === "Stalled");
  const told = await page.locator(".notice.bad").first().textContent();
  expect(told?.match(/\bfor \d+/g)).toHaveLength(1);
  await page.getByText("No estimate of the end: the run does not advance.").waitFor();
});

test("a run that has diverged is given no end, and advice", async () => {
  const job = await show((one) => one.trouble === "Diverged");
  await page.getByText("No estimate of the end: the run has diverged.").waitFor();
  await page.getByText("begin again from a checkpoint before that").waitFor();
  await page.goto(`${fixture.page()}#/?q=${job.name}`);
  await page.locator(".body .row").first().waitFor();
  expect(await page.locator(".body .row .end").first().textContent()).toBe("");
});

test("a probe that is late says by how much", async () => {
  const job = fixture.jobs.find((one) => one.trouble === "Silent")!;
  const ago = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();
  job.says = {
    observation: { source: "exec", consecutiveFailures: 1, lastProbeTime: ago(400), nextProbeTime: ago(340) },
  };
  await show((one) => one === job);
  await page.getByText(/overdue by 5 min/).waitFor();
});

test("a job that waits is no job that cannot be read, and is told to have not begun", async () => {
  const job = fixture.jobs.find((one) => one.phase === "Pending")!;
  job.says = {
    conditions: [
      {
        type: "Reporting",
        status: "False",
        reason: "NoRank0Pod",
        message: "",
        lastTransitionTime: "2026-01-01T00:00:00Z",
      },
    ],
    metrics: [],
  };
  job.hasHistory = { attempts: [], progress: [], series: [] };
  await show((one) => one === job);
  await page.getByText("The run has not begun").waitFor();
  expect((await page.locator(".job-title .badge").allTextContents()).join()).not.toContain("Not reporting");
});

test("a CSV that is refused says so", async () => {
  await show(isGood);
  fixture.hasHistory = false;
  await page.getByRole("button", { name: "CSV", exact: true }).click();
  await page.getByText("No CSV: the server could not find the requested resource").waitFor();
});

test("what is zoomed to is in the address", async () => {
  await show(isGood);
  await page.getByRole("img", { name: /^loss\. .*\d{2} points/ }).waitFor();
  await page.locator(".plot").first().focus();
  await until(
    async () => {
      await page.keyboard.press("+"); // in vain while the chart is made anew
      return page.url();
    },
    (url) => /from=[\d.]+&to=[\d.]+/.test(url),
  );
  await page.reload();
  const reset = page.getByRole("button", { name: "Show all" });
  await until(() => reset.isEnabled(), Boolean);
  await reset.click();
  await until(
    () => page.url(),
    (url) => !url.includes("from="),
  );
});

test("a ninth job to compare is named as left out", async () => {
  const others = fixture.jobs.slice(10, 19).map((job) => `with=${job.namespace}/${job.name}`);
  await show(isGood, `?${others.join("&")}`);
  await page.getByText(/At most 8 jobs are compared\. Left out: .*-0017, .*-0018/).waitFor();
});

const openLog = () => page.getByRole("heading", { name: "Log", exact: true }).click();
const logText = () => page.locator(".log").textContent();

test("the log of a job that runs is live, and is searched", async () => {
  const job = await show(isGood);
  await openLog();
  await until(logText, (text) => text?.includes("step 2 loss 2.4") ?? false);
  fixture.logs.set(job.name, "step 1 loss 2.5\nepoch 1\repoch 2\n\u001b[31mOOM soon\u001b[0m \u202e<b>x</b>\n");
  await until(logText, (text) => text === "step 1 loss 2.5\nepoch 2\nOOM soon [U+202E]<b>x</b>\n");
  await page.getByRole("searchbox", { name: "Find in these lines" }).fill("oom");
  await page.getByText("1 of 3 lines").waitFor();
  expect(await page.locator(".log mark").allTextContents()).toEqual(["OOM"]);
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText(/As of .*\. Paused\./).waitFor();
});

test("a log that cannot be read again says as of when it is, and one that may not be read which right it takes", async () => {
  const job = await show(isGood);
  await openLog();
  await until(logText, Boolean);
  fixture.mayReadMore = false;
  await page.getByText(/It cannot be read again: .*cannot get resource "pods\/log"/).waitFor();
  expect(await page.getByText("read every 5 s").count()).toBe(0);
  await page.reload();
  await openLog();
  await page.getByText('cannot get resource "pods/log"').waitFor();
  await page.getByText(`kubectl logs -n ${job.namespace}`).waitFor();
});

test("of a log with very long lines the newest are shown", async () => {
  const job = fixture.jobs.find(isGood)!;
  fixture.logs.set(job.name, `${`${"x".repeat(9000)}\n`.repeat(400)}the newest\n`);
  await show((one) => one === job);
  await openLog();
  await until(logText, (text) => text?.endsWith("the newest\n") ?? false);
  await page.getByText("what came before is left out").waitFor();
});

test("a log has its last lines when the job has ended", async () => {
  const job = await show(isGood);
  await openLog();
  await until(logText, (text) => text?.includes("step 2 loss 2.4") ?? false);
  fixture.logs.set(job.name, "saved\n");
  job.says = { phase: "Succeeded", endTime: new Date().toISOString() };
  fixture.change(job);
  await until(logText, (text) => text === "saved\n");
  expect(await page.getByText("read every 5 s").count()).toBe(0);
});

test("a chart is taken along as a PNG, and as a link with its zoom", async () => {
  const job = await show(isGood);
  await page.getByRole("img", { name: /^loss\. .*\d{2} points/ }).waitFor();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "PNG of loss" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("loss.png");
  const bytes = readFileSync(await download.path());
  expect(bytes.subarray(1, 4).toString()).toBe("PNG");
  const [width, height] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];
  const canvas = await page.locator(".plot canvas").first().boundingBox();
  expect(width).toBe(Math.round(canvas!.width));
  expect(height).toBeGreaterThan(canvas!.height + 40); // name and legend
  await page.goto(`${fixture.page()}#/trainjobs/${job.namespace}/${job.name}?from=10&to=40`);
  const link = page.locator("figure", { has: page.getByRole("heading", { name: "accuracy" }) }).getByText("Link");
  await until(
    () => link.getAttribute("href"),
    (href) => /metric=accuracy&from=10&to=40$/.test(href ?? ""),
  );
  await link.click();
  await until(
    () => page.locator(".curve-panel").count(),
    (count) => count === 1,
  );
  expect(await page.getByRole("button", { name: "Show all" }).isEnabled()).toBe(true);
});

test("attempts are listed over time with their steps", async () => {
  await show((one) => isGood(one) && one.number % 7 === 0);
  const rows = page.getByRole("group", { name: "Attempts" }).locator("tbody tr");
  await until(
    () => rows.count(),
    (count) => count === 2,
  );
  expect(await rows.last().textContent()).toMatch(/^2.*[\d,]+ to [\d,]+$/);
  await page.getByRole("img", { name: /an attempt of .*, runs for / }).waitFor();
});

test("a job that has failed is not told to be probed again", async () => {
  const job = fixture.jobs.find((one) => one.phase === "Failed")!;
  job.says = { observation: { source: "exec", consecutiveFailures: 1, reason: "ContainerNotRunning" } };
  await show((one) => one === job);
  const reading = page.getByRole("region", { name: "How the numbers are read" });
  await reading.getByText("ContainerNotRunning").waitFor();
  expect(await reading.getByText("What to do:").count()).toBe(0);
});

test("earlier runs of a name are read when asked for, compared with, and shown each as its record", async () => {
  const job = fixture.jobs.find(isGood)!;
  const [old] = fixture.jobs.filter((one) => one.phase === "Failed");
  Object.assign(old!, { name: job.name, namespace: job.namespace, uid: "abcdef01-0000-4000-8000-000000000000" });
  fixture.jobs = fixture.jobs.filter((one) => one !== old);
  fixture.records = [old!];
  const asked = () => fixture.requests.filter((path) => path.includes("jobrecords"));
  await show((one) => one === job, "?metric=loss");
  const runs = page.locator("summary", { hasText: "Earlier runs of this name" });
  await runs.waitFor();
  expect(asked()).toEqual([]);
  await runs.click();
  const row = page.getByRole("group", { name: "Earlier runs" }).getByRole("row").nth(1);
  await row.getByText("Failed").waitFor();
  expect(await row.textContent()).toMatch(/2 h 1 min.*loss/);
  await row.getByRole("link", { name: "Compare" }).click();
  const record = `${job.name}-abcdef01`;
  await page.getByRole("list", { name: "Compared jobs" }).getByText(record).waitFor();
  await page.getByRole("table", { name: "Last and best values" }).getByText(record).waitFor();
  await page.locator(".legend-line").getByText(record).waitFor();
  await row.getByRole("link").first().click();
  await page.getByRole("heading", { name: record }).waitFor();
  await page.getByText("This is the record of a job that has ended or was deleted.").waitFor();
  await page.getByRole("heading", { name: "Why it failed" }).waitFor();
  await page.getByRole("img", { name: /^loss\..*\d+ points/ }).waitFor();
  expect(await page.title()).toMatch(/^Failed/);
  expect(await page.locator(".numbers").textContent()).toMatch(/Last report(\d+ \w+ )?\d\d:\d\d/);
  expect(await page.getByRole("heading", { name: "Replicas" }).count()).toBe(0);
  expect(asked().filter((path) => !/jobrecords(\?limit=500|\/[^/]+(\/history\?.*)?)$/.test(path))).toEqual([]);
  await page.getByRole("link", { name: `The job ${job.name} of today` }).click();
  await page.getByRole("heading", { name: "Replicas" }).waitFor();
});

test("without an archive no earlier run is spoken of, and without the right to it the refusal is told", async () => {
  await show(isGood);
  await page.getByRole("heading", { name: "Metrics" }).waitFor();
  await until(() => fixture.isQuiet, Boolean);
  expect(await page.getByText("Earlier runs of this name").count()).toBe(0);
  fixture.records = [];
  fixture.mayReadRecords = false;
  await page.reload();
  await page.locator("summary", { hasText: "Earlier runs of this name" }).click();
  await page.getByText('You cannot list resource "jobrecords"').waitFor();
  expect(fixture.requests.filter((path) => path.includes("jobrecords"))).toEqual([]);
});
