/** One job, kept current: its document by a watch of its own, its curves by history and by what the watch brings. */

import { resourcePath, type Address } from "../api/address";
import { ApiError } from "../api/http";
import { getHistory, getJob, type JobRef } from "../api/requests";
import type { JobDocument } from "../api/types";
import { Watch, type Connection } from "../api/watch";
import { Notifier } from "./notifier";
import { fromHistory, NOTHING, withLatest, type Curves } from "./series";

const POINTS = 1000;
const AGAIN_MS = 15_000; // between two requests for the history of a job that goes on
const POLL_MS = 10_000; // for whoever may get the job and not list

export class FollowedJob {
  readonly changed = new Notifier();
  document: JobDocument | undefined;
  curves: Curves = NOTHING;
  connection: Connection = { state: "connecting" };
  isGone = false;
  historyError: Error | undefined;
  hasAskedHistory = false;
  private watch: Watch | undefined;
  private readonly stopping = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private askedAt = 0;
  private isAsking = false;

  constructor(
    private readonly address: Address,
    readonly ref: JobRef,
  ) {}

  start(): this {
    this.follow();
    this.askHistory();
    return this;
  }

  private follow(): void {
    const path = resourcePath(this.address, this.ref.plural, this.ref.namespace);
    this.watch = new Watch(
      path,
      {
        listing: () => undefined,
        page: ([document]) => (document ? this.take(document) : this.gone()),
        listed: () => undefined,
        events: (events) => {
          for (const { type, object } of events) {
            if (type === "DELETED") this.gone();
            else this.take(object);
          }
        },
        connection: (now) => {
          if (now.state === "refused" && now.error.code === 403) void this.poll();
          else this.say(now);
        },
      },
      `metadata.name=${this.ref.name}`,
    ).start();
  }

  stop(): void {
    this.watch?.stop();
    this.stopping.abort();
    clearTimeout(this.timer);
  }

  retryNow(): void {
    if (this.connection.state === "refused") {
      this.watch?.stop();
      clearTimeout(this.timer);
      this.follow();
    } else this.watch?.retryNow();
  }

  private take(document: JobDocument): void {
    const isOther = this.document !== undefined && this.document.metadata.uid !== document.metadata.uid;
    if (isOther) this.curves = NOTHING;
    this.document = document;
    this.isGone = false;
    this.curves = withLatest(this.curves, document.status);
    this.changed.tell();
    if (isOther) this.askedAt = 0;
    this.askHistory();
  }

  private gone(): void {
    this.isGone = true;
    this.changed.tell();
  }

  private say(connection: Connection): void {
    this.connection = connection;
    this.changed.tell();
  }

  /** Without the right to list there is no watch: the document is asked for again and again. */
  private async poll(): Promise<void> {
    const { signal } = this.stopping;
    try {
      this.take(await getJob(this.address, this.ref, signal));
      this.say({ state: "live" });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.code === 404) this.gone();
      else if (error instanceof ApiError && error.code < 500)
        return this.say({ state: "refused", error, hasBeenLive: this.document !== undefined });
      else this.say({ state: "lost", since: Date.now(), error: error as Error, retryAt: Date.now() + POLL_MS });
    }
    this.timer = setTimeout(() => void this.poll(), POLL_MS);
  }

  /** At most every quarter of a minute, and once more when changes have come meanwhile. */
  private askHistory(): void {
    if (this.isAsking || this.stopping.signal.aborted) return;
    const wait = this.askedAt + AGAIN_MS - Date.now();
    this.isAsking = true;
    setTimeout(() => void this.readHistory(), Math.max(0, wait));
  }

  private async readHistory(): Promise<void> {
    const { signal } = this.stopping;
    if (signal.aborted) return;
    this.askedAt = Date.now();
    try {
      const history = await getHistory(this.address, this.ref, { maxPoints: POINTS }, signal);
      const curves = fromHistory(history);
      this.curves = this.document ? withLatest(curves, this.document.status) : curves;
      this.historyError = undefined;
    } catch (error) {
      if (signal.aborted) return;
      this.historyError = error as Error;
      if (error instanceof ApiError && error.code < 500) this.askedAt = Date.now() + 10 * AGAIN_MS;
    }
    this.isAsking = false;
    this.hasAskedHistory = true;
    this.changed.tell();
  }
}
