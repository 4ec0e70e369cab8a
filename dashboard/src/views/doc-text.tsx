/** Documentation as elements: no markup is ever read in the browser. */

import type { Block, Inline } from "../docs/text";
import { docsLink } from "../model/routes";
import { Code } from "./parts";

export function Inlines({ of }: { of: readonly Inline[] }) {
  return (
    <>
      {of.map((one, at) => {
        if (typeof one === "string") return one;
        if ("code" in one) return <code key={at}>{one.code}</code>;
        if ("strong" in one)
          return (
            <strong key={at}>
              <Inlines of={one.strong} />
            </strong>
          );
        return (
          <a key={at} href={docsLink(one)}>
            <Inlines of={one.text} />
          </a>
        );
      })}
    </>
  );
}

/** `reason` is the row of tables that somebody looks for. */
export function Blocks({ of, reason }: { of: readonly Block[]; reason?: string | undefined }) {
  return (
    <>
      {of.map((block, at) => (
        <OneBlock key={at} block={block} reason={reason} />
      ))}
    </>
  );
}

function OneBlock({ block, reason }: { block: Block; reason: string | undefined }) {
  if ("heading" in block) {
    const Heading = block.heading === 1 ? "h1" : block.heading === 2 ? "h2" : "h3";
    return (
      <Heading id={block.id} tabIndex={-1}>
        <Inlines of={block.text} />
      </Heading>
    );
  }
  if ("paragraph" in block)
    return (
      <p>
        <Inlines of={block.paragraph} />
      </p>
    );
  if ("code" in block) return <Code>{block.code}</Code>;
  if ("list" in block) {
    const List = block.isOrdered ? "ol" : "ul";
    return (
      <List>
        {block.list.map((item, at) => (
          <li key={at}>
            <Blocks of={item} />
          </li>
        ))}
      </List>
    );
  }
  const [head = [], ...rows] = block.table;
  const isSought = (row: (typeof rows)[number]) =>
    reason !== undefined && row[0]?.some((one) => typeof one === "object" && "code" in one && one.code === reason);
  return (
    <div class="scrolled" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {head.map((cell, at) =>
              cell.length === 0 ? (
                <td key={at} />
              ) : (
                <th key={at} scope="col">
                  <Inlines of={cell} />
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={at} class={isSought(row) ? "sought" : ""}>
              {row.map((cell, column) => (
                <td key={column}>
                  <Inlines of={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
