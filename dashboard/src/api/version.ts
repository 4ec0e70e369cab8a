/** Whether a resourceVersion is before another one: decimal numbers that rise, larger than a float tells apart. */
export function isOlder(version = "", than = ""): boolean {
  return version !== "" && (version.length - than.length || (version < than ? -1 : 0)) < 0;
}
