import { expect, test } from "vitest";

import { LineSplitter } from "./lines";

const bytes = (text: string) => new TextEncoder().encode(text);

test("lines are whole, wherever the stream is cut", () => {
  const text = '{"a":"ü€"}\n{"b":2}\n';
  const all = bytes(text);
  for (let cut = 0; cut <= all.length; cut++) {
    const splitter = new LineSplitter();
    const lines = [...splitter.push(all.slice(0, cut)), ...splitter.push(all.slice(cut))];
    expect(lines).toEqual(['{"a":"ü€"}', '{"b":2}']);
  }
});

test("empty lines are left out, and the unfinished one is kept back", () => {
  const splitter = new LineSplitter();
  expect(splitter.push(bytes("\n\r\nx"))).toEqual([]);
  expect(splitter.push(bytes("y\n"))).toEqual(["xy"]);
});

test("a line without end is refused", () => {
  const splitter = new LineSplitter();
  expect(() => splitter.push(new Uint8Array(5 * 1024 * 1024).fill(65))).toThrow(RangeError);
});
