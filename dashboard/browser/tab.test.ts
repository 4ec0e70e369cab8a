/** What a tab says by its title, its icon and its notifications. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];

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

const isGood = (job: MadeJob) => job.isTraining && job.trouble === "" && !job.isHostile;
const title = () => page.title();
const icon = () => page.locator("link[rel=icon]").getAttribute("href");
const routeOf = (job: MadeJob) => `#/trainjobs/${job.namespace}/${job.name}`;
const RED = encodeURIComponent("#d92d20");

function becomes(job: MadeJob, says: MadeJob["says"]): void {
  job.says = says;
  fixture.change(job);
}

test("the title and icon of a job's tab tell its state, and none when it is not live", async () => {
  const job = fixture.jobs.find(isGood)!;
  ({ page, faults } = await open(browser, fixture.page() + routeOf(job)));
  await until(title, (text) => /^\d+% · /.test(text) && text.endsWith(job.name));
  becomes(job, { phase: "Failed" });
  await until(title, (text) => text.startsWith("Failed "));
  await until(icon, (href) => href?.includes(RED) ?? false);
  becomes(job, { phase: "Succeeded" });
  await until(title, (text) => text === `Succeeded · ${job.name}`);
  fixture.isDown = true;
  fixture.cut();
  await until(title, (text) => text === `${job.name} · training jobs`);
  await until(icon, (href) => !href?.includes("circle"));
});

test("the title and icon of the list tell how many jobs somebody should look at", async () => {
  ({ page, faults } = await open(browser, fixture.page()));
  const count = async () => Number(/^\((\d+)\) Training jobs$/.exec(await title())?.[1]);
  const before = await until(count, (number) => number > 0);
  await until(icon, (href) => href?.includes(RED) ?? false);
  becomes(fixture.jobs.find(isGood)!, { phase: "Failed", endTime: new Date().toISOString() });
  await until(count, (number) => number === before + 1);
  fixture.isLoggedOut = true;
  fixture.cut();
  await until(title, (text) => text === "Training jobs");
  expect(await icon()).not.toContain("circle");
});

async function openWithNotifications(route = ""): Promise<void> {
  ({ page, faults } = await open(browser, "about:blank", { permissions: ["notifications"] }));
  await page.addInitScript(() => {
    const told: string[] = [];
    class Recorded {
      static permission = "granted";
      static requestPermission = () => Promise.resolve("granted");
      constructor(title: string, { body }: { body: string }) {
        told.push(`${title} | ${body}`);
      }
    }
    Object.assign(window, { told, Notification: Recorded });
    document.hasFocus = () => false;
  });
  await page.goto(fixture.page() + route);
}
const told = () => page.evaluate(() => (window as unknown as { told: string[] }).told);
const optIn = async () => {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Notify when a job fails, stalls or ends").check();
  await page.keyboard.press("Escape");
  // Preact runs its effects after the next frame: what changes from then on is told.
  await page.evaluate(
    () => new Promise((done) => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 100)),
  );
};

test("the list notifies of its failures when it was asked to, and of those it is narrowed to only", async () => {
  const [other, job, ...more] = fixture.jobs.filter(isGood) as [MadeJob, MadeJob, ...MadeJob[]];
  await openWithNotifications(`#/?phase=Running&q=${job.namespace}`);
  await page.getByText(job.name, { exact: true }).waitFor();
  becomes(other, { phase: "Failed" }); // nobody has asked yet
  await page.getByText(other.name, { exact: true }).waitFor({ state: "hidden" });
  await optIn();
  const outside = more.find((one) => one.namespace !== job.namespace)!;
  becomes(outside, { phase: "Failed" });
  becomes(job, { phase: "Failed", failure: { reason: "OOMKilled", exitCode: 137 } as never });
  await until(told, (all) => all.length > 0);
  expect(await told()).toEqual([`${job.name} has failed | ${job.namespace} · OOMKilled (exit 137)`]);
});

test("advice to stop a job is in the list, and notified of", async () => {
  const [job] = fixture.jobs.filter(isGood) as [MadeJob];
  await openWithNotifications(`#/?q=${job.name}`);
  await page.getByText(job.name, { exact: true }).waitFor();
  await optIn();
  const message = "loss 2.1 is worse than the median 1.3 of 4 jobs at step 500";
  becomes(job, { conditions: [{ type: "ShouldStop", status: "True", reason: "MedianStop", message }] as never });
  await until(told, (all) => all[0] === `${job.name} should be stopped | ${job.namespace}`);
  await page.locator(".row", { hasText: job.name }).getByText("Should stop").waitFor();
  await page.getByRole("button", { name: "Should stop 1" }).waitFor();
});

test("many failures at once are one notification", async () => {
  await openWithNotifications();
  await page.locator(".body .row").first().waitFor();
  await optIn();
  for (const job of fixture.jobs.filter(isGood).slice(0, 9)) becomes(job, { phase: "Failed" });
  await until(told, (all) => all.some((one) => /^\d jobs have failed, stalled or diverged \| /.test(one)));
  expect((await told()).length).toBeLessThan(9);
});

test("a job's tab notifies of its end", async () => {
  const job = fixture.jobs.find(isGood)!;
  await openWithNotifications(routeOf(job));
  await page.locator(".numbers").waitFor();
  await optIn();
  becomes(job, { phase: "Succeeded" });
  await until(told, (all) => all[0]?.startsWith(`${job.name} has succeeded`) ?? false);
});
