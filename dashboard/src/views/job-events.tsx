/** Events that Kubernetes keeps of the job, for whoever may list them. */

import type { Address } from "../api/address";
import { ApiError } from "../api/http";
import { getEvents, type JobRef } from "../api/requests";
import type { KubernetesEvent, ObjectMeta } from "../api/types";
import { count } from "../model/format";
import { time } from "../model/job";
import { visible } from "../model/text";
import { Ago, AsOf } from "./parts";
import { useLoaded } from "./hooks";

interface Props {
  address: Address;
  jobRef: JobRef;
  job: ObjectMeta;
  /** Its own, without the page's "Progress". */
  kind: string;
  pod: string | undefined;
  now: number;
}

const MOST = 100;
const AGAIN_MS = 30_000;

export function Events({ address, jobRef, job, kind, pod, now }: Props) {
  const turn = Math.floor(now / AGAIN_MS);
  const events = useLoaded(() => getEvents(address, jobRef, pod), [address, jobRef.namespace, jobRef.name, pod, turn]);
  return (
    <details class="panel" open>
      <summary>
        <h2>Events</h2>
      </summary>
      {events.state === "loading" && <p class="muted">Reading the events</p>}
      {events.state === "failed" && <p class="muted">{refusal(events.error, jobRef.namespace)}</p>}
      {events.state === "here" && <AsOf what="Events are" at={events.asOf} now={now} />}
      {events.state === "here" && (
        <EventTable events={events.value.filter((event) => isOf(event, job, kind))} now={now} />
      )}
    </details>
  );
}

function EventTable({ events, now }: { events: readonly KubernetesEvent[]; now: number }) {
  if (events.length === 0) return <p class="muted">None recorded: Kubernetes keeps events for an hour.</p>;
  const shown = [...events].sort((one, other) => lastTime(other) - lastTime(one)).slice(0, MOST);
  return (
    <div class="scrolled events" tabIndex={0} role="group" aria-label="Events">
      <table>
        <thead>
          <tr>
            <th>Ago</th>
            <th>Reason</th>
            <th>Of</th>
            <th>Message</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((event) => (
            <tr key={event.metadata.uid ?? event.metadata.name}>
              <td>
                <Ago at={lastTime(event)} now={now} />
              </td>
              <td class={event.type === "Warning" ? "warn-text" : ""}>
                {visible(event.reason ?? "")}
                {times(event) > 1 && ` × ${count(times(event))}`}
              </td>
              <td>
                {visible(event.involvedObject?.kind ?? "")} <bdi>{visible(event.involvedObject?.name ?? "")}</bdi>
              </td>
              <td class="message">
                <small class="of">
                  {visible(event.involvedObject?.kind ?? "")} <bdi>{visible(event.involvedObject?.name ?? "")}</bdi>
                </small>
                {visible(event.message ?? event.note ?? "")}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {events.length > MOST && (
        <p class="muted">
          The newest {MOST} of {count(events.length)} events.
        </p>
      )}
    </div>
  );
}

/** Not of an earlier job of the same name, nor of what that one had made. */
function isOf(event: KubernetesEvent, job: ObjectMeta, kind: string): boolean {
  const { kind: of, uid } = event.involvedObject ?? {};
  if (of === kind && uid) return uid === job.uid;
  return !(lastTime(event) < time(job.creationTimestamp));
}

function lastTime(event: KubernetesEvent): number {
  const { series, lastTimestamp, eventTime, metadata } = event;
  return time(series?.lastObservedTime ?? lastTimestamp ?? eventTime ?? metadata.creationTimestamp);
}

const times = (event: KubernetesEvent) => event.series?.count ?? event.count ?? 1;

function refusal(error: Error, namespace: string): string {
  // An answer without a reason is not kube-apiserver's but of an ingress, which does not lead there.
  if (
    error instanceof ApiError &&
    error.code < 500 &&
    error.code !== 401 &&
    (error.code === 404 || error.reason === "")
  ) {
    return "Events are not available at this address.";
  }
  if (error instanceof ApiError && error.code === 403) {
    return `It takes the right to list events in the namespace ${visible(namespace)}. ${visible(error.message)}`;
  }
  return visible(error.message);
}
