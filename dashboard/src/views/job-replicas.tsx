/** The pods of each group, and the one that reports. */

import type { ProgressStatus } from "../api/types";
import { count } from "../model/format";
import { time } from "../model/job";
import { visible } from "../model/text";
import { Instant, Text } from "./parts";

export function Replicas({ status, now }: { status: ProgressStatus; now: number }) {
  const { rank0, replicas = [] } = status;
  const last = rank0?.lastTermination;
  const number = (value: number | undefined) => (value === undefined ? "" : count(value));
  return (
    <section class="panel" aria-labelledby="replicas">
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
