import { expect, test } from "vitest";

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
