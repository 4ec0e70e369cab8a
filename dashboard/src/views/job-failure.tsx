/** Why a job died: what failed first. And the logs of jobs, for whoever may read them. */

import { useState } from "preact/hooks";

import type { Address } from "../api/address";
import { getLog, getLogTail, RECORDS, type JobRef } from "../api/requests";
import type { ProgressStatus } from "../api/types";
import { nameOf } from "../model/compared";
import { conditionOf, hasEnded, time } from "../model/job";
import { visible } from "../model/text";
import { Log } from "./log";
import { Code, Instant } from "./parts";
import { ReasonHelp } from "./reason-help";

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
  const reason = failure?.class ?? failure?.reason ?? condition?.reason;
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
        {failure?.rank !== undefined && `, rank ${failure.rank}`}
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
      {failure?.hint && <p>{visible(failure.hint)}</p>}
      <ReasonHelp reason={reason} />
      {failure?.retryable !== undefined && (
        <p class="muted">
          {failure.retryable ? "Another attempt may succeed." : "Another attempt would most likely fail as well."}
        </p>
      )}
      {jobRef.plural !== RECORDS && (
        <FailedLog
          address={address}
          jobRef={jobRef}
          isWanted={isFailed}
          pod={failure?.podName}
          of={`${failure?.podName} ${failure?.time}`}
        />
      )}
    </section>
  );
}

interface FailedLogProps {
  address: Address;
  jobRef: JobRef;
  isWanted: boolean;
  pod: string | undefined;
  /** Which failure it is. */
  of: string;
}

/** Open at once of a job that has failed: it is what one looks for. */
function FailedLog({ address, jobRef, isWanted, pod, of }: FailedLogProps) {
  const [isAsked, ask] = useState(isWanted);
  return (
    <details open={isWanted} onToggle={(event) => event.currentTarget.open && ask(true)}>
      <summary>Last lines of the log</summary>
      {isAsked && (
        <Log
          read={(signal) => getLogTail(address, jobRef, pod, {}, signal)}
          goesOn={false}
          of={`${nameOf(jobRef)} ${of}`}
          refused={<KubectlLogs jobRef={jobRef} pod={pod} />}
        />
      )}
    </details>
  );
}

/** A TrainJob's pods have a label in common; of other kinds the one pod is named. */
function KubectlLogs({ jobRef: { plural, namespace, name }, pod }: { jobRef: JobRef; pod: string | undefined }) {
  const pods = plural === "trainjobs" ? `-l jobset.sigs.k8s.io/jobset-name=${name} --prefix` : pod;
  if (pods === undefined) return null;
  return (
    <>
      <p class="muted">With kubectl, while its pods are there:</p>
      <Code>{`kubectl logs -n ${namespace} ${pods} --tail=50`}</Code>
    </>
  );
}

interface RunningLogProps {
  address: Address;
  jobRef: JobRef;
  status: ProgressStatus;
}

/** Of the pod that reports, while the job is not over. */
export function RunningLog({ address, jobRef, status }: RunningLogProps) {
  const [isAsked, ask] = useState(false);
  const { rank0 } = status;
  if (!rank0 || status.phase === "Failed") return null;
  const { podName, containerName } = rank0;
  return (
    <details class="panel" onToggle={(event) => ask(event.currentTarget.open)}>
      <summary>
        <h2>Log</h2> <span class="muted">of the pod that reports</span>
      </summary>
      {isAsked && (
        <Log
          read={(signal) => getLog(address, jobRef, podName, containerName, signal)}
          goesOn={!hasEnded(status.phase)}
          of={`${nameOf(jobRef)} ${podName}`}
          refused={<KubectlLogs jobRef={jobRef} pod={podName} />}
        />
      )}
    </details>
  );
}
