/** All jobs in one scope, for every tab that shows the list. */

import { resourcePath, withQuery } from "../api/address";
import { getJson } from "../api/http";
import type { JobDocument, ObjectMeta } from "../api/types";
import { Watch } from "../api/watch";
import { keyOf, toJob, type Job } from "../model/job";
import { Feed, type Subscriber } from "./feed";
import type { Wish } from "./messages";

const CHUNK = 250; // jobs a message: a tab takes it over within a few milliseconds
const FLUSH_MS = 100;

const ALL = "trainingjobs";
const TRAINJOBS = "trainjobs"; // where the server has no list of all kinds, or the viewer no right to it

export type ListWish = Extract<Wish, { what: "list" }>;

/** What a list tells of one job. */
export type JobNews = { readonly document: JobDocument } | { readonly gone: ObjectMeta };

export class ListFeed extends Feed {
  watch: Watch;
  hasListed = false;
  private isFollowed = false;
  /** Why only TrainJobs are listed; "" where that needs no word. */
  private lacks: string | undefined;
  private readonly jobs = new Map<string, Job>();
  private seen = new Set<string>(); // of a list that is being read
  private remaining = 0;
  private untold = new Map<string, Job | undefined>(); // undefined has gone
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `changed`: what a list or the watch brings, for those that follow one job of it. `linked`: the link is another. */
  constructor(
    private readonly wish: ListWish,
    private readonly changed: (key: string, news: JobNews) => void,
    private readonly linked: () => void,
  ) {
    super();
    this.watch = this.watchOf(ALL);
  }

  private watchOf(plural: string): Watch {
    const keyOfItem = (item: JobDocument) => {
      const { plural: own, document } = unwrapped(item, plural);
      return { key: keyOf(own, document.metadata.namespace ?? "", document.metadata.name ?? ""), own, document };
    };
    const watch: Watch = new Watch(resourcePath(this.wish.address, plural, this.wish.namespace), {
      listing: () => (this.seen = new Set()),
      page: (items, remaining) => {
        for (const item of items) {
          const { key, own, document } = keyOfItem(item);
          this.seen.add(key);
          this.put(own, document);
          this.changed(key, { document });
        }
        this.remaining = remaining;
      },
      listed: () => {
        for (const [key, { uid, plural: own }] of this.jobs) {
          if (this.seen.has(key)) continue;
          this.drop(key);
          // What the viewer may not list any more need not be gone.
          if (plural === ALL ? watch.has(own) : own === plural) this.changed(key, { gone: { uid } });
        }
        this.remaining = 0;
        this.hasListed = true;
        this.tell({ lacks: this.lacks ?? "" });
        this.isDue();
      },
      events: (changes) => {
        for (const event of changes) {
          const { key, own, document } = keyOfItem(event.object);
          const isGone = event.type === "DELETED";
          if (isGone) this.drop(key);
          else this.put(own, document);
          this.changed(key, isGone ? { gone: document.metadata } : { document });
        }
      },
      link: (link) => {
        if (watch !== this.watch) return;
        const code = link.state === "refused" ? link.error?.code : undefined;
        if (plural === ALL && (code === 403 || code === 404 || code === 405)) {
          this.lacks = code === 403 ? link.error?.message : "";
          return this.go(TRAINJOBS);
        }
        if (link.state === "live") this.flush(); // before it is told that what is shown is current
        // Of one who may list neither, both are told.
        const { error } = link;
        const told = link.state === "refused" && error && this.lacks?.replace(/\.?$/, ". ");
        this.say(told ? { ...link, error: { ...error, message: told + error.message } } : link);
        this.linked();
      },
    });
    return watch;
  }

  /** Follows another resource from now on; what it has not goes when it is listed. */
  private go(plural: string): void {
    const old = this.watch;
    this.watch = this.watchOf(plural);
    old.stop();
    if (this.isFollowed) this.watch.start();
  }

  /** After a refusal all kinds are asked for again. */
  retry(): void {
    if (this.link.state === "refused" && this.lacks !== undefined) this.goAll();
    else this.watch.retryNow();
  }

  /** Asks for all kinds again, where only TrainJobs are listed: the refusal may have been of a moment. */
  async regain(): Promise<void> {
    if (this.lacks === undefined || this.link.state !== "live") return;
    const path = resourcePath(this.wish.address, ALL, this.wish.namespace);
    await getJson(withQuery(path, { limit: 1 })).then(
      () => this.goAll(),
      () => undefined, // refused still
    );
  }

  private goAll(): void {
    this.lacks = undefined;
    this.go(ALL);
  }

  /** Whether it is live and has the job: it may lack kinds that the viewer may get but not list. */
  covers(key: string): boolean {
    return this.link.state === "live" && this.hasListed && this.jobs.has(key);
  }

  protected override get isKnown(): boolean {
    return this.jobs.size > 0 || this.hasListed;
  }

  protected override check(): Promise<void> {
    if (this.lacks === undefined) return this.watch.check();
    const path = resourcePath(this.wish.address, ALL, this.wish.namespace);
    return getJson(withQuery(path, { limit: 1 })).then(
      () => this.goAll(), // the right has been given since
      () => this.watch.check(),
    );
  }

  protected override greet(subscriber: Subscriber): void {
    const all = [...this.jobs.values()];
    for (let from = 0; from === 0 || from < all.length; from += CHUNK) {
      subscriber.tell({
        jobs: all.slice(from, from + CHUNK),
        begins: from === 0,
        ends: from + CHUNK >= all.length && this.hasListed,
        remaining: this.remaining,
        lacks: this.lacks ?? "",
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

  private put(plural: string, document: JobDocument): void {
    const job = toJob(plural, document);
    this.jobs.set(job.key, job);
    this.untold.set(job.key, job);
    this.isDue();
  }

  private drop(key: string): void {
    this.jobs.delete(key);
    this.untold.set(key, undefined);
    this.isDue();
  }

  private isDue(): void {
    this.timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  private flush(): void {
    if (this.timer === undefined) return;
    clearTimeout(this.timer);
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
  }
}

/** An item as the document of its kind, with the resource of that. */
function unwrapped(item: JobDocument, plural: string): { plural: string; document: JobDocument } {
  const { jobRef, ...document } = item;
  if (!jobRef) return { plural, document };
  const metadata = { ...document.metadata, name: jobRef.name };
  return { plural: jobRef.resource, document: { ...document, kind: jobRef.kind, metadata } };
}
