// A page in headless Chromium, told what to do by lines of JSON and answering each with one: for tests in Python,
// which have real clusters. Every wait is bounded; {"do": "...", ...} is answered by {"value": ...} or {"error": "..."}.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PATIENCE_MS = 60_000;
const browser = await chromium.launch({ executablePath: process.argv[2], chromiumSandbox: false });
const faults = [];
let page;

const DO = {
  async open({ url, dark, cookies = [], width = 1360, height = 860 }) {
    await page?.context().close();
    const context = await browser.newContext({
      viewport: { width, height },
      colorScheme: dark ? "dark" : "light",
      reducedMotion: "reduce",
      timezoneId: "Europe/Berlin",
    });
    await context.addCookies(cookies);
    page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    page.on("pageerror", (error) => faults.push(String(error.stack ?? error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
        faults.push(message.text());
    });
    await page.goto(url);
  },
  /** One more, of the same browser; what is told next is told to it. */
  async tab({ url }) {
    page = await page.context().newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    page.on("pageerror", (error) => faults.push(String(error.stack ?? error)));
    await page.goto(url);
  },
  /** To the tab that was opened as the nth. */
  front({ number }) {
    page = page.context().pages()[number];
  },
  wait: ({ on, state = "visible" }) => page.locator(on).first().waitFor({ state }),
  scroll: ({ on }) => page.locator(on).first().scrollIntoViewIfNeeded(),
  click: ({ on }) => page.locator(on).first().click(),
  text: ({ on }) => page.locator(on).first().textContent(),
  count: ({ on }) => page.locator(on).count(),
  attribute: ({ on, name }) => page.locator(on).first().getAttribute(name),
  url: () => page.url(),
  title: () => page.title(),
  faults: () => faults,
};

for await (const line of createInterface({ input: process.stdin })) {
  const told = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await DO[told.do](told)) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
