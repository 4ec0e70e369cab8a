/** The job that was opened last: back in the list, the focus is on its row. */

import type { JobRef } from "../api/requests";
import { keyOf } from "./job";

let key: string | undefined;

export function opened({ plural, namespace, name }: JobRef): void {
  key = keyOf(plural, namespace, name);
}

/** Its key, once. */
export function takeLastOpened(): string | undefined {
  const taken = key;
  key = undefined;
  return taken;
}
