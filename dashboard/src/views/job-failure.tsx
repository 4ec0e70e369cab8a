/** Why a job died: what failed first, and the last lines of its log for whoever may read them. */

import { useState } from "preact/hooks";

import type { Address } from "../api/address";
import { ApiError } from "../api/http";
import { getLogTail, type JobRef } from "../api/requests";
import type { ProgressStatus } from "../api/types";
import { conditionOf, time } from "../model/job";
import { visible, visibleLines } from "../model/text";
import { Code, Instant } from "./parts";
import { ReasonHelp } from "./reason-help";
import { useLoaded } from "./hooks";

interface Props {
  address: Address;
  jobRef: JobRef;
  status: ProgressStatus;
  now: number;
}

export function Failure({ address, jobRef, status, now }: Props) {
  const { failure } = status;
  const condition = conditionOf(status, "Failed");
  const isFailed = status.phase === "Failed";
  if (!failure && !isFailed) return null;
  const where = [failure?.replica, failure?.podName, failure?.containerName]
    .filter(Boolean)
    .map((part) => visible(part ?? ""));
  const ended =
    failure?.signal !== undefined
      ? `ended by signal ${failure.signal}`
      : failure?.exitCode !== undefined
        ? `ended with exit code ${failure.exitCode}`
        : "";
  const reason = failure?.reason ?? condition?.reason;
  const at = time(failure?.time ?? status.endTime);
  return (
    <section class={`panel failure ${isFailed ? "bad" : "warn"}`} aria-labelledby="failure">
      <h2 id="failure">{isFailed ? "Why it failed" : "What failed before"}</h2>
      <p>
        <strong>{visible(reason ?? "Failed")}</strong>
        {ended && `: ${ended}`}
        {!Number.isNaN(at) && (
          <>
            {" at "}
            <Instant at={at} now={now} />
          </>
        )}
        {where.length > 0 && (
          <>
            {", "}
            <bdi>{where.join(" / ")}</bdi>
          </>
        )}
        {failure?.nodeName && (
          <>
            {" on node "}
            <bdi>{visible(failure.nodeName)}</bdi>
          </>
        )}
        .
      </p>
      {(failure?.message ?? condition?.message) && (
        <p class="server-says">{visible(failure?.message ?? condition?.message ?? "")}</p>
      )}
      <ReasonHelp reason={reason} />
      {failure?.retryable !== undefined && (
        <p class="muted">
          {failure.retryable ? "Another attempt may succeed." : "Another attempt would most likely fail as well."}
        </p>
      )}
      <LogTail address={address} jobRef={jobRef} isWanted={isFailed} />
    </section>
  );
}

/** Open at once of a job that has failed: it is what one looks for. */
function LogTail({ address, jobRef, isWanted }: { address: Address; jobRef: JobRef; isWanted: boolean }) {
  const [isAsked, ask] = useState(isWanted);
  return (
    <details open={isWanted} onToggle={(event) => event.currentTarget.open && ask(true)}>
      <summary>Last lines of the log</summary>
      {isAsked && <LogLines address={address} jobRef={jobRef} />}
    </details>
  );
}

function LogLines({ address, jobRef }: { address: Address; jobRef: JobRef }) {
  const tail = useLoaded((signal) => getLogTail(address, jobRef, signal), [address, jobRef.namespace, jobRef.name]);
  if (tail.state === "loading") return <p class="muted">Reading the log</p>;
  if (tail.state === "failed") {
    const { error } = tail;
    if (error instanceof ApiError && (error.code === 404 || error.code === 403)) {
      return (
        <>
          <p class="muted">{visible(error.message)} With kubectl, while its pods are there:</p>
          <Code>{`kubectl logs -n ${jobRef.namespace} -l jobset.sigs.k8s.io/jobset-name=${jobRef.name} --tail=50 --prefix`}</Code>
        </>
      );
    }
    return <p class="muted">{visible(error.message)}</p>;
  }
  const { podName, containerName, previous, truncated, lines } = tail.value;
  const of = [podName, containerName]
    .filter(Boolean)
    .map((part) => visible(part ?? ""))
    .join(" / ");
  return (
    <>
      <p class="muted">
        Of <bdi>{of}</bdi>
        {previous && ", before its last restart"}
        {truncated && "; what came before is left out"}.
      </p>
      {lines.length > 0 ? <Code>{visibleLines(lines.join("\n"))}</Code> : <p class="muted">The log is empty.</p>}
    </>
  );
}
