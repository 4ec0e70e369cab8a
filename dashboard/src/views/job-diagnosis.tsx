/** Why a run stands still: which rank the others wait for, when the ranks were read last. And having them read again. */

import { useState } from "preact/hooks";

import type { Address } from "../api/address";
import { serverNow } from "../api/clock";
import { ApiError } from "../api/http";
import { diagnose, getDiagnosis, ofJob, RECORDS, type JobRef } from "../api/requests";
import { may } from "../api/rights";
import type { Diagnosis as Found, ProgressStatus } from "../api/types";
import { nameOf } from "../model/compared";
import { count } from "../model/format";
import { conditionOf, time } from "../model/job";
import { docsLink } from "../model/routes";
import { visible } from "../model/text";
import { useLoaded, usePolled } from "./hooks";
import { Instant, Text } from "./parts";

interface Props {
  address: Address;
  jobRef: JobRef;
  status: ProgressStatus;
  now: number;
  /** Whether the job is there, and what is shown of it is live. */
  isLive: boolean;
}

const NOT_KNOWN = "not known";

export function Diagnosis(props: Props) {
  const { address, jobRef, status, now } = props;
  const { diagnosis, phase } = status;
  const hasPods = phase === "Running" || phase === "Initializing";
  if (!diagnosis) {
    if (!hasPods) return null;
    return (
      <details class="panel">
        <summary>
          <h2>Where its ranks are</h2> <span class="muted">not read yet</span>
        </summary>
        <Again {...props} />
      </details>
    );
  }
  const stalled = conditionOf(status, "Stalled");
  const at = time(diagnosis.time);
  const lasts = stalled?.status === "True" && at >= time(stalled.lastTransitionTime);
  const { reason, message, hint, suspects = [], groups = [], podsUnread = 0 } = diagnosis;
  return (
    <section class={`panel failure ${lasts ? "bad" : "warn"}`} aria-labelledby="diagnosis">
      <h2 id="diagnosis">{lasts ? "Why it stands still" : "Where its ranks were"}</h2>
      <p>
        <strong>{visible(reason)}</strong>
        {!Number.isNaN(at) && (
          <>
            {", read at "}
            <Instant at={at} now={now} />
            {diagnosis.requested && " at a user's request"}
          </>
        )}
        .
      </p>
      <p class="server-says">{visible(message)}</p>
      <p>
        {hint && `${visible(hint)} `}
        <a href={docsLink({ page: "diagnose", at: "the-reasons", reason })}>More about {visible(reason)}</a>
      </p>
      {suspects.length > 0 && <Suspects suspects={suspects} />}
      {groups.length > 0 && <Groups groups={groups} others={diagnosis.otherRanks ?? 0} />}
      {podsUnread > 0 && (
        <p class="muted">
          {count(podsUnread)} {podsUnread === 1 ? "pod" : "pods"} did not run, or showed no rank.
        </p>
      )}
      {groups.length > 0 && jobRef.plural !== RECORDS && (
        <Stacks address={address} jobRef={jobRef} of={diagnosis.time} />
      )}
      {hasPods && jobRef.plural !== RECORDS && <Again {...props} />}
    </section>
  );
}

function Suspects({ suspects }: { suspects: NonNullable<Found["suspects"]> }) {
  return (
    <div class="scrolled" tabIndex={0} role="group" aria-label="Ranks that the others wait for">
      <table>
        <thead>
          <tr>
            <th scope="col">Waited for</th>
            <th scope="col">Node</th>
            <th scope="col">Pod</th>
            <th scope="col">Step</th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {suspects.map(({ rank, nodeName, podName, step, reason }, place) => (
            <tr key={place}>
              <td>{rank === undefined ? `rank ${NOT_KNOWN}` : `rank ${count(rank)}`}</td>
              <td>{nodeName === undefined ? NOT_KNOWN : <Text>{nodeName}</Text>}</td>
              <td>
                <Text>{podName}</Text>
              </td>
              <td>{step === undefined ? "" : count(step)}</td>
              <td>{visible(reason)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Groups({ groups, others }: { groups: NonNullable<Found["groups"]>; others: number }) {
  return (
    <div class="scrolled" tabIndex={0} role="group" aria-label="What the ranks do">
      <table>
        <thead>
          <tr>
            <th scope="col">Ranks</th>
            <th scope="col">How many</th>
            <th scope="col">What they do</th>
          </tr>
        </thead>
        <tbody>
          {groups.map((group, place) => (
            <tr key={place}>
              <td>{visible(group.ranks ?? NOT_KNOWN)}</td>
              <td>{count(group.count)}</td>
              <td>{visible(group.where)}</td>
            </tr>
          ))}
          {others > 0 && (
            <tr>
              <td>others</td>
              <td>{count(others)}</td>
              <td>are at further places</td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** Names of code, innermost first, for whoever may read the logs of the pods. */
function Stacks({ address, jobRef, of }: { address: Address; jobRef: JobRef; of: string }) {
  const [isAsked, ask] = useState(false);
  return (
    <details onToggle={(event) => ask(event.currentTarget.open)}>
      <summary>Stacks of the ranks</summary>
      {isAsked && <ReadStacks address={address} jobRef={jobRef} of={of} />}
    </details>
  );
}

function ReadStacks({ address, jobRef, of }: { address: Address; jobRef: JobRef; of: string }) {
  const read = (signal: AbortSignal) => getDiagnosis(address, jobRef, signal);
  const { value, error } = usePolled(read, { of: `${nameOf(jobRef)} ${of}`, when: "once", everyMs: 5000 });
  if (!value) return <p class="muted">{error ? visible(error.message) : "Reading the stacks"}</p>;
  const groups = value.groups ?? [];
  if (!groups.some(({ frames }) => frames?.length)) return <p class="muted">No stack was read of any rank.</p>;
  return (
    <>
      {groups.map(({ ranks, where, frames = [] }, place) => (
        <div key={place} class="stack">
          <p>
            Ranks {visible(ranks ?? NOT_KNOWN)}: <span class="muted">{visible(where)}</span>
          </p>
          {frames.length === 0 ? (
            <p class="muted">No stack was read of them.</p>
          ) : (
            <pre class="code" tabIndex={0} aria-label={`Stack of ranks ${visible(ranks ?? NOT_KNOWN)}`}>
              <code>{frames.map(visible).join("\n")}</code>
            </pre>
          )}
        </div>
      ))}
    </>
  );
}

const A_MINUTE_MS = 60_000; // between two readings of a job, for all users together
const PATIENCE_MS = 75_000;

interface Asked {
  readonly at: number;
  /** When it may be asked again. */
  readonly again: number;
  readonly error?: Error;
  /** Of the diagnosis that was there before. */
  readonly before: string | undefined;
}

function Again({ address, jobRef, status, now, isLive }: Props) {
  const { namespace, plural, name } = jobRef;
  const right = useLoaded(
    () => may(address, namespace, ofJob(jobRef, "create", "diagnose")),
    [plural, namespace, name],
  );
  const [asked, set] = useState<Asked>();
  const [isAsking, begin] = useState(false);
  if (right.state !== "here") return null;
  if (right.value === false) {
    return (
      <p class="muted">
        To have the ranks read {status.diagnosis ? "again" : "now"} takes the right to <code>create</code>{" "}
        <code>{visible(plural)}/diagnose</code> in the namespace <bdi>{visible(namespace)}</bdi>.
      </p>
    );
  }
  const before = status.diagnosis?.time;
  const waitS = asked ? Math.min(60, Math.ceil((asked.again - now) / 1000)) : 0;
  const isOff = !isLive || isAsking || waitS > 0;
  const ask = async () => {
    if (isOff) return;
    begin(true);
    let again = A_MINUTE_MS;
    let error: Error | undefined;
    try {
      await diagnose(address, jobRef);
    } catch (cause) {
      error = cause as Error;
      again = error instanceof ApiError ? (error.retryAfterSeconds ?? 0) * 1000 : 0;
    }
    const at = serverNow();
    set({ at, again: at + again, before, ...(error && { error }) });
    begin(false);
  };
  return (
    <div class="again">
      <button type="button" class="button" aria-disabled={isOff} onClick={() => void ask()}>
        {before === undefined ? "Diagnose now" : "Diagnose again"}
      </button>
      {waitS > 0 && <span class="muted">Again in {waitS} s: a job is read once a minute at most.</span>}
      <span role="status" class={asked?.error ? "bad-text" : "muted"}>
        {isAsking ? "Asking" : asked && whatBecame(asked, before, now)}
      </span>
    </div>
  );
}

function whatBecame({ error, at, before }: Asked, latest: string | undefined, now: number): string {
  if (error) return `Its ranks are not read: ${visible(error.message)}`;
  if (latest !== before) return "Its ranks were read.";
  return now - at > PATIENCE_MS
    ? "Nothing has come of it."
    : "Its ranks are being read: the result is here within a minute.";
}
