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
  const sought = text.toLowerCase();
  return sought === "" ? lines : lines.filter((line) => line.toLowerCase().includes(sought));
}

/** A line in pieces; every second one is what was sought. */
export function pieces(line: string, text: string): string[] {
  if (text === "") return [line];
  const found: string[] = [];
  const [lower, sought] = [line.toLowerCase(), text.toLowerCase()];
  let from = 0;
  for (let at = lower.indexOf(sought); at >= 0; at = lower.indexOf(sought, from)) {
    found.push(line.slice(from, at), line.slice(at, at + sought.length));
    from = at + sought.length;
  }
  return [...found, line.slice(from)];
}
