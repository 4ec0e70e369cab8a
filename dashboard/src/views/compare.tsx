/** Which other jobs are drawn too: their colours, and a search for more. */

import { useEffect, useState } from "preact/hooks";

import { palette } from "../charts/palette";
import { nameOf, refOf, type ComparedJob } from "../model/compared";
import type { Fleet } from "../model/fleet";
import { jobLink, MOST_OTHERS, type JobLook } from "../model/routes";
import { visible } from "../model/text";
import { useChanges } from "./hooks";
import { Popover } from "./popover";
import { Swatch } from "./swatch";
import { useIsDark } from "./theme";

interface Props {
  fleet: Fleet;
  jobs: readonly ComparedJob[];
  look: JobLook;
  change: (look: JobLook) => void;
}

export function Compare({ fleet, jobs, look, change }: Props) {
  if (look.others.length >= MOST_OTHERS) return null;
  return (
    <Popover label="Compare with">
      <Search fleet={fleet} jobs={jobs} choose={(name) => change({ ...look, others: [...look.others, name] })} />
    </Popover>
  );
}

export function ComparedJobs({ jobs, look, change }: Omit<Props, "fleet">) {
  const { lines } = palette(useIsDark());
  if (look.others.length === 0) return null;
  const dropped = look.others.slice(MOST_OTHERS);
  return (
    <ul class="compared" aria-label="Compared jobs">
      {jobs.map(({ ref }, at) => (
        <li key={nameOf(ref)}>
          <Swatch colour={lines[at % lines.length] ?? ""} dash={[]} />
          {at === 0 ? (
            <bdi>{visible(ref.name)}</bdi>
          ) : (
            <>
              <a href={jobLink(ref)}>
                <bdi>{visible(nameOf(ref))}</bdi>
              </a>
              <button
                type="button"
                class="button plain"
                aria-label={`Do not compare with ${visible(nameOf(ref))}`}
                onClick={() => change({ ...look, others: look.others.filter((one) => one !== nameOf(ref)) })}
              >
                ×
              </button>
            </>
          )}
        </li>
      ))}
      {dropped.length > 0 && (
        <li class="warn-text">
          At most {MOST_OTHERS + 1} jobs are compared. Left out: <bdi>{visible(dropped.join(", "))}</bdi>
        </li>
      )}
    </ul>
  );
}

/** Where the jobs may not be listed, one is named. */
function NotFound({ fleet, text, choose }: { fleet: Fleet; text: string; choose: (name: string) => void }) {
  const { error } = fleet.link;
  if (fleet.hasListed || !error) return <p class="muted">{fleet.hasListed ? "No other job." : "Reading the jobs"}</p>;
  const named = refOf(text);
  return (
    <>
      <p class="muted">The jobs cannot be listed; name one as namespace/name. {visible(error.message)}</p>
      {named && (
        <button type="button" class="button" onClick={() => choose(nameOf(named))}>
          Compare with {visible(nameOf(named))}
        </button>
      )}
    </>
  );
}

const SHOWN = 12;

function Search({
  fleet,
  jobs,
  choose,
}: {
  fleet: Fleet;
  jobs: readonly ComparedJob[];
  choose: (name: string) => void;
}) {
  const [text, setText] = useState("");
  useEffect(() => fleet.start(), [fleet]); // the list is read when it is first needed
  useChanges(fleet.changed);
  const [shown] = jobs;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [...fleet.jobs.values()]
    .filter((job) => !jobs.some(({ ref }) => nameOf(ref) === nameOf(job)))
    .filter((job) => words.every((word) => job.searched.includes(word)))
    .sort(
      (one, other) =>
        Number(other.namespace === shown?.ref.namespace) - Number(one.namespace === shown?.ref.namespace) ||
        other.created - one.created,
    );
  return (
    <>
      <input
        type="search"
        placeholder="Find a job"
        aria-label="Find a job"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <ul class="found">
        {found.slice(0, SHOWN).map((job) => (
          <li key={job.key}>
            <button type="button" onClick={() => choose(nameOf(job))}>
              <bdi>{visible(job.name)}</bdi>{" "}
              <small>
                <bdi>{visible(job.namespace)}</bdi>
              </small>
            </button>
          </li>
        ))}
      </ul>
      {found.length === 0 && <NotFound fleet={fleet} text={text.trim()} choose={choose} />}
    </>
  );
}
