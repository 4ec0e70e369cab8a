/** One chart and its legend: the metrics of one group, of all jobs that are compared. */

import { useMemo, useState } from "preact/hooks";

import { LineChart, type Range } from "../charts/line-chart";
import { palette } from "../charts/palette";
import { describe, plan, type Line, type Owned, type Plan } from "../charts/series-plan";
import { nameOf, type ComparedJob } from "../model/compared";
import { count, duration, fullTime, metricValue } from "../model/format";
import type { JobLook } from "../model/routes";
import { AXES, type Axis } from "../model/series";
import { time } from "../model/job";
import { visible } from "../model/text";
import { useSettings } from "../settings";
import { useIsDark } from "./theme";

interface Props {
  group: string;
  metrics: readonly string[];
  jobs: readonly ComparedJob[];
  axis: Axis;
  look: JobLook;
  range: Range | undefined;
  zoom: (range: Range | undefined) => void;
  isLarge: boolean;
}

export function CurvePanel({ group, metrics, jobs, axis, look, range, zoom, isLarge }: Props) {
  const { zone } = useSettings();
  const isDark = useIsDark();
  const colours = useMemo(() => palette(isDark), [isDark]);
  const [pointed, point] = useState<number>();
  const [isWide, widen] = useState(false);
  const { isLog, weight } = look;
  const owned = useMemo(() => owners(jobs, metrics), [jobs, metrics.join("\n")]);
  const drawn = useMemo(() => plan(owned, { axis, isLog, weight }), [owned, axis, isLog, weight]);
  const isCompared = jobs.length > 1;
  const colourOf = useMemo(() => {
    const index = (line: Line) =>
      isCompared ? line.job + jobs.length * metrics.indexOf(line.metric) : metrics.indexOf(line.metric);
    const pick = (line: Line) => colours.lines[index(line) % colours.lines.length] ?? colours.text;
    Object.defineProperty(pick, "name", { value: [isDark, isCompared, jobs.length, metrics.join()].join() });
    return pick;
  }, [colours, isCompared, jobs.length, metrics.join("\n")]);
  const marks = useMemo(() => (isCompared ? [] : attemptMarks(jobs[0], axis)), [jobs, axis, isCompared]);
  const at = pointed ?? lastIndex(drawn.columns);
  return (
    <figure class={`curve-panel ${isWide || isLarge ? "wide" : ""}`}>
      <figcaption>
        <h3>
          <bdi>{visible(group)}</bdi>
        </h3>
        <span class="where">{whereText(drawn.columns[0][at], axis, zone)}</span>
        {!isLarge && (
          <button type="button" class="button plain" aria-pressed={isWide} onClick={() => widen(!isWide)}>
            {isWide ? "Smaller" : "Larger"}
          </button>
        )}
      </figcaption>
      <Legend
        entries={entries(drawn.lines).map(({ line, column }) => ({
          line,
          label: label(line, metrics, jobs),
          value: valueNear(drawn, column + 1, at),
          colour: colourOf(line),
        }))}
      />
      <LineChart
        plan={drawn}
        axis={axis}
        isLog={isLog}
        zone={zone}
        colours={colours}
        colourOf={colourOf}
        marks={marks}
        range={range}
        zoom={zoom}
        point={point}
        height={isWide || isLarge ? 340 : 210}
        syncKey={`curves ${axis}`}
        description={[
          `${visible(group)}.`,
          visible(describe(drawn, AXES[axis], metricValue)),
          ...marks.map(({ at: began, label: what }) => `${what} began at ${whereText(began, axis, zone)}.`),
        ].join(" ")}
      />
      <Notes broken={drawn.broken.length} hidden={drawn.hidden} />
    </figure>
  );
}

function owners(jobs: readonly ComparedJob[], metrics: readonly string[]): Owned[] {
  return jobs.flatMap(({ curves: { curves, attempts } }, job) => {
    const first = time(attempts[0]?.startTime) / 1000;
    const start = Number.isNaN(first) ? Math.min(...curves.map((curve) => curve.times[0] ?? Infinity)) : first;
    return metrics.flatMap((metric) =>
      curves.filter((curve) => curve.metric === metric).map((curve) => ({ curve, job, start })),
    );
  });
}

/** Where attempts after the first began. On the axis of steps: where they took up the count again. */
function attemptMarks(job: ComparedJob | undefined, axis: Axis): { at: number; label: string }[] {
  if (!job) return [];
  const { attempts, curves } = job.curves;
  const began = attempts.map((attempt) => time(attempt.startTime) / 1000);
  return attempts.slice(1).flatMap((attempt, index) => {
    const own = curves.filter((curve) => curve.attempt === attempt.number);
    const firstOf = (pick: (curve: (typeof own)[number]) => (number | null)[]) =>
      own.flatMap((curve) => pick(curve).find((value) => value !== null) ?? [])[0];
    const at = {
      step: attempt.firstStep ?? firstOf((curve) => curve.steps),
      epoch: firstOf((curve) => curve.epochs),
      time: began[index + 1],
      relative: (began[index + 1] ?? NaN) - (began[0] ?? NaN),
    }[axis];
    return at === undefined || Number.isNaN(at) ? [] : [{ at, label: `attempt ${attempt.number + 1}` }];
  });
}

/** One entry for each curve of a last attempt: its smoothed line where there is one. */
function entries(lines: readonly Line[]): { line: Line; column: number }[] {
  return lines.flatMap((line, column) => (line.isRaw || !line.isLastAttempt ? [] : [{ line, column }]));
}

function label(line: Line, metrics: readonly string[], jobs: readonly ComparedJob[]): string {
  const job = jobs[line.job];
  if (jobs.length === 1 || !job) return line.metric;
  const name = line.job === 0 ? job.ref.name : nameOf(job.ref);
  return metrics.length === 1 ? name : `${name} ${line.metric}`;
}

interface Entry {
  line: Line;
  label: string;
  value: number | undefined;
  colour: string;
}

function Legend({ entries: shown }: { entries: readonly Entry[] }) {
  return (
    <ul class="legend">
      {shown.map(({ line, label: name, value, colour }) => (
        <li key={`${line.job} ${line.metric}`}>
          <span class="swatch" style={{ background: colour }} aria-hidden="true" />
          <bdi title={visible(name)}>{visible(name)}</bdi>
          <b>{value === undefined ? "" : metricValue(value)}</b>
        </li>
      ))}
    </ul>
  );
}

function Notes({ broken, hidden }: { broken: number; hidden: number }) {
  if (broken === 0 && hidden === 0) return null;
  return (
    <p class="notes">
      {broken > 0 && (
        <span class="bad-text">
          {count(broken)} {broken === 1 ? "value is" : "values are"} NaN or infinite (✕).{" "}
        </span>
      )}
      {hidden > 0 && (
        <span>
          {count(hidden)} {hidden === 1 ? "value" : "values"} of 0 or less cannot be shown on a log scale.
        </span>
      )}
    </p>
  );
}

function lastIndex([xs]: readonly [readonly number[], ...unknown[]]): number {
  return xs.length - 1;
}

/** At this index, or else the last before it; NaN where that is not finite: no older value stands for it. */
function valueNear({ columns, broken }: Plan, column: number, index: number): number | undefined {
  for (let at = index; at >= 0; at--) {
    const value = columns[column]?.[at];
    if (typeof value === "number") return value;
    if (value === null) return broken.includes(columns[0][at] ?? NaN) ? NaN : undefined;
  }
  return undefined;
}

function whereText(x: number | undefined, axis: Axis, zone: string | undefined): string {
  if (x === undefined) return "";
  if (axis === "time") return fullTime(x * 1000, zone);
  if (axis === "relative") return `after ${duration(x)}`;
  return axis === "epoch" ? `epoch ${Number(x.toFixed(3))}` : `step ${count(x)}`;
}
