/** Pictures of the page, to be looked at: in browser/shots/, and in docs/images/ with IMAGES=1, for the README. */

import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launch, open, until } from "./chromium";
import { Fixture } from "./fixture";

const FOLDER = fileURLToPath(new URL(process.env["IMAGES"] ? "../../docs/images/" : "./shots/", import.meta.url));
const SIZE = { width: 1200, height: 760 };
let browser: Browser;
let fixture: Fixture;

beforeAll(async () => {
  mkdirSync(FOLDER, { recursive: true });
  browser = await launch();
  fixture = await Fixture.start({ jobs: 260 });
  for (const job of fixture.jobs) {
    if (job.number % 4 === 1) Object.assign(job, { plural: "pytorchjobs", kind: "PyTorchJob" });
    else if (job.number % 9 === 2) Object.assign(job, { plural: "volcanojobs", kind: "Job" });
  }
});
afterAll(async () => {
  await fixture.stop();
});

test.each(["light", "dark"] as const)("the page in %s colours", async (colorScheme) => {
  const { page, faults } = await open(browser, fixture.page(), { colorScheme, viewport: SIZE });
  await page.locator(".spark path").first().waitFor({ state: "attached" });
  const asked = () => fixture.requests.filter((path) => path.includes("/history")).length;
  await until(
    () =>
      Promise.all([
        page.locator(".spark path:not(.broken)").count(),
        page.locator(".body .cell.metric .value").count(),
      ]),
    ([drawn, all]) => drawn === all,
  );
  expect(asked()).toBeGreaterThan(0);
  await page.screenshot({ path: `${FOLDER}fleet-${colorScheme}.png` });
  const job = fixture.jobs.find(
    (one) =>
      one.isTraining && one.trouble === "" && one.step > 2000 && one.number % 7 === 0 && one.plural === "trainjobs",
  )!;
  await page.goto(`${fixture.page()}#/trainjobs/${job.namespace}/${job.name}`);
  await page.getByRole("img", { name: /^loss\. .*\d{2} points/ }).waitFor();
  await page.screenshot({ path: `${FOLDER}job-${colorScheme}.png` });
  const background = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const [red = 0] = background.match(/\d+/g)?.map(Number) ?? [];
  expect(red > 128).toBe(colorScheme === "light");
  expect(faults).toEqual([]);
  await page.context().close();
});
