/** One chart and its legend: the metrics of one group, of all jobs that are compared. */

import { useMemo, useState } from "preact/hooks";

import { LineChart, type LineStyle, type Range } from "../charts/line-chart";
import { DASHES, palette } from "../charts/palette";
import {
  curvesAt,
  describe,
  earlier,
  newest,
  plan,
  stepsBack,
  valueAt,
  type Line,
  type Owned,
  type Placed,
} from "../charts/series-plan";
import { bestOf, type Best } from "../model/best";
import { nameOf, type ComparedJob } from "../model/compared";
import { serverNow } from "../api/clock";
import { clock, count, duration, exactValue, fullTime, metricValue } from "../model/format";
import { csv } from "../model/list-csv";
import { jobLink, type JobLook } from "../model/routes";
import { AXES, beginOf, type Axis } from "../model/series";
import { time } from "../model/job";
import { visible } from "../model/text";
import { useSettings } from "../settings";
import { savePicture } from "./chart-picture";
import { fileName, save } from "./save";
import { usePrinting, useSeen } from "./hooks";
import { Swatch } from "./swatch";
import { useIsDark } from "./theme";

interface Props {
  group: string;
  metrics: readonly string[];
  jobs: readonly ComparedJob[];
  axis: Axis;
  look: JobLook;
  range: Range | undefined;
  zoom: (range: Range | undefined) => void;
  /** As of when the job is known. */
  asOf: () => number;
  isLarge: boolean;
  isPinned: boolean;
  pin: () => void;
}

const MOST_KEPT = 64;
const STEP_BACK = "step back";
const NO_REF = { plural: "", namespace: "", name: "" };

/** Its curves are worked out and drawn while it is seen: a job may have hundreds of metrics. */
export function CurvePanel(props: Props) {
  const { group, isLarge, isPinned, pin, jobs, axis, look, metrics, asOf } = props;
  const [isWide, widen] = useState(false);
  const [panel, isSeen] = useSeen<HTMLElement>();
  const isPrinted = usePrinting();
  const height = isWide || isLarge ? 340 : 210;
  return (
    <figure class={`curve-panel ${isWide || isLarge ? "wide" : ""}`} ref={panel}>
      <figcaption>
        <h3>
          <bdi>{visible(group)}</bdi>
        </h3>
        {!isLarge && (
          <>
            <button
              type="button"
              class="button plain pin"
              aria-pressed={isPinned}
              aria-label={`Keep ${visible(group)} on top`}
              title="Keep on top, for all jobs"
              onClick={pin}
            >
              {isPinned ? "★" : "☆"}
            </button>
            <a
              class="button plain"
              href={jobLink(jobs[0]?.ref ?? NO_REF, { ...look, metrics: [...metrics] })}
              title="This chart alone, as it is zoomed"
            >
              Link
            </a>
            <button type="button" class="button plain" aria-pressed={isWide} onClick={() => widen(!isWide)}>
              {isWide ? "Smaller" : "Larger"}
            </button>
          </>
        )}
        <button
          type="button"
          class="button plain"
          aria-label={`CSV of ${visible(group)}`}
          onClick={() => save(csv(pointsOf(jobs, metrics)), fileName(group, "csv"), "text/csv")}
        >
          CSV
        </button>
        <button
          type="button"
          class="button plain"
          aria-label={`PNG of ${visible(group)}`}
          disabled={!isSeen}
          onClick={() =>
            panel.current &&
            void savePicture(panel.current, {
              jobs: jobs.map(({ ref }) => nameOf(ref)).join(", "),
              axis: AXES[axis],
              weight: look.weight,
              asOf: asOf(),
            })
          }
        >
          PNG
        </button>
      </figcaption>
      {isSeen || isPrinted ? <Chart {...props} height={height} /> : <div style={{ height: `${height + 26}px` }} />}
    </figure>
  );
}

function Chart({ group, metrics, jobs, axis, look, range, zoom, height }: Props & { height: number }) {
  const { zone } = useSettings();
  const isDark = useIsDark();
  const colours = useMemo(() => palette(isDark), [isDark]);
  const [pointed, point] = useState<number>();
  const [isRead, read] = useState(false);
  const { isLog, weight } = look;
  const owned = useMemo(() => owners(jobs, metrics), [jobs, metrics.join("\n")]);
  const drawn = useMemo(() => plan(owned, { axis, isLog, weight }), [owned, axis, isLog, weight]);
  const isCompared = jobs.length > 1;
  const styleOf = ({ job, metric }: Line): LineStyle => {
    const at = metrics.indexOf(metric);
    const colour = colours.lines[(isCompared ? job : at) % colours.lines.length] ?? colours.text;
    return { colour, dash: isCompared ? (DASHES[at % DASHES.length] ?? []) : [] };
  };
  const marks = useMemo(
    () =>
      isCompared
        ? []
        : [...attemptMarks(jobs[0], axis), ...stepsBack(drawn).map((back) => ({ at: back, label: STEP_BACK }))],
    [jobs, axis, isCompared, drawn],
  );
  const at = pointed ?? newest(drawn) ?? drawn.columns[0].at(-1);
  return (
    <>
      <Legend
        where={whereText(at, axis, zone)}
        isSaid={isRead && pointed !== undefined}
        entries={curvesAt(drawn, pointed).map((curve) => ({
          line: curve.line,
          label: label(curve.line, metrics, jobs, drawn.curves),
          style: styleOf(curve.line),
          best: isCompared || pointed !== undefined ? undefined : bestOf(curve.line.metric, curve.values),
          ...told(curve, pointed ?? Infinity, at, axis, zone),
        }))}
      />
      <LineChart
        plan={drawn}
        axis={axis}
        isLog={isLog}
        zone={zone}
        colours={colours}
        styleOf={styleOf}
        styleKey={[isDark, isCompared, metrics.join()].join()}
        marks={marks}
        range={range}
        zoom={zoom}
        point={point}
        read={read}
        height={height}
        syncKey={`curves ${axis}`}
        description={[
          `${visible(group)}.`,
          visible(describe(drawn, AXES[axis], metricValue)),
          ...marks.map(
            ({ at: place, label: what }) =>
              `${what} ${what === STEP_BACK ? "to" : "began at"} ${whereText(place, axis, zone)}.`,
          ),
        ].join(" ")}
      />
      <Notes {...drawn} broken={drawn.broken.length - drawn.large} />
      <Unkept job={jobs[0]} metrics={metrics} />
    </>
  );
}

function owners(jobs: readonly ComparedJob[], metrics: readonly string[]): Owned[] {
  return jobs.flatMap(({ curves: all, status }, job) => {
    const { start } = beginOf(all, status);
    const { curves } = all;
    return metrics.flatMap((metric) =>
      curves
        .filter((curve) => curve.metric === metric)
        .map((curve) => ({ curve, job, start, gaps: all.gaps.filter(({ attempt }) => attempt === curve.attempt) })),
    );
  });
}

function pointsOf(jobs: readonly ComparedJob[], metrics: readonly string[]) {
  const rows = owners(jobs, metrics).flatMap(({ curve: { metric, attempt, times, steps, epochs, values }, job }) =>
    times.map((at, place) => [
      nameOf(jobs[job]?.ref ?? NO_REF),
      metric,
      attempt + 1,
      steps[place] ?? undefined,
      epochs[place] ?? undefined,
      new Date(at * 1000).toISOString(),
      values[place],
    ]),
  );
  return [["job", "metric", "attempt", "step", "epoch", "time", "value"], ...rows];
}

/** Where attempts after the first began. On the axis of steps: where they took up the count again. */
function attemptMarks(job: ComparedJob | undefined, axis: Axis): { at: number; label: string }[] {
  if (!job) return [];
  const { attempts, curves } = job.curves;
  const { start } = beginOf(job.curves, job.status);
  const began = attempts.map((attempt) => time(attempt.startTime) / 1000);
  return attempts.slice(1).flatMap((attempt, index) => {
    const own = curves.filter((curve) => curve.attempt === attempt.number);
    const firstOf = (pick: (curve: (typeof own)[number]) => (number | null)[]) => {
      const firsts = own.flatMap((curve) => pick(curve).find((value) => value !== null) ?? []);
      return firsts.length > 0 ? Math.min(...firsts) : undefined;
    };
    const at = {
      step: firstOf((curve) => curve.steps) ?? attempt.firstStep,
      epoch: firstOf((curve) => curve.epochs),
      time: began[index + 1],
      relative: (began[index + 1] ?? NaN) - start,
    }[axis];
    return at === undefined || Number.isNaN(at) ? [] : [{ at, label: `attempt ${attempt.number + 1}` }];
  });
}

function label(
  line: Line,
  metrics: readonly string[],
  jobs: readonly ComparedJob[],
  curves: readonly Placed[],
): string {
  const job = jobs[line.job];
  const attempt = line.isLastAttempt ? "" : ` ${earlier(line, curves).replace(/^of /, "")}`;
  if (jobs.length === 1 || !job) return line.metric + attempt;
  const name = line.job === 0 ? job.ref.name : nameOf(job.ref);
  return (metrics.length === 1 ? name : `${name} ${line.metric}`) + attempt;
}

interface Told {
  value: number | undefined;
  smoothed: number | undefined;
  /** Where the value is from, if that is not the place of the legend. */
  own: string;
}

/** What a curve has at `x`, or at the last point before it; `at` is the place of the legend. */
function told(curve: Placed, x: number, at: number | undefined, axis: Axis, zone: string | undefined): Told {
  const found = valueAt(curve, x);
  if (!found) return { value: undefined, smoothed: undefined, own: "" };
  return { value: found.value, smoothed: found.smoothed, own: found.x === at ? "" : whereText(found.x, axis, zone) };
}

interface Entry extends Told {
  line: Line;
  label: string;
  style: LineStyle;
  best: Best | undefined;
}

function Legend({ where, entries, isSaid }: { where: string; entries: readonly Entry[]; isSaid: boolean }) {
  return (
    <div class="legend-line" aria-live={isSaid ? "polite" : "off"}>
      <ul class="legend">
        {entries.map(({ line, label: name, value, smoothed, own, style, best }) => (
          <li key={`${line.job} ${line.attempt} ${line.pass} ${line.metric}`}>
            <Swatch {...style} />
            <bdi title={visible(name)}>{visible(name)}</bdi>
            <b>{value === undefined ? "" : exactValue(value)}</b>
            {smoothed !== undefined && <small>smoothed {metricValue(smoothed)}</small>}
            {own && <small>{own}</small>}
            {best && best.value !== value && (
              <small>
                {best.name} {metricValue(best.value)}
              </small>
            )}
          </li>
        ))}
      </ul>
      <span class="where">{where}</span>
    </div>
  );
}

/** Of metrics beyond those that the server keeps, the page draws what it has seen itself. */
function Unkept({ job, metrics }: { job: ComparedJob | undefined; metrics: readonly string[] }) {
  const { zone } = useSettings();
  const own = job?.curves.curves.filter(({ metric }) => metrics.includes(metric) && job.curves.unkept?.has(metric));
  if (!own || own.length === 0) return null;
  const since = Math.min(...own.map(({ times }) => times[0] ?? Infinity));
  const names = metrics.length === 1 ? "this one" : own.map(({ metric }) => visible(metric)).join(", ");
  return (
    <p class="notes muted">
      The server keeps curves of {MOST_KEPT} metrics of a run, and not of {names}. The page has drawn it since{" "}
      {clock(since * 1000, zone, serverNow())}, as long as it is open.
    </p>
  );
}

interface Left {
  broken: number;
  large: number;
  hidden: number;
}

function Notes({ broken, large, hidden }: Left) {
  if (broken + large + hidden === 0) return null;
  const many = (number: number) => `${count(number)} ${number === 1 ? "value" : "values"}`;
  return (
    <p class="notes">
      {broken > 0 && (
        <span class="bad-text">
          {many(broken)} {broken === 1 ? "is" : "are"} NaN or infinite (✕) of those that are kept.{" "}
        </span>
      )}
      {large > 0 && (
        <span class="bad-text">
          {many(large)} {large === 1 ? "is" : "are"} too large to be drawn (✕) of those that are kept.{" "}
        </span>
      )}
      {hidden > 0 && <span>{many(hidden)} of 0 or less cannot be shown on a log scale.</span>}
    </p>
  );
}

export function whereText(x: number | undefined, axis: Axis, zone: string | undefined): string {
  if (x === undefined) return "";
  if (axis === "time") return fullTime(x * 1000, zone);
  if (axis === "relative") return `after ${duration(x)}`;
  return axis === "epoch" ? `epoch ${Number(x.toFixed(3))}` : `step ${count(x)}`;
}
