/** The pods of each group, each of them where it may be read, and the one that reports. */

import type { Address } from "../api/address";
import type { JobRef } from "../api/requests";
import type { JobDocument, ProgressStatus } from "../api/types";

type Replica = NonNullable<ProgressStatus["replicas"]>[number];
import { count } from "../model/format";
import { time } from "../model/job";
import { visible } from "../model/text";
import { useLasting, useSeen } from "./hooks";
import { JobPods } from "./job-pods";
import { Instant, Text } from "./parts";

const MOST_SQUARES = 256;
const SETTLED_MS = 500; // before the curves are drawn, all below them is in view

/** A square for each pod, by its state: as the document counts them, which does not say which pod it is. */
function Pods({ replica, isNamed }: { replica: Replica; isNamed: boolean }) {
  const { name, desired = 0, active = 0, succeeded = 0, failed = 0 } = replica;
  // Some kinds count one that has succeeded as active too.
  const running = desired > 0 ? Math.min(active, Math.max(0, desired - succeeded)) : active;
  const ready = replica.ready === undefined ? running : Math.min(running, replica.ready);
  const states = [
    ["failed", failed],
    ["not ready", running - ready],
    [replica.ready === undefined ? "active" : "ready", ready],
    ["succeeded", succeeded],
  ] as const;
  const there = states.reduce((sum, [, number]) => sum + number, 0);
  const all = [...states, ["missing", Math.max(0, desired - there)] as const].filter(([, number]) => number > 0);
  const pods = all.reduce((sum, [, number]) => sum + number, 0);
  if (pods < 2) return null;
  const per = Math.ceil(pods / MOST_SQUARES);
  const told = all.map(([state, number]) => `${count(number)} ${state}`).join(", ");
  return (
    <div class="pods">
      <div role="img" aria-label={`${visible(name)}: ${told}`}>
        {all.flatMap(([state, number]) =>
          Array.from({ length: Math.ceil(number / per) }, (_, at) => (
            <span key={`${state} ${at}`} class={state.replace(" ", "-")} />
          )),
        )}
      </div>
      <small>
        {isNamed && `${visible(name)}: `}
        {told}
        {per > 1 && `; a square for ${per}`}
      </small>
    </div>
  );
}

interface Props {
  address: Address;
  jobRef: JobRef;
  job: JobDocument;
  now: number;
}

export function Replicas({ address, jobRef, job: { metadata, status }, now }: Props) {
  const { rank0, replicas = [] } = status;
  const [box, isInView] = useSeen<HTMLElement>("0px");
  const isSeen = useLasting(isInView, SETTLED_MS);
  const straggling = status.conditions?.find(({ type, status: is }) => type === "Straggling" && is === "True");
  const last = rank0?.lastTermination;
  const number = (value: number | undefined) => (value === undefined ? "" : count(value));
  return (
    <section class="panel replicas" aria-labelledby="replicas" ref={box}>
      <h2 id="replicas">Replicas</h2>
      {replicas.length === 0 && <p class="muted">No pod is known yet.</p>}
      {replicas.length > 0 && (
        <div class="scrolled" tabIndex={0} role="group" aria-label="Pods of each group">
          <table>
            <thead>
              <tr>
                <th>Group</th>
                {["Desired", "Ready", "Active", "Succeeded", "Failed"].map((name) => (
                  <th key={name} class="right">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {replicas.map((replica) => (
                <tr key={replica.name}>
                  <td>
                    <Text>{replica.name}</Text>
                  </td>
                  {[replica.desired, replica.ready, replica.active, replica.succeeded].map((value, at) => (
                    <td key={at} class="right">
                      {number(value)}
                    </td>
                  ))}
                  <td class={`right ${replica.failed ? "bad-text" : ""}`}>{number(replica.failed)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <JobPods {...{ address, jobRef, status, isSeen, now }} uid={metadata.uid}>
        <>
          {replicas.map((replica) => (
            <Pods key={replica.name} replica={replica} isNamed={replicas.length > 1} />
          ))}
        </>
      </JobPods>
      {straggling && <p class="muted">Ranks that are slow: {visible(straggling.message)}</p>}
      {rank0 && (
        <dl class="pairs">
          <dt>Reports for the job</dt>
          <dd>
            <Text>{rank0.podName}</Text>, container <Text>{rank0.containerName}</Text>
          </dd>
          {rank0.nodeName && (
            <>
              <dt>On node</dt>
              <dd>
                <Text>{rank0.nodeName}</Text>
              </dd>
            </>
          )}
          {rank0.restartCount > 0 && (
            <>
              <dt>Restarts</dt>
              <dd>{count(rank0.restartCount)}</dd>
            </>
          )}
          {last && (
            <>
              <dt>Last ended</dt>
              <dd>
                {visible(last.reason ?? "")} (exit code {last.exitCode}
                {last.signal !== undefined && `, signal ${last.signal}`}){" "}
                <Instant at={time(last.finishedAt)} now={now} />
              </dd>
            </>
          )}
        </dl>
      )}
    </section>
  );
}
