/** What all tabs of a browser follow, with as few connections as there can be: a browser opens six to a host.
 *
 * A list is watched once, however many tabs show it. A job comes from that list; else the first two that are seen are
 * watched, and others are asked every few seconds. What no tab shows any more is not followed.
 */

import { beat, clockAheadMs, hasSlept } from "../api/clock";
import { keyOf } from "../model/job";
import type { Feed, Subscriber } from "./feed";
import { JobFeed } from "./job-feed";
import { ListFeed, type JobNews } from "./list-feed";
import type { FromHub, News, ToHub, Wish } from "./messages";

const TICK_MS = 5000;
const BEAT_TICKS = 2;
const REFUSED_TICKS = 12; // a login or a right may come back
const FORGOTTEN_MS = 180_000; // a tab that has not answered for so long has crashed, or is frozen
const MOST_WATCHED = 2;

interface Tab {
  isSeen: boolean;
  hiddenAt: number;
  keeps: boolean;
  heardAt: number;
  isForgotten: boolean;
  readonly post: (message: FromHub) => void;
  readonly follows: Map<number, { feed: Feed; subscriber: Subscriber }>;
}

export class Hub {
  private readonly lists = new Map<string, ListFeed>();
  private readonly jobs = new Map<string, JobFeed>();
  private readonly tabs = new Set<Tab>();
  private ticks = 0;

  /** `hiddenMs`: for how long the list of a tab that is hidden is still followed. */
  constructor(private readonly hiddenMs: number) {
    setInterval(() => this.tick(), TICK_MS);
  }

  /** What comes from a tab is given to what is returned. */
  connect(post: (message: FromHub) => void): (message: ToHub) => void {
    const now = Date.now();
    const tab: Tab = {
      isSeen: true,
      hiddenAt: now,
      keeps: false,
      heardAt: now,
      isForgotten: false,
      post,
      follows: new Map(),
    };
    this.tabs.add(tab);
    return (message) => this.take(tab, message);
  }

  private take(tab: Tab, message: ToHub): void {
    tab.heardAt = Date.now();
    if (tab.isForgotten && message.do !== "close") {
      tab.isForgotten = false;
      this.tabs.add(tab);
      tab.post({ isForgotten: true });
    }
    if (message.do === "follow") this.follow(tab, message.id, message.wish);
    else if (message.do === "leave") this.leave(tab, message.id);
    else if (message.do === "see") {
      if (tab.isSeen && !message.isSeen) tab.hiddenAt = Date.now();
      Object.assign(tab, { isSeen: message.isSeen, keeps: message.keeps });
    } else if (message.do === "close") this.forget(tab);
    this.arrange();
    if (message.do === "retry" || (message.do === "see" && message.isSeen)) this.retry(tab);
  }

  private follow(tab: Tab, id: number, wish: Wish): void {
    this.leave(tab, id);
    const feed = wish.what === "list" ? this.list(wish) : this.job(wish);
    const subscriber = { tab, tell: (news: Omit<News, "id">) => tab.post({ id, ...news, aheadMs: clockAheadMs() }) };
    tab.follows.set(id, { feed, subscriber });
    feed.add(subscriber);
    if (feed.link.state === "refused" || feed.link.state === "lost") retry(feed);
  }

  private list(wish: Extract<Wish, { what: "list" }>): ListFeed {
    const key = `${wish.address.base} ${wish.namespace ?? ""}`;
    const found =
      this.lists.get(key) ??
      new ListFeed(
        wish,
        (job, news) => this.toJob(wish.address.base, job, news),
        () => queueMicrotask(() => this.arrange()),
      );
    this.lists.set(key, found);
    return found;
  }

  private job(wish: Extract<Wish, { what: "job" }>): JobFeed {
    const { plural, namespace, name } = wish.ref;
    const key = `${wish.address.base} ${keyOf(plural, namespace, name)}`;
    const found = this.jobs.get(key) ?? new JobFeed(wish);
    this.jobs.set(key, found);
    return found;
  }

  private toJob(base: string, key: string, news: JobNews): void {
    this.jobs.get(`${base} ${key}`)?.fromList(news);
  }

  private leave(tab: Tab, id: number): void {
    const found = tab.follows.get(id);
    if (found) found.feed.remove(found.subscriber);
    tab.follows.delete(id);
  }

  private forget(tab: Tab): void {
    for (const id of [...tab.follows.keys()]) this.leave(tab, id);
    tab.isForgotten = true;
    this.tabs.delete(tab);
  }

  /** Follows what is wanted now, and stops what is not. */
  private arrange(): void {
    const now = Date.now();
    for (const [key, list] of this.lists) {
      if (list.subscribers.size === 0) this.lists.delete(key); // and it is stopped, since nobody wants it
      const isWanted = [...list.subscribers].some(
        ({ tab }) => tab.isSeen || tab.keeps || now - tab.hiddenAt < this.hiddenMs,
      );
      list.follow(isWanted);
    }
    let places = MOST_WATCHED;
    for (const [key, job] of this.jobs) {
      if (job.subscribers.size === 0) {
        job.stop();
        this.jobs.delete(key);
        continue;
      }
      const { base } = job.wish.address;
      const { plural, namespace, name } = job.wish.ref;
      const list = [...this.lists].find(
        ([of, one]) => of.startsWith(`${base} `) && one.covers(keyOf(plural, namespace, name)),
      );
      job.use(list?.[1] ?? (job.mayWatch && job.isSeen && places-- > 0 ? "watch" : "poll"));
    }
  }

  private retry(tab: Tab): void {
    for (const { feed } of tab.follows.values()) retry(feed);
  }

  private tick(): void {
    const now = Date.now();
    const isAwake = hasSlept();
    beat();
    if (isAwake) {
      for (const list of this.lists.values()) list.watch.reopen();
      for (const job of this.jobs.values()) job.reopen();
      this.ticks = 0; // and the tabs are told soon what the server's answer has told of the clock
    }
    if (this.ticks++ % BEAT_TICKS === 0) this.beat(now, isAwake);
    for (const feed of [...this.lists.values(), ...this.jobs.values()]) {
      if (feed.link.state === "live") void feed.prove();
      if (!feed.isSeen || this.ticks % REFUSED_TICKS !== 0) continue;
      if (feed.link.state === "refused") retry(feed);
      else if (feed instanceof ListFeed) void feed.regain();
    }
    this.arrange();
  }

  /** Tells each tab how old what it shows is. */
  private beat(now: number, isAwake: boolean): void {
    for (const tab of [...this.tabs]) {
      if (isAwake) tab.heardAt = now;
      if (now - tab.heardAt > FORGOTTEN_MS) this.forget(tab);
      else tab.post({ isAlive: true, aheadMs: clockAheadMs() });
    }
    for (const list of this.lists.values()) if (list.link.state === "live") list.say(list.watch.link);
    for (const job of this.jobs.values()) if (job.link.state === "live") job.say(job.current);
  }
}

function retry(feed: Feed): void {
  if (feed instanceof ListFeed || feed instanceof JobFeed) feed.retry();
}
