/** A page of the documentation, of the version of the server that sends it: there where no other host is reached. */

import { useEffect, useRef } from "preact/hooks";

import pages from "../docs/pages.json";
import type { Pages } from "../docs/text";
import { docsLink, fleetLink, type Route } from "../model/routes";
import { visible } from "../model/text";
import { Blocks } from "./doc-text";
import { Empty } from "./parts";
import { useTab } from "./tab";

const PAGES = pages as unknown as Pages;

export function DocsView({ route: { page, at, reason } }: { route: Extract<Route, { view: "docs" }> }) {
  const main = useRef<HTMLElement>(null);
  useTab({ title: `${visible(page)} · training jobs`, mark: "plain" });
  const found = Object.hasOwn(PAGES, page) ? PAGES[page] : undefined;
  useEffect(() => {
    // To what was sought: its row, else its heading, else the beginning.
    const sought = main.current?.querySelector(".sought") ?? (at ? document.getElementById(at) : null);
    if (sought) sought.scrollIntoView({ block: "center" });
    else window.scrollTo(0, 0);
  }, [page, at, reason]);
  return (
    <main id="content" tabIndex={-1} class="docs" ref={main}>
      <nav aria-label="Documentation" class="path">
        <a href={fleetLink()}>All jobs</a>
        {Object.keys(PAGES).map((name) => (
          <a key={name} href={docsLink({ page: name, at: "" })} aria-current={name === page ? "page" : undefined}>
            {name}
          </a>
        ))}
      </nav>
      {found ? (
        <article class="panel">
          <Blocks of={found} reason={reason} />
        </article>
      ) : (
        <Empty title={`There is no page "${visible(page)}"`} />
      )}
    </main>
  );
}
