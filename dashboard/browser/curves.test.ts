import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];
const NOW = Math.floor(Date.now() / 1000);

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: 60 });
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

type Points = readonly (readonly [step: number, value: string])[];

/** The job's curves are these, by metric, a list for each attempt; its document has the last values. */
function has(job: MadeJob, curves: Record<string, Points[]>): void {
  const at = (step: number) => NOW - 3600 + step;
  const all = Object.entries(curves).flatMap(([metric, attempts]) =>
    attempts.map((points, attempt) => ({
      metric,
      attempt,
      times: points.map(([step]) => at(step) + 1800 * attempt),
      steps: points.map(([step]) => step),
      values: points.map(([, value]) => value),
    })),
  );
  const numbers = [...new Set(all.map(({ attempt }) => attempt))];
  const attempts = numbers.map((number) => {
    const own = all.filter(({ attempt }) => attempt === number);
    return {
      number,
      startTime: new Date(Math.min(...own.flatMap(({ times }) => times)) * 1000).toISOString(),
      firstStep: Math.min(...own.flatMap(({ steps }) => steps)),
    };
  });
  job.hasHistory = { attempts, progress: [], series: all };
  const last = Math.max(...all.map(({ times }) => times.at(-1) ?? 0));
  job.says = {
    startTime: new Date((NOW - 3600) * 1000).toISOString(),
    lastUpdatedTime: new Date(last * 1000).toISOString(),
    steps: { current: Math.max(...all.map(({ steps }) => steps.at(-1) ?? 0)) },
    metrics: Object.entries(curves).map(([name, lists]) => ({ name, value: lists.at(-1)?.at(-1)?.[1] ?? "0" })),
  };
}

const range = (from: number, to: number, by: number, value: (step: number) => number): Points =>
  Array.from({ length: Math.floor((to - from) / by) + 1 }, (_, at) => {
    const step = from + at * by;
    return [step, String(value(step))] as const;
  });

const trains = (job: MadeJob) => job.isTraining && job.trouble === "" && !job.isHostile;

async function show(job: MadeJob, look = ""): Promise<void> {
  ({ page, faults } = await open(browser, "about:blank"));
  await page.addInitScript(() => {
    // What is written on canvases cannot be read there.
    const written: string[] = [];
    const cut: string[] = [];
    Object.assign(window, { written, cut });
    const real = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
      written.push(text);
      const { width } = this.measureText(text);
      if (this.textAlign === "right" && x < width) cut.push(text);
      if (this.textAlign === "center" && x + width / 2 > this.canvas.width) cut.push(text);
      return real.call(this, text, x, y);
    };
  });
  await page.goto(`${fixture.page()}#/trainjobs/${job.namespace}/${job.name}${look}`);
  await page.locator(".plot canvas").first().waitFor();
}

async function pointAt(share: number): Promise<void> {
  // A chart is made anew when the history comes, and moves while those above it come.
  const plot = page.locator(".plot .u-over").first();
  await page.locator(".curve-panel").first().scrollIntoViewIfNeeded();
  const box = await until(() => plot.boundingBox(), Boolean);
  await page.mouse.move(box!.x + box!.width * share, box!.y + box!.height / 2);
}

const legendAt = async (share: number) => {
  await pointAt(share);
  return legend();
};
const legend = () => page.locator(".legend li").allTextContents();
const written = () => page.evaluate(() => (window as unknown as { written: string[] }).written);

/** Of the first chart, how many pixels have about this colour. */
const pixels = (red: number, green: number, blue: number) =>
  page.evaluate(
    ([r = 0, g = 0, b = 0]) => {
      const canvas = document.querySelector<HTMLCanvasElement>(".plot canvas")!;
      const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
      let found = 0;
      for (let at = 0; at < data.length; at += 4) {
        const off = Math.abs(data[at]! - r) + Math.abs(data[at + 1]! - g) + Math.abs(data[at + 2]! - b);
        if (data[at + 3]! > 200 && off < 30) found++;
      }
      return found;
    },
    [red, green, blue],
  );
const FIRST_COLOUR = [0x0b, 0x72, 0x85] as const; // of the palette on light

test("the value as it was reported is shown exactly, the smoothed one beside it, both named", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [[...range(0, 40, 10, (step) => 2 - step / 100), [50, "1.2900001"]]] });
  await show(job);
  await until(legend, ([text]) => /^loss\s*1\.2900001\s*smoothed\s*1\.\d+$/.test(text ?? ""));
  await until(
    () => legendAt(0),
    ([text]) => /^loss\s*2\s*smoothed\s*2$/.test(text ?? ""),
  );
});

test("an earlier attempt under the pointer has its values in the legend", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(0, 400, 10, () => 5), range(350, 1000, 10, () => 3)] });
  await show(job);
  await until(legend, ([text]) => /^loss\s*3/.test(text ?? ""));
  await until(
    () => legendAt(0.1),
    (texts) => texts.length === 1 && /^loss attempt 1\s*5/.test(texts[0] ?? ""),
  );
  await until(
    () => legendAt(0.38),
    (texts) => texts.length === 2,
  );
});

test.each([
  ["between values that are not finite", "", ["NaN", "1.5", "NaN", "NaN", "2.5", "NaN"]],
  ["on a log scale between values of 0 and less", "?log=1", ["-1", "1.5", "0", "-2", "2.5", "-1"]],
])("a lone value %s is a dot", async (_, look, values) => {
  const job = fixture.jobs.find(trains)!;
  const many = Array.from({ length: 60 }, (_, at) => [at, values[at % values.length]!] as const);
  has(job, { loss: [many] });
  await show(job, look);
  await until(
    () => pixels(...FIRST_COLOUR),
    (count) => count > 20 * 8, // twenty dots
  );
});

test.each([
  [(step: number) => 123456789 + step / 10, /^1\.2345679\d+e8$|^123,456,7\d\d$/],
  [(step: number) => 0.3 + step * 1e-11, /^0\.30000000\d+$/],
])("ticks are as fine as the range", async (value, form) => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(0, 100, 10, value)] });
  await show(job);
  const ticks = await until(
    async () => [...new Set((await written()).filter((text) => form.test(text)))],
    (found) => found.length >= 3,
  );
  expect(ticks.length).toBeGreaterThanOrEqual(3);
});

test("no tick is cut off, however large its value is", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(0, 100, 10, (step) => -9.87654e299 * (1 - step / 1000))] });
  await show(job);
  await until(written, (texts) => texts.some((text) => /e29\d$/.test(text)));
  expect(await page.evaluate(() => (window as unknown as { cut: string[] }).cut)).toEqual([]);
});

test.each([
  ["time", /^(\d{1,2} [A-Z][a-z]{2,3} )?\d\d:\d\d$|^\d{1,2} [A-Z][a-z]{2,3}$/],
  ["step", /^\d+k$/],
])("ticks on the axis of %s are whole, and written as everywhere else", async (axis, form) => {
  const job = fixture.jobs.find(trains)!;
  has(job, { zero: [range(0, 200_000, 200, () => 0)] });
  job.hasHistory!.series[0]!.times = job.hasHistory!.series[0]!.times.map((_, at) => NOW - 36_000 + 36 * at);
  await show(job, `?x=${axis}`);
  await until(written, (texts) => texts.filter((text) => form.test(text)).length > 3);
  expect((await written()).filter((text) => /[ap]m|\//.test(text))).toEqual([]);
  expect(await page.evaluate(() => (window as unknown as { cut: string[] }).cut)).toEqual([]);
});

test("the mark of an attempt is at the step where its curve begins", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(0, 400, 10, () => 5), range(350, 1000, 10, () => 3)] });
  job.hasHistory!.attempts[1]!.firstStep = 300; // resumed there; its first value came later
  await show(job);
  await page.getByRole("img", { name: /attempt 2 began at step 350\./ }).waitFor();
});

test("past the last value of a compared job, its value is told with its own step", async () => {
  const [job, other] = fixture.jobs.filter(trains) as [MadeJob, MadeJob];
  has(job, { loss: [range(0, 1000, 10, () => 3)] });
  has(other, { loss: [range(0, 200, 10, () => 4)] });
  await show(job, `?with=${other.namespace}/${other.name}`);
  await until(
    () => legendAt(0.9),
    (texts) => texts.some((text) => text.includes(other.name) && /step 200/.test(text)),
  );
  await until(
    () => legendAt(0.9),
    (texts) => texts.some((text) => text.includes(job.name) && !text.includes("step")), // its history has come too
  );
});

test("without the pointer each compared job has its last value, wherever the newest one lies", async () => {
  const [job, other] = fixture.jobs.filter(trains) as [MadeJob, MadeJob];
  has(job, { loss: [range(500, 1000, 10, () => 3)] });
  has(other, { loss: [range(1010, 1500, 10, () => 4)] }); // the newest, and at the earliest steps
  const { series } = other.hasHistory!;
  other.hasHistory = {
    ...other.hasHistory!,
    series: series.map((one) => ({ ...one, steps: (one.steps ?? []).map((step) => (step ?? 0) - 1000) })),
  };
  other.says = { ...other.says, steps: { current: 500 } };
  await show(job, `?with=${other.namespace}/${other.name}`);
  await until(legend, (texts) => texts.some((text) => text.includes(other.name) && text.endsWith("4")));
  await until(legend, (texts) => texts.some((text) => text.includes(job.name) && /3step 1,000$/.test(text)));
});

test("a learning rate is never smoothed", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { "train/lr-AdamW": [range(0, 100, 10, (step) => (step < 50 ? 1 : 0.1))] });
  await show(job);
  await until(legend, ([text]) => /0\.1/.test(text ?? ""));
  expect((await legend()).join()).not.toContain("smoothed");
});

test("a curve whose beginning is not kept says since when it is", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(1200, 1800, 10, () => 3)] });
  await show(job);
  await page.getByText(/Curves are kept since \d\d:\d\d \(step 1,200\)/).waitFor();
});

test("a run that goes on from a checkpoint is no curve that lost its beginning", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(1200, 1800, 10, () => 3)] });
  job.says.startTime = new Date((NOW - 3600 + 1190) * 1000).toISOString();
  await show(job);
  await until(legend, ([text]) => /^loss/.test(text ?? ""));
  expect(await page.getByText(/Curves are kept since/).count()).toBe(0);
});

test("a second attempt that begins late is no curve that lost its beginning", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(0, 1200, 10, () => 4), range(1200, 1800, 10, () => 3)] });
  await show(job);
  await page.getByRole("img", { name: /attempt 2 began at/ }).waitFor(); // the history is there
  expect(await page.getByText(/Curves are kept since/).count()).toBe(0);
});

test("eight compared jobs have a colour each, and a table of last and best values", async () => {
  const jobs = fixture.jobs.filter(trains).slice(0, 8);
  for (const [at, job] of jobs.entries())
    has(job, {
      loss: [range(0, 100, 10, (step) => 3 + at - step / 100)],
      eval_loss: [range(0, 100, 50, (step) => 2 + at + step / 100)],
    });
  const [first, ...others] = jobs as [MadeJob, ...MadeJob[]];
  await show(first, `?${others.map((job) => `with=${job.namespace}/${job.name}`).join("&")}`);
  await until(legend, (texts) => texts.length === 16);
  const colours = await page
    .locator(".legend .swatch")
    .evaluateAll((all) => all.map((one) => getComputedStyle(one).borderTopColor));
  expect(new Set(colours).size).toBe(8);
  const table = page.getByRole("table", { name: "Last and best values" });
  expect(await table.locator("tbody tr").count()).toBe(8);
  await until(
    () => table.locator("tbody tr", { hasText: jobs[2]!.name }).textContent(),
    (row) => /4\s*4/.test(row ?? "") && /5\s*4/.test(row ?? ""), // loss falls: the last is the best; eval_loss rises
  );
});

test("charts that are out of view are on paper too", async () => {
  const job = fixture.jobs.find(trains)!;
  const names = Array.from({ length: 20 }, (_, at) => `metric${at}`);
  has(job, Object.fromEntries(names.map((name, at) => [name, [range(0, 100, 1, (step) => step * at)]])));
  await show(job);
  expect(await page.locator(".plot canvas").count()).toBeLessThan(20);
  const drawn = await page.evaluate(async () => {
    window.dispatchEvent(new Event("beforeprint"));
    await Promise.resolve(); // the browser lays the page out for paper before any frame
    await Promise.resolve();
    return [...document.querySelectorAll<HTMLCanvasElement>(".plot canvas")].filter((canvas) => {
      const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
      return data.some((value) => value > 0);
    }).length;
  });
  expect(drawn).toBe(20);
});

test("from a dark browser every chart is printed as on light, however many there are", async () => {
  const job = fixture.jobs.find(trains)!;
  const names = Array.from({ length: 31 }, (_, at) => `metric${at}`);
  has(job, Object.fromEntries(names.map((name, at) => [name, [range(0, 100, 1, (step) => step * at)]])));
  await show(job);
  await page.emulateMedia({ colorScheme: "dark" });
  const print = () =>
    page.evaluate(async () => {
      const colours = new Set<unknown>();
      const real = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        colours.add(this.fillStyle);
        return real.call(this, text, x, y);
      };
      window.dispatchEvent(new Event("beforeprint"));
      await Promise.resolve();
      await Promise.resolve();
      const drawn = { colours: [...colours], charts: document.querySelectorAll(".plot canvas").length };
      CanvasRenderingContext2D.prototype.fillText = real;
      window.dispatchEvent(new Event("afterprint"));
      return drawn;
    });
  await until(print, ({ charts }) => charts === 31);
  await until(print, ({ colours }) => colours.join() === "#5c666d");
});

test("of 300 metrics those in view are drawn, and any is found and kept on top", async () => {
  const job = fixture.jobs.find(trains)!;
  has(
    job,
    Object.fromEntries(
      Array.from({ length: 300 }, (_, at) => [`layer${at}/norm`, [range(0, 100, 1, (step) => step * at)]]),
    ),
  );
  await show(job);
  expect(await page.locator(".plot canvas").count()).toBeLessThan(20);
  expect(await page.locator(".curve-panel").count()).toBeLessThan(60);
  await page.getByRole("searchbox", { name: "Find a metric" }).fill("layer299");
  await page.getByRole("heading", { name: "layer299/norm" }).waitFor();
  await until(
    () => page.locator(".curve-panel").count(),
    (count) => count === 1,
  );
  await page.getByRole("button", { name: "Keep layer299/norm on top" }).click();
  await page.getByRole("searchbox", { name: "Find a metric" }).fill("");
  await until(
    () => page.locator(".curve-panel h3").first().textContent(),
    (text) => text === "layer299/norm",
  );
  await page.reload();
  await until(
    () => page.locator(".curve-panel h3").first().textContent(),
    (text) => text === "layer299/norm",
  );
});

test("a metric whose curve is not kept says since when it is drawn, and a run of 256 that there may be more", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { m0: [range(0, 100, 1, (step) => step)] });
  const report = (value: number) => ({
    lastUpdatedTime: new Date(Date.now() - 1000 + value).toISOString(),
    metrics: Array.from({ length: 256 }, (_, at) => ({ name: `m${at}`, value: String(at + value) })),
  });
  job.says = report(0);
  await show(job, "?metric=m200");
  await page
    .getByText(/^The server keeps curves of 64 metrics of a run, and not of this one\. .* since \d\d:\d\d/)
    .waitFor();
  await page.getByText("The server reads 256 metrics of a run.").waitFor();
  job.says = report(1);
  fixture.change(job);
  await until(
    () => page.getByRole("img", { name: /^m200\./ }).getAttribute("aria-label"),
    (text) => /m200: 2 points/.test(text ?? ""),
  );
});

test("charts are sorted by name when that is asked for, numbers as numbers", async () => {
  const job = fixture.jobs.find(trains)!;
  const names = ["loss", ...Array.from({ length: 11 }, (_, at) => `layer${11 - at}`)];
  has(job, Object.fromEntries(names.map((name) => [name, [range(0, 10, 1, (step) => step)]])));
  await show(job);
  const heads = () => page.locator(".curve-panel h3").allTextContents();
  await until(heads, (found) => found.join() === names.join());
  await page.getByRole("checkbox", { name: "By name" }).check();
  await until(heads, (found) => found[0] === "layer1" && found[9] === "layer10" && found.at(-1) === "loss");
});

test("the best value so far is named: the lowest loss, the highest accuracy, and none of a learning rate", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, {
    loss: [range(0, 100, 1, (step) => 1 + Math.abs(step - 40) / 100)],
    accuracy: [range(0, 100, 1, (step) => 0.9 - Math.abs(step - 60) / 100)],
    learning_rate: [range(0, 100, 1, (step) => 0.1 - step / 2000)],
  });
  await show(job);
  await until(legend, (found) => found.length === 3 && /lowest/.test(found[0] ?? "")); // the history has come
  const [loss, accuracy, rate] = await legend();
  expect(loss).toMatch(/^loss1\.6.*lowest 1$/);
  expect(accuracy).toMatch(/^accuracy0\.5.*highest 0\.9$/);
  expect(rate).not.toMatch(/lowest|highest/);
  await pointAt(0.5); // there the value is told, and the best is not
  await until(legend, ([found]) => found !== undefined && !/lowest/.test(found));
});

test("a PNG of a chart that is not live says as of when it is", async () => {
  const job = fixture.jobs.find(trains)!;
  await show(job);
  await until(() => fixture.watching, Boolean);
  fixture.isDown = true;
  fixture.cut();
  const asOf = await page.getByText(/What is shown is as of/).textContent();
  await page.waitForTimeout(2100); // so that now is another time
  await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "PNG of loss" }).click()]);
  const of = (await written()).find((text) => text.includes(" · as of "));
  const [hour = 0, minute = 0, second = 0] = (/T(\d+):(\d+):(\d+)Z$/.exec(of ?? "") ?? []).slice(1).map(Number);
  const seconds = new Date().getUTCHours() * 3600 + new Date().getUTCMinutes() * 60 + new Date().getUTCSeconds();
  expect((seconds - (hour * 3600 + minute * 60 + second) + 86_400) % 86_400).toBeGreaterThanOrEqual(2);
  expect(asOf).toContain(`:${String(minute).padStart(2, "0")}`);
});

test.each([
  ["1", "1e-30", "0.5"],
  ["1e-300", "1e300", "1"],
])("a logarithmic axis is drawn however far it reaches (%s, %s, %s)", async (...values) => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [Array.from({ length: 30 }, (_, at) => [at, values[at % 3]!] as const)] });
  await show(job, "?log=1");
  await until(written, (texts) => texts.some((text) => /e[−-]\d+/.test(text)));
});

test("a text is no curve", async () => {
  const job = fixture.jobs.find(trains)!;
  has(job, { loss: [range(0, 100, 10, () => 1)] });
  job.says.metrics = [...job.says.metrics!, { name: "stage", value: "warm up" }];
  await show(job);
  await page.getByRole("img", { name: /^loss\. .*\d{2} points/ }).waitFor();
  expect(await page.getByText("stage", { exact: true }).count()).toBe(0);
});

test("the last hour is a link that moves on, and a chart is taken along as CSV with the jobs beside it", async () => {
  const [job, other] = fixture.jobs.filter(trains) as [MadeJob, MadeJob];
  const now = Math.floor(Date.now() / 1000);
  for (const [one, by] of [
    [job, 100],
    [other, 50],
  ] as const) {
    has(one, { loss: [range(0, 10_000, by, (step) => step)], "=a": [range(0, 10_000, by, () => 1)] });
    for (const curve of one.hasHistory!.series) curve.times = curve.steps!.map((step) => now - 10_000 + (step ?? 0));
  }
  await show(job, `?with=${other.namespace}/${other.name}`);
  await page.getByRole("button", { name: "Last hour of the curves" }).click();
  await page.getByRole("button", { name: "Time", exact: true, pressed: true }).waitFor();
  expect(page.url()).toContain("x=time&");
  expect(page.url()).toContain("last=3600");
  await page.reload();
  await page.getByRole("button", { name: "Last hour of the curves", pressed: true }).waitFor();
  await until(() => page.getByRole("button", { name: "Show all" }).isEnabled(), Boolean);
  const link = page.locator("figure", { has: page.getByRole("heading", { name: "loss" }) }).getByText("Link");
  expect(await link.getAttribute("href")).toMatch(/x=time&metric=loss&with=.*&last=3600$/);
  await until(legend, (texts) => texts.length >= 4);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "CSV of loss" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("loss.csv");
  const lines = readFileSync(await download.path(), "utf8")
    .trim()
    .split("\r\n");
  expect(lines[0]).toBe("job,metric,attempt,step,epoch,time,value");
  expect(lines).toHaveLength(1 + 101 + 201);
  expect(lines.at(-1)).toMatch(new RegExp(`^${other.namespace}/${other.name},loss,1,10000,,\\d.*Z,10000$`));
  await page.getByRole("button", { name: "Show all" }).click();
  await until(
    () => page.url(),
    (url) => !url.includes("last="),
  );
});
