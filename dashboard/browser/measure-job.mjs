// The page of a job of many metrics: node browser/measure-job.mjs CHROMIUM METRICS SECONDS. Prints one line of JSON.
// The job changes each second; the page is scrolled all the time, and is searched at the end.
import { chromium } from "playwright-core";
import { runnerImport } from "vite";

import { startTrace, stopTrace } from "./tasks.mjs";

const [executablePath, metrics, seconds] = process.argv.slice(2);
const { module } = await runnerImport("./browser/fixture.ts");
const fixture = await module.Fixture.start({ jobs: 50 });
const job = fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile);
const now = Math.floor(Date.now() / 1000);
const POINTS = Math.ceil(Math.min(1000, 100_000 / Number(metrics))); // as the page asks for
const names = Array.from({ length: Number(metrics) }, (_, at) => `layer${at}/norm`);
const series = names.map((metric, at) => ({
  metric,
  attempt: 0,
  times: Array.from({ length: POINTS }, (_, step) => now - 1000 + (step * 1000) / POINTS),
  steps: Array.from({ length: POINTS }, (_, step) => Math.round((step * 1000) / POINTS)),
  values: Array.from({ length: POINTS }, (_, step) => String(2 + Math.sin((step * (at + 1)) / 90))),
}));
const attempts = [{ number: 0, startTime: new Date((now - 1000) * 1000).toISOString() }];
job.hasHistory = { attempts, progress: [], series };
let step = 1000;
const change = () => {
  job.says = {
    lastUpdatedTime: new Date().toISOString(),
    steps: { current: ++step },
    metrics: names.map((name, at) => ({ name, value: String(2 + Math.sin((step * (at + 1)) / 90)) })),
  };
  fixture.change(job);
};
change();
const browser = await chromium.launch({ executablePath, chromiumSandbox: false });
const page = await browser.newPage({ viewport: { width: 1360, height: 860 } });
const read = async (work) => {
  await startTrace(browser, page);
  await work();
  return stopTrace(browser);
};
const timer = setInterval(change, 1000);
const loading = await read(async () => {
  await page.goto(`${fixture.page()}#/trainjobs/${job.namespace}/${job.name}`);
  await page.locator(".plot canvas").first().waitFor();
  await page.waitForTimeout(3000);
});
const live = await read(() => page.waitForTimeout(Number(seconds) * 1000));
const scrolling = await read(() =>
  page.evaluate(
    (ms) =>
      new Promise((resolve) => {
        const end = performance.now() + ms;
        let last = performance.now();
        const frame = (at) => {
          window.scrollBy(0, (window.innerHeight * (at - last)) / 2000);
          last = at;
          if (at < end) requestAnimationFrame(frame);
          else resolve();
        };
        requestAnimationFrame(frame);
      }),
    Number(seconds) * 1000,
  ),
);
const searching = await read(async () => {
  await page.getByRole("searchbox", { name: "Find a metric" }).pressSequentially("layer299", { delay: 80 });
  await page.getByRole("searchbox", { name: "Find a metric" }).fill("");
  await page.waitForTimeout(1000);
});
clearInterval(timer);
console.log(JSON.stringify({ metrics: Number(metrics), loading, live, scrolling, searching }));
await browser.close();
await fixture.stop();
process.exit(0);
