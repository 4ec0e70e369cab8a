/** All jobs of the page's scope, kept current; tells its readers at most once a frame.
 *
 * A job that has not changed keeps its object, so that its row need not be drawn again.
 */

import type { Address } from "../api/address";
import type { ResourceKind } from "../api/requests";
import type { Link } from "../api/watch";
import type { HubClient } from "../hub/client";
import type { News } from "../hub/messages";
import type { Job } from "./job";
import { withAge } from "./link";
import { Notifier } from "./notifier";

export class Fleet {
  readonly jobs = new Map<string, Job>();
  readonly changed = new Notifier();
  /** Of each kind that is followed. */
  readonly links = new Map<string, Link>();
  /** Jobs that a list which is still being read has left to come. */
  remaining = 0;
  hasListed = false;
  /** Keys of jobs that are chosen to be compared. */
  readonly ticked = new Set<string>();
  private leave: (() => void)[] = [];

  constructor(
    readonly hub: HubClient,
    private readonly address: Address,
    private readonly kinds: readonly ResourceKind[],
  ) {}

  start(): void {
    if (this.leave.length > 0) return;
    const { address } = this;
    this.leave = this.kinds.map(({ plural, kind }) =>
      this.hub.follow({ what: "list", address, plural, kind, namespace: address.namespace }, this.taker(plural)),
    );
  }

  stop(): void {
    for (const leave of this.leave) leave();
    this.leave = [];
  }

  private taker(plural: string): (news: News) => void {
    let seen: Set<string> | undefined; // while a whole list comes
    return ({ jobs = [], gone = [], begins, ends, remaining, link }) => {
      if (begins) seen = new Set();
      for (const job of jobs) {
        seen?.add(job.key);
        this.jobs.set(job.key, job);
      }
      for (const key of gone) this.jobs.delete(key);
      if (ends && seen) {
        for (const [key, job] of this.jobs) if (job.plural === plural && !seen.has(key)) this.jobs.delete(key);
        seen = undefined;
      }
      if (ends) this.hasListed = true;
      if (remaining !== undefined) this.remaining = remaining;
      if (link) this.links.set(plural, withAge(link, this.links.get(plural)));
      this.changed.tell();
    };
  }
}
