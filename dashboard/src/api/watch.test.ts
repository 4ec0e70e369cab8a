import { afterEach, expect, test, vi } from "vitest";

import { beat, serverNow } from "./clock";
import type { WatchEvent } from "./types";
import { Watch, type Link } from "./watch";

const PATIENCE = { timeout: 60_000 }; // for a busy machine

/** Answers in turn; what is asked after the last one never comes. */
function serve(...answers: (() => Response)[]): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (path: string, { signal }: { signal?: AbortSignal }) => {
    asked.push(path);
    const next = answers.shift();
    if (next) return Promise.resolve(next());
    return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted"))));
  });
  return asked;
}

const json =
  (body: unknown, code = 200) =>
  () =>
    new Response(JSON.stringify(body), { status: code });
const stream =
  (...events: unknown[]) =>
  () =>
    new Response(events.map((event) => `${JSON.stringify(event)}\n`).join(""));
const open =
  (...events: unknown[]) =>
  () =>
    new Response(
      new ReadableStream({
        start(controller) {
          for (const event of events) controller.enqueue(new TextEncoder().encode(`${JSON.stringify(event)}\n`));
        },
      }),
    );
const job = (name: string, resourceVersion: string) => ({
  metadata: { name, namespace: "n", resourceVersion },
  status: { phase: "Running" },
});
const list = (resourceVersion: string, items: unknown[], more = {}) =>
  json({ metadata: { resourceVersion, ...more }, items });

function follow() {
  const seen = { names: [] as string[], events: [] as WatchEvent[], states: [] as Link[], lists: 0 };
  const watch = new Watch("/jobs", {
    listing: () => seen.lists++,
    page: (items) => seen.names.push(...items.map(({ metadata }) => metadata.name ?? "")),
    listed: () => undefined,
    events: (events) => seen.events.push(...events),
    link: (now) => seen.states.push(now),
  });
  return { watch, seen };
}

afterEach(() => vi.unstubAllGlobals());

test("a list is read page by page, and watched from its version", async () => {
  const asked = serve(
    list("7", [job("a", "1")], { continue: "next", remainingItemCount: 1 }),
    list("7", [job("b", "2")]),
    open({ type: "MODIFIED", object: job("a", "8") }),
  );
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(seen.events).toHaveLength(1), PATIENCE);
  watch.stop();
  expect(seen.names).toEqual(["a", "b"]);
  expect(asked[1]).toContain("continue=next");
  expect(asked[2]).toContain("resourceVersion=7");
  expect(asked[2]).toContain("allowWatchBookmarks=true");
  expect(seen.states.at(-1)).toMatchObject({ state: "paused" }); // stopped, and it says so
});

test("a connection that is lost is said, and the watch goes on from its last bookmark", async () => {
  const asked = serve(
    list("7", []),
    stream({ type: "BOOKMARK", object: job("", "9") }),
    json({ code: 503, message: "restarting" }, 503),
    open(),
  );
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(asked.length).toBe(4), PATIENCE);
  await vi.waitFor(() => expect(seen.states.at(-1)?.state).toBe("live"), PATIENCE);
  watch.stop();
  expect(asked[3]).toContain("resourceVersion=9");
  expect(seen.lists).toBe(1);
  const states = seen.states.map(({ state }) => state);
  expect(states.filter((state, at) => state !== states[at - 1])).toEqual([
    "connecting",
    "live",
    "lost",
    "live",
    "paused",
  ]);
});

test.each([
  ["as an answer", json({ code: 410, reason: "Expired" }, 410)],
  ["as an event", stream({ type: "ERROR", object: { code: 410, reason: "Expired", message: "too old" } })],
])("a version that is too old, said %s, leads to a new list", async (_, expired) => {
  serve(list("7", [job("a", "1")]), expired, list("90", [job("b", "80")]), open());
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(seen.names).toEqual(["a", "b"]), PATIENCE);
  watch.stop();
  expect(seen.lists).toBe(2);
});

test("without the right to list it is said, and not asked again", async () => {
  const asked = serve(json({ code: 403, reason: "Forbidden", message: "bob may not" }, 403));
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(seen.states).toHaveLength(2), PATIENCE);
  expect(seen.states[1]).toMatchObject({ state: "refused", error: { code: 403, message: "bob may not" } });
  expect(asked).toHaveLength(1);
  watch.stop();
});

test.each([
  [90, 90],
  [86_400, 600], // no server is away for a day
])("a server that asks to come again after %i s is asked then", async (asked, waited) => {
  const headers = { "Retry-After": String(asked) };
  serve(
    () => new Response(JSON.stringify({ code: 429, details: { retryAfterSeconds: asked } }), { status: 429, headers }),
  );
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(seen.states.at(-1)?.state).toBe("lost"), PATIENCE);
  expect((seen.states.at(-1)!.retryAt! - serverNow()) / 1000).toBeCloseTo(waited, -1);
  watch.stop();
});

test("a watch that was stopped goes on from its last version, and says as of when it knew", async () => {
  const asked = serve(list("7", []), open({ type: "BOOKMARK", object: job("", "9") }), open());
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(seen.states.at(-1)?.state).toBe("live"), PATIENCE);
  await vi.waitFor(() => expect(asked).toHaveLength(2), PATIENCE);
  watch.stop();
  expect(seen.states.at(-1)?.asOf).toBeGreaterThan(0);
  watch.start();
  await vi.waitFor(() => expect(asked).toHaveLength(3), PATIENCE);
  expect(asked[2]).toMatch(/watch=1.*resourceVersion=[79]/);
  watch.stop();
});

test("after a sleep nothing counts that the old connection still brings, and all is listed anew before it is live", async () => {
  let tell: (event: unknown) => void = () => undefined;
  const asleep = () =>
    new Response(
      new ReadableStream({
        start: (controller) => {
          tell = (event) => controller.enqueue(new TextEncoder().encode(`${JSON.stringify(event)}\n`));
        },
      }),
    );
  const asked = serve(list("7", [job("a", "1")]), asleep, list("90", []), open());
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(seen.states.at(-1)?.state).toBe("live"), PATIENCE);
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 60_000 });
  tell({ type: "MODIFIED", object: job("a", "8") });
  await vi.waitFor(() => expect(asked).toHaveLength(4), PATIENCE);
  beat(); // as the hub does
  await vi.waitFor(() => expect(seen.states.at(-1)?.state).toBe("live"), PATIENCE);
  watch.stop();
  vi.useRealTimers();
  beat();
  expect(seen.events).toEqual([]);
  expect([asked[2], asked[3]]).toEqual([
    expect.stringContaining("limit="),
    expect.stringContaining("resourceVersion=90"),
  ]);
  expect(seen.states.map(({ state, wasAway }) => (wasAway ? `${state}, away` : state))).toEqual(
    expect.arrayContaining(["connecting, away"]),
  );
});

test("a watch that goes on after a pause lists anew: what was meanwhile is not told as if it were now", async () => {
  const asked = serve(list("7", []), open(), list("90", []), open());
  const { watch, seen } = follow();
  watch.start();
  await vi.waitFor(() => expect(seen.states.at(-1)?.state).toBe("live"), PATIENCE);
  watch.stop();
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 60_000 });
  beat();
  watch.start();
  expect(seen.states.at(-1)).toMatchObject({ state: "connecting", wasAway: true });
  await vi.waitFor(() => expect(asked).toHaveLength(4), PATIENCE);
  watch.stop();
  vi.useRealTimers();
  beat();
  expect(asked[2]).toContain("limit=");
});
