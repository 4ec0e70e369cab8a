/** Gives the viewer `content` as a file. */
export function save(content: BlobPart, name: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Of a stranger's text. */
export const fileName = (title: string, ending: string) => `${title.replace(/[^\w.-]+/g, "_").slice(0, 60)}.${ending}`;
