/** Jobs of several kinds: one list and one watch, what tells them apart, and servers or roles that have TrainJobs only. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

const JOBS = 30;
let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];
let torch: MadeJob;
let volcano: MadeJob;
let plain: MadeJob;

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: JOBS });
  const training = fixture.jobs.filter((one) => one.isTraining && one.trouble === "" && !one.isHostile);
  [torch, volcano, plain] = training as [MadeJob, MadeJob, MadeJob];
  Object.assign(torch, { plural: "pytorchjobs", kind: "PyTorchJob" });
  Object.assign(volcano, { plural: "volcanojobs", kind: "Job" });
  Object.assign(plain, { plural: "jobs", kind: "Job" });
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const route = ({ plural, namespace, name }: MadeJob) => `#/${plural}/${namespace}/${name}`;
const show = async (at = "") => ({ page, faults } = await open(browser, fixture.page() + at));
const row = ({ plural, namespace, name }: MadeJob) => page.locator(`[data-key="${plural}/${namespace}/${name}"]`);
const lists = () => fixture.requests.filter((path) => /[?&]limit=150/.test(path));

test("jobs of all kinds come in one list and one watch, each with its kind", async () => {
  await show();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  expect(fixture.watching).toBe(1);
  expect(lists()).toHaveLength(1);
  await page.getByRole("columnheader", { name: "Kind" }).waitFor();
  await page.goto(`${fixture.page()}#/?q=${torch.name}`);
  await row(torch).getByText("PyTorchJob", { exact: true }).waitFor();
  const before = await row(torch).locator(".progress small").textContent();
  fixture.change(torch);
  await until(
    () => row(torch).locator(".progress small").textContent(),
    (text) => text !== before,
  );
  fixture.change(torch, "DELETED");
  await page.getByRole("heading", { name: "No job matches" }).waitFor();
});

test("the longest name of a kind is not cut in a usual window", async () => {
  torch.kind = "LeaderWorkerSet";
  await show(`#/?q=${torch.name}`);
  const cell = row(torch).locator(".of-kind");
  await cell.getByText("LeaderWorkerSet", { exact: true }).waitFor();
  expect(await cell.evaluate((one) => one.scrollWidth - one.clientWidth)).toBe(0);
});

test("the list is narrowed to kinds, grouped and sorted by them; kinds of one name are told apart", async () => {
  await show();
  await page.getByRole("button", { name: "Kind", exact: true }).first().click();
  await page.getByRole("checkbox", { name: /^VolcanoJob/ }).check();
  await page.getByText(`1 of ${JOBS} jobs`, { exact: true }).waitFor();
  await row(volcano).waitFor();
  await page.goto(`${fixture.page()}#/?group=kind`);
  await page.getByRole("button", { name: "PyTorchJob 1 job" }).click();
  await row(torch).waitFor();
  await page.goto(`${fixture.page()}#/?sort=kind`);
  await until(
    () => page.locator(".body .row").first().getAttribute("data-key"),
    (key) => key?.startsWith("jobs/") ?? false,
  );
});

test("the page of a job of another kind has its own document, curves and log, and follows the list's watch", async () => {
  await show();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  const other = await page.context().newPage();
  await other.goto(fixture.page() + route(torch));
  await other.getByRole("heading", { name: torch.name }).waitFor();
  await other.locator(".plot canvas").first().waitFor();
  const numbers = () => other.locator(".numbers").textContent();
  const before = await numbers();
  fixture.change(torch);
  await until(numbers, (text) => text !== before);
  await until(
    () => fixture.watching,
    (count) => count === 1,
  );
  await other.getByText(/^PyTorchJob/).waitFor();
  await other.locator("summary", { hasText: "YAML and kubectl" }).click();
  await other.getByText(`kubectl get pytorchjobs.visibility.trainer.kubeflow.org ${torch.name} -n`).first().waitFor();
  expect(fixture.requests.some((path) => path.includes(`/pytorchjobs/${torch.name}/history`))).toBe(true);
});

test("a job's page is live too when the list has not its kind", async () => {
  fixture.options.allKinds = "forbidden";
  await show();
  await page.getByText(`${JOBS - 3} jobs`, { exact: true }).waitFor();
  const other = await page.context().newPage();
  await other.goto(fixture.page() + route(torch));
  const numbers = () => other.locator(".numbers").textContent();
  const before = await numbers();
  fixture.change(torch);
  await until(numbers, (text) => text !== before);
});

test.each(["unknown", "forbidden"] as const)("without a list of all kinds (%s) TrainJobs are shown", async (how) => {
  fixture.options.allKinds = how;
  await show();
  await page.getByText(`${JOBS - 3} jobs`, { exact: true }).waitFor();
  expect(await page.getByRole("columnheader", { name: "Kind" }).count()).toBe(0);
  await until(
    () => page.getByText("Only TrainJobs are shown").count(),
    (count) => count === (how === "forbidden" ? 1 : 0),
  );
  fixture.change(
    fixture.jobs.find((one) => one.plural === "trainjobs")!,
    "DELETED",
  );
  await page.getByText(`${JOBS - 4} jobs`, { exact: true }).waitFor();
  fixture.options.allKinds = "served"; // the right is given: a tab that is opened shows all, and so does this one
  if (how === "unknown") return;
  const other = await page.context().newPage();
  await other.goto(fixture.page());
  await other.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  await page.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  expect(await page.getByText("Only TrainJobs are shown").count()).toBe(0);
});

const RIGHTS = ["trainjobs", "jobs", "volcanojobs"]; // of the next user, or of this one from now on

test("a user who logs in after another sees no job of a kind that only the other one may list", async () => {
  await show();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  const other = await page.context().newPage();
  await other.goto(fixture.page() + route(torch));
  await other.locator(".numbers").waitFor(); // its name is there before the job is
  fixture.readable = RIGHTS;
  const later = await page.context().newPage();
  await later.goto(fixture.page());
  await later.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  expect(await later.locator(`[data-key^="pytorchjobs/"]`).count()).toBe(0);
  await page.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  await other.getByText("You may not see this any more").waitFor();
  expect(await other.getByText("This job has been deleted").count()).toBe(0); // nobody has said so
});

test("a kind to which the right is taken leaves the list when its watch begins anew, and comes back with the right", async () => {
  await show();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await until(() => fixture.watching, Boolean);
  fixture.readable = RIGHTS;
  fixture.endWatches();
  await page.getByText(`${JOBS - 1} jobs`, { exact: true }).waitFor();
  fixture.readable = ["trainjobs", "jobs", "pytorchjobs", "volcanojobs"];
  fixture.endWatches();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
});

test("a list that falls back to TrainJobs calls no job of another kind deleted", async () => {
  await show();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  const other = await page.context().newPage();
  await other.goto(fixture.page() + route(torch));
  const numbers = () => other.locator(".numbers").textContent();
  const before = await numbers();
  fixture.options.allKinds = "forbidden";
  fixture.expireWatches();
  await page.getByText("Only TrainJobs are shown").waitFor();
  fixture.change(torch);
  await until(numbers, (text) => text !== before);
  expect(await other.getByText("This job has been deleted").count()).toBe(0);
});

test("jobs of several kinds are compared", async () => {
  await show();
  for (const job of [torch, volcano]) {
    await page.goto(`${fixture.page()}#/?q=${job.name}`);
    await row(job).getByRole("checkbox").check();
  }
  await page.getByRole("link", { name: "Compare" }).click();
  const compared = page.getByRole("list", { name: "Compared jobs" });
  await compared.getByText(`volcanojobs/${volcano.namespace}/${volcano.name}`).waitFor();
  await until(
    () => page.locator(".compare-table tbody tr").count(),
    (count) => count === 2,
  );
});

test("on paper and on a small screen each job tells its kind, and no name is cut", async () => {
  await show();
  await page.getByText(`${JOBS} jobs`, { exact: true }).waitFor();
  await page.emulateMedia({ media: "print" });
  await page.setViewportSize({ width: 720, height: 1000 }); // a sheet of A4
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  await row(torch)
    .getByText(/^PyTorchJob ·/)
    .waitFor();
  expect(await row(torch).locator(".cell.of-kind").isVisible()).toBe(false);
  const cut = await page
    .locator(".body .name a")
    .evaluateAll((names) =>
      names.filter((name) => name.scrollWidth > name.clientWidth).map((name) => name.textContent),
    );
  expect(cut).toEqual([]);
  await page.emulateMedia({ media: "screen" });
  await page.setViewportSize({ width: 320, height: 568 });
  await page.goto(`${fixture.page()}#/?q=${torch.name}`);
  await row(torch)
    .getByText(/^PyTorchJob ·/)
    .waitFor();
  const other = `${volcano.plural}/${volcano.namespace}/${volcano.name}`;
  await page.goto(`${fixture.page()}${route(torch)}?with=${other}`);
  const value = page.locator(".compare-table tbody td").nth(1);
  await value.waitFor();
  expect((await value.boundingBox())!.x).toBeLessThan(250); // beside the name, without scrolling
});
