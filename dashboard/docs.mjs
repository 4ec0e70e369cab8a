// Writes the documentation that users of the page need into src/docs/, as trees of plain data: what the page shows is of
// the server's own version, and there without another host. pages.json has whole pages, reasons.json the meaning of each
// reason, from the tables in them. docs.test.ts tells when they are stale.
import { readFileSync, writeFileSync } from "node:fs";
import { parsers } from "prettier/plugins/markdown";

const DOCS = new URL("../docs/", import.meta.url);
const HERE = new URL("src/docs/", import.meta.url);
const NAMES = [
  "troubleshooting",
  "instrument",
  "annotations",
  "document",
  "logs",
  "push",
  "history",
  "goodput",
  "diagnose",
];
// Whose tables tell reasons; where two tell the same one, the first counts that does not refer to the other.
const OF_REASONS = [
  ["logs", "reasons"],
  ["troubleshooting", "a-job-shows-no-progress"],
  ["troubleshooting", "a-job-does-not-run"],
  ["troubleshooting", "a-job-failed-or-starts-again-and-again"],
  ["troubleshooting", "the-numbers-are-old"],
  ["troubleshooting", "stalled-or-diverged-is-true"],
];
const NO_REASONS = ["REASON", "Reporting"]; // a column and a condition, named beside reasons

/** As GitHub makes them from headings. */
export const slug = (text) =>
  text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");

/** A page as blocks. Throws for what it does not know, so that nothing is lost in silence. */
export async function readPage(name, markdown) {
  const tree = await parsers.markdown.parse(markdown, {});
  return tree.children.map((node) => block(name, node));
}

function block(page, node) {
  const inside = () => inlines(page, node.children);
  switch (node.type) {
    case "heading":
      return { heading: node.depth, id: slug(plain(node)), text: inside() };
    case "paragraph":
      return { paragraph: inside() };
    case "code":
      return { code: node.value };
    case "list":
      return {
        list: node.children.map((item) => item.children.map((one) => block(page, one))),
        isOrdered: node.ordered === true,
      };
    case "table":
      return { table: node.children.map((row) => row.children.map((cell) => inlines(page, cell.children))) };
    default:
      throw new Error(`docs/${page}.md has a ${node.type}, which the page cannot show yet`);
  }
}

function inlines(page, nodes) {
  return nodes.map((node) => {
    switch (node.type) {
      case "text":
      case "sentence":
        return node.value.replace(/\s+/g, " ");
      case "break":
        return " ";
      case "inlineCode":
        return { code: node.value };
      case "strong":
      case "emphasis":
        return { strong: inlines(page, node.children) };
      case "link":
        return link(page, node);
      default:
        throw new Error(`docs/${page}.md has a ${node.type}, which the page cannot show yet`);
    }
  });
}

/** To a page that is here; else its text alone, with the file's name where that says something else. */
function link(page, node) {
  const text = inlines(page, node.children);
  const [file = "", at = ""] = node.url.split("#", 2);
  const name = file === "" ? page : file.replace(/\.md$/, "");
  if (!/^[a-z]+:/.test(node.url) && NAMES.includes(name)) return { page: name, at, text };
  const where = /^[a-z]+:/.test(node.url) ? node.url : `docs/${node.url}`;
  return plain(node).includes(file) ? { strong: text } : { strong: [...text, ` (${where})`] };
}

function plain(node) {
  return node.value ?? (node.children ?? []).map(plain).join("");
}

/** Reason -> what it means and what to do, and where that is told. */
export function reasonsOf(pages) {
  const found = {};
  for (const [page, at] of OF_REASONS) {
    const blocks = pages[page];
    const from = blocks.findIndex((one) => one.id === at);
    if (from < 0) throw new Error(`docs/${page}.md has no heading #${at} any more`);
    const isOfReasons = (one) => one.table !== undefined && plainOf(one.table[0][0]) === "reason";
    const [head, ...rows] = blocks.slice(from).find(isOfReasons).table;
    const columns = head.map((cell) => plainOf(cell));
    for (const row of rows) {
      if (row.flat().some((one) => one.page && one.page !== page && OF_REASONS.some(([other]) => other === one.page)))
        continue;
      const meaning = row[columns.indexOf("meaning")] ?? [];
      const advice = row[columns.findIndex((name) => /do$/.test(name))] ?? [];
      const names = row[0].filter((one) => typeof one === "object" && one.code).map((one) => one.code);
      for (const name of names) {
        if (/^[A-Z][A-Za-z0-9]+$/.test(name) && !NO_REASONS.includes(name))
          found[name] ??= { meaning, advice, page, at };
      }
    }
  }
  return found;
}

function plainOf(list) {
  return list.map((one) => (typeof one === "string" ? one : (one.code ?? plainOf(one.text ?? one.strong)))).join("");
}

export async function readDocs() {
  const pages = {};
  for (const name of NAMES) pages[name] = await readPage(name, readFileSync(new URL(`${name}.md`, DOCS), "utf8"));
  return { "pages.json": pages, "reasons.json": reasonsOf(pages) };
}

/** JSON, a line for each block and each reason, so that a change of a sentence is a change of a line. */
export function encode(data) {
  const lines = (list) => `[\n${list.map((one) => JSON.stringify(one)).join(",\n")}\n]`;
  const fields = Object.entries(data).map(
    ([name, value]) => `${JSON.stringify(name)}: ${Array.isArray(value) ? lines(value) : JSON.stringify(value)}`,
  );
  return `{\n${fields.join(",\n")}\n}\n`;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  for (const [name, data] of Object.entries(await readDocs())) writeFileSync(new URL(name, HERE), encode(data));
}
