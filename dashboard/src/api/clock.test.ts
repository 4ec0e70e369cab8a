import { expect, test, vi } from "vitest";

import { adoptClock, clockAheadMs, readClock, serverNow } from "./clock";

test("what another tab has not measured does not undo what this one has", () => {
  expect(clockAheadMs()).toBeUndefined();
  const now = Date.now();
  readClock(new Date(now + 3600_000).toUTCString(), now, now);
  expect(serverNow() - now).toBeGreaterThan(3590_000);
  adoptClock(undefined);
  expect(serverNow() - now).toBeGreaterThan(3590_000);
  adoptClock(-5000);
  expect(clockAheadMs()).toBe(-5000);
});

test("the server's time goes on when somebody sets this machine's clock back", () => {
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() });
  const before = serverNow();
  vi.setSystemTime(Date.now() - 7200_000);
  expect(Math.abs(serverNow() - before)).toBeLessThan(1000);
  expect(clockAheadMs()).toBeGreaterThan(7190_000);
  const asked = Date.now();
  vi.setSystemTime(asked - 60_000); // while a request is on its way
  readClock(new Date(before).toUTCString(), asked, Date.now());
  expect(Math.abs(serverNow() - before)).toBeLessThan(1000);
  vi.useRealTimers();
});
