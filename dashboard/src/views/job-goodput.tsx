/** Where the time of a job went, and how much of it made progress. */

import type { JobDocument, SecondsByKind } from "../api/types";
import { acceleratorTime, clock, count, duration, fullTime } from "../model/format";
import { kindNamed, partsOf, percentage, WINDOWS, windowsOf, withQueue, type Window } from "../model/goodput";
import { hasEnded, time } from "../model/job";
import { docsLink } from "../model/routes";
import { visible } from "../model/text";
import { useSettings } from "../settings";
import { KindSwatch, SpentBar } from "./spent-bar";

interface Props {
  job: JobDocument;
  now: number;
  /** Up to when the job is known. */
  asOf: number;
  window: Window;
  choose: (window: Window) => void;
}

const LATE_MS = 90_000; // while a job runs, its time is counted anew each minute

export function JobGoodput({ job: { status }, now, asOf, window, choose }: Props) {
  const { zone } = useSettings();
  const { goodput } = status;
  const windows = windowsOf(status);
  const found = windows.find((one) => one.window === window) ?? windows[0];
  if (!goodput || !found) return null;
  const spent = withQueue(status, found, asOf);
  const { percentage: share, schedulingPercentage: scheduling, seconds, acceleratorSeconds } = spent.goodput;
  const parts = partsOf(seconds);
  const until = time(goodput.time);
  const hasOnlyQueued = parts.every(({ kind }) => kind.key === "queued");
  const isQueued = goodput.current === "Queued";
  // What is queued goes on in the whole; windows end when it began.
  const isOld = !hasEnded(status.phase) && asOf - until > LATE_MS && !(isQueued && spent.window === "whole");
  return (
    <section class="panel goodput" aria-labelledby="goodput">
      <div class="goodput-head">
        <h2 id="goodput">Where the time went</h2>
        <p>
          {share === undefined || hasOnlyQueued ? (
            <span class="muted">
              No goodput yet:{" "}
              {isQueued ? "the job has only been queued." : "the job had only been queued when its time was counted."}
            </span>
          ) : (
            <>
              <b>{percentage(share)}</b> goodput
            </>
          )}
          {scheduling !== undefined && scheduling < 100 && !hasOnlyQueued && (
            <span class="muted"> · {percentage(scheduling)} of the time not queued</span>
          )}
        </p>
        <span class="fill" />
        <WindowChoice windows={windows.map((one) => one.window)} chosen={spent.window} choose={choose} />
      </div>
      <SpentBar parts={parts} label={`${WINDOWS[spent.window]}, by kind`} tell={duration} />
      <ul class="kinds" aria-label="Kinds of time">
        {parts.map(({ kind, seconds: some, share: part }) => (
          <li key={kind.key} title={kind.meaning}>
            <KindSwatch kind={kind} /> {kind.name} <b>{percentage(100 * part)}</b> <small>{duration(some)}</small>
          </li>
        ))}
      </ul>
      {isOld && (
        <p class="muted">
          Counted until <span title={fullTime(until, zone)}>{clock(until, zone, now)}</span>
          {goodput.current && `. Since then: ${visible(kindNamed(goodput.current))}`}.
        </p>
      )}
      <details>
        <summary>As a table</summary>
        <KindTable seconds={seconds} acceleratorSeconds={acceleratorSeconds} window={spent.window} />
        <p class="muted">
          Goodput is productive time, of all in which the job was not queued. What is hatched counts as wasted.{" "}
          <a href={docsLink({ page: "goodput", at: "" })}>More about goodput</a>
        </p>
      </details>
    </section>
  );
}

interface ChoiceProps {
  windows: readonly Window[];
  chosen: Window;
  choose: (window: Window) => void;
}

export function WindowChoice({ windows, chosen, choose }: ChoiceProps) {
  if (windows.length < 2) return null;
  return (
    <div class="segments" role="group" aria-label="Of the time">
      {windows.map((one) => (
        <button key={one} type="button" aria-pressed={one === chosen} onClick={() => choose(one)}>
          {WINDOWS[one]}
        </button>
      ))}
    </div>
  );
}

interface TableProps {
  seconds: SecondsByKind;
  acceleratorSeconds: SecondsByKind | undefined;
  window: Window;
}

function KindTable({ seconds, acceleratorSeconds, window }: TableProps) {
  return (
    <div class="scrolled" tabIndex={0} role="group" aria-label="Time by kind">
      <table>
        <caption class="unseen">{WINDOWS[window]}</caption>
        <thead>
          <tr>
            <th>Kind</th>
            <th class="right">Share</th>
            <th class="right">Time</th>
            <th class="right">Seconds</th>
            {acceleratorSeconds && <th class="right">Accelerator time</th>}
            {acceleratorSeconds && <th class="right">Accelerator-seconds</th>}
            <th>Meaning</th>
          </tr>
        </thead>
        <tbody>
          {partsOf(seconds).map(({ kind, seconds: some, share }) => (
            <tr key={kind.key}>
              <td>
                {kind.name}
                {kind.isWaste && <small> wasted</small>}
              </td>
              <td class="right">{percentage(100 * share)}</td>
              <td class="right">{duration(some)}</td>
              <td class="right">{count(some)}</td>
              {acceleratorSeconds && <td class="right">{acceleratorTime(acceleratorSeconds[kind.key] ?? 0)}</td>}
              {acceleratorSeconds && <td class="right">{count(acceleratorSeconds[kind.key] ?? 0)}</td>}
              <td class="muted message">{kind.meaning}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
