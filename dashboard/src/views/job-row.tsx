import { Component, type TargetedMouseEvent } from "preact";

import { spark } from "../charts/sparkline";
import type { Extra } from "../model/filter";
import { percentage } from "../model/goodput";
import { acceleratorTime, age, count, duration, epochs, metricValue, rate } from "../model/format";
import { hasEnded, isStuck, isWasting, type Job } from "../model/job";
import { labelOf } from "../model/labels";
import { jobLink } from "../model/routes";
import type { SparkData } from "../model/sparks";
import { visible } from "../model/text";
import type { AttemptTimes } from "../model/timeline";
import type { Timeline } from "./job-list";
import { TimelineBars } from "./timeline-bars";
import { Ago, FlagBadge, Instant, PhaseBadge, ProgressBar, Text } from "./parts";

interface Props {
  job: Job;
  index: number;
  top: number;
  now: number;
  spark: SparkData | undefined;
  /** Of the curves: a row is drawn again when its own has changed. */
  version: number;
  extras: readonly Extra[];
  /** Labels that have a column. */
  columns: readonly string[];
  /** Whether it tells its kind. */
  hasKind: boolean;
  timeline: Timeline | undefined;
  isTicked: boolean;
  tick: (key: string) => void;
}

/** Drawn again only when something of it has changed: 5,000 jobs change, and forty rows are seen. */
export class JobRow extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    const { version: _, ...shown } = this.props;
    return Object.entries(shown).some(([name, value]) => next[name as keyof Props] !== value);
  }

  override render({ job, index, top, now, spark: data, hasKind, extras, columns, timeline, isTicked, tick }: Props) {
    const kind = isStuck(job) ? "bad" : "";
    // Beside the phase there is no room for what else is wrong.
    const why = [job.why, ...(job.phase === "Running" ? [] : job.flags)].filter(Boolean).map(visible).join(" · ");
    return (
      <div
        role="row"
        class={`row ${kind}`}
        aria-rowindex={index + 2}
        data-key={job.key}
        style={{ transform: `translateY(${top}px)` }}
        onClick={openJob}
      >
        <div role="cell" class="cell name">
          <input
            type="checkbox"
            class="tick"
            aria-label={`Compare ${visible(job.name)}`}
            checked={isTicked}
            onChange={() => tick(job.key)}
          />
          <a href={jobLink(job)}>
            <Text>{job.name}</Text>
          </a>
          <small>
            {isWasting(job) && job.wastedS >= 60 ? (
              <span class="short bad-text">{acceleratorTime(job.wastedS)} wasted · </span>
            ) : (
              job.accelerators > 0 && (
                <span class="short">
                  {count(job.accelerators)} {job.accelerators === 1 ? "accelerator" : "accelerators"} ·{" "}
                </span>
              )
            )}
            {hasKind && <span class="kind">{visible(job.kind)} · </span>}
            <Text>{job.namespace}</Text>
            {job.queue && (
              <>
                {" · "}
                <Text>{job.queue}</Text>
              </>
            )}
          </small>
        </div>
        <div role="cell" class="cell state">
          <span class="badges" title={job.flags.length > 1 ? job.flags.join(", ") : undefined}>
            {job.flags.length === 0 || job.phase !== "Running" ? (
              <PhaseBadge phase={job.phase} />
            ) : (
              <>
                <FlagBadge flag={job.flags[0] ?? "Stalled"} />
                {job.flags.length > 1 && <MoreFlags flags={job.flags.slice(1)} />}
              </>
            )}
          </span>
          {why && <small title={why}>{why}</small>}
          {columns.length > 0 && (
            <small class="narrow">
              <Text>{columns.map((label) => labelOf(job, label) || "–").join(" · ")}</Text>
            </small>
          )}
        </div>
        {timeline ? (
          <div role="cell" class="cell timeline">
            <TimelineBars job={job} attempts={data?.attempts ?? NO_ATTEMPTS} {...timeline} />
          </div>
        ) : (
          <Usual job={job} data={data} now={now} />
        )}
        {hasKind && (
          <div role="cell" class="cell label of-kind">
            <Text>{job.kind}</Text>
          </div>
        )}
        {extras.map((extra) => (
          <div key={extra} role="cell" class="cell label extra">
            {extra === "goodput" && job.goodput !== undefined && percentage(job.goodput)}
            {extra === "checkpoint" && job.checkpoint && (
              <>
                <span>{count(job.checkpoint.step)}</span>
                <small>
                  <Ago at={job.checkpoint.at} now={now} /> ago
                </small>
              </>
            )}
          </div>
        ))}
        {columns.map((label) => (
          <div key={label} role="cell" class="cell label">
            <Text>{labelOf(job, label)}</Text>
          </div>
        ))}
      </div>
    );
  }
}

/** The link covers the row, but for what tells more to whoever points at it. */
function openJob({ target, currentTarget }: TargetedMouseEvent<HTMLElement>): void {
  if (!(target as Element).closest("a, input")) currentTarget.querySelector("a")?.click();
}

/** Of what else is wrong: its name where it is one, else how many. */
function MoreFlags({ flags }: { flags: Job["flags"] }) {
  const [first] = flags;
  if (flags.length === 1 && first) return <FlagBadge flag={first} />;
  return (
    <span class="badge warn" aria-label={flags.join(", ")}>
      +{flags.length}
    </span>
  );
}

const NO_ATTEMPTS: readonly AttemptTimes[] = [];

function Usual({ job, data, now }: { job: Job; data: SparkData | undefined; now: number }) {
  return (
    <>
      <div role="cell" class="cell progress">
        <Progress job={job} />
      </div>
      <div role="cell" class="cell metric">
        {job.metric && <Metric job={job} data={data} />}
      </div>
      <div role="cell" class="cell end">
        <End job={job} now={now} />
      </div>
      <div role="cell" class="cell seen">
        <Ago at={job.updated} now={now} />
      </div>
      <div role="cell" class="cell accelerators">
        {job.accelerators > 0 && <span>{count(job.accelerators)}</span>}
        {job.wastedS >= 60 && (
          <small class={isWasting(job) ? "bad-text" : ""} title={visible(job.wastedOn) || undefined}>
            {acceleratorTime(job.wastedS)} wasted
          </small>
        )}
      </div>
    </>
  );
}

function Progress({ job }: { job: Job }) {
  const { percent, step, totalSteps, epoch, totalEpochs } = job;
  if (percent === undefined && step === undefined && epoch === undefined) return null;
  const kind = job.phase === "Failed" ? "failed" : job.phase === "Succeeded" ? "succeeded" : "";
  const position =
    step !== undefined
      ? `${count(step)}${totalSteps === undefined ? "" : ` / ${count(totalSteps)}`}`
      : epoch !== undefined
        ? `epoch ${epochs(epoch)}${totalEpochs === undefined ? "" : ` / ${epochs(totalEpochs)}`}`
        : "";
  return (
    <>
      {percent !== undefined && (
        <span class="of-bar">
          <ProgressBar percent={percent} label={`Progress of ${visible(job.name)}`} kind={kind} />
          <span class="percent">{percent}%</span>
        </span>
      )}
      <small>
        {percent === undefined && step !== undefined ? `step ${position}` : position}
        {job.rate !== undefined && job.phase === "Running" && !job.flags.includes("Stalled") && ` · ${rate(job.rate)}`}
      </small>
    </>
  );
}

const WIDTH = 92;
const HEIGHT = 26;

function Metric({ job, data }: { job: Job; data: SparkData | undefined }) {
  const { name, value } = job.metric ?? { name: "", value: "" };
  const number = Number(value);
  const drawn = data && data.xs.length > 1 ? spark(data.xs, data.ys, WIDTH, HEIGHT) : undefined;
  return (
    <>
      <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} aria-hidden="true">
        {drawn && <path d={drawn.path} />}
        {drawn?.end && <circle cx={drawn.end[0]} cy={drawn.end[1]} r="1.8" />}
        {drawn && !drawn.end && <path class="broken" d={`M${WIDTH - 7} ${HEIGHT - 7}l5 5m0 -5l-5 5`} />}
      </svg>
      <span class="value">
        <span class={Number.isFinite(number) ? "" : "bad-text"}>{metricValue(value)}</span>
        <small>
          <Text>{name}</Text>
        </small>
      </span>
    </>
  );
}

function End({ job, now }: { job: Job; now: number }) {
  if (hasEnded(job.phase)) {
    return Number.isNaN(job.ended) ? null : (
      <>
        <span class="muted">{age((now - job.ended) / 1000)} ago</span>
        <small>
          <Instant at={job.ended} now={now} />
        </small>
      </>
    );
  }
  if (job.remainingS === undefined) return null;
  return (
    <>
      <span>{duration(Number.isNaN(job.completion) ? job.remainingS : (job.completion - now) / 1000)}</span>
      <small>
        <Instant at={job.completion} now={now} />
      </small>
    </>
  );
}
