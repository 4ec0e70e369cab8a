/** All jobs of the page's scope, kept current; tells its readers at most once a frame.
 *
 * A job that has not changed keeps its object, so that its row need not be drawn again.
 */

import { resourcePath, type Address } from "../api/address";
import type { ResourceKind } from "../api/requests";
import type { JobDocument, WatchEvent } from "../api/types";
import { Watch, type Connection, type Follower } from "../api/watch";
import { keyOf, toJob, type Job } from "./job";
import { Notifier } from "./notifier";

export class Fleet {
  readonly jobs = new Map<string, Job>();
  readonly changed = new Notifier();
  /** Of each kind that is followed. */
  readonly connections = new Map<string, Connection>();
  /** Jobs that a list which is still being read has left to come. */
  remaining = 0;
  hasListed = false;
  private watches: Watch[] = [];

  constructor(
    private readonly address: Address,
    private readonly kinds: readonly ResourceKind[],
    private readonly namespace: string | undefined,
  ) {}

  get isFollowing(): boolean {
    return this.watches.length > 0;
  }

  start(): void {
    if (this.isFollowing) return;
    this.watches = this.kinds.map(({ plural, kind }) => {
      const path = resourcePath(this.address, plural, this.namespace);
      this.connections.set(plural, { state: "connecting" });
      return new Watch(path, this.follower(plural, kind)).start();
    });
  }

  stop(): void {
    for (const watch of this.watches) watch.stop();
    this.watches = [];
  }

  retryNow(): void {
    if ([...this.connections.values()].some(({ state }) => state === "refused")) {
      this.stop();
      this.start();
    }
    for (const watch of this.watches) watch.retryNow();
    this.changed.tell();
  }

  private follower(plural: string, kind: string): Follower {
    let seen = new Set<string>();
    return {
      listing: () => {
        seen = new Set();
      },
      page: (items, remaining) => {
        for (const item of items) seen.add(this.put(plural, kind, item));
        this.remaining = remaining;
        this.changed.tell();
      },
      listed: () => {
        for (const [key, job] of this.jobs) if (job.plural === plural && !seen.has(key)) this.jobs.delete(key);
        this.remaining = 0;
        this.hasListed = true;
        this.changed.tell();
      },
      events: (events) => {
        for (const event of events) this.apply(plural, kind, event);
        this.changed.tell();
      },
      connection: (now) => {
        this.connections.set(plural, now);
        this.changed.tell();
      },
    };
  }

  private apply(plural: string, kind: string, { type, object }: WatchEvent): void {
    if (type !== "DELETED") {
      this.put(plural, kind, object);
      return;
    }
    this.jobs.delete(keyOf(plural, object.metadata.namespace ?? "", object.metadata.name ?? ""));
  }

  private put(plural: string, kind: string, document: JobDocument): string {
    const job = toJob(plural, kind, document);
    this.jobs.set(job.key, job);
    return job.key;
  }
}

/** The worst of them: one that is lost or refused is said, whatever the others are. */
export function overall(connections: Iterable<Connection>): Connection {
  const rank = { refused: 3, lost: 2, connecting: 1, live: 0 };
  let worst: Connection = { state: "live" };
  for (const one of connections) if (rank[one.state] > rank[worst.state]) worst = one;
  return worst;
}
