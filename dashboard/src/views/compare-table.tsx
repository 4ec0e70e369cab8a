/** Last and best values of the jobs that are compared. */

import { bestOf } from "../model/best";
import { nameOf, type ComparedJob } from "../model/compared";
import { exactValue } from "../model/format";
import { visible } from "../model/text";

const MOST_METRICS = 6;

export function CompareTable({ jobs, metrics }: { jobs: readonly ComparedJob[]; metrics: readonly string[] }) {
  const shown = metrics.slice(0, MOST_METRICS);
  return (
    <div class="scrolled" tabIndex={0} role="group" aria-label="Last and best values, as a table">
      <table class="compare-table" aria-label="Last and best values">
        <thead>
          <tr>
            <th>Job</th>
            {shown.map((metric) => (
              <th key={metric} colSpan={2}>
                <bdi>{visible(metric)}</bdi>, last and best
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={nameOf(job.ref)}>
              <td>
                <bdi>{visible(nameOf(job.ref))}</bdi>
              </td>
              {shown.map((metric) => (
                <Values key={metric} job={job} metric={metric} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {metrics.length > MOST_METRICS && <p class="muted">Of the first {MOST_METRICS} metrics; choose others above.</p>}
    </div>
  );
}

function Values({ job, metric }: { job: ComparedJob; metric: string }) {
  const own = job.curves.curves.filter((curve) => curve.metric === metric);
  const newest = own.reduce(
    (one, other) => (other.attempt > one.attempt ? other : one),
    own[0] ?? { attempt: -1, values: [] },
  );
  const last = newest.values.at(-1);
  const best = bestOf(
    metric,
    own.flatMap(({ values }) => values),
  );
  return (
    <>
      <td class="right">{last === undefined ? "" : exactValue(last)}</td>
      <td class="right">{best ? exactValue(best.value) : ""}</td>
    </>
  );
}
