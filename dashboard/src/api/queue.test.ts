import { expect, test } from "vitest";

import { Backoff } from "./backoff";
import { BoundedQueue } from "./queue";

test("so many run at a time, the latest first, and what is not wanted any more is not begun", async () => {
  const queue = new BoundedQueue(2);
  const begun: number[] = [];
  const end: (() => void)[] = [];
  const unwanted = new Set([3]);
  for (const number of [1, 2, 3, 4, 5]) {
    const work = () => {
      begun.push(number);
      return new Promise<void>((resolve) => end.push(resolve));
    };
    queue.add(work, () => !unwanted.has(number));
  }
  expect(begun).toEqual([1, 2]);
  while (end.length) {
    end.shift()?.();
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
  expect(begun).toEqual([1, 2, 5, 4]);
});

test("work that fails does not block what comes after", async () => {
  const queue = new BoundedQueue(1);
  let isDone = false;
  queue.add(
    () => Promise.reject(new Error("no")),
    () => true,
  );
  await new Promise<void>((resolve) => {
    const work = () => {
      isDone = true;
      resolve();
      return Promise.resolve();
    };
    queue.add(work, () => true);
  });
  expect(isDone).toBe(true);
});

test("waits double up to a cap, spread over half of each", () => {
  const least = new Backoff(500, 4000, () => 0);
  expect([1, 2, 3, 4, 5].map(() => least.nextMs())).toEqual([250, 500, 1000, 2000, 2000]);
  const most = new Backoff(500, 4000, () => 1);
  expect(most.nextMs()).toBe(500);
  most.reset();
  expect(most.nextMs()).toBe(500);
});
