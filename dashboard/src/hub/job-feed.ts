/** One job, for every tab that shows it: from a list that is followed anyway, by a watch, or asked now and then. */

import { resourcePath } from "../api/address";
import { serverNow } from "../api/clock";
import { ApiError, isAbsent, toFault } from "../api/http";
import { getJob, RECORDS } from "../api/requests";
import type { JobDocument, ObjectMeta } from "../api/types";
import { isOlder } from "../api/version";
import { Watch, type Link } from "../api/watch";
import { Feed, type Subscriber } from "./feed";
import type { JobNews, ListFeed } from "./list-feed";
import type { Wish } from "./messages";

export type JobWish = Extract<Wish, { what: "job" }>;
export type Source = ListFeed | "watch" | "poll";

const POLL_MS = 5000; // of a job that is seen
const POLL_UNSEEN_MS = 60_000;

export class JobFeed extends Feed {
  /** Whoever may get the job may not list it. */
  mayWatch: boolean;
  private source: Source | undefined;
  private watch: Watch | undefined;
  private polling: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private document: JobDocument | undefined;
  private deleted: ObjectMeta | undefined; // of the last that has gone, as far as it is known

  constructor(readonly wish: JobWish) {
    super();
    this.mayWatch = wish.ref.plural !== RECORDS; // which do not change
  }

  protected override get isKnown(): boolean {
    return this.document !== undefined || this.deleted !== undefined;
  }

  protected override async check(): Promise<void> {
    try {
      this.take(await getJob(this.wish.address, this.wish.ref), true);
    } catch (error) {
      if (isAbsent(error, this.wish.ref.name)) return this.gone();
      if (error instanceof ApiError && (error.code === 401 || error.code === 403)) this.again(); // which says it
      throw error;
    }
  }

  protected override greet(subscriber: Subscriber): void {
    if (this.document) subscriber.tell({ document: this.document });
    if (this.deleted) subscriber.tell({ isDeleted: true });
    super.greet(subscriber);
  }

  use(source: Source): void {
    if (source === this.source) return;
    const before = this.source;
    this.stop();
    this.source = source;
    if (source === "watch") this.startWatch();
    else void this.poll(source);
    // Until it is answered itself.
    if (before instanceof Feed && (before.link.state === "lost" || before.link.wasAway)) this.say(before.link);
  }

  stop(): void {
    this.polling?.abort();
    clearTimeout(this.timer);
    const watch = this.watch;
    this.watch = undefined; // what it says while it stops is of no interest
    watch?.stop();
    this.source = undefined;
  }

  /** Asks at once, unless it is live; what is asked only now and then is asked in any case. */
  retry(): void {
    if (this.source === "poll" || (this.link.state !== "live" && !this.watch)) this.again();
    else this.watch?.retryNow();
  }

  reopen(): void {
    if (this.watch) return this.watch.reopen();
    if (this.link.state === "live") this.say({ state: "connecting", wasAway: true });
    this.again();
  }

  /** The link as it is now. */
  get current(): Link {
    const { source, link } = this;
    if (link.state !== "live") return link;
    return this.watch?.link ?? (source instanceof Feed ? source.watch.link : link);
  }

  fromList(news: JobNews): void {
    if (!(this.source instanceof Feed) || this.link.state === "refused") return;
    if ("gone" in news) this.gone(news.gone);
    else this.take(news.document);
  }

  private again(): void {
    const { source } = this;
    this.stop();
    if (source) this.use(source);
  }

  private startWatch(): void {
    const { address, ref } = this.wish;
    const watch: Watch = new Watch(
      resourcePath(address, ref.plural, ref.namespace),
      {
        listing: () => undefined,
        page: ([document]) => (document ? this.take(document, true) : this.gone()),
        listed: () => undefined,
        events: (events) => {
          for (const { type, object } of events) {
            if (type === "DELETED") this.gone(object.metadata);
            else this.take(object);
          }
        },
        link: (link) => {
          if (watch !== this.watch) return;
          if (link.state === "refused" && link.error?.code === 403) {
            this.mayWatch = false;
            this.use("poll");
          } else this.say(link);
        },
      },
      `metadata.name=${ref.name}`,
      this.isKnown,
    );
    this.watch = watch;
    watch.start();
  }

  /** Again and again; once when a list brings what follows. */
  private async poll(source: Source): Promise<void> {
    const { address, ref } = this.wish;
    const polling = (this.polling = new AbortController());
    const { signal } = polling;
    let waitMs = this.isSeen && ref.plural !== RECORDS ? POLL_MS : POLL_UNSEEN_MS;
    try {
      this.take(await getJob(address, ref, signal), true);
      this.say(source instanceof Feed ? source.watch.link : { state: "live", asOf: serverNow() });
      if (source instanceof Feed) return;
    } catch (error) {
      if (signal.aborted) return;
      const { asOf } = this.link;
      if (isAbsent(error, ref.name)) {
        this.gone();
        this.say({ state: "live", asOf: serverNow() });
      } else if (error instanceof ApiError && error.code < 500 && ![404, 429].includes(error.code)) {
        return this.say({ state: "refused", asOf, error: toFault(error) });
      } else {
        if (error instanceof ApiError) waitMs = Math.max(waitMs, (error.retryAfterSeconds ?? 0) * 1000);
        this.say({ state: "lost", asOf, error: toFault(error as Error), retryAt: serverNow() + waitMs });
      }
    }
    this.timer = setTimeout(() => void this.poll(source), waitMs);
  }

  /** `isAnswer`: it is of now. What a watch or a list brings may be of before the job was deleted. */
  private take(document: JobDocument, isAnswer = false): void {
    const known = this.document?.metadata;
    const { uid, resourceVersion } = document.metadata;
    // An answer may be older than what a watch has brought meanwhile.
    if (known?.uid === uid && isOlder(resourceVersion, known?.resourceVersion)) return;
    if (this.deleted && this.deleted.uid === uid) {
      if (isOlder(resourceVersion, this.deleted.resourceVersion)) return;
      if (!isAnswer) return void this.check().catch(() => undefined);
    }
    this.document = document;
    this.deleted = undefined;
    this.tell({ document });
  }

  private gone(job: ObjectMeta = {}): void {
    this.deleted = { ...this.document?.metadata, resourceVersion: "", ...job };
    this.tell({ isDeleted: true });
  }
}
