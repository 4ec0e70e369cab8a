/** Why a run stands still: which rank the others wait for, when the ranks were read last. */

import type { ProgressStatus } from "../api/types";
import { conditionOf, time } from "../model/job";
import { visible } from "../model/text";
import { Instant } from "./parts";
import { ReasonHelp } from "./reason-help";

interface Props {
  status: ProgressStatus;
  now: number;
}

export function Diagnosis({ status, now }: Props) {
  const { diagnosis } = status;
  if (!diagnosis) return null;
  const stalled = conditionOf(status, "Stalled");
  const at = time(diagnosis.time);
  const lasts = stalled?.status === "True" && at >= time(stalled.lastTransitionTime);
  return (
    <section class={`panel failure ${lasts ? "bad" : "warn"}`} aria-labelledby="diagnosis">
      <h2 id="diagnosis">{lasts ? "Why it stands still" : "Where its ranks were"}</h2>
      <p>
        <strong>{visible(diagnosis.reason)}</strong>
        {!Number.isNaN(at) && (
          <>
            {", read at "}
            <Instant at={at} now={now} />
          </>
        )}
        .
      </p>
      <p class="server-says">{visible(diagnosis.message)}</p>
      {diagnosis.hint && <p>{visible(diagnosis.hint)}</p>}
      <ReasonHelp reason={diagnosis.reason} />
      {diagnosis.groups && (
        <table>
          <thead>
            <tr>
              <th scope="col">Ranks</th>
              <th scope="col">How many</th>
              <th scope="col">What they do</th>
            </tr>
          </thead>
          <tbody>
            {diagnosis.groups.map((group, place) => (
              <tr key={place}>
                <td>{visible(group.ranks ?? "not known")}</td>
                <td>{group.count}</td>
                <td>{visible(group.where)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
