/** Parts of the page that are loaded when they are first needed, so that the list of jobs is there sooner. */

import type { ComponentChildren } from "preact";

import { useLoaded } from "./hooks";
import { Empty } from "./parts";

export const loadJobView = () => import("./job-view");
export const loadDocsView = () => import("./docs-view");

interface Props<T> {
  load: () => Promise<T>;
  /** What is read, for the sentence that says so. */
  what: string;
  children: (part: T) => ComponentChildren;
}

/**
 * `children` of what `load` brings. After an update of the server its scripts have other names: that is said.
 * A browser keeps the failure of an `import()` for as long as the page lives, so only a reload asks again.
 */
export function Later<T>({ load, what, children }: Props<T>) {
  const part = useLoaded(load, [load]);
  if (part.state === "here") return <>{children(part.value)}</>;
  return (
    <main id="content" tabIndex={-1} class="job">
      {part.state === "loading" ? (
        <p class="muted">Reading the {what}</p>
      ) : (
        <Empty title="A part of the page cannot be loaded">
          <p>The connection is lost, or the server was updated and has another version of this page.</p>
          <button type="button" class="button primary" onClick={() => location.reload()}>
            Load the page again
          </button>
        </Empty>
      )}
    </main>
  );
}
