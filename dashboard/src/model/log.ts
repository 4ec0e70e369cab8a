/** Lines of a log, as they are shown and searched. */

const MOST = 2000; // characters of a line, as the server has it
const COLOURS = /\u001b\[[0-9;]*m/g;

/** Of a log as Kubernetes gives it: of a line that was drawn again and again the last form, and no colours. */
export function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => (line.replace(/\r+$/, "").split("\r").at(-1) ?? "").replace(COLOURS, "").slice(0, MOST));
}

/** Which lines have the text, in any case; all when it is empty. */
export function search(lines: readonly string[], text: string): readonly string[] {
  const sought = text === "" ? undefined : anyCase(text);
  return sought ? lines.filter((line) => line.search(sought) >= 0) : lines;
}

/** A line in pieces; every second one is what was sought. */
export const pieces = (line: string, text: string): string[] => (text === "" ? [line] : line.split(anyCase(text)));

const anyCase = (text: string) => new RegExp(`(${text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")})`, "iu");
