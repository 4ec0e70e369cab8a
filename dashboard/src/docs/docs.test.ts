import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { hasAnchor, helpFor, MORE } from "../model/reasons";
import type { Block, Inline, Pages } from "./text";
import pages from "./pages.json";
import reasons from "./reasons.json";

const PAGES = pages as unknown as Pages;

test("the page ships the documentation as it is today", async () => {
  const { encode, readDocs } = (await import("../../docs.mjs" as string)) as {
    encode: (data: unknown) => string;
    readDocs: () => Promise<Record<string, unknown>>;
  };
  for (const [name, data] of Object.entries(await readDocs())) {
    const shipped = readFileSync(new URL(name, import.meta.url), "utf8");
    expect(shipped === encode(data), `${name} is stale: make dashboard`).toBe(true);
  }
});

test("every link within the documentation leads to a heading that is there", () => {
  const told = [...Object.values(reasons), ...Object.values(MORE)];
  const links = [...Object.values(PAGES).flatMap(linksOfBlocks), ...told] as {
    page: string;
    at: string;
  }[];
  expect(links.length).toBeGreaterThan(100);
  const broken = links.filter(({ page, at }) => !PAGES[page] || (at !== "" && !hasAnchor(PAGES[page], at)));
  expect(broken.map(({ page, at }) => `${page}#${at}`)).toEqual([]);
});

test("every link of a view to the documentation leads to a heading that is there, as does a diagnosis' reason to its row", () => {
  const views = import.meta.glob<string>("../views/*.tsx", { query: "?raw", import: "default", eager: true });
  const links = Object.values(views).flatMap((text) => [...text.matchAll(/docsLink\(\{ page: "(.+?)", at: "(.*?)"/g)]);
  expect(links.length).toBeGreaterThan(4);
  const broken = links.filter(([, page = "", at = ""]) => !PAGES[page] || (at !== "" && !hasAnchor(PAGES[page], at)));
  expect(broken.map(([link]) => link)).toEqual([]);
  expect(rowsOf("diagnose", "the-reasons")).toContain("InDataLoader");
});

test("a reason has its meaning, what to do, and where that is told", () => {
  expect(helpFor("NotYetProbed")).toEqual({
    page: "troubleshooting",
    at: "a-job-shows-no-progress",
    meaning: ["the job is known, its first probe is still to come"],
    advice: ["wait one interval"],
  });
  expect(helpFor("NoProgressInLog")?.page).toBe("logs"); // where one page refers to the other, the other
  expect(helpFor("PodUnreachable")?.page).toBe("troubleshooting");
  const explained = ["OOMKilled", "CrashLoopBackOff", "NoNewReport", "TooLarge", "WatchDown", "ReplicaBehind"];
  // Those of conditions that the page warns of.
  const alarms = ["NoAdvance", "NonFiniteMetric", "FarAboveUsual", "AboveThreshold", "NoNewStep", "SlowReplica"];
  alarms.push("NoImprovement", "NoRecentCheckpoint", "BelowThreshold", "NotUsed");
  for (const one of [...explained, ...alarms]) {
    expect(helpFor(one)?.meaning, one).not.toEqual([]);
  }
});

test.each(["__proto__", "constructor", "toString", "", "REASON", "NoSuchReason"])("%j is no reason", (name) => {
  expect(helpFor(name)).toBeUndefined();
});

/** The first code in each row of the first table below a heading. */
function rowsOf(page: string, heading: string): string[] {
  const blocks = PAGES[page]!;
  const from = blocks.findIndex((block) => "heading" in block && block.id === heading);
  const table = blocks.slice(from).find((block) => "table" in block);
  return table && "table" in table
    ? table.table.flatMap(
        ([first]) => first?.flatMap((one) => (typeof one === "object" && "code" in one ? one.code : [])) ?? [],
      )
    : [];
}

function linksOfBlocks(blocks: readonly Block[]): unknown[] {
  return blocks.flatMap((block) => {
    if ("text" in block) return linksOf(block.text);
    if ("paragraph" in block) return linksOf(block.paragraph);
    if ("list" in block) return block.list.flatMap(linksOfBlocks);
    return "table" in block ? block.table.flat().flatMap(linksOf) : [];
  });
}

function linksOf(inlines: readonly Inline[]): unknown[] {
  return inlines.flatMap((one) => {
    if (typeof one === "string" || "code" in one) return [];
    return "strong" in one ? linksOf(one.strong) : [one];
  });
}
