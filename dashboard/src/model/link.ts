/** Whether what is shown is current, or how old it is. */

import { SILENCE_MS, type Link } from "../api/watch";

// A link that is live tells of it every 10 s, and what it last heard may be as old as the silence that it bears.
const LONGEST_MS = SILENCE_MS + 15_000;

/** `link` with the age of what was shown before, which another source of it does not know. */
export function withAge(link: Link, before: Link | undefined): Link {
  const isStill = link.state === "connecting" && before?.wasAway;
  return { ...link, asOf: link.asOf ?? before?.asOf, ...(isStill && { wasAway: true }) };
}

/** `now` by the server's clock, as all times of a link. */
export function isStale(link: Link, now: number): boolean {
  if (link.state === "lost" || link.state === "refused" || link.wasAway) return true;
  return link.asOf !== undefined && now - link.asOf > LONGEST_MS;
}
