/** Splits a stream of bytes into lines; a watch is one JSON object a line. */

const MAX_LINE = 4 * 1024 * 1024; // a document has a few KiB; more is no watch of ours

export class LineSplitter {
  private readonly decoder = new TextDecoder();
  private rest = "";

  /** The lines that end in `bytes`, without the empty ones. Throws a RangeError for one without end. */
  push(bytes: Uint8Array): string[] {
    const text = this.rest + this.decoder.decode(bytes, { stream: true });
    const lines = text.split("\n");
    this.rest = lines.pop() ?? "";
    if (this.rest.length > MAX_LINE) throw new RangeError("a line of the watch does not end");
    return lines.filter((line) => line.trim() !== "");
  }
}
