/** One job, kept current: its document by the hub, its curves by history and by what the hub brings. */

import type { Address } from "../api/address";
import { serverNow } from "../api/clock";
import { ApiError } from "../api/http";
import { getHistory, RECORDS, type JobRef } from "../api/requests";
import type { JobDocument } from "../api/types";
import type { Link } from "../api/watch";
import type { HubClient } from "../hub/client";
import type { News } from "../hub/messages";
import { hasEnded, time } from "./job";
import { isStale, withAge } from "./link";
import { Notifier } from "./notifier";
import { fromHistory, NOTHING, withLatest, withUnkept, type Curves } from "./series";

const POINTS = 1000; // of each metric; of all together, so that they are read in a few milliseconds:
const ALL_POINTS = 100_000;
const DRAW_MS = 300;
const AGAIN_MS = 15_000; // between two requests for the history of a job that goes on

export class FollowedJob {
  readonly changed = new Notifier(DRAW_MS);
  document: JobDocument | undefined;
  curves: Curves = NOTHING;
  link: Link = { state: "connecting" };
  isGone = false;
  private goneAt = NaN;
  historyError: Error | undefined;
  hasAskedHistory = false;
  /** When the history was read that is shown, by the server's clock. */
  historyAsOf: number | undefined;
  private leave: (() => void) | undefined;
  private readonly stopping = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private askedAt = 0;
  private isAsking = false;

  constructor(
    private readonly hub: HubClient,
    private readonly address: Address,
    readonly ref: JobRef,
  ) {}

  start(): this {
    const { address, ref } = this;
    this.leave = this.hub.follow({ what: "job", address, ref }, (news) => this.take(news));
    document.addEventListener("visibilitychange", this.seen);
    return this;
  }

  stop(): void {
    this.leave?.();
    this.stopping.abort();
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.seen);
  }

  private readonly seen = () => this.askHistory();

  private take({ document: found, isDeleted, link }: News): void {
    if (link) {
      const wasLive = this.link.state === "live";
      this.link = withAge(link, this.link);
      if (link.state === "live" && !wasLive && this.historyError) this.askHistory();
    }
    if (isDeleted) {
      if (!this.isGone) this.goneAt = serverNow();
      this.isGone = true;
    }
    if (found) {
      const isOther = this.document !== undefined && this.document.metadata.uid !== found.metadata.uid;
      if (isOther) {
        this.curves = NOTHING;
        this.askedAt = 0;
        this.forgetTurn();
      }
      this.document = found;
      this.isGone = false;
      this.curves = withLatest(this.curves, found.status);
      this.askHistory();
    }
    this.changed.tell();
  }

  /** `now` while the link is live; else when it last was, or when the job went. */
  asOf(now: number): number {
    if (this.ref.plural === RECORDS) return time(this.document?.status.endTime);
    if (this.isGone) return this.goneAt;
    const isLive = this.link.state === "live" && !isStale(this.link, now);
    return isLive ? now : (this.link.asOf ?? now);
  }

  private get points(): number {
    const metrics = Math.max(1, this.document?.status.metrics?.length ?? 1);
    return Math.min(POINTS, Math.ceil(ALL_POINTS / metrics));
  }

  /** At most every quarter of a minute, and once more when changes have come meanwhile; not while nobody looks. */
  private askHistory(): void {
    if (this.isAsking || this.stopping.signal.aborted || document.hidden || !this.document) return;
    const wait = this.askedAt + AGAIN_MS - Date.now();
    this.isAsking = true;
    this.timer = setTimeout(() => void this.readHistory(), Math.max(0, Math.min(wait, 10 * AGAIN_MS)));
  }

  /** What waits for its turn need not wait any more. */
  private forgetTurn(): void {
    if (this.timer === undefined) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.isAsking = false;
  }

  private async readHistory(): Promise<void> {
    const { signal } = this.stopping;
    this.timer = undefined;
    if (signal.aborted) return;
    this.askedAt = Date.now();
    let again = false;
    const reported = this.document?.status.metrics?.map(({ name }) => name) ?? [];
    try {
      const history = await getHistory(this.address, this.ref, { maxPoints: this.points }, signal);
      await nextTask(); // to parse it took one, of some 20 ms with 300 metrics
      if (signal.aborted) return;
      if (history.metadata.uid !== this.document?.metadata.uid) {
        this.askedAt = 0;
        throw new Error("It is of another job of this name.");
      }
      const curves = withUnkept(fromHistory(history), this.curves, reported);
      this.curves = this.document ? withLatest(curves, this.document.status) : curves;
      this.historyError = undefined;
      this.historyAsOf = serverNow();
    } catch (error) {
      if (signal.aborted) return;
      this.historyError = error as Error;
      if (error instanceof ApiError && error.code < 500 && error.code !== 429) this.askedAt = Date.now() + 9 * AGAIN_MS;
      again =
        this.askedAt === 0 || !this.document || !hasEnded(this.document.status.phase) || this.historyAsOf === undefined;
    }
    this.isAsking = false;
    this.hasAskedHistory = true;
    if (again) this.askHistory();
    this.changed.tell();
  }
}

const nextTask = () => new Promise((resolve) => setTimeout(resolve));
