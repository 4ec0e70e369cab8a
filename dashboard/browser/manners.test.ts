/** What every view owes its viewers: colours, small screens, screen readers, time zones. */

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let browser: Browser;
let fixture: Fixture;
let forbidding: Fixture;

beforeAll(async () => {
  browser = await launch();
  fixture = await Fixture.start({ jobs: 120 });
  forbidding = await Fixture.start({ jobs: 1, allowed: [] });
});
afterAll(async () => {
  await fixture.stop();
  await forbidding.stop();
});

async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE); // through the debugger: the page's policy allows no script of ours
  return page.evaluate(async () => {
    const { violations } = await (
      window as unknown as { axe: { run: () => Promise<{ violations: Violation[] }> } }
    ).axe.run();
    interface Violation {
      id: string;
      nodes: { html: string; failureSummary: string }[];
    }
    return violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`);
  });
}

function viewsOf(): [string, () => string, string][] {
  const of = (is: (job: Fixture["jobs"][number]) => boolean) => {
    const job = fixture.jobs.find(is)!;
    return `${fixture.page()}#/trainjobs/${job.namespace}/${job.name}`;
  };
  return [
    ["the fleet", () => fixture.page(), ".spark path"],
    ["groups", () => `${fixture.page()}#/?group=namespace&open=research&column=team`, ".body .row:not(.group)"],
    ["where time went", () => `${fixture.page()}#/?time=namespace&show=goodput&show=checkpoint`, ".sums .spent"],
    ["the timeline", () => `${fixture.page()}#/?timeline=24h`, ".bars rect"],
    ["a job", () => of((job) => job.isTraining), ".plot canvas"],
    ["a job of two attempts", () => of((job) => job.isTraining && job.number % 7 === 0), ".attempts"],
    ["a failed job", () => of((job) => job.phase === "Failed"), ".failure"],
    ["a job that is not read", () => of((job) => job.trouble === "Silent"), ".reason"],
    ["the documentation", () => `${fixture.page()}#/docs/troubleshooting?reason=OOMKilled`, ".sought"],
    ["a forbidden fleet", () => forbidding.page(), ".namespace-choice"],
  ];
}

const SCREENS = [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["narrow", { viewport: { width: 320, height: 568 } }],
] as const;

describe.each(SCREENS)("on a %s screen", (screen, options) => {
  test.each(viewsOf())("axe finds no fault in %s", async (_name, url, whole) => {
    const { page, faults } = await open(browser, url(), options);
    const isThere = async () => {
      await page.mouse.wheel(0, 200); // on a small screen it may be further down
      return page.locator(whole).count();
    };
    await until(isThere, Boolean);
    expect(await violations(page)).toEqual([]);
    const isWide = () => page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    expect(await isWide()).toBe(false);
    if (screen === "narrow") await page.setViewportSize({ width: 390, height: 844 }); // a phone
    expect(await isWide()).toBe(false);
    expect(faults).toEqual([]);
    await page.context().close();
  });
});

test("open menus have no fault either", async () => {
  const { page } = await open(browser, fixture.page());
  await page.getByRole("button", { name: "Settings" }).click();
  expect(await violations(page)).toEqual([]);
  for (const name of ["Namespace", "Owner", "Group", "Columns", "Views"]) {
    await page.getByRole("button", { name }).click();
    expect(await violations(page), name).toEqual([]);
    await page.keyboard.press("Escape");
  }
  await page.locator(".tick").first().check();
  await page.locator(".tick").nth(1).check();
  expect(await violations(page)).toEqual([]);
  await page.locator(".body .row .name a").first().click();
  await page.getByRole("heading", { name: "Log", exact: true }).click();
  await page.locator(".log").waitFor();
  await page.getByRole("heading", { name: "Replicas" }).scrollIntoViewIfNeeded();
  await page.locator(".pod-table").waitFor();
  expect(await violations(page)).toEqual([]);
  await page.context().close();
});

test("colours and time zone are chosen, and kept", async () => {
  const { page } = await open(browser, fixture.page(), { colorScheme: "light" });
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await background();
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Colours").selectOption("dark");
  await until(background, (colour) => colour !== light);
  await page.getByLabel("Time zone").selectOption("Asia/Tokyo");
  const times = () => page.locator(".cell.end time").first().getAttribute("title");
  await until(times, (title) => title?.includes("GMT+9") ?? false);
  await page.reload();
  await until(background, (colour) => colour !== light);
  await until(times, (title) => title?.includes("GMT+9") ?? false);
  await page.context().close();
});

test("no other website shows the page in a frame", async () => {
  const platform = createServer((_, response) => {
    response.writeHead(200, { "Content-Type": "text/html" });
    response.end(`<iframe src="${fixture.page()}"></iframe>`);
  });
  await new Promise<void>((resolve) => platform.listen(0, "127.0.0.1", resolve)); // another port is another origin
  const { page, faults } = await open(browser, `http://127.0.0.1:${(platform.address() as AddressInfo).port}/`);
  await until(
    () => faults.join(),
    (said) => said.includes(`Framing '${fixture.origin}/' violates`) && said.includes("frame-ancestors 'none'"),
  );
  expect(await page.frameLocator("iframe").locator("#page").count()).toBe(0);
  await page.context().close();
  await new Promise((resolve) => platform.close(resolve));
});

test("who wants less motion gets none", async () => {
  for (const reducedMotion of ["reduce", "no-preference"] as const) {
    const { page } = await open(browser, fixture.page(), { reducedMotion });
    await page.locator(".bar .done").first().waitFor({ state: "attached" });
    const moving = await page.evaluate(() =>
      [...document.querySelectorAll("*")].some((one) => {
        const { transitionDuration, animationDuration, animationName } = getComputedStyle(one);
        const lasts = (durations: string) => durations.split(", ").some((each) => parseFloat(each) > 0.001);
        return lasts(transitionDuration) || (animationName !== "none" && lasts(animationDuration));
      }),
    );
    expect(moving, reducedMotion).toBe(reducedMotion === "no-preference");
    await page.context().close();
  }
});

test("the focus begins with a way past the frame, and is seen", async () => {
  const { page } = await open(browser, fixture.page());
  await page.getByText("120 jobs", { exact: true }).waitFor();
  await page.keyboard.press("Tab");
  const focused = () => page.evaluate(() => document.activeElement?.textContent);
  expect(await focused()).toBe("Skip to the content");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("content");
  await page.keyboard.press("Tab");
  expect(await focused()).toContain("running");
  await page.context().close();
});
