/** Where the ranks of a run are, having them read again, and what is not asked because it would be refused. */

import type { Browser, Page } from "playwright-core";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { launch, open, openWithClock, until } from "./chromium";
import { Fixture } from "./fixture";
import type { MadeJob } from "./fixture-jobs";

let browser: Browser;
let fixture: Fixture;
let page: Page;
let faults: string[];
let stalled: MadeJob;
let running: MadeJob;

beforeAll(async () => {
  browser = await launch();
});
beforeEach(async () => {
  fixture = await Fixture.start({ jobs: 30 });
  stalled = fixture.jobs.find((one) => one.trouble === "Stalled")!;
  running = fixture.jobs.find((one) => one.isTraining && one.trouble === "" && !one.isHostile)!;
});
afterEach(async () => {
  await page.context().close();
  await fixture.stop();
  expect(faults).toEqual([]);
});

const routeOf = ({ plural, namespace, name }: MadeJob) => `${fixture.page()}#/${plural}/${namespace}/${name}`;
const show = async (job: MadeJob, options = {}) => ({ page, faults } = await open(browser, routeOf(job), options));
const panel = () => page.getByRole("region", { name: "Why it stands still" });
const again = () => page.getByRole("button", { name: /^Diagnose/ });

test("the rank that others wait for is named with node, pod and step, and stacks are there for who may read logs", async () => {
  const shown = stalled.document(Date.now()).status.diagnosis!;
  stalled.says = {
    diagnosis: {
      ...shown,
      requested: true,
      podsUnread: 2,
      otherRanks: 5,
      suspects: [{ ...shown.suspects![0]!, step: 410 }],
    },
  };
  await show(stalled);
  await panel().getByText("read at").getByText("at a user's request").waitFor();
  await panel()
    .getByRole("row", { name: `rank 37 gpu-9 ${stalled.name}-node-0-37-q8fzt 410 InDataLoader` })
    .waitFor();
  await panel().getByRole("row", { name: "others 5 are at further places" }).waitFor();
  await panel().getByText("2 pods did not run, or showed no rank.").waitFor();
  expect(fixture.requests.some((path) => path.endsWith("/diagnose"))).toBe(false); // nobody has asked for stacks
  await panel().getByText("Stacks of the ranks").click();
  await panel().getByText("Ranks 0-36,38-63: is in all_reduce").waitFor();
  await panel().getByText("torch/utils/data/dataloader.py:_try_get_data:1131").waitFor();
  await panel().getByText("<b>[U+202E]train.py:main:40").waitFor();
  await panel().getByRole("link", { name: "More about InDataLoader" }).click();
  await page.locator("tr.sought", { hasText: "InDataLoader" }).waitFor();
});

test("the ranks are read again at a click, once a minute at most, and what came of it is told", async () => {
  const opened = await openWithClock(browser, routeOf(stalled));
  ({ page, faults } = opened);
  await opened.waitFor("Why it stands still");
  await opened.waitFor("Diagnose again");
  await again().focus();
  await page.keyboard.press("Enter");
  await opened.waitFor("Its ranks are being read: the result is here within a minute.");
  await opened.waitFor(/^Again in \d\d s: a job is read once a minute at most\.$/);
  expect(await again().getAttribute("aria-disabled")).toBe("true");
  await page.keyboard.press("Enter"); // the focus has stayed, and nothing is asked
  const shown = stalled.document(Date.now()).status.diagnosis!;
  stalled.says = { diagnosis: { ...shown, time: new Date().toISOString(), message: "All 64 ranks wait." } };
  fixture.change(stalled);
  await opened.waitFor("Its ranks were read.");
  await page.getByText("All 64 ranks wait.").waitFor();
  expect(fixture.posts).toHaveLength(1);
  await page.clock.runFor(40_000);
  expect(fixture.posts).toHaveLength(1);
  await until(
    async () => {
      await page.clock.runFor(1000); // and connects anew, when nothing has come for long: live a second later
      if ((await again().getAttribute("aria-disabled")) === "false") await page.keyboard.press("Enter");
      return fixture.posts;
    },
    ({ length }) => length === 2,
  );
});

const NO_PODS = { code: 409, reason: "Conflict", message: "The job has no pods that could be read." };
const ONCE = { code: 429, reason: "TooManyRequests", message: "once a minute at most", retryAfterSeconds: 40 };
test.each([
  [NO_PODS, /^Its ranks are not read: The job has no pods that could be read\.$/],
  [ONCE, /^Again in \d\d s: /],
])("a request that is refused (%o) says why", async (fault, told) => {
  await show(running);
  await page.getByRole("heading", { name: "Where its ranks are" }).click();
  fixture.fault = { path: /\/diagnose$/, ...fault };
  await again().click();
  await page.getByText(told).waitFor();
});

test("who may not have ranks read is told which right it takes, and what is not live has no ranks read", async () => {
  fixture.mayDiagnose = false;
  await show(stalled);
  await panel()
    .getByText(`takes the right to create trainjobs/diagnose in the namespace ${stalled.namespace}`)
    .waitFor();
  expect(await again().count()).toBe(0);
  fixture.mayDiagnose = true;
  await page.reload();
  await again().waitFor();
  fixture.isDown = true;
  fixture.cut();
  await page.getByText("Connection lost.").waitFor();
  await until(
    () => again().getAttribute("aria-disabled"),
    (isOff) => isOff === "true",
  );
});

test.each([true, false])(
  "where rights are reviewed (%s), nothing is asked that would be refused",
  async (hasReviews) => {
    Object.assign(fixture, { hasReviews, mayReadMore: false, mayReadProgress: false, mayDiagnose: false });
    const said: string[] = [];
    ({ page, faults } = await open(browser, "about:blank"));
    page.on("console", (message) => said.push(message.text()));
    await page.goto(routeOf(stalled));
    await page.getByText("It takes the right to list events").waitFor();
    await panel().getByText("Stacks of the ranks").click();
    await panel()
      .getByText(/cannot get resource "pods\/log"/)
      .waitFor();
    await page.getByRole("heading", { name: "Replicas" }).scrollIntoViewIfNeeded();
    await page.getByText(`takes the right to get trainjobs/progress in the namespace ${stalled.namespace}`).waitFor();
    await page.getByRole("heading", { name: "Log", exact: true }).click();
    await page.getByText(`kubectl logs -n ${stalled.namespace}`).waitFor();
    expect(said.some((text) => text.includes("403"))).toBe(!hasReviews);
  },
);
