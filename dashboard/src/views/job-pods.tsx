/** Each pod of a job: a map of all by their state or speed, what one of them shows, and a table with the worst first. */

import { useEffect, useMemo, useState } from "preact/hooks";

import type { Address } from "../api/address";
import { ApiError } from "../api/http";
import { getReplicas, type JobRef } from "../api/requests";
import type { ProgressStatus, ReplicaStatus } from "../api/types";
import { nameOf } from "../model/compared";
import { count, fullTime } from "../model/format";
import { hasEnded, time } from "../model/job";
import * as pods from "../model/replicas";
import { visible } from "../model/text";
import { useSettings } from "../settings";
import { usePolled, type Polled } from "./hooks";
import { PodTable } from "./pod-table";
import { Ago } from "./parts";

const MANY = 200;
const AGAIN_MS = 10_000; // the server lists all pods of the job for it
const AGAIN_MANY_MS = 30_000;

interface Props {
  address: Address;
  jobRef: JobRef;
  uid: string | undefined;
  status: ProgressStatus;
  isSeen: boolean;
  now: number;
}

/** Reads the pods while they are seen; ages are as of when they were read. `children` are shown instead where there are none, or no right to them. */
export function JobPods({ address, jobRef, uid, status, isSeen, now, children }: Props & { children: preact.VNode }) {
  const [after, go] = useState<readonly string[]>([]); // the last of each page before
  const goesOn = !hasEnded(status.phase);
  const desired = (status.replicas ?? []).reduce((sum, replica) => sum + (replica.desired ?? 0), 0);
  const everyMs = desired > MANY ? AGAIN_MANY_MS : AGAIN_MS;
  const last = after.at(-1);
  const polled = usePolled(
    async (signal) => {
      const found = await getReplicas(address, jobRef, last, signal);
      if (found.metadata.uid !== uid) throw new Error("They are those of another job of this name.");
      await nextTask(); // to parse 1,000 took one
      return found.status;
    },
    { of: `${nameOf(jobRef)} ${uid} ${last}`, when: !isSeen ? "unseen" : goesOn ? "again" : "once", everyMs },
  );
  useEffect(() => go([]), [uid]);
  const { value, error } = polled;
  const replicas = value?.replicaStatuses ?? [];
  const isBeyond = value !== undefined && replicas.length === 0 && after.length > 0; // the job has fewer pods now
  useEffect(() => {
    if (isBeyond) go([]);
  }, [isBeyond]);
  if (replicas.length === 0) {
    return (
      <>
        {children}
        {error && after.length === 0 && <Refusal error={error} jobRef={jobRef} />}
      </>
    );
  }
  const next = value?.replicaStatusesContinue;
  const failed = (status.replicas ?? []).reduce((sum, replica) => sum + (replica.failed ?? 0), 0);
  const elsewhere = failed - replicas.filter((one) => pods.lookOf(one) === "failed").length;
  return (
    <>
      <PodMap replicas={replicas} now={polled.asOf} />
      <AsOf polled={polled} at={time(value?.replicaStatusesTime)} everyMs={isSeen && goesOn ? everyMs : 0} now={now} />
      {(next || after.length > 0) && (
        <div class="pages">
          <span class="muted">
            These are {count(replicas.length)} of {desired > replicas.length ? count(desired) : "more"} pods
            {pods.ranksOf(replicas)}.
            {elsewhere > 0 && (
              <span class="bad-text">
                {" "}
                {count(elsewhere)} that {elsewhere === 1 ? "has failed is" : "have failed are"} not among them.
              </span>
            )}
          </span>
          <button type="button" class="button" disabled={after.length === 0} onClick={() => go(after.slice(0, -1))}>
            Those before
          </button>
          <button type="button" class="button" disabled={!next} onClick={() => next && go([...after, next])}>
            Those that follow
          </button>
        </div>
      )}
      <PodTable replicas={replicas} now={polled.asOf} />
    </>
  );
}

const nextTask = () => new Promise((resolve) => setTimeout(resolve));

/** `at`: when the pods were listed, which may be long before we asked. */
function AsOf({ polled, at, everyMs, now }: { polled: Polled<unknown>; at: number; everyMs: number; now: number }) {
  const { zone } = useSettings();
  const { error, asOf } = polled;
  const isLate = everyMs > 0 && !error && now - asOf > everyMs + 20_000;
  return (
    <p class="muted">
      {Number.isNaN(at)
        ? "These pods were never listed: only what the job's document tells of them is known."
        : `As of ${fullTime(at, zone)}`}
      {!Number.isNaN(at) && (everyMs > 0 && !isLate && !error ? `, listed every ${everyMs / 1000} s while seen.` : ".")}
      {isLate && " No answer has come since."}
      {error && <span class="warn-text"> They cannot be read again: {visible(error.message)}</span>}
    </p>
  );
}

function Refusal({ error, jobRef: { plural, namespace } }: { error: Error; jobRef: JobRef }) {
  if (error instanceof ApiError && error.code === 404) return null; // a server that does not tell of each pod
  return (
    <p class="muted">
      {error instanceof ApiError && error.code === 403
        ? `To see each pod takes the right to get ${visible(plural)}/progress in the namespace ${visible(namespace)}. `
        : "Each pod cannot be shown: "}
      {visible(error.message)}
    </p>
  );
}

/** A square for each pod. One is chosen with the pointer, or with the arrows. */
function PodMap({ replicas, now }: { replicas: readonly ReplicaStatus[]; now: number }) {
  const [bySpeed, colourBySpeed] = useState(false);
  const [chosen, choose] = useState<string>();
  const [pointed, point] = useState<string>();
  const speeds = useMemo(() => pods.speedsOf(replicas), [replicas]);
  const shownSpeeds = bySpeed ? speeds : undefined;
  const all = useMemo(() => pods.groupsOf(replicas), [replicas]);
  const order = useMemo(() => all.flatMap(([, group]) => group), [all]);
  const map = useMemo(
    () =>
      all.map(([name, group]) => (
        <div key={name} role="group" aria-label={`${visible(name)}: ${pods.told(group)}`}>
          {group.map((replica) => (
            <span
              key={replica.name}
              id={idOf(replica.name)}
              data-name={replica.name}
              role="option"
              aria-selected={replica.name === chosen}
              aria-label={`${visible(replica.name)}: ${pods.stateOf(replica)}`}
              class={lookOf(replica, shownSpeeds)}
            />
          ))}
          <small>
            {all.length > 1 && `${visible(name)}: `}
            {pods.told(group)}
          </small>
        </div>
      )),
    [all, chosen, shownSpeeds],
  );
  const shown = order.find(({ name }) => name === (pointed ?? chosen));
  const move = (event: KeyboardEvent) => {
    const at = order.findIndex(({ name }) => name === chosen);
    const to = target(event.key, at, order.length);
    if (to === undefined) return;
    event.preventDefault();
    choose(order[to]?.name);
    document.getElementById(idOf(order[to]?.name ?? ""))?.scrollIntoView({ block: "nearest" });
  };
  const nameAt = ({ target: at }: Event) => (at as HTMLElement).dataset["name"];
  return (
    <>
      {speeds && (
        <div class="segments" role="group" aria-label="Colour of the pods">
          {[false, true].map((is) => (
            <button key={String(is)} type="button" aria-pressed={bySpeed === is} onClick={() => colourBySpeed(is)}>
              {is ? "Time for a step" : "State"}
            </button>
          ))}
        </div>
      )}
      <div
        class="pods"
        role="listbox"
        aria-label="Pods"
        tabIndex={0}
        aria-activedescendant={chosen !== undefined && shown ? idOf(chosen) : undefined}
        onKeyDown={move}
        onMouseOver={(event) => point(nameAt(event))}
        onMouseLeave={() => point(undefined)}
        onClick={(event) => choose(nameAt(event))}
      >
        {map}
      </div>
      <p class="pod">
        {shown ? (
          <Pod replica={shown} now={now} />
        ) : (
          <span class="muted">
            {shownSpeeds
              ? `The darker, the slower: half of the ranks need ${pods.stepTime(shownSpeeds.median)} for a step or less. An outline: not reported.`
              : "Point at a pod, or choose one with the arrows. A dot: its container was restarted."}
          </span>
        )}
      </p>
    </>
  );
}

const idOf = (name: string) => `pod-${name}`;

function lookOf(replica: ReplicaStatus, speeds: pods.Speeds | undefined): string {
  if (!speeds) return `${pods.lookOf(replica)} ${replica.restartCount > 0 ? "restarted" : ""}`;
  const speed = speeds.of(replica);
  return speed === undefined ? "missing" : `speed-${speed}`;
}

function target(key: string, at: number, length: number): number | undefined {
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: length - 1 }[
    key
  ];
  return to === undefined ? undefined : Math.max(0, Math.min(length - 1, to));
}

function Pod({ replica, now }: { replica: ReplicaStatus; now: number }) {
  const { name, rank, podName, nodeName, restartCount, lastReportTime, step, stepSeconds } = replica;
  const exit = pods.lastExit(replica);
  const parts = [
    rank !== undefined && `rank ${count(rank)}`,
    pods.stateOf(replica),
    podName !== undefined && podName !== name && `pod ${visible(podName)}`,
    nodeName !== undefined && `on ${visible(nodeName)}`,
    restartCount > 0 && `${count(restartCount)} ${restartCount === 1 ? "restart" : "restarts"}`,
    exit && `last ended ${exit}`,
    step !== undefined && `step ${count(step)}`,
    stepSeconds !== undefined && `${pods.stepTime(stepSeconds)} for a step`,
  ].filter(Boolean);
  return (
    <>
      <strong>
        <bdi>{visible(name)}</bdi>
      </strong>
      {`: ${parts.join(", ")}`}
      {lastReportTime != null && (
        <>
          , last report <Ago at={time(lastReportTime)} now={now} /> ago
        </>
      )}
    </>
  );
}
