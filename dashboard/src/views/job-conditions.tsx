/** Conditions in words: what is wrong first and large, the rest as a table that can be opened. */

import type { Condition, ProgressStatus } from "../api/types";
import { duration } from "../model/format";
import { flagsOf, time } from "../model/job";
import { visible } from "../model/text";
import { Instant, Notice } from "./parts";
import { ReasonHelp } from "./reason-help";

const WORDS: Record<string, Record<string, string>> = {
  Reporting: {
    True: "Progress can be read",
    False: "No progress can be read",
    Unknown: "Not yet known whether progress can be read",
  },
  Fresh: {
    True: "The numbers are current",
    False: "The numbers are old",
    Unknown: "The age of the numbers is not known",
  },
  Stalled: {
    True: "The run does not advance",
    False: "The run advances",
    Unknown: "Too early to tell whether the run advances",
  },
  Diverged: {
    True: "A loss or gradient is not finite",
    False: "Losses and gradients are finite",
    Unknown: "No loss to judge by",
  },
  Plateaued: {
    True: "The loss does not improve any more",
    False: "The loss improves",
    Unknown: "Too early to tell whether the loss improves",
  },
  Straggling: {
    True: "Some replicas are slower than the others",
    False: "All replicas keep pace",
    Unknown: "Not known whether replicas keep pace",
  },
  Suspended: { True: "Suspended", False: "Not suspended" },
  Complete: { True: "Complete", False: "Not complete" },
  Failed: { True: "Failed", False: "Has not failed" },
};
const ALARMS: Record<string, "bad" | "warn"> = {
  Stalled: "bad",
  Diverged: "bad",
  Straggling: "warn",
  Plateaued: "warn",
};

/** Reasons that say more than the status does. */
const BY_REASON: Record<string, string> = {
  "Stalled NotTraining": "The job does not train now",
  "Fresh NoReport": "There are no numbers yet",
  "Fresh FinalReport": "The numbers are final",
  "Diverged FarAboveUsual": "A loss or gradient is far above what was usual",
  "Diverged AboveThreshold": "A loss or gradient is above the job's own limit",
};

export function inWords({ type, status, reason }: Condition): string {
  return BY_REASON[`${type} ${reason}`] ?? WORDS[type]?.[status] ?? `${visible(type)}: ${visible(status)}`;
}

export function ConditionList({ status, now }: { status: ProgressStatus; now: number }) {
  const conditions = status.conditions ?? [];
  const flags = flagsOf(status);
  const raised = conditions.filter(({ type }) => type in ALARMS && (flags as string[]).includes(type));
  return (
    <>
      {raised.map((condition) => (
        <Notice
          key={condition.type}
          kind={ALARMS[condition.type] ?? "warn"}
          title={`${inWords(condition)}${since(condition, now)}.`}
        >
          {visible(withoutAge(condition))} <ReasonHelp reason={condition.reason} />
        </Notice>
      ))}
      {conditions.length > 0 && (
        <details class="panel conditions">
          <summary>
            <h2>Conditions</h2>
            <span class="muted">
              {conditions
                .filter(({ status: is }) => is === "True")
                .map(({ type }) => visible(type))
                .join(", ")}
            </span>
          </summary>
          <div class="scrolled" tabIndex={0} role="group" aria-label="Conditions">
            <table>
              <thead>
                <tr>
                  <th>Condition</th>
                  <th>In words</th>
                  <th>Reason</th>
                  <th>Since</th>
                  <th>Message</th>
                </tr>
              </thead>
              <tbody>
                {conditions.map((condition) => (
                  <tr key={condition.type}>
                    <td>
                      {visible(condition.type)} = {visible(condition.status)}
                    </td>
                    <td>{inWords(condition)}</td>
                    <td>{visible(condition.reason)}</td>
                    <td>
                      <Instant at={time(condition.lastTransitionTime)} now={now} />
                    </td>
                    <td class="message">{visible(condition.message)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      )}
    </>
  );
}

/** The title says since when, by the clock; the message as of when it was written. */
function withoutAge({ type, message }: Condition): string {
  if (type !== "Stalled") return message;
  const rest = message.replace(/^[^.;]* for (?:\d+[smhd])+; /, "");
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

function since(condition: Condition, now: number): string {
  const at = time(condition.lastTransitionTime);
  return Number.isNaN(at) ? "" : ` (for ${duration((now - at) / 1000)})`;
}
