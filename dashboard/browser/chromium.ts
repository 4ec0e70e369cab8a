/** A headless Chromium and its pages, which fail a test for an error that nobody looked for. */

import { existsSync } from "node:fs";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";

const PLACES = [process.env["CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const PATIENCE_MS = Number(process.env["PATIENCE_MS"] ?? 60_000);

export function findChromium(): string | undefined {
  return PLACES.find((place) => place !== undefined && existsSync(place));
}

let browser: Promise<Browser> | undefined;

/** One for all files of a process, which ends it: a test opens a context of its own. Throws when there is none. */
export function launch(): Promise<Browser> {
  const executablePath = findChromium();
  if (!executablePath) throw new Error("no Chromium in /usr/bin: install it, or name it in CHROMIUM");
  return (browser ??= chromium.launch({ executablePath, chromiumSandbox: false }));
}

export interface Opened {
  page: Page;
  /** Errors of the page's scripts and of its Content-Security-Policy, since it was opened. */
  faults: string[];
}

export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext({
    viewport: { width: 1360, height: 860 },
    timezoneId: "Europe/Berlin",
    reducedMotion: "reduce",
    ...options,
  });
  context.setDefaultTimeout(PATIENCE_MS); // also of further pages
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(String(error.stack ?? error)));
  page.on("console", (message) => {
    // What the network does is shown by the page itself.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      faults.push(message.text());
  });
  await page.goto(url);
  return { page, faults };
}

interface Clocked {
  /** What the browser's clock is ahead of this machine's. */
  aheadMs?: number;
  /** Run in the page before its own scripts; without it the page has no SharedWorker, whose clock is the machine's. */
  before?: (() => void) | undefined;
}

/** Times of the page's own clock. */
export async function openWithClock(browser: Browser, url: string, { aheadMs = 0, before }: Clocked = {}) {
  const { page, faults } = await open(browser, "about:blank");
  await page.addInitScript(before ?? (() => Reflect.deleteProperty(window, "SharedWorker")));
  await page.clock.install({ time: Date.now() + aheadMs });
  await page.goto(url);
  await page.clock.runFor(1000);
  const see = (isSeen: boolean) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }, !isSeen);
  /** Runs the clock until `text` is there. */
  const waitFor = (text: string | RegExp) =>
    until(
      async () => {
        await page.clock.runFor(300);
        return page.getByText(text).count();
      },
      (count) => count > 0,
    );
  return { page, faults, see, waitFor };
}

/** Waits until `read` gives something that `isMet` takes; fails with what it gave last. */
export async function until<T>(read: () => Promise<T> | T, isMet: (value: T) => boolean): Promise<T> {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await read();
    if (isMet(value)) return value;
    if (Date.now() > end) throw new Error(`not met within ${PATIENCE_MS} ms: ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
