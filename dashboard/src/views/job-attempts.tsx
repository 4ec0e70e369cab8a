/** The attempts of a job over time, when there was more than one. */

import type { Attempt, JobDocument } from "../api/types";
import { count, duration } from "../model/format";
import { time, toJob } from "../model/job";
import { Instant } from "./parts";
import { TimelineBars } from "./timeline-bars";

interface Props {
  attempts: readonly Attempt[];
  job: JobDocument;
  /** As of when the job is known. */
  asOf: number;
  now: number;
}

export function Attempts({ attempts, job, asOf, now }: Props) {
  const unknown = Math.max(0, (job.status.attempts ?? 1) - attempts.length);
  if (attempts.length === 0 || attempts.length + unknown < 2) return null;
  const shown = toJob("", job);
  const times = attempts.map(({ startTime, lastTime }) => ({ start: time(startTime), last: time(lastTime) }));
  const until = Math.floor(asOf / 10_000) * 10_000;
  const begins = [shown.created, times[0]?.start ?? NaN].filter((at) => !Number.isNaN(at));
  const window = { from: Math.min(...begins), to: Number.isNaN(shown.ended) ? until : shown.ended };
  return (
    <section class="panel attempts" aria-labelledby="attempts">
      <h2 id="attempts">Attempts</h2>
      <TimelineBars job={shown} attempts={times} window={window} until={until} />
      <div class="scrolled" tabIndex={0} role="group" aria-label="Attempts">
        <table>
          <thead>
            <tr>
              <th>Attempt</th>
              <th>First report</th>
              <th>Last report</th>
              <th class="right">Reported for</th>
              <th class="right">Steps</th>
            </tr>
          </thead>
          <tbody>
            {attempts.map(({ number, firstStep, lastStep }, at) => {
              const { start, last } = times[at] ?? { start: NaN, last: NaN };
              return (
                <tr key={number}>
                  <td>{number + 1}</td>
                  <td>
                    <Instant at={start} now={now} />
                  </td>
                  <td>
                    <Instant at={last} now={now} />
                  </td>
                  <td class="right">{last >= start && duration((last - start) / 1000)}</td>
                  <td class="right">
                    {firstStep !== undefined && count(firstStep)}
                    {lastStep !== undefined && ` to ${count(lastStep)}`}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {unknown > 0 && (
        <p class="muted">
          Of {count(unknown)} more {unknown === 1 ? "attempt" : "attempts"} no report is kept.
        </p>
      )}
    </section>
  );
}
