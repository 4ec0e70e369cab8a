/** The pods of a job as a table, those first that need a look. */

import { useMemo, useState } from "preact/hooks";

import type { ReplicaStatus } from "../api/types";
import { count } from "../model/format";
import { time } from "../model/job";
import * as pods from "../model/replicas";
import { Ago, Instant, Text } from "./parts";

const FIRST = 8;
const MORE = 50;

interface Column {
  name: string;
  class?: string;
  /** Whether it is left out where it has nothing to tell. */
  isEmpty?: (replica: ReplicaStatus) => boolean;
  cell: (replica: ReplicaStatus, now: number) => preact.ComponentChildren;
}

const COLUMNS: readonly Column[] = [
  { name: "Replica", cell: ({ name }) => <Text>{name}</Text> },
  {
    name: "Rank",
    class: "right",
    isEmpty: ({ rank }) => rank === undefined,
    cell: ({ rank }) => (rank === undefined ? "" : count(rank)),
  },
  { name: "State", cell: (replica) => <span class={stateClass(replica)}>{pods.stateOf(replica)}</span> },
  { name: "Node", isEmpty: ({ nodeName }) => !nodeName, cell: ({ nodeName }) => <Text>{nodeName ?? ""}</Text> },
  { name: "Restarts", class: "right", cell: ({ restartCount }) => count(restartCount) },
  {
    name: "Last report",
    class: "right",
    isEmpty: ({ lastReportTime }) => !lastReportTime,
    cell: ({ lastReportTime }, now) => <Ago at={time(lastReportTime)} now={now} />,
  },
  {
    name: "Step",
    class: "right",
    isEmpty: ({ step }) => step === undefined,
    cell: ({ step }) => (step === undefined ? "" : count(step)),
  },
  {
    name: "For a step",
    class: "right",
    isEmpty: ({ stepSeconds }) => stepSeconds === undefined,
    cell: ({ stepSeconds }) => pods.stepTime(stepSeconds),
  },
  {
    name: "Last ended",
    class: "ended",
    isEmpty: ({ lastTermination }) => !lastTermination,
    cell: (replica, now) => (
      <>
        {pods.lastExit(replica)} <Instant at={time(replica.lastTermination?.finishedAt)} now={now} />
      </>
    ),
  },
];

export function PodTable({ replicas, now }: { replicas: readonly ReplicaStatus[]; now: number }) {
  const [most, show] = useState(FIRST);
  const sorted = useMemo(() => pods.worstFirst(replicas), [replicas]);
  const columns = useMemo(() => COLUMNS.filter(({ isEmpty }) => !isEmpty || !replicas.every(isEmpty)), [replicas]);
  const left = sorted.length - most;
  return (
    <>
      <div class="scrolled" tabIndex={0} role="group" aria-label="Each pod, those first that need a look">
        <table class="pod-table">
          <thead>
            <tr>
              {columns.map(({ name, class: of }) => (
                <th key={name} class={of}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, most).map((replica) => (
              <tr key={replica.name}>
                {columns.map(({ name, class: of, cell }) => (
                  <td key={name} class={of}>
                    {cell(replica, now)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {left > 0 && (
        <button type="button" class="button" onClick={() => show(most + MORE)}>
          {left <= MORE ? `Show the other ${count(left)}` : `Show ${count(MORE)} of ${count(left)} others`}
        </button>
      )}
    </>
  );
}

function stateClass(replica: ReplicaStatus): string {
  const look = pods.lookOf(replica);
  return look === "failed" ? "bad-text" : look === "not-ready" ? "warn-text" : "";
}
