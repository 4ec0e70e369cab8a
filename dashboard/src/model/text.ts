/** Names, messages and reasons come from strangers' programs: characters that hide or reorder text are made visible. */

// Controls, soft hyphen, Arabic letter mark, zero-width and bidirectional marks, line and paragraph separators,
// variation selectors beyond the ordinary, interlinear annotation, tags, byte order mark.
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff](?![\udc00-\udfff])/gu;

// Which joins emoji to one: it hides nothing there.
const JOINER = /(?<=\p{Extended_Pictographic}[\ufe0f\u{1f3fb}-\u{1f3ff}]?)\u200d(?=\p{Extended_Pictographic})/gu;
const KEPT = "\u0001";

export function visible(text: string): string {
  const shown = text.includes("\u200d") ? text.replaceAll(KEPT, "[U+0001]").replace(JOINER, KEPT) : text;
  return show(shown).replaceAll(KEPT, "\u200d");
}

function show(text: string): string {
  return text.replace(HIDDEN, (character) => {
    if (character === KEPT) return character;
    const code = character.codePointAt(0) ?? 0;
    return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/** The same of a line of a log, in which tabs are usual. */
export const visibleLine = (line: string): string => line.split("\t").map(visible).join("\t");

/** Of several lines. */
export const visibleLines = (text: string): string => text.split(/\r?\n/).map(visibleLine).join("\n");
