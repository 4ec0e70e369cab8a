import { expect, test } from "vitest";

import { acceleratorTime, age, clock, count, duration, isSameDay, metricValue, rate, timeTicks } from "./format";
import { visible, visibleLines } from "./text";

test.each([
  ["0.123456", "0.1235"],
  ["0.5", "0.5"],
  ["12.3456", "12.35"],
  ["12345.6", "12,346"],
  ["123456789", "1.235e8"],
  ["0.00012", "1.20e−4"],
  ["-0.5", "−0.5"],
  ["0", "0"],
  ["NaN", "NaN"],
  ["-Infinity", "−∞"],
  ["not a number", "NaN"],
])("a metric of %s is shown as %s", (text, shown) => expect(metricValue(text)).toBe(shown));

test.each([
  [0.4, "0 s"],
  [59, "59 s"],
  [60, "1 min"],
  [125, "2 min 5 s"],
  [3599, "1 h"],
  [3500, "58 min"],
  [7800, "2 h 10 min"],
  [90000, "1 d 1 h"],
  [-5, "0 s"],
])("%s seconds are %s", (seconds, shown) => expect(duration(seconds)).toBe(shown));

test("counts are as the browser's own formatter writes them", () => {
  const own = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
  for (const value of [0, 7, 999, 1000, 12_345, 1_234_567, -1, -999, -1000, -12_345, 0.4, 999.6, 2 ** 53, 1e21]) {
    expect(count(value)).toBe(own.format(value));
  }
  expect(count(NaN)).toBe("NaN");
});

test("ages have the largest unit only", () => {
  expect([3, 119, 120, 7199, 7200, 172800].map(age)).toEqual(["3s", "119s", "2m", "119m", "2h", "2d"]);
});

test("slow runs are told by the minute or the hour", () => {
  expect([12.34, 0.5, 0.001, 0, 1234].map(rate)).toEqual(["12/s", "30/min", "3.6/h", "0/s", "1,234/s"]);
});

test("a time is told in the chosen zone, with no more of the date than is needed", () => {
  const now = Date.parse("2026-11-22T12:00:00Z");
  expect(clock(Date.parse("2026-11-22T15:40:00Z"), "UTC", now)).toBe("15:40");
  expect(clock(Date.parse("2026-11-22T15:40:00Z"), "Asia/Tokyo", now)).toBe("23 Nov 00:40");
  expect(clock(Date.parse("2025-01-02T00:00:00Z"), "UTC", now)).toBe("2 Jan 2025");
  expect(clock(NaN, "UTC", now)).toBe("");
  expect(isSameDay(now, now - 13 * 3600_000, "UTC")).toBe(false);
  expect(acceleratorTime(5400)).toBe("1.5 h");
  expect([acceleratorTime(35), acceleratorTime(91)]).toEqual(["35 s", "1 min 31 s"]);
});

test("characters that hide or reorder text are shown as what they are", () => {
  expect(visible("los\u202es")).toBe("los[U+202E]s");
  expect(visible("a\u0000b\u001b[31m\u200b\ufeff")).toBe("a[U+0000]b[U+001B][31m[U+200B][U+FEFF]");
  expect(visible("\u{e0041}")).toBe("[U+E0041]");
  expect(visible("\ud800")).toBe("[U+D800]");
  expect(visible("损失 λ 🚀 é")).toBe("损失 λ 🚀 é");
  expect(visible("👩🏽\u200d🚀 ❤️\u200d🔥")).toBe("👩🏽\u200d🚀 ❤️\u200d🔥"); // one emoji each
  expect(visible("a\u200db")).toBe("a[U+200D]b");
  expect(visibleLines("a\tb\r\n\u0007")).toBe("a\tb\n[U+0007]");
});

test("ticks of time tell the day first, at midnight, and seconds where they need to", () => {
  const at = Date.UTC(2026, 10, 22, 22) / 1000;
  const every = (stepS: number) => [0, 1, 2].map((one) => at + one * stepS);
  expect(timeTicks(every(3600), 3600, "UTC")).toEqual(["22 Nov 22:00", "23:00", "23 Nov"]);
  expect(timeTicks(every(10), 10, "UTC")).toEqual(["22 Nov 22:00:00", "22:00:10", "22:00:20"]);
  expect(timeTicks(every(86400), 86400, "UTC")).toEqual(["22 Nov", "23 Nov", "24 Nov"]);
});
