/** Jobs of this name that are gone, where the server keeps records of them; and what says that a job is such a record. */

import { useState } from "preact/hooks";

import type { Address } from "../api/address";
import { getRecords, hasRecords, RECORDS, type JobRef } from "../api/requests";
import type { JobDocument, JobRecord } from "../api/types";
import { nameOf } from "../model/compared";
import { duration, metricValue } from "../model/format";
import { percentage } from "../model/goodput";
import { time } from "../model/job";
import { mainMetric } from "../model/main-metric";
import { jobLink, type JobLook } from "../model/routes";
import { visible } from "../model/text";
import { useLoaded } from "./hooks";
import { Instant, Notice, PhaseBadge } from "./parts";

interface Props {
  address: Address;
  jobRef: JobRef;
  /** Of the job that is there now. */
  uid?: string | undefined;
  look: JobLook;
  now: number;
}

/** Read when it is opened. */
export function EarlierRuns(props: Props) {
  const [isOpen, open] = useState(false);
  const are = useLoaded(() => hasRecords(props.address), [props.address]);
  if (are.state !== "here" || !are.value) return null;
  return (
    <details class="panel" onToggle={(event) => open(event.currentTarget.open)}>
      <summary>
        <h2>Earlier runs of this name</h2>
      </summary>
      {isOpen && <Runs {...props} />}
    </details>
  );
}

function Runs({ address, jobRef, uid, look, now }: Props) {
  const read = useLoaded((signal) => getRecords(address, jobRef, signal), [address, nameOf(jobRef), uid]);
  if (read.state === "loading") return <p class="muted">Reading the records</p>;
  if (read.state === "failed") return <p class="muted">{visible(read.error.message)}</p>;
  const { records, isAll } = read.value;
  const earlier = records.filter(({ jobRef: { uid: own } }) => own !== uid);
  return (
    <>
      {earlier.length === 0 && <p class="muted">No record of an earlier job of this name.</p>}
      {earlier.length > 0 && (
        <div class="scrolled" tabIndex={0} role="group" aria-label="Earlier runs">
          <table>
            <thead>
              <tr>
                <th>Ended</th>
                <th>Phase</th>
                <th>Took</th>
                <th>Goodput</th>
                <th>Last value</th>
                <th>Cause</th>
                <th />
              </tr>
            </thead>
            <tbody>
              {earlier.map((record) => (
                <Run
                  key={record.jobRef.uid}
                  record={record}
                  look={uid === undefined ? undefined : look}
                  {...{ jobRef, now }}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!isAll && <p class="muted">Only the jobs of this namespace that ended last were looked through.</p>}
    </>
  );
}

interface RunProps {
  record: JobRecord;
  jobRef: JobRef;
  /** How the present run is seen, to compare with. */
  look: JobLook | undefined;
  now: number;
}

function Run({ record: { metadata, summary }, jobRef, look, now }: RunProps) {
  const { phase, deleted, durationSeconds, goodputPercentage, metrics = [], cause } = summary;
  const ref = { plural: RECORDS, namespace: jobRef.namespace, name: metadata.name ?? "" };
  const metric = mainMetric(metrics);
  const others = [...new Set([...(look?.others ?? []), nameOf(ref)])];
  return (
    <tr>
      <td>
        <a href={jobLink(ref)}>
          <Instant at={time(summary.endTime)} now={now} />
        </a>
      </td>
      <td>
        <PhaseBadge phase={phase as JobDocument["status"]["phase"]} />
        {deleted && " deleted"}
      </td>
      <td>{durationSeconds !== undefined && duration(durationSeconds)}</td>
      <td>{goodputPercentage !== undefined && percentage(goodputPercentage)}</td>
      <td>
        {metric && (
          <>
            <bdi>{visible(metric.name)}</bdi> {metricValue(metric.value)}
          </>
        )}
      </td>
      <td>{visible(cause ?? "")}</td>
      <td>{look && <a href={jobLink(jobRef, { ...look, others })}>Compare</a>}</td>
    </tr>
  );
}

/** Above what is shown of a record. */
export function OfRecord({ document: { jobRef, metadata } }: { document: JobDocument }) {
  if (!jobRef) return null;
  const ref = { plural: jobRef.resource, namespace: metadata.namespace ?? "", name: jobRef.name };
  return (
    <Notice kind="calm" title="This is the record of a job that has ended or was deleted.">
      It does not change. <a href={jobLink(ref)}>The job {visible(jobRef.name)} of today</a>
    </Notice>
  );
}
