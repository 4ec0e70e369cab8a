/** All jobs of one kind in one scope, for every tab that shows the list. */

import { resourcePath } from "../api/address";
import type { JobDocument } from "../api/types";
import { Watch } from "../api/watch";
import { keyOf, toJob, type Job } from "../model/job";
import { Feed, type Subscriber } from "./feed";
import type { JobNews } from "./job-feed";
import type { Wish } from "./messages";

const CHUNK = 250; // jobs a message: a tab takes it over within a few milliseconds
const FLUSH_MS = 100;

export type ListWish = Extract<Wish, { what: "list" }>;

export class ListFeed extends Feed {
  readonly watch: Watch;
  hasListed = false;
  private isFollowed = false;
  private readonly jobs = new Map<string, Job>();
  private seen = new Set<string>(); // of a list that is being read
  private remaining = 0;
  private untold = new Map<string, Job | undefined>(); // undefined has gone
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `changed`: what a list or the watch brings, for those that follow one job of it. `linked`: the link is another. */
  constructor(
    private readonly wish: ListWish,
    private readonly changed: (key: string, news: JobNews) => void,
    linked: () => void,
  ) {
    super();
    this.watch = new Watch(resourcePath(wish.address, wish.plural, wish.namespace), {
      listing: () => (this.seen = new Set()),
      page: (items, remaining) => {
        for (const item of items) {
          const key = this.put(item);
          this.seen.add(key);
          this.changed(key, { document: item });
        }
        this.remaining = remaining;
      },
      listed: () => {
        for (const [key, { uid }] of this.jobs) {
          if (this.seen.has(key)) continue;
          this.drop(key);
          this.changed(key, { gone: { uid } });
        }
        this.remaining = 0;
        this.hasListed = true;
        this.isDue();
      },
      events: (changes) => {
        for (const event of changes) {
          const { namespace = "", name = "" } = event.object.metadata;
          const key = keyOf(wish.plural, namespace, name);
          const isGone = event.type === "DELETED";
          if (isGone) this.drop(key);
          else this.put(event.object);
          this.changed(key, isGone ? { gone: event.object.metadata } : { document: event.object });
        }
      },
      link: (link) => {
        this.say(link);
        linked();
      },
    });
  }

  covers(plural: string, namespace: string): boolean {
    return this.wish.plural === plural && (this.wish.namespace ?? namespace) === namespace;
  }

  protected override get isKnown(): boolean {
    return this.jobs.size > 0 || this.hasListed;
  }

  protected override check(): Promise<void> {
    return this.watch.check();
  }

  protected override greet(subscriber: Subscriber): void {
    const all = [...this.jobs.values()];
    for (let from = 0; from === 0 || from < all.length; from += CHUNK) {
      subscriber.tell({
        jobs: all.slice(from, from + CHUNK),
        begins: from === 0,
        ends: from + CHUNK >= all.length && this.hasListed,
        remaining: this.remaining,
      });
    }
    super.greet(subscriber);
  }

  follow(isWanted: boolean): void {
    if (isWanted === this.isFollowed) return;
    this.isFollowed = isWanted;
    if (isWanted) this.watch.start();
    else this.watch.stop();
  }

  private put(document: JobDocument): string {
    const job = toJob(this.wish.plural, this.wish.kind, document);
    this.jobs.set(job.key, job);
    this.untold.set(job.key, job);
    this.isDue();
    return job.key;
  }

  private drop(key: string): void {
    this.jobs.delete(key);
    this.untold.set(key, undefined);
    this.isDue();
  }

  private isDue(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const changed = [...this.untold];
      this.untold = new Map();
      for (let from = 0; from === 0 || from < changed.length; from += CHUNK) {
        const part = changed.slice(from, from + CHUNK);
        this.tell({
          jobs: part.flatMap(([, job]) => job ?? []),
          gone: part.flatMap(([key, job]) => (job ? [] : [key])),
          ends: this.hasListed,
          remaining: this.remaining,
        });
      }
    }, FLUSH_MS);
  }
}
