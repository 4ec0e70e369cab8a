/** The curves beside the rows: asked only for rows in view, a few at a time, and kept for rows that come back.
 *
 * Between two requests the watch continues a curve.
 */

import type { Address } from "../api/address";
import { BoundedQueue } from "../api/queue";
import { getHistory } from "../api/requests";
import { toNumber } from "./series";
import { time, type Job } from "./job";
import type { AttemptTimes } from "./timeline";
import { Notifier } from "./notifier";

const POINTS = 80;
const PARALLEL = 3; // of six connections that a browser opens; the watch has one
const KEPT = 600;
const AGAIN_MS = 60_000;

export interface SparkData {
  /** Of the job: another one may have its name. */
  readonly uid: string;
  readonly metric: string;
  readonly xs: readonly number[];
  readonly ys: readonly number[];
  readonly askedAt: number;
  readonly attempts: readonly AttemptTimes[];
}

export class Sparks {
  readonly changed = new Notifier();
  private readonly known = new Map<string, SparkData>(); // the oldest first
  private readonly asking = new Set<string>();
  private readonly queue = new BoundedQueue(PARALLEL);
  private inView = new Set<string>();

  constructor(private readonly address: Address) {}

  /** Rows that are seen now; asks for what is not known of them. */
  show(jobs: readonly Job[]): void {
    this.inView = new Set(jobs.map((job) => job.key));
    for (const job of [...jobs].reverse()) {
      this.follow(job);
      if (job.metric && this.isOld(job)) this.ask(job);
    }
  }

  of(job: Job): SparkData | undefined {
    const found = this.known.get(job.key);
    return found && found.uid === job.uid && found.metric === job.metric?.name ? found : undefined;
  }

  private isOld(job: Job): boolean {
    if (this.asking.has(job.key)) return false;
    const found = this.of(job);
    if (!found || found.askedAt === 0) return true;
    return Date.now() - found.askedAt > AGAIN_MS && job.updated / 1000 > (found.xs.at(-1) ?? 0);
  }

  /** Continues what is known with the job's own last report. */
  private follow(job: Job): void {
    if (!job.metric || Number.isNaN(job.updated)) return;
    const found = this.of(job);
    const [x, y] = [job.updated / 1000, toNumber(job.metric.value)];
    if (found && x <= (found.xs.at(-1) ?? -Infinity)) return;
    this.keep(job, {
      uid: job.uid,
      metric: job.metric.name,
      xs: [...(found?.xs ?? []), x].slice(-2 * POINTS),
      ys: [...(found?.ys ?? []), y].slice(-2 * POINTS),
      askedAt: found?.askedAt ?? 0,
      attempts: found?.attempts ?? [],
    });
  }

  private ask(job: Job): void {
    const metric = job.metric?.name ?? "";
    this.asking.add(job.key);
    let isStarted = false;
    const isWanted = () => {
      const wanted = this.inView.has(job.key);
      if (!wanted && !isStarted) this.asking.delete(job.key);
      return wanted;
    };
    this.queue.add(async () => {
      isStarted = true;
      try {
        const history = await getHistory(this.address, job, { metrics: [metric], maxPoints: POINTS });
        if (history.metadata.uid !== job.uid) throw new Error("It is of another job of this name.");
        const points = history.series
          .filter((series) => series.metric === metric)
          .flatMap(({ times, values }) => times.map((x, at) => [x, toNumber(values[at] ?? "")] as const))
          .sort(([one], [other]) => one - other);
        const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
        const attempts = history.attempts.map((one) => ({ start: time(one.startTime), last: time(one.lastTime) }));
        this.keep(job, { uid: job.uid, metric, xs, ys, askedAt: Date.now(), attempts });
        this.changed.tell();
      } catch {
        // Gone, forbidden, busy: asked again as late as after an answer.
        const found = this.of(job) ?? { uid: job.uid, metric, xs: [], ys: [], attempts: [] };
        this.keep(job, { ...found, askedAt: Date.now() });
      } finally {
        this.asking.delete(job.key);
      }
    }, isWanted);
  }

  private keep(job: Job, data: SparkData): void {
    this.known.delete(job.key);
    this.known.set(job.key, data);
    if (this.known.size <= KEPT) return;
    const [oldest] = this.known.keys();
    if (oldest !== undefined) this.known.delete(oldest);
  }
}
