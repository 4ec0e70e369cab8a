// How soon the page of a server is of use, and how smooth it stays: node browser/measure.mjs CHROMIUM PAGE TOKEN ROWS SECONDS.
// Prints one line of JSON; times in milliseconds from the navigation. The cache is empty, as on a first visit.
import http from "node:http";
import https from "node:https";
import { chromium } from "playwright-core";
import { startTrace, stopTrace } from "./tasks.mjs";

const [executablePath, url, token, rows, seconds] = process.argv.slice(2);
// As behind `kubectl proxy`: Playwright's own headers are not on what a SharedWorker requests.
const agent = new https.Agent({ keepAlive: true, rejectUnauthorized: false }); // of a certificate made for the measurement
const proxy = http.createServer((asked, answer) => {
  const headers = { ...asked.headers, authorization: `Bearer ${token}` };
  const forwarded = https.request(new URL(asked.url, url), { agent, method: asked.method, headers }, (got) => {
    answer.writeHead(got.statusCode, got.headers);
    got.pipe(answer);
  });
  forwarded.on("error", () => answer.destroy());
  answer.on("close", () => forwarded.destroy());
  asked.pipe(forwarded);
});
await new Promise((listening) => proxy.listen(0, "127.0.0.1", listening));
const browser = await chromium.launch({ executablePath, chromiumSandbox: false });
const context = await browser.newContext({
  viewport: { width: 1360, height: 860 },
});
const page = await context.newPage();
await page.addInitScript(() => {
  window.tasks = [];
  new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries())
      window.tasks.push([Math.round(startTime), Math.round(duration)]);
  }).observe({ type: "longtask", buffered: true });
  const seen = {};
  window.seen = seen;
  const look = () => {
    if (seen.useful === undefined && document.querySelectorAll(".body .row").length > 5) {
      // The frame in which rows were first there has been painted when the next one begins.
      requestAnimationFrame(() => (seen.useful = Math.round(performance.now())));
    }
    if (seen.whole === undefined && document.querySelector(".list[aria-busy=false]"))
      seen.whole = Math.round(performance.now());
    if (seen.spark === undefined && document.querySelector(".spark path")) seen.spark = Math.round(performance.now());
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
});
await startTrace(browser, page);
await page.goto(`http://127.0.0.1:${proxy.address().port}${new URL(url).pathname}`);
await page.waitForFunction(() => window.seen.whole !== undefined, undefined, { timeout: 60_000 });
const settled = await page.evaluate(() => performance.now());
const loadingTasks = await stopTrace(browser);
await startTrace(browser, page);
const cdp = await context.newCDPSession(page);
await cdp.send("Performance.enable");
const metrics = async () =>
  Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
const before = await metrics();
const changes = () => page.evaluate(() => document.querySelectorAll(".body .row").length);
await page.evaluate(
  async (ms) => {
    window.frames_ = [];
    let last = performance.now();
    const end = last + ms;
    window.scrollingFrom = last + ms / 2; // through rows that were not seen yet, a window's height a second
    await new Promise((resolve) => {
      const frame = (now) => {
        window.frames_.push(now - last);
        if (now > window.scrollingFrom) window.scrollBy(0, (window.innerHeight * (now - last)) / 1000);
        last = now;
        if (now < end) requestAnimationFrame(frame);
        else resolve();
      };
      requestAnimationFrame(frame);
    });
  },
  Number(seconds) * 1000,
);
const after = await metrics();
const ownTasks = await stopTrace(browser);
const drawn = await changes();
const { tasks, seen, frames, scrollingFrom, curves } = await page.evaluate(() => ({
  tasks: window.tasks,
  scrollingFrom: window.scrollingFrom,
  curves: document.querySelectorAll(".spark path").length,
  seen: window.seen,
  frames: window.frames_,
}));
const listed = await page.getByRole("table").getAttribute("aria-rowcount");
frames.sort((one, other) => one - other);
const during = tasks.filter(([at]) => at > settled);
const longest = (some) => Math.max(0, ...some.map(([, ms]) => ms));
const firstPaint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
console.log(
  JSON.stringify({
    isAll: Number(listed) === Number(rows) + 1,
    firstPaintMs: Math.round(firstPaint ?? -1),
    usefulMs: seen.useful,
    curveMs: seen.spark ?? null,
    wholeMs: seen.whole,
    longestTaskLoadingMs: longest(tasks.filter(([at]) => at <= settled)),
    longestTaskLiveMs: longest(during.filter(([at]) => at < scrollingFrom)),
    longestTaskScrollingMs: longest(during.filter(([at]) => at >= scrollingFrom)),
    tasksOver50msLive: during.length,
    inLongestLoading: loadingTasks.inLongest,
    longestTaskLoadingCpuMs: loadingTasks.longestCpuMs,
    longestTaskCpuMs: ownTasks.longestCpuMs, // live and scrolling, without what other processes took
    tasksOver50CpuMs: ownTasks.over50CpuMs,
    frameP99Ms: Math.round(frames[Math.floor(frames.length * 0.99)] ?? -1),
    scriptShareLive: Number(((after.ScriptDuration - before.ScriptDuration) / Number(seconds)).toFixed(3)),
    heapMiB: Math.round(after.JSHeapUsedSize / 2 ** 20),
    rowsDrawn: drawn,
    curvesDrawn: curves,
  }),
);
await browser.close();
proxy.close();
agent.destroy();
