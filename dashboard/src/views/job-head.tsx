/** Name, phase and how far: what is asked first. */

import type { JobDocument } from "../api/types";
import { age, clock, count, duration, epochs, fullTime, rate, acceleratorTime } from "../model/format";
import { flagsOf, hasEnded, isOnItsWay, kindName, time } from "../model/job";
import { QUEUE_LABEL } from "../model/labels";
import { visible } from "../model/text";
import { useSettings } from "../settings";
import { riskOf } from "../model/goodput";
import { FlagBadge, PhaseBadge, ProgressBar, Text } from "./parts";
import { ReasonHelp } from "./reason-help";

interface Props {
  plural: string;
  document: JobDocument;
  now: number;
  /** Up to when the job is known. */
  asOf: number;
  isGone: boolean;
}

const SAID_MS = 90_000; // after that it may be an earlier attempt's, or not true any more

export function JobHead({ plural, document: { kind, metadata, status }, now, asOf, isGone }: Props) {
  const { zone } = useSettings();
  const name = metadata.name ?? "";
  const percent = status.progressPercentage;
  const flags = flagsOf(status);
  const reported = time(status.lastUpdatedTime);
  const said = now - reported > SAID_MS ? `The run said at ${clock(reported, zone, now)}:` : "The run says:";
  const queue = metadata.labels?.[QUEUE_LABEL];
  const barKind = status.phase === "Failed" ? "failed" : status.phase === "Succeeded" ? "succeeded" : "";
  return (
    <header class="job-head">
      <div class="job-title">
        <h1>
          <bdi>{visible(name)}</bdi>
        </h1>
        <PhaseBadge phase={status.phase} />
        {flags.map((flag) => (
          <FlagBadge key={flag} flag={flag} />
        ))}
        <span class="muted">
          {visible(kindName(plural, kind))}
          {queue && (
            <>
              {" in queue "}
              <Text>{queue}</Text>
            </>
          )}
        </span>
      </div>
      {status.phaseMessage && !hasEnded(status.phase) && status.phase !== "Running" && (
        <p class="phase-message">{visible(status.phaseMessage)}</p>
      )}
      {!hasEnded(status.phase) && status.phase !== "Running" && <ReasonHelp reason={status.phaseReason} />}
      <div class="job-progress">
        {percent !== undefined && <span class="big">{percent}%</span>}
        <div class="job-progress-bar">
          {percent !== undefined && (
            <ProgressBar percent={percent} label={`Progress of ${visible(name)}`} kind={`thick ${barKind}`} />
          )}
          {!isGone && <Ending document={{ metadata, status }} now={now} asOf={asOf} />}
        </div>
      </div>
      <dl class="numbers">
        <Steps status={status} />
        {status.steps?.perSecond !== undefined && status.phase === "Running" && !flags.includes("Stalled") && (
          <Fact name="Pace" value={rate(status.steps.perSecond)} note="steps" />
        )}
        <Seen status={status} now={now} asOf={asOf} isGone={isGone} />
        <Started metadata={metadata} status={status} now={now} asOf={asOf} isGone={isGone} />
        {(status.attempts ?? 1) > 1 && <Fact name="Attempts" value={count(status.attempts ?? 1)} />}
        <Accelerators status={status} />
      </dl>
      <Risk status={status} now={now} asOf={asOf} isGone={isGone} />
      {status.message && (
        <p class="run-says">
          <span class="muted">{said}</span> <Text>{status.message}</Text>
        </p>
      )}
    </header>
  );
}

type Status = JobDocument["status"];

function Fact({ name, value, note, title }: { name: string; value: string; note?: string; title?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd title={title}>
        {value}
        {note && <small> {note}</small>}
      </dd>
    </div>
  );
}

function Steps({ status: { steps, epochs: passes } }: { status: Status }) {
  return (
    <>
      {steps?.current !== undefined && (
        <Fact
          name="Step"
          value={count(steps.current)}
          {...(steps.total === undefined ? {} : { note: `of ${count(steps.total)}` })}
        />
      )}
      {passes?.current !== undefined && (
        <Fact
          name="Epoch"
          value={epochs(passes.current)}
          {...(passes.total === undefined ? {} : { note: `of ${epochs(passes.total)}` })}
        />
      )}
    </>
  );
}

function Seen({ status, now, asOf, isGone }: Omit<Props, "plural" | "document"> & { status: Status }) {
  const { zone } = useSettings();
  const updated = time(status.lastUpdatedTime);
  if (Number.isNaN(updated)) return null;
  if (isGone) return <Fact name="Last report" value={clock(updated, zone, now)} title={fullTime(updated, zone)} />;
  return <Fact name="Last report" value={age((asOf - updated) / 1000)} note="ago" title={fullTime(updated, zone)} />;
}

/** With several attempts both times are of the last one: when the job was made stands before them. */
function Started({ metadata, status, now, asOf, isGone }: Omit<Props, "plural" | "document"> & JobDocument) {
  const { zone } = useSettings();
  const isLater = (status.attempts ?? 1) > 1;
  const created = time(metadata.creationTimestamp);
  const [began, ended] = [time(status.startTime), time(status.endTime)];
  const length = status.durationSeconds ?? (Number.isNaN(ended) ? (asOf - began) / 1000 : (ended - began) / 1000);
  // What waits again does not run: how long it ran before is not known here.
  const ran = hasEnded(status.phase) ? "Took" : status.phase !== "Running" ? "" : isGone ? "Ran for" : "Runs for";
  const ranAs = ran && isLater ? `Last attempt ${ran.toLowerCase()}` : ran;
  return (
    <>
      {isLater && !Number.isNaN(created) && (
        <Fact name="Created" value={clock(created, zone, now)} title={fullTime(created, zone)} />
      )}
      {!Number.isNaN(began) && (
        <Fact
          name={isLater ? "Last attempt began" : "Started"}
          value={clock(began, zone, now)}
          title={fullTime(began, zone)}
        />
      )}
      {!Number.isNaN(ended) && <Fact name="Ended" value={clock(ended, zone, now)} title={fullTime(ended, zone)} />}
      {length >= 0 && ranAs && <Fact name={ranAs} value={duration(length)} />}
    </>
  );
}

function Accelerators({ status: { resources, goodput } }: { status: Status }) {
  if (!resources?.accelerators) return null;
  const names = (resources.byName ?? []).map(({ name, count: number }) => `${number} × ${visible(name)}`).join(", ");
  return (
    <>
      <Fact name="Accelerators" value={count(resources.accelerators)} title={names} />
      {resources.acceleratorSeconds !== undefined && (
        <Fact name="Accelerator time" value={acceleratorTime(resources.acceleratorSeconds)} />
      )}
      {(resources.wastedAcceleratorSeconds ?? 0) > 0 && (
        <Fact
          name="Of it wasted"
          value={acceleratorTime(resources.wastedAcceleratorSeconds ?? 0)}
          title={visible(goodput?.wastedMessage ?? "")}
        />
      )}
    </>
  );
}

/** What is kept of the run, and what is lost if it ends now. */
function Risk({ status, now, asOf, isGone }: { status: Status; now: number; asOf: number; isGone: boolean }) {
  const { zone } = useSettings();
  const risk = riskOf(status, asOf);
  if (!risk) return null;
  const { step, savedAt, lostS, accelerators } = risk;
  const isAtRisk = flagsOf(status).includes("At risk");
  return (
    <p class="at-risk">
      Last checkpoint: step <b>{count(step)}</b>,{" "}
      <span title={fullTime(savedAt, zone)}>{clock(savedAt, zone, now)}</span>.{" "}
      {lostS !== undefined && !isGone && (
        <span class={isAtRisk ? "warn-text" : ""}>
          If it {asOf === now ? "is preempted now" : `was preempted at ${clock(asOf, zone, now)}`},{" "}
          <b>{duration(lostS)}</b>
          {accelerators > 0 ? (
            <>
              {" × "}
              <b>
                {count(accelerators)} {accelerators === 1 ? "accelerator" : "accelerators"}
              </b>{" "}
              are lost.
            </>
          ) : (
            " of work are lost."
          )}
        </span>
      )}
    </p>
  );
}

/** The one cause that applies. */
function whyNoEnd(status: Status): string {
  const flags = flagsOf(status);
  if (flags.includes("Diverged")) return "the run has diverged";
  if (flags.includes("Stalled")) return "the run does not advance";
  if (flags.includes("No progress")) return "attempts end before they come further";
  if (flags.includes("Not reporting")) return "the run does not report";
  if (!status.lastUpdatedTime) return "the run has not reported yet";
  if (flags.includes("Not fresh")) return "the last report is old";
  if (!status.steps?.total && !status.epochs?.total) return "the run reports no planned end";
  return "the pace is not known yet";
}

/** When the run ends, as a sentence. */
function Ending({ document: { status }, now, asOf }: { document: JobDocument; now: number; asOf: number }) {
  const { zone } = useSettings();
  const end = time(status.estimatedCompletionTime);
  // As it was written, it would stand still until the next report.
  const remaining = Number.isNaN(end) ? status.estimatedRemainingSeconds : (end - asOf) / 1000;
  if (hasEnded(status.phase)) return null;
  if (
    status.estimatedRemainingSeconds === undefined ||
    remaining === undefined ||
    !isOnItsWay({ phase: status.phase, flags: flagsOf(status) })
  ) {
    return status.phase === "Running" ? <p class="muted">No estimate of the end: {whyNoEnd(status)}.</p> : null;
  }
  const { earliest, latest } = status.estimatedCompletionRange ?? {};
  const range =
    earliest && latest ? ` (between ${clock(time(earliest), zone, now)} and ${clock(time(latest), zone, now)})` : "";
  return (
    <p>
      {remaining > 0 ? (
        <>
          About <b>{duration(remaining)}</b> left
        </>
      ) : (
        "About to end"
      )}
      {!Number.isNaN(end) && (
        <>
          , {remaining > 0 ? "ends" : "by the estimate of"} <b title={fullTime(end, zone)}>{clock(end, zone, now)}</b>
        </>
      )}
      {range}
    </p>
  );
}
