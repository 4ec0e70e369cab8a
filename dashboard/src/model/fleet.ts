/** All jobs of the page's scope, kept current; tells its readers at most once a frame.
 *
 * A job that has not changed keeps its object, so that its row need not be drawn again.
 */

import type { Address } from "../api/address";
import type { Link } from "../api/watch";
import type { HubClient } from "../hub/client";
import type { News } from "../hub/messages";
import type { Job } from "./job";
import { withAge } from "./link";
import { Notifier } from "./notifier";

const DRAW_MS = 250; // how often the order is worked out anew while jobs change

export class Fleet {
  readonly jobs = new Map<string, Job>();
  readonly changed = new Notifier(DRAW_MS);
  link: Link = { state: "connecting" };
  /** What the server says of the right that is missing where only TrainJobs are listed; "" else. */
  lacks = "";
  /** Jobs that a list which is still being read has left to come. */
  remaining = 0;
  hasListed = false;
  /** Keys of jobs that are chosen to be compared. */
  readonly ticked = new Set<string>();
  private leave: (() => void) | undefined;

  constructor(
    readonly hub: HubClient,
    private readonly address: Address,
  ) {}

  start(): void {
    const { address } = this;
    this.leave ??= this.hub.follow({ what: "list", address, namespace: address.namespace }, this.taker());
  }

  stop(): void {
    this.leave?.();
    this.leave = undefined;
  }

  private taker(): (news: News) => void {
    let seen: Set<string> | undefined; // while a whole list comes
    return ({ jobs = [], gone = [], begins, ends, remaining, lacks, link }) => {
      if (begins) seen = new Set();
      for (const job of jobs) {
        seen?.add(job.key);
        this.jobs.set(job.key, job);
      }
      for (const key of gone) this.jobs.delete(key);
      if (ends && seen) {
        for (const key of this.jobs.keys()) if (!seen.has(key)) this.jobs.delete(key);
        seen = undefined;
      }
      if (ends) this.hasListed = true;
      if (remaining !== undefined) this.remaining = remaining;
      if (lacks !== undefined) this.lacks = lacks;
      const isOther = link !== undefined && link.state !== this.link.state;
      if (link) this.link = withAge(link, this.link);
      this.changed.tell(isOther);
    };
  }
}
