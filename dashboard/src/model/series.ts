/** Curves of a job: what its history holds, continued by what the watch brings. */

import type { Attempt, History, ProgressStatus } from "../api/types";
import { time } from "./job";

export type Axis = "step" | "time" | "relative" | "epoch";
export const AXES: Record<Axis, string> = {
  step: "Step",
  time: "Time",
  relative: "Elapsed",
  epoch: "Epoch",
};

/** Points of one metric in one attempt, by time. Columns of one length; times are seconds since the epoch. */
export interface Curve {
  readonly metric: string;
  readonly attempt: number;
  readonly times: number[];
  readonly steps: (number | null)[];
  readonly epochs: (number | null)[];
  readonly values: number[];
}

/** A part of a run of which no report is kept: the two reports around it. */
export interface Gap extends Places {
  readonly attempt: number;
}

type Places = Pick<Curve, "times" | "steps" | "epochs">;

export interface Curves {
  readonly curves: readonly Curve[];
  readonly attempts: readonly Attempt[];
  readonly gaps: readonly Gap[];
  /** Metrics of which the server keeps no curve: what is there of them the page has seen itself. */
  readonly unkept?: ReadonlySet<string>;
}

export const NOTHING: Curves = { curves: [], attempts: [], gaps: [] };

export function fromHistory(history: History): Curves {
  const curves = history.series.map(({ metric, attempt, times, steps, values }) => ({
    metric,
    attempt,
    times: [...times],
    steps: column(steps, times.length),
    epochs: epochsAt(history, attempt, times),
    values: values.map(toNumber),
  }));
  return { curves, attempts: history.attempts, gaps: history.progress.flatMap(gapsOf) };
}

const FAR = 8; // times as far apart as nearly all others
const FEW_REPORTS = 8;

/** Where far more time and, where steps are counted, far more steps lie between two reports than usual. */
function gapsOf({ attempt, times, steps, epochs }: History["progress"][number]): Gap[] {
  if (times.length < FEW_REPORTS) return [];
  const counted = column(steps, times.length);
  const isFar = (places: readonly (number | null)[], least: number) => {
    const apart = places.slice(1).map((place, at) => (place ?? NaN) - (places[at] ?? NaN));
    const known = apart.filter((one) => one > 0).sort((one, other) => one - other);
    const usual = known[Math.floor(0.9 * (known.length - 1))] ?? Infinity;
    return (at: number) => (apart[at - 1] ?? 0) > Math.max(least, FAR * usual);
  };
  const [isLong, isWide] = [isFar(times, LEAST_LOST_S), isFar(counted, 1)];
  return times.flatMap((_, at) => {
    if (at === 0 || !isLong(at) || (steps && !isWide(at))) return [];
    const around = <T>(of: readonly T[]) => of.slice(at - 1, at + 1);
    return [{ attempt, times: around(times), steps: around(counted), epochs: around(column(epochs, times.length)) }];
  });
}

const MOST_UNKEPT = 1000; // points of one metric

/** `fresh`, with what `before` has of metrics that were reported when it was asked for, and are not in it. */
export function withUnkept(fresh: Curves, before: Curves, reported: readonly string[]): Curves {
  const kept = new Set(metricNames(fresh.curves));
  const unkept = new Set(reported.filter((metric) => !kept.has(metric)));
  if (kept.size === 0 || unkept.size === 0) return fresh;
  const own = before.curves.filter(({ metric }) => unkept.has(metric));
  const newest = <T>(of: readonly T[]) => of.slice(-MOST_UNKEPT);
  const cut = own.map(({ times, steps, epochs, values, ...curve }) => ({
    ...curve,
    times: newest(times),
    steps: newest(steps),
    epochs: newest(epochs),
    values: newest(values),
  }));
  return { ...fresh, curves: [...fresh.curves, ...cut], unkept };
}

function column(values: (number | null)[] | undefined, length: number): (number | null)[] {
  return values ? [...values] : new Array<number | null>(length).fill(null);
}

/** Epochs are kept with the progress, not with each metric: that of the last progress at or before each time. */
function epochsAt(history: History, attempt: number, times: readonly number[]): (number | null)[] {
  const progress = history.progress.find((one) => one.attempt === attempt);
  if (!progress?.epochs) return column(undefined, times.length);
  const { epochs } = progress;
  let at = -1;
  return times.map((instant) => {
    while (at + 1 < progress.times.length && (progress.times[at + 1] ?? Infinity) <= instant) at++;
    return at < 0 ? null : (epochs[at] ?? null);
  });
}

/** "NaN", "Infinity" and "-Infinity" are written so; everything else that is no number is none. */
export function toNumber(text: string): number {
  return text.trim() === "" ? NaN : Number(text);
}

const NO_NUMBER = /^\s*[+-]?(nan|inf|infinity)\s*$/i;

/** `known` with the values of `status`, when they are newer; else `known` itself. */
export function withLatest(known: Curves, status: ProgressStatus): Curves {
  const instant = time(status.lastUpdatedTime) / 1000;
  if (Number.isNaN(instant)) return known;
  const attempt = Math.max(0, ...known.attempts.map(({ number }) => number), ...known.curves.map((one) => one.attempt));
  const curves = new Map(known.curves.map((curve) => [`${curve.attempt} ${curve.metric}`, curve]));
  let isNewer = false;
  for (const { name, value } of status.metrics ?? []) {
    const key = `${attempt} ${name}`;
    const curve = curves.get(key) ?? { metric: name, attempt, times: [], steps: [], epochs: [], values: [] };
    const step = status.steps?.current ?? null;
    const number = toNumber(value);
    if (Number.isNaN(number) && !NO_NUMBER.test(value)) continue; // text
    const last = curve.times.length - 1;
    if (last >= 0 && instant <= (curve.times[last] ?? 0)) continue;
    if (last >= 0 && step !== null && curve.steps[last] === step && curve.values[last] === number) continue;
    // A metric that is reported seldom stays in the document: its old value at a new step is no point of it.
    if (last >= 0 && curve.values[last] === number && name !== status.metrics?.[0]?.name) continue;
    isNewer = true;
    curves.set(key, {
      ...curve,
      times: [...curve.times, instant],
      steps: [...curve.steps, step],
      epochs: [...curve.epochs, status.epochs?.current ?? null],
      values: [...curve.values, number],
    });
  }
  return isNewer ? { ...known, curves: [...curves.values()] } : known;
}

/**
 * When the run began (seconds), as far as that is known: what was reported at first may not be kept any more.
 *
 * A document tells when the attempt of now began. So that is the beginning of the run where there was only one.
 */
export function beginOf({ curves, attempts }: Curves, status: ProgressStatus | undefined) {
  const first = time(attempts[0]?.startTime) / 1000;
  const kept = Number.isNaN(first) ? Math.min(...curves.map((curve) => curve.times[0] ?? Infinity)) : first;
  const began = time(status?.startTime) / 1000;
  const number = status?.attempts ?? 1;
  if (number === 1 && began < kept) return { start: began, isKnown: true };
  return { start: kept, isKnown: number <= Math.max(1, attempts.length) };
}

interface Beginning {
  readonly curves: Curves;
  readonly status: ProgressStatus | undefined;
}

/** Whether any curve has a point in this part of the axis. */
export function hasPointIn(
  jobs: readonly Beginning[],
  axis: Axis,
  { min, max }: { min: number; max: number },
): boolean {
  return jobs.some(({ curves, status }) => {
    const { start } = beginOf(curves, status);
    return curves.curves.some((curve) =>
      positions(curve, axis, start).some((place) => place !== null && place >= min && place <= max),
    );
  });
}

/** Where the points of a curve lie on an axis; null for a point that has no place there. */
export function positions(curve: Places, axis: Axis, start: number): (number | null)[] {
  if (axis === "step") return curve.steps;
  if (axis === "epoch") return curve.epochs;
  return axis === "time" ? curve.times : curve.times.map((instant) => instant - start);
}

/** The axes on which these curves have points. */
export function usableAxes(curves: readonly Curve[]): Axis[] {
  const has = (pick: (curve: Curve) => (number | null)[]) =>
    curves.some((curve) => pick(curve).some((value) => value !== null));
  const axes: Axis[] = [];
  if (has((curve) => curve.steps)) axes.push("step");
  axes.push("time", "relative");
  if (has((curve) => curve.epochs)) axes.push("epoch");
  return axes;
}

export function metricNames(curves: readonly Curve[]): string[] {
  return [...new Set(curves.map((curve) => curve.metric))];
}

const SIDES = /^(train|training|eval|evaluation|val|valid|validation|test|dev)[_/.\- ]+(?=.)/i;

const SOME_POINTS = 10;
const LEAST_LOST_S = 120;

/**
 * Where curves begin, if that is far later than the run did (seconds); undefined else.
 *
 * With several attempts nothing is told: a later one begins long after the run, and nothing is lost by that.
 */
export function keptSince({ curves }: Curves, start: number): { time: number; step: number | null } | undefined {
  if (new Set(curves.map(({ attempt }) => attempt)).size !== 1) return undefined;
  const own = curves.filter(({ times }) => times.length > 1);
  const [first] = own.sort((one, other) => (one.times[0] ?? 0) - (other.times[0] ?? 0));
  const [time, step = null] = [first?.times[0], first?.steps[0]];
  if (!first || time === undefined) return undefined;
  const widest = (of: readonly (number | null)[]) =>
    Math.max(...of.slice(1, SOME_POINTS).map((value, at) => (value ?? 0) - (of[at] ?? 0)));
  const isLost = time - start > Math.max(LEAST_LOST_S, 3 * widest(first.times));
  return isLost && (step === null || step > 3 * widest(first.steps)) ? { time, step } : undefined;
}

/** Metrics that belong into one chart: loss, train_loss and eval/loss are of the group loss. */
export function groupMetrics(names: readonly string[]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const name of names) {
    const group = name.replace(SIDES, "");
    groups.set(group, [...(groups.get(group) ?? []), name]);
  }
  return groups;
}

/** Whether a metric is measured now and then, so that its points are worth showing as points. */
export const isEvaluation = (name: string) =>
  /^(eval|evaluation|val|valid|validation|test|dev)([_/.\- ]|$)/i.test(name);
