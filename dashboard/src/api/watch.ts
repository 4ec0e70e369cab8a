/** One collection, listed page by page and then followed by a watch, until it is stopped.
 *
 * A watch that ends goes on from its last version. It is listed anew when the server no longer knows that version
 * (410), when it may be another server, since nothing answered meanwhile, when the viewer may read other kinds than
 * those that were listed, after a pause or a sleep, since a watch would tell what was meanwhile as if it were now,
 * and after a silence: the server writes a bookmark each minute, so a stream that is silent for longer is dead, or a
 * proxy holds it back.
 */

import { withQuery } from "./address";
import { Backoff, pause } from "./backoff";
import { hasSlept, serverNow } from "./clock";
import {
  ApiError,
  ConnectionLost,
  getJsonOf,
  kindsOf,
  NobodyAnswers,
  request,
  statusError,
  toFault,
  type Fault,
} from "./http";
import { LineSplitter } from "./lines";
import type { DocumentList, JobDocument, WatchEvent } from "./types";

const FIRST_ITEMS = 150; // seen soon
const PAGE_ITEMS = 500; // about a megabyte: parsed well within a frame or two
const WATCH_S = 240;
export const SILENCE_MS = 75_000;
const SHORTEST_MS = 1000; // a watch that ends sooner is a fault
const SETTLING_MS = 1000; // a server says sooner that it does not know a version: with 200, and then with an event
const MOST_ASKED_MS = 600_000; // to come again after
const RELIST_MS = 30_000; // for whoever may list and not watch
const PAUSE_MS = 20_000;

/** Whether what is shown is current. `asOf`: when it last was, by the server's clock; absent when it never was. */
export interface Link {
  readonly state: "connecting" | "live" | "paused" | "lost" | "refused";
  readonly asOf?: number | undefined;
  readonly error?: Fault;
  /** When the next try is, by the server's clock. */
  readonly retryAt?: number;
  /** The page was away, and has no answer since. */
  readonly wasAway?: boolean;
}

/** The viewer may read other kinds now than those that were listed. */
class OtherKinds extends Error {}

export interface Follower {
  /** A list begins: what is not in it when it ends is gone. */
  listing(): void;
  page(items: JobDocument[], remaining: number): void;
  listed(): void;
  events(events: WatchEvent[]): void;
  link(now: Link): void;
}

export class Watch {
  private running: AbortController | undefined; // undefined while it is stopped, or refused
  private trying = new AbortController(); // one list or watch
  private waiting = new AbortController(); // between two tries
  private readonly backoff = new Backoff();
  private version: string | undefined;
  private state: Link["state"] = "connecting";
  /** Which the viewer could read when they were listed; null where the list is of one kind. */
  private kinds: string | null = null;
  private asOf: number | undefined;

  constructor(
    private readonly path: string,
    private readonly follower: Follower,
    private readonly selector?: string,
    /** Whether the server has answered before: then it has the resource, whatever a 404 says. */
    private hasBeenLive = false,
  ) {}

  /** Also again after stop(): then it goes on from where it was. */
  start(): this {
    if (this.running) return this;
    this.running = new AbortController();
    if (this.state !== "refused") this.sayConnecting(); // what is refused is, until there is another answer
    void this.run(this.running.signal);
    return this;
  }

  stop(): void {
    if (!this.running) return;
    this.running.abort();
    this.running = undefined;
    this.say("paused");
  }

  /** Whether who views now may read what was listed: throws what the server answers. One who may not is refused all
   * of it; for one who may read other kinds it is listed anew, which ends in a link that is live. */
  async check(): Promise<void> {
    const running = this.running?.signal;
    try {
      const { kinds } = await getJsonOf(withQuery(this.path, { limit: 1, fieldSelector: this.selector }), running);
      if (kinds === this.kinds) return;
      this.version = undefined;
      this.reopen();
      throw new OtherKinds();
    } catch (error) {
      if (running?.aborted === false && error instanceof ApiError && !this.survives(error)) this.trying.abort();
      throw error;
    }
  }

  retryNow(): void {
    if (this.state === "refused") return void this.start();
    if (this.state === "lost") this.trying.abort(); // it may hang
    this.waiting.abort();
  }

  /** Whether what it lists contains jobs of this resource, as far as that is known. */
  has(plural: string): boolean {
    return this.kinds === null || this.kinds.split(",").includes(plural);
  }

  /** Asks again at once, whatever the connection seems to be: after a sleep it may be dead. */
  reopen(): void {
    if (!this.running) return;
    this.sayConnecting();
    this.trying.abort();
    this.waiting.abort();
  }

  private get isOfBefore(): boolean {
    return this.asOf !== undefined && serverNow() - this.asOf > PAUSE_MS;
  }

  private sayConnecting(): void {
    this.say("connecting", this.isOfBefore ? { wasAway: true } : {});
  }

  /** The link as it is now: while it is live, `asOf` moves on with what comes. */
  get link(): Link {
    return { state: this.state, asOf: this.asOf };
  }

  private async run(running: AbortSignal): Promise<void> {
    while (!running.aborted) {
      const began = Date.now();
      let hasListed = false;
      const trying = (this.trying = new AbortController());
      const signal = AbortSignal.any([running, trying.signal]);
      try {
        if (this.isOfBefore) this.version = undefined;
        if (this.version === undefined) {
          await this.list(signal);
          hasListed = true;
        }
        await this.watch(signal, hasListed || this.state === "live");
        if (Date.now() - began < SHORTEST_MS) throw new ConnectionLost("The server ends each watch at once.");
      } catch (error) {
        if (running.aborted || this.running?.signal !== running) return;
        if (trying.signal.aborted) continue;
        if (this.version !== undefined && error instanceof ApiError && error.code === 403) {
          this.version = undefined; // a list tells whether that right is still there
          if (hasListed) await this.pauseListed(running);
          continue;
        }
        if (!this.survives(error as Error)) return;
        await this.wait(error as Error, running);
      }
    }
  }

  private async list(signal: AbortSignal): Promise<void> {
    this.follower.listing();
    let token: string | undefined;
    let version: string | undefined;
    do {
      const query = { limit: token ? PAGE_ITEMS : FIRST_ITEMS, continue: token, fieldSelector: this.selector };
      const { value: page, kinds } = await getJsonOf<DocumentList>(withQuery(this.path, query), signal);
      signal.throwIfAborted();
      if (token !== undefined && kinds !== this.kinds) throw new OtherKinds();
      this.kinds = kinds;
      if (!Array.isArray(page.items)) throw new ConnectionLost("The answer is no list of jobs.");
      token = page.metadata.continue || undefined;
      version = page.metadata.resourceVersion;
      this.follower.page(page.items, token ? (page.metadata.remainingItemCount ?? 0) : 0);
    } while (token);
    this.version = version;
    this.asOf = serverNow();
    this.follower.listed();
  }

  /** Of one who may list and not watch: what was listed counts for a while. */
  private async pauseListed(running: AbortSignal): Promise<void> {
    this.hasBeenLive = true;
    this.backoff.reset();
    this.say("live");
    this.waiting = new AbortController();
    await pause(RELIST_MS, AbortSignal.any([running, this.waiting.signal]));
  }

  /** `isSettled`: the server knows the version, and what is shown is of now. */
  private async watch(signal: AbortSignal, isSettled: boolean): Promise<void> {
    const silence = new AbortController();
    let settling: ReturnType<typeof setTimeout> | undefined;
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    const either = AbortSignal.any([signal, silence.signal]);
    try {
      const query = {
        watch: 1,
        allowWatchBookmarks: "true",
        resourceVersion: this.version,
        timeoutSeconds: WATCH_S,
        fieldSelector: this.selector,
      };
      const answer = await request(withQuery(this.path, query), "application/json", either);
      if (kindsOf(answer) !== this.kinds) throw new OtherKinds();
      this.hasBeenLive = true;
      if (isSettled) this.say("live");
      else settling = setTimeout(() => this.say("live"), SETTLING_MS);
      const reader = answer.body?.getReader();
      if (!reader) return;
      const lines = new LineSplitter();
      for (;;) {
        const { done, value } = await reader.read();
        if (hasSlept()) {
          this.reopen(); // this may be of before, and what follows too
          signal.throwIfAborted();
        }
        if (done) return void (this.asOf = serverNow());
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        this.backoff.reset();
        this.take(lines.push(value).map((line) => JSON.parse(line) as WatchEvent));
        this.asOf = serverNow();
        if (this.state !== "live") this.say("live");
      }
    } catch (error) {
      if (error instanceof ApiError || error instanceof NobodyAnswers || signal.aborted) throw error;
      if (error instanceof OtherKinds) throw error;
      if (silence.signal.aborted) this.version = undefined;
      const why = silence.signal.aborted
        ? `Nothing has come for ${SILENCE_MS / 1000} s.`
        : "The connection to the server was lost.";
      throw new ConnectionLost(why, { cause: error });
    } finally {
      clearTimeout(timer);
      clearTimeout(settling);
      silence.abort(); // ends the request, if it has not ended
    }
  }

  private take(events: WatchEvent[]): void {
    const changes: WatchEvent[] = [];
    for (const event of events) {
      if (event.type === "ERROR") {
        if (changes.length) this.follower.events(changes);
        throw statusError(event.object);
      }
      this.version = event.object.metadata.resourceVersion ?? this.version;
      if (event.type !== "BOOKMARK") changes.push(event);
    }
    if (changes.length) this.follower.events(changes);
  }

  private say(state: Link["state"], more: Pick<Link, "error" | "retryAt" | "wasAway"> = {}): void {
    this.state = state;
    if (state === "live") this.asOf = serverNow();
    this.follower.link({ state, asOf: this.asOf, ...more });
  }

  /** Whether to try again: not where the viewer has no right, or the server no such resource. */
  private survives(error: Error): boolean {
    if (error instanceof NobodyAnswers || error instanceof OtherKinds) this.version = undefined;
    if (!(error instanceof ApiError)) return true;
    if (error.code === 401 || error.code === 403 || ([404, 405].includes(error.code) && !this.hasBeenLive)) {
      this.running = undefined;
      this.say("refused", { error: toFault(error) });
      return false;
    }
    // 410: too old. 400: of another server, which cannot have given this version. Both are healed by a new list.
    if (error.code === 410 || error.code === 400) this.version = undefined;
    return true;
  }

  private async wait(error: Error, running: AbortSignal): Promise<void> {
    const isExpired = error instanceof OtherKinds || (error instanceof ApiError && error.code === 410);
    const asked = error instanceof ApiError ? (error.retryAfterSeconds ?? 0) * 1000 : 0;
    const ms = Math.max(Math.min(asked, MOST_ASKED_MS), this.backoff.nextMs());
    if (!isExpired || this.state === "lost") {
      this.say("lost", { error: toFault(error), retryAt: serverNow() + ms });
    }
    this.waiting = new AbortController();
    await pause(ms, AbortSignal.any([running, this.waiting.signal]));
  }
}
