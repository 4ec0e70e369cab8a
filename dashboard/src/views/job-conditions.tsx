/** Conditions in words: what is wrong first and large, the rest as a table that can be opened. */

import type { Condition, ProgressStatus } from "../api/types";
import { duration } from "../model/format";
import { flagsOf, RAISED, time, type Flag } from "../model/job";
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
  NoProgress: { True: "Attempts end before they come further", False: "Attempts come further" },
  AtRisk: { True: "The last checkpoint is old", False: "The last checkpoint is recent" },
  LowGoodput: { True: "Little of the time makes progress", False: "Enough of the time makes progress" },
  ShouldStop: {
    True: "The job's rules advise to stop it",
    False: "The job's rules advise to go on",
    Unknown: "Too early for advice to stop or go on",
  },
  AcceleratorsIdle: { True: "No accelerator is used", False: "Accelerators are used" },
  Suspended: { True: "Suspended", False: "Not suspended" },
  Complete: { True: "Complete", False: "Not complete" },
  Failed: { True: "Failed", False: "Has not failed" },
};
const ALARMS: Partial<Record<Flag, "bad" | "warn">> = {
  Stalled: "bad",
  Diverged: "bad",
  "No progress": "bad",
  Straggling: "warn",
  "Should stop": "warn",
  Plateaued: "warn",
  "At risk": "warn",
  "Low goodput": "warn",
  "Accelerators idle": "warn",
};

/** Reasons that say more than the status does. */
const BY_REASON: Record<string, string> = {
  "Stalled NotTraining": "The job does not train now",
  "Stalled AtWork": "No step is made, and a rank is at work",
  "Stalled Finished": "The run has reported its end",
  "AtRisk NotTraining": "The job does not train now",
  "LowGoodput NotTraining": "The job does not train now",
  "AcceleratorsIdle NotTraining": "The job does not train now",
  "Fresh NoReport": "There are no numbers yet",
  "Fresh FinalReport": "The numbers are final",
  "Diverged FarAboveUsual": "A loss or gradient is far above what was usual",
  "Diverged AboveThreshold": "A loss or gradient is above the job's own limit",
};

export function inWords({ type, status, reason }: Condition): string {
  return BY_REASON[`${type} ${reason}`] ?? WORDS[type]?.[status] ?? `${visible(type)}: ${visible(status)}`;
}

interface Props {
  status: ProgressStatus;
  now: number;
  /** Up to when the job is known: what was so then need not be so now. */
  asOf: number;
}

export function ConditionList({ status, now, asOf }: Props) {
  const conditions = status.conditions ?? [];
  const raised = flagsOf(status).flatMap((flag) => {
    const kind = ALARMS[flag];
    const condition = conditions.find(({ type }) => type === RAISED[flag][0]);
    return kind && condition ? [{ kind, condition }] : [];
  });
  return (
    <>
      {raised.map(({ kind, condition }) => (
        <Notice key={condition.type} kind={kind} title={`${inWords(condition)}${since(condition, asOf)}.`}>
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
  if (type === "AtRisk") return message.replace(/ If the run ends now, .* (?:is|are) lost\./, "");
  if (type !== "Stalled") return message;
  const rest = message.replace(/^[^.;]* for (?:\d+[smhd])+; /, "");
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

function since(condition: Condition, now: number): string {
  const at = time(condition.lastTransitionTime);
  return Number.isNaN(at) ? "" : ` (for ${duration((now - at) / 1000)})`;
}
