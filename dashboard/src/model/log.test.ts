import { expect, test } from "vitest";

import { linesOf, pieces, search } from "./log";

test("a line that was drawn again counts once, and colours are left out", () => {
  expect(linesOf("a\r\nepoch 1\repoch 2\n\u001b[31mred\u001b[0m\n")).toEqual(["a", "epoch 2", "red"]);
  expect(linesOf("")).toEqual([]);
  expect(linesOf("\u001b[2Klink end")).toEqual(["link end"]);
});

test("what is sought is found in any case, and marked", () => {
  expect(search(["Loss 1", "step 2"], "loss")).toEqual(["Loss 1"]);
  expect(pieces("Loss loss x", "LOSS")).toEqual(["", "Loss", " ", "loss", " x"]);
  expect(pieces("abc", "")).toEqual(["abc"]);
  expect(pieces("İstanbul line", "LINE")).toEqual(["İstanbul ", "line", ""]); // its lower case is longer
  expect(search(["a[U+200B]b (x)", "c"], "[u+200b]b (")).toEqual(["a[U+200B]b (x)"]);
});

test("a line that is too long says what is left out, and keeps its end", () => {
  const [line] = linesOf(`begin${"x".repeat(5000)}END`);
  expect(line).toMatch(/^beginx+ \[… 3,008 left out …\] x+END$/);
  expect(linesOf("x".repeat(2000))).toEqual(["x".repeat(2000)]);
});
