/** Lines of a log, as they are shown and searched. */

import { count } from "./format";

const MOST = 2000; // characters of a line
const END = 500; // of them those at its end, where an exception says what it is
/** Colours, and what moves the cursor. */
const SEQUENCES = /\u001b\[[0-?]*[@-~]/g;

/** Of a log as Kubernetes gives it: of a line that was drawn again and again the last form, and no colours. */
export function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => shortened((line.replace(/\r+$/, "").split("\r").at(-1) ?? "").replace(SEQUENCES, "")));
}

function shortened(line: string): string {
  if (line.length <= MOST) return line;
  const left = line.length - MOST;
  return `${line.slice(0, MOST - END)} [… ${count(left)} left out …] ${line.slice(-END)}`;
}

/** Which lines have the text, in any case; all when it is empty. */
export function search(lines: readonly string[], text: string): readonly string[] {
  const sought = text === "" ? undefined : anyCase(text);
  return sought ? lines.filter((line) => line.search(sought) >= 0) : lines;
}

/** A line in pieces; every second one is what was sought. */
export const pieces = (line: string, text: string): string[] => (text === "" ? [line] : line.split(anyCase(text)));

const anyCase = (text: string) => new RegExp(`(${text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")})`, "iu");
