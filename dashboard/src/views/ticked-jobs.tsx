/** What can be done with the jobs that were ticked: their curves, beside each other. */

import type { Fleet } from "../model/fleet";
import { nameOf } from "../model/compared";
import { count } from "../model/format";
import type { Job } from "../model/job";
import { jobLink, MOST_OTHERS, USUAL_LOOK } from "../model/routes";

export function TickedJobs({ fleet, redraw }: { fleet: Fleet; redraw: () => void }) {
  const jobs = [...fleet.ticked].map((key) => fleet.jobs.get(key)).filter((job): job is Job => job !== undefined);
  const [first, ...others] = jobs;
  if (!first) return null;
  return (
    <div class="ticked" role="region" aria-label="Ticked jobs">
      <span role="status">
        {count(jobs.length)} {jobs.length === 1 ? "job" : "jobs"} ticked
        {others.length > MOST_OTHERS && `; the first ${MOST_OTHERS + 1} are compared`}
      </span>
      {others.length > 0 ? (
        <a
          class="button primary"
          href={jobLink(first, { ...USUAL_LOOK, others: others.slice(0, MOST_OTHERS).map(nameOf) })}
        >
          Compare
        </a>
      ) : (
        <span class="muted">tick another to compare</span>
      )}
      <button
        type="button"
        class="button"
        onClick={() => {
          fleet.ticked.clear();
          redraw();
        }}
      >
        Clear
      </button>
    </div>
  );
}
