/** Where the time went: of a job, and of all jobs in groups. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import type { Condition } from "../src/api/types";
import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";
import { windowOf, type MadeJob } from "./fixture-jobs";

const JOBS = 60;
let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: JOBS });
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const show = async (at = "") => ({ page, faults } = await open(browser, fixture.page() + at));
const ago = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();
const good = () => fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile)!;
const pageOf = ({ plural, namespace, name }: MadeJob) => `#/${plural}/${namespace}/${name}`;
const sums = () => fixture.requests.filter((path) => path.includes("sumBy="));

const SPENT = { queued: 1200, starting: 90, productive: 5400, dataLoading: 2000, recovery: 300, other: 10 };
const condition = (type: string, reason: string, message: string): Condition => ({
  type,
  status: "True",
  reason,
  message,
  lastTransitionTime: ago(12),
});

test("a job's page shows where its time went, over the window that is chosen", async () => {
  const job = good();
  const hour = windowOf({ productive: 3000, dataLoading: 600 }, 64);
  job.says.goodput = { time: ago(0), current: "Productive", whole: windowOf(SPENT, 64), hour };
  job.says.resources = { accelerators: 64, byName: [], acceleratorSeconds: 1, wastedAcceleratorSeconds: 24_960 };
  await show(pageOf(job));
  const panel = page.getByRole("region", { name: "Where the time went" });
  await panel.getByText("69% goodput · 87% of the time not queued").waitFor();
  const bar = panel.getByRole("img", { name: /^Whole life, by kind: Productive 60%, 1 h 30 min; Data loading 22%/ });
  await bar.waitFor();
  const widths = await bar
    .locator("g > rect:first-of-type")
    .evaluateAll((all) =>
      all.map((rect) => [rect.getAttribute("class"), Math.round(parseFloat(rect.getAttribute("width") ?? ""))]),
    );
  expect(widths).toEqual([
    ["kind-productive", 60],
    ["kind-dataLoading", 22],
    ["kind-starting", 1],
    ["kind-recovery", 3],
    ["kind-other", 0],
    ["kind-queued", 13],
  ]);
  await panel.getByText("As a table").click();
  await panel.getByRole("row", { name: "Recovery wasted 3% 5 min 300 5.3 h 19,200" }).waitFor();
  await panel.getByRole("button", { name: "Last hour" }).click();
  await panel.getByText("83% goodput").waitFor();
  expect(await panel.getByRole("row").count()).toBe(3);
  expect(page.url()).toContain("window=hour");
  await page.reload();
  await panel.getByText("83% goodput").waitFor();
});

test("time that is queued goes on, and of a job that has not run there is no goodput yet", async () => {
  const job = fixture.jobs.find(({ phase }) => phase === "Suspended")!;
  job.says.goodput = { time: ago(90), current: "Queued", whole: { seconds: {} } };
  await show(pageOf(job));
  const panel = page.getByRole("region", { name: "Where the time went" });
  await panel.getByText("No goodput yet: the job has only been queued.").waitFor();
  await panel.getByText("Queued 100% 1 h 30 min").waitFor();
});

test("time that was counted long ago says until when, and what goes on since", async () => {
  const job = good();
  job.says.goodput = { time: ago(10), current: "ProgramStartup", whole: windowOf(SPENT, 0) };
  await show(pageOf(job));
  await page.getByText(/^Counted until \d\d:\d\d\. Since then: Program startup\.$/).waitFor();
});

test("the last checkpoint says what is lost if the job is preempted now, and no more when it is gone", async () => {
  const job = good();
  job.says = { checkpoint: { step: 4000, time: ago(26) }, startTime: ago(300) };
  job.says.resources = { accelerators: 64, byName: [], acceleratorSeconds: 1 };
  await show(pageOf(job));
  const told = page.locator(".at-risk");
  await told
    .getByText(/step 4,000, \d\d:\d\d\. If it is preempted now, 26 min × 64 accelerators are lost\.$/)
    .waitFor();
  fixture.change(job, "DELETED");
  await page.getByText("This job has been deleted.").waitFor();
  expect(await told.textContent()).not.toContain("preempted");
});

test("what is at risk is as of when the connection was lost", async () => {
  const job = good();
  job.says = { checkpoint: { step: 4000, time: ago(26) }, startTime: ago(300) };
  const opened = await openWithClock(browser, fixture.page() + pageOf(job));
  ({ page, faults } = opened);
  await opened.waitFor("If it is preempted now");
  fixture.isDown = true;
  fixture.cut();
  await opened.waitFor(/If it was preempted at \d\d:\d\d, /);
});

test.each([
  ["NoProgress", "NoNewStep", "Attempts end before they come further (for 12 min).", "suspend the job until you know"],
  ["AtRisk", "NoRecentCheckpoint", "The last checkpoint is old (for 12 min).", "save them more often"],
  ["LowGoodput", "BelowThreshold", "Little of the time makes progress (for 12 min).", "look at where the time went"],
])("%s is told in words with what to do, in the list and on the job's page", async (type, reason, title, advice) => {
  const job = good();
  job.says.conditions = [condition(type, reason, "It says so. If the run ends now, 26m of 64 accelerators are lost.")];
  await show();
  const flag = { NoProgress: "No progress", AtRisk: "At risk", LowGoodput: "Low goodput" }[type]!;
  await page.getByRole("button", { name: `${flag} 1` }).click();
  const row = page.locator(".body .row");
  await row.getByText(flag, { exact: true }).waitFor();
  expect((await row.getAttribute("class"))?.includes("bad")).toBe(type === "NoProgress");
  await row.locator("a").click();
  const notice = page.locator(".notice", { hasText: title });
  await notice.getByText(advice).waitFor();
  expect((await notice.textContent())?.includes("26m")).toBe(type !== "AtRisk"); // the head tells it by the clock
  await notice.getByRole("link", { name: `More about ${reason}` }).click();
  await page.getByRole("heading", { name: `${type} is True` }).waitFor();
});

test("all jobs' time is summed by what is chosen, and read again while it is open", async () => {
  const opened = await openWithClock(browser, fixture.page());
  ({ page, faults } = opened);
  await opened.waitFor(`${JOBS} jobs`);
  expect(sums()).toEqual([]); // nobody looks yet
  await page.getByText("Where the time went").click();
  await opened.waitFor("team-language");
  await page.getByRole("img", { name: /^All: Productive \d+%, [\d,]+ h; / }).waitFor();
  expect(await page.locator(".sums tbody tr").count()).toBe(6);
  expect(sums()).toHaveLength(1);
  expect(sums()[0]).toMatch(/\/trainingjobs\?sumBy=namespace&window=day$/);
  await page.clock.runFor(61_000);
  await until(sums, ({ length }) => length > 1);
  for (const [name, group, by] of [
    ["Queue", "gpu-a100", "queue"],
    ["Kind", "TrainJob", "kind"],
    ["Node pool", "pool-1", "nodePool"],
    ["team", "nlp", "label%3Ateam"],
  ] as const) {
    await page.getByLabel("Sum by").selectOption({ label: name });
    await page.locator(".sums").getByText(group, { exact: true }).waitFor();
    expect(sums().some((path) => path.includes(`sumBy=${by}&window=day`))).toBe(true);
  }
  await page.getByRole("button", { name: "Last hour" }).click();
  await until(sums, (all) => all.at(-1)!.includes("window=hour"));
  expect(new URL(page.url()).hash).toContain("time=label%3Ateam&window=hour");
  await page.getByText("Where the time went").click();
  const asked = sums().length;
  await page.clock.runFor(180_000);
  expect(sums()).toHaveLength(asked);
});

test("a group's name shows its jobs only, and the sums say that they are of all", async () => {
  await show("#/?time=namespace&window=whole");
  await page.getByRole("button", { name: "research" }).click();
  const own = fixture.jobs.filter(({ namespace }) => namespace === "research").length;
  await page.getByText(`${own} of ${JOBS} jobs`).waitFor();
  await page.getByText("Of all jobs, not only of those that the list shows.").waitFor();
});

test("sums that are old say so, and whoever may not list trainingjobs reads what is missing", async () => {
  const opened = await openWithClock(browser, `${fixture.page()}#/?time=namespace`);
  ({ page, faults } = opened);
  await opened.waitFor("team-language");
  fixture.isSilent = true;
  await page.clock.runFor(240_000);
  await opened.waitFor(/^Sums are as of \d\d:\d\d: no answer has come since\.$/);
  fixture.isSilent = false;
  fixture.options.allKinds = "forbidden";
  await page.getByRole("button", { name: "Whole life" }).click();
  await opened.waitFor("You may not see these sums.");
  await page.getByText('cannot list resource "trainingjobs"').first().waitFor();
});

test("goodput and the last checkpoint have columns for those who want them, sorted by the worst", async () => {
  const [low, old] = fixture.jobs.filter((one) => one.isTraining && one.trouble === "") as [MadeJob, MadeJob];
  low.says.goodput = { time: ago(0), whole: windowOf({ productive: 1, other: 99 }, 0) };
  old.says.checkpoint = { step: 7, time: ago(60 * 24 * 3) };
  await show();
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("checkbox", { name: "Goodput" }).check();
  await page.getByRole("checkbox", { name: "Checkpoint" }).check();
  await page.keyboard.press("Escape");
  const first = page.locator(".body .row").first();
  await page.getByRole("columnheader", { name: "Goodput" }).getByRole("button").click();
  await first.getByText(low.name).waitFor();
  await first.getByText("1%", { exact: true }).waitFor();
  await page.getByRole("columnheader", { name: "Checkpoint" }).getByRole("button").click();
  await first.getByText(old.name).waitFor();
  await first.getByText("3d ago").waitFor();
  expect(page.url()).toContain("show=goodput&show=checkpoint");
});

test.each([1280, 800, 720])("with every column the list is no wider than a window of %d", async (width) => {
  for (const job of fixture.jobs) if (job.number % 2) Object.assign(job, { plural: "pytorchjobs", kind: "PyTorchJob" });
  ({ page, faults } = await open(
    browser,
    `${fixture.page()}#/?show=goodput&show=checkpoint&column=team&column=app.kubernetes.io/created-by&column=x`,
    { viewport: { width, height: 800 } },
  ));
  await page.locator(".body .row").first().waitFor();
  const over = await page.locator(".row").evaluateAll((rows) => rows.map((row) => row.scrollWidth - row.clientWidth));
  expect(Math.max(...over)).toBeLessThanOrEqual(0);
  if (width === 720) return; // there are no heads
  const cut = await page.locator(".header .extra").evaluateAll(
    (cells) =>
      cells.filter((cell) => {
        const text = document.createRange();
        text.selectNodeContents(cell.querySelector("button")!.firstChild!);
        return text.getBoundingClientRect().right > cell.getBoundingClientRect().right;
      }).length,
  );
  expect(cut).toBe(0);
});

test("what was wasted says on what, to whoever points at it, and the row still opens the job", async () => {
  const job = good();
  job.says.goodput = { time: ago(0), whole: windowOf(SPENT, 8), wastedMessage: "Recovery 5m, Starting 90s" };
  job.says.resources = { accelerators: 8, byName: [], acceleratorSeconds: 80_000, wastedAcceleratorSeconds: 3_120 };
  await show(`#/?q=${job.name}`);
  const wasted = page.locator(".body .row").getByText("52 min wasted");
  const { x, y, width, height } = (await wasted.boundingBox())!;
  const [atX, atY] = [x + width / 2, y + height / 2];
  const title = await page.evaluate(
    ([left, top]) => {
      const under = document.elementFromPoint(left!, top!);
      return under?.closest("[title]")?.getAttribute("title");
    },
    [atX, atY],
  );
  expect(title).toBe("Recovery 5m, Starting 90s");
  await page.mouse.click(atX, atY);
  const fact = page.locator(".numbers dd", { hasText: "52 min" });
  expect(await fact.getAttribute("title")).toBe("Recovery 5m, Starting 90s");
});
