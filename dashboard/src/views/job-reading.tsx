/** How the numbers were read, and what to do when they were not. */

import type { ProgressStatus } from "../api/types";
import { count, duration } from "../model/format";
import { conditionOf, hasEnded, time } from "../model/job";
import { visible } from "../model/text";
import { Ago, Text } from "./parts";
import { ReasonHelp } from "./reason-help";

const SOURCES: Record<string, string> = {
  exec: "a file in the container (exec)",
  http: "a port of the pod (http)",
  logs: "what the program prints (logs)",
  push: "reports that the program pushes (push)",
  status: "the TrainJob's own status (status)",
  termination: "the container's termination message (termination)",
};

interface Props {
  status: ProgressStatus;
  now: number;
  /** Whether what is shown is current. */
  isLive: boolean;
}

/** A probe that finds nothing new is not told at once. */
const UNTOLD_MS = 90_000;

export function Reading({ status, now, isLive }: Props) {
  const { observation } = status;
  const isProbed = isLive && status.phase === "Running";
  const isRecent = isProbed && now - time(observation?.lastProbeTime) < UNTOLD_MS;
  const reporting = conditionOf(status, "Reporting");
  const reason = observation?.reason ?? (reporting?.status === "True" ? undefined : reporting?.reason);
  const message = observation?.message ?? (reporting?.status === "True" ? undefined : reporting?.message);
  return (
    <section class="panel" aria-labelledby="reading">
      <h2 id="reading">How the numbers are read</h2>
      {!observation && !reporting && <p class="muted">Not probed yet.</p>}
      {observation && (
        <dl class="pairs">
          <dt>From</dt>
          <dd>{SOURCES[observation.source] ?? <Text>{observation.source}</Text>}</dd>
          {observation.lastProbeTime && (
            <>
              <dt>Last probed</dt>
              <dd>
                {isRecent ? (
                  "within the last 90 s"
                ) : (
                  <>
                    <Ago at={time(observation.lastProbeTime)} now={now} /> ago
                  </>
                )}
                {observation.latencySeconds !== undefined && `, took ${latency(observation.latencySeconds)}`}
              </dd>
            </>
          )}
          {observation.nextProbeTime && isProbed && (
            <>
              <dt>Next probe</dt>
              <dd>{next(time(observation.nextProbeTime), now)}</dd>
            </>
          )}
          {observation.consecutiveFailures > 0 && (
            <>
              <dt>Failed in a row</dt>
              <dd>{count(observation.consecutiveFailures)}</dd>
            </>
          )}
        </dl>
      )}
      {reason && (
        <div class="reason">
          <p>
            <strong>{visible(reason)}</strong> {message && visible(message)}
          </p>
          {!hasEnded(status.phase) && <ReasonHelp reason={reason} />}
        </div>
      )}
    </section>
  );
}

const latency = (seconds: number) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : duration(seconds));
const next = (at: number, now: number) =>
  at > now
    ? `in ${duration((at - now) / 1000)}`
    : now - at < UNTOLD_MS
      ? "due"
      : `overdue by ${duration((now - at) / 1000)}`;
