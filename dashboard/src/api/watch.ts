/** One collection, listed page by page and then followed by a watch, until it is stopped.
 *
 * A watch that ends goes on from its last version; one whose version the server no longer knows (410), and one that
 * does not know it for another reason, is listed anew. A stream that falls silent is taken for dead: the server ends
 * a watch by itself at `timeoutSeconds`, so nothing may take much longer.
 */

import { withQuery } from "./address";
import { Backoff, pause } from "./backoff";
import { ApiError, ConnectionLost, getJson, request, statusError } from "./http";
import { LineSplitter } from "./lines";
import type { DocumentList, JobDocument, WatchEvent } from "./types";

const FIRST_ITEMS = 150; // seen soon
const PAGE_ITEMS = 500; // about a megabyte: parsed well within a frame or two
const WATCH_S = 240;
const SILENCE_MS = (WATCH_S + 30) * 1000;
const SHORTEST_MS = 1000; // a watch that ends sooner is a fault

export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "lost"; since: number; error: Error; retryAt: number }
  | { state: "refused"; error: ApiError; hasBeenLive: boolean };

export interface Follower {
  /** A list begins: what is not in it when it ends is gone. */
  listing(): void;
  page(items: JobDocument[], remaining: number): void;
  listed(): void;
  events(events: WatchEvent[]): void;
  connection(now: Connection): void;
}

export class Watch {
  private readonly stopping = new AbortController();
  private readonly backoff = new Backoff();
  private version: string | undefined;
  private lostSince: number | undefined;
  private hasBeenLive = false;
  private wake = new AbortController(); // ends the wait between two tries

  constructor(
    private readonly path: string,
    private readonly follower: Follower,
    private readonly selector?: string,
  ) {}

  start(): this {
    void this.run();
    return this;
  }

  stop(): void {
    this.stopping.abort();
    this.wake.abort();
  }

  retryNow(): void {
    this.wake.abort();
  }

  private async run(): Promise<void> {
    const signal = this.stopping.signal;
    while (!signal.aborted) {
      const began = Date.now();
      try {
        if (this.version === undefined) await this.list(signal);
        await this.watch(signal);
        if (Date.now() - began < SHORTEST_MS) throw new ConnectionLost("The server ends each watch at once.");
      } catch (error) {
        if (signal.aborted) return;
        if (!this.survives(error as Error)) return;
        await this.wait(error as Error);
      }
    }
  }

  private async list(signal: AbortSignal): Promise<void> {
    this.follower.listing();
    let token: string | undefined;
    let version: string | undefined;
    do {
      const query = { limit: token ? PAGE_ITEMS : FIRST_ITEMS, continue: token, fieldSelector: this.selector };
      const page = await getJson<DocumentList>(withQuery(this.path, query), signal);
      if (signal.aborted) return;
      token = page.metadata.continue || undefined;
      version = page.metadata.resourceVersion;
      this.follower.page(page.items, token ? (page.metadata.remainingItemCount ?? 0) : 0);
    } while (token);
    this.version = version;
    this.follower.listed();
  }

  private async watch(signal: AbortSignal): Promise<void> {
    const silence = new AbortController();
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
      this.isLive();
      const reader = answer.body?.getReader();
      if (!reader) return;
      const lines = new LineSplitter();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        this.backoff.reset();
        this.take(lines.push(value).map((line) => JSON.parse(line) as WatchEvent));
      }
    } catch (error) {
      if (error instanceof ApiError || signal.aborted) throw error;
      throw new ConnectionLost("The connection to the server was lost.", { cause: error });
    } finally {
      clearTimeout(timer);
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

  private isLive(): void {
    this.hasBeenLive = true;
    this.lostSince = undefined;
    this.follower.connection({ state: "live" });
  }

  /** Whether to try again: not where the viewer has no right, or the server no such resource. */
  private survives(error: Error): boolean {
    if (!(error instanceof ApiError)) return true;
    if (error.code === 401 || error.code === 403 || ([404, 405].includes(error.code) && !this.hasBeenLive)) {
      this.follower.connection({ state: "refused", error, hasBeenLive: this.hasBeenLive });
      return false;
    }
    // 410: too old. 400: of another server, which cannot have given this version. Both are healed by a new list.
    if (error.code === 410 || error.code === 400) this.version = undefined;
    return true;
  }

  private async wait(error: Error): Promise<void> {
    const isExpired = error instanceof ApiError && error.code === 410;
    const asked = error instanceof ApiError ? (error.retryAfterSeconds ?? 0) * 1000 : 0;
    const ms = Math.max(Math.min(asked, 30_000), this.backoff.nextMs());
    if (!isExpired || this.lostSince !== undefined) {
      this.lostSince ??= Date.now();
      this.follower.connection({ state: "lost", since: this.lostSince, error, retryAt: Date.now() + ms });
    }
    this.wake = new AbortController();
    await pause(ms, AbortSignal.any([this.stopping.signal, this.wake.signal]));
  }
}
