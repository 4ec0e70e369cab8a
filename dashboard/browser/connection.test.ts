import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";

const JOBS = 30;
let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

test("a lost connection is said, and what has changed meanwhile is there when it is healed", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const { page, faults } = await open(browser, fixture.page());
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  fixture.isDown = true;
  fixture.cut();
  await page.getByText("Connection lost.").waitFor();
  expect(await page.locator(".body .row").count()).toBeGreaterThan(0);
  await page.getByRole("button", { name: "Try now" }).click(); // in vain, and it is tried again by itself
  const gone = fixture.jobs[0]!;
  fixture.jobs = fixture.jobs.slice(1);
  fixture.forget(); // as after a restart of the server
  fixture.isDown = false;
  await until(
    () => page.locator(".matches").textContent(),
    (text) => text === `${JOBS - 1} jobs`,
  );
  await page.getByText("Connection lost.").waitFor({ state: "hidden" });
  expect(await page.getByText(gone.name).count()).toBe(0);
  fixture.add(500);
  await until(
    () => page.locator(".matches").textContent(),
    (text) => text === `${JOBS} jobs`,
  );
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("a job's page heals as well", async () => {
  const fixture = await Fixture.start({ jobs: JOBS });
  const job = fixture.jobs[0]!;
  const { page, faults } = await open(browser, `${fixture.page()}#/trainjobs/${job.namespace}/${job.name}`);
  await page.getByRole("heading", { name: "Metrics" }).waitFor();
  fixture.isDown = true;
  fixture.cut();
  await page.getByText("Connection lost.").waitFor();
  fixture.forget();
  fixture.isDown = false;
  await page.getByText("Connection lost.").waitFor({ state: "hidden" });
  const step = () => page.locator(".numbers").textContent();
  const before = await step();
  fixture.change(job);
  await until(step, (text) => text !== before);
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("without the right to list the page says which it takes, and leads to a namespace", async () => {
  const fixture = await Fixture.start({ jobs: JOBS, allowed: ["research"], prefix: "/some/proxy" });
  const { page, faults } = await open(browser, fixture.page());
  await page.getByRole("heading", { name: "You may not list the jobs of all namespaces" }).waitFor();
  await page.getByText('User "bob" cannot list resource "trainjobs"').waitFor();
  await page.getByLabel("Open a namespace").fill("research");
  await page.getByRole("button", { name: "Open", exact: true }).click();
  const there = fixture.jobs.filter((job) => job.namespace === "research").length;
  await page.getByText(`${there} jobs`, { exact: true }).waitFor();
  expect(page.url()).toContain(
    "/some/proxy/apis/visibility.trainer.kubeflow.org/v1alpha1/namespaces/research/dashboard",
  );
  await page.goto(fixture.page());
  await page.getByRole("list", { name: "Namespaces" }).getByRole("link", { name: "research" }).waitFor();
  expect(fixture.requests.every((path) => path.startsWith("/some/proxy/"))).toBe(true);
  expect(faults).toEqual([]);
  await page.context().close();
  await fixture.stop();
});

test("without any job the page teaches how to report", async () => {
  const fixture = await Fixture.start({ jobs: 0 });
  const { page } = await open(browser, fixture.page());
  await page.getByRole("heading", { name: "No training job yet" }).waitFor();
  await page.getByText("from trainjob_progress import report").waitFor();
  fixture.add(1);
  await page.getByText("1 job", { exact: true }).waitFor();
  await page.context().close();
  await fixture.stop();
});
