import { afterEach, expect, test, vi } from "vitest";

import type { News } from "./messages";
import { JobFeed } from "./job-feed";
import { ListFeed } from "./list-feed";

const PATIENCE = { timeout: 60_000 }; // for a busy machine
const address = { prefix: "", base: "/apis/g/v1" };
const job = (name: string, resourceVersion: string, uid = `uid of ${name}`) => ({
  metadata: { name, namespace: "n", uid, resourceVersion, creationTimestamp: null },
  status: { phase: "Running" as const },
});

const subscriber = (told: Omit<News, "id">[]) => ({
  tab: { isSeen: true, hiddenAt: 0, keeps: false },
  tell: (news: Omit<News, "id">) => void told.push(news),
});

afterEach(() => vi.unstubAllGlobals());

test("a job that the server does not find stays deleted, whatever a watch still tells of before", async () => {
  let isThere = true;
  let asked = 0;
  const absent = { reason: "NotFound", details: { name: "a" } };
  vi.stubGlobal("fetch", () => {
    asked++;
    return Promise.resolve(
      new Response(JSON.stringify(isThere ? job("a", "5") : absent), { status: isThere ? 200 : 404 }),
    );
  });
  const feed = new JobFeed({ what: "job", address, ref: { plural: "trainjobs", namespace: "n", name: "a" } });
  const told: Omit<News, "id">[] = [];
  feed.add(subscriber(told));
  const list = new ListFeed({ what: "list", address, namespace: undefined }, vi.fn(), vi.fn());
  feed.use(list);
  await vi.waitFor(() => expect(told.some(({ document }) => document)).toBe(true), PATIENCE);
  isThere = false;
  feed.reopen();
  await vi.waitFor(() => expect(told.some(({ isDeleted }) => isDeleted)).toBe(true), PATIENCE);
  told.length = 0;
  const before = asked;
  feed.fromList({ document: job("a", "8") });
  await vi.waitFor(() => expect(asked).toBe(before + 1), PATIENCE); // the server is asked
  await vi.waitFor(() => expect(told.some(({ isDeleted }) => isDeleted)).toBe(true), PATIENCE);
  expect(told.some(({ document }) => document)).toBe(false);
  isThere = true; // of another replica that was behind
  feed.fromList({ document: job("a", "9") });
  await vi.waitFor(() => expect(told.some(({ document }) => document)).toBe(true), PATIENCE);
  feed.stop();
});

test("what a list has is told before it is called live", async () => {
  const pages = [[job("a", "1"), job("b", "2")], [job("b", "3", "another")]];
  const end: (() => void)[] = [];
  let isAway = false;
  let failed = 0;
  vi.stubGlobal("fetch", (path: string, { signal }: { signal?: AbortSignal }) => {
    if (isAway) {
      failed++;
      return Promise.reject(new Error("nothing answers"));
    }
    if (path.includes("watch=1")) {
      return Promise.resolve(
        new Response(
          new ReadableStream({
            start: (controller) => {
              const fail = () => controller.error(new Error("cut"));
              end.push(fail);
              signal?.addEventListener("abort", fail);
            },
          }),
        ),
      );
    }
    const items = pages.shift()!.map((document) => ({
      ...document,
      jobRef: { kind: "TrainJob", resource: "trainjobs", name: document.metadata.name, uid: document.metadata.uid },
    }));
    return Promise.resolve(new Response(JSON.stringify({ metadata: { resourceVersion: "9" }, items })));
  });
  const feed = new ListFeed({ what: "list", address, namespace: undefined }, vi.fn(), vi.fn());
  const jobs = new Map<string, string>();
  const shownLive: string[] = [];
  feed.add({
    tab: { isSeen: true, hiddenAt: 0, keeps: false },
    tell: (news) => {
      for (const one of news.jobs ?? []) jobs.set(one.name, one.uid);
      for (const key of news.gone ?? []) jobs.delete(key.split("/").at(-1) ?? "");
      if (news.link?.state === "live") shownLive.push([...jobs].join(" "));
    },
  });
  feed.follow(true);
  await vi.waitFor(() => expect(shownLive).toEqual(["a,uid of a b,uid of b"]), PATIENCE);
  isAway = true;
  end.shift()!();
  await vi.waitFor(() => expect(failed).toBeGreaterThan(0), PATIENCE);
  isAway = false;
  feed.retry();
  await vi.waitFor(() => expect(shownLive).toHaveLength(2), PATIENCE);
  expect(shownLive[1]).toBe("b,another");
  feed.follow(false);
});

test("of one who may list neither all kinds nor TrainJobs both refusals are told, as two sentences", async () => {
  vi.stubGlobal("fetch", (path: string) => {
    const message = `User "ann" cannot list resource "${/\w+jobs/.exec(path)?.[0]}"`;
    return Promise.resolve(new Response(JSON.stringify({ reason: "Forbidden", message }), { status: 403 }));
  });
  const feed = new ListFeed({ what: "list", address, namespace: undefined }, vi.fn(), vi.fn());
  feed.follow(true);
  await vi.waitFor(() => expect(feed.link.state).toBe("refused"), PATIENCE);
  const of = (plural: string) => `User "ann" cannot list resource "${plural}"`;
  expect(feed.link.error?.message).toBe(`${of("trainingjobs")}. ${of("trainjobs")}`);
});
