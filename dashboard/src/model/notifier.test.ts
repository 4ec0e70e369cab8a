import { afterEach, expect, test, vi } from "vitest";

import { Notifier } from "./notifier";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("all listeners are told together, at most every so often, and at once of what says whether the rest is current", () => {
  vi.useFakeTimers();
  vi.stubGlobal("document", { hidden: false });
  vi.stubGlobal("requestAnimationFrame", (run: () => void) => setTimeout(run, 16));
  vi.stubGlobal("cancelAnimationFrame", clearTimeout);
  const notifier = new Notifier(250);
  const told: string[] = [];
  notifier.subscribe(() => told.push("line"));
  notifier.subscribe(() => told.push("rows"));
  notifier.tell();
  notifier.tell();
  vi.advanceTimersByTime(16);
  expect(told).toEqual(["line", "rows"]);
  notifier.tell();
  vi.advanceTimersByTime(200);
  expect(told).toHaveLength(2);
  vi.advanceTimersByTime(50);
  expect(told).toEqual(["line", "rows", "line", "rows"]);
  notifier.tell();
  notifier.tell(true);
  vi.advanceTimersByTime(16);
  expect(told).toHaveLength(6);
  vi.advanceTimersByTime(5000);
  expect(told).toHaveLength(6);
});
