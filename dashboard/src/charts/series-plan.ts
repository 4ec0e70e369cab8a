/** From curves to what uPlot draws: columns on one axis, a faint raw line and a smoothed one for each curve. */

import { isSchedule } from "../model/main-metric";
import { isEvaluation, positions, type Axis, type Curve, type Gap } from "../model/series";
import { LARGEST, SMALLEST_ON_LOG } from "./range";
import { smooth } from "./smoothing";

/** A curve and what it belongs to: which of the compared jobs, and when its job began (seconds). */
export interface Owned {
  readonly curve: Curve;
  readonly job: number;
  readonly start: number;
  /** Of the same attempt. */
  readonly gaps?: readonly Gap[];
}

export interface Line {
  readonly metric: string;
  readonly job: number;
  readonly attempt: number;
  /** Counted anew whenever the run steps back within its attempt: then what it did after that place counts no more. */
  readonly pass: number;
  /** Whether it is the last pass of the last attempt: what counts now. */
  readonly isLastAttempt: boolean;
  readonly isRaw: boolean;
  readonly showsPoints: boolean;
}

/** A curve by position on the axis, with its values as they were reported. */
export interface Placed {
  readonly line: Line;
  readonly xs: readonly number[];
  readonly values: readonly number[];
  /** Of each of `values`; undefined where the curve is not smoothed. */
  readonly smoothed: readonly (number | null)[] | undefined;
  /** When its last value was reported (seconds). */
  readonly until: number;
}

export interface Plan {
  /** The axis first, then a column for each of `lines`; undefined is "no point here", null "a gap". */
  readonly columns: [number[], ...(number | null | undefined)[][]];
  readonly lines: readonly Line[];
  readonly curves: readonly Placed[];
  /** For each of `lines`: where a point has no neighbour that a line could lead to. */
  readonly lone: readonly (readonly number[])[];
  /** Axis positions of values that are not drawn: not finite, or too large for an axis. */
  readonly broken: readonly number[];
  /** How many of them are finite. */
  readonly large: number;
  /** How many values a logarithmic axis cannot show. */
  readonly hidden: number;
}

export interface Look {
  readonly axis: Axis;
  readonly isLog: boolean;
  readonly weight: number;
}

const FEW = 40; // points that are shown as such, however they are measured

export function plan(owned: readonly Owned[], { axis, isLog, weight }: Look): Plan {
  const broken: number[] = [];
  let [hidden, large] = [0, 0];
  const lines: Line[] = [];
  const curves: Placed[] = [];
  const tables: { xs: number[]; values: (number | null)[] }[] = [];
  const parts = owned.flatMap(({ curve, job, start, gaps = [] }) =>
    passesOf(curve, axis, start).map((part) => ({ curve, job, ...part, breaks: breaksOf(part.xs, gaps, axis, start) })),
  );
  for (const { curve, job, pass, isLastPass, until, xs, values, breaks } of parts) {
    const shown = values.map((value, at) => {
      if (!(Math.abs(value) <= LARGEST)) {
        broken.push(xs[at] ?? 0);
        if (Number.isFinite(value)) large++;
        return null;
      }
      if (isLog && value < SMALLEST_ON_LOG) {
        hidden++;
        return null;
      }
      return value;
    });
    const last = Math.max(...owned.filter((one) => one.job === job).map((one) => one.curve.attempt));
    const line = {
      metric: curve.metric,
      job,
      attempt: curve.attempt,
      pass,
      isLastAttempt: curve.attempt === last && isLastPass,
      showsPoints: isEvaluation(curve.metric) || xs.length <= FEW,
    };
    const isSmoothed = weight > 0 && xs.length > 2 && !isEvaluation(curve.metric) && !isSchedule(curve.metric);
    const smoothed = isSmoothed ? smooth(shown, weight, xs) : undefined;
    const unknown = breaks.map(() => null);
    tables.push({ xs: [...xs, ...breaks], values: [...shown, ...unknown] });
    lines.push({ ...line, isRaw: isSmoothed });
    curves.push({ line: { ...line, isRaw: false }, xs, values, smoothed, until });
    if (smoothed) {
      tables.push({ xs: [...xs, ...breaks], values: [...smoothed, ...unknown] });
      lines.push({ ...line, isRaw: false, showsPoints: false });
    }
  }
  const columns = join(tables);
  return { columns, lines, curves, lone: columns.slice(1).map(lonePoints), broken, large, hidden };
}

const MOST_PASSES = 8; // a run whose steps come in disorder steps back all the time

interface Pass {
  readonly pass: number;
  readonly isLastPass: boolean;
  readonly until: number;
  readonly xs: number[];
  readonly values: number[];
}

/** The passes of a curve, each by position; of several points at one place the last counts (a step that is reported
 * again). */
function passesOf(curve: Curve, axis: Axis, start: number): Pass[] {
  const places = positions(curve, axis, start);
  const begins = [0];
  let before = -Infinity;
  places.forEach((x, index) => {
    if (x === null) return;
    if (x < before) begins.push(index);
    before = x;
  });
  const from = begins.length > MOST_PASSES ? [0] : begins;
  return from.map((begin, pass) => {
    const end = from[pass + 1] ?? places.length;
    const at = new Map<number, number>();
    for (let index = begin; index < end; index++) {
      const x = places[index];
      if (x !== null && x !== undefined) at.set(x, curve.values[index] ?? NaN);
    }
    const xs = [...at.keys()].sort((one, other) => one - other);
    const values = xs.map((x) => at.get(x) ?? NaN);
    return { pass, isLastPass: pass === from.length - 1, until: curve.times[end - 1] ?? NaN, xs, values };
  });
}

/** Places between two neighbours where no line leads from one to the other. */
function breaksOf(xs: readonly number[], gaps: readonly Gap[], axis: Axis, start: number): number[] {
  return gaps.flatMap((gap) => {
    const [from, to] = positions(gap, axis, start);
    if (from == null || to == null || !(from < to)) return [];
    const next = xs.findIndex((x) => x >= to);
    const before = xs[next - 1];
    return before !== undefined && before <= from ? [(from + to) / 2] : [];
  });
}

/** Where the newest value that counts lies; undefined where there is none. */
export function newest({ curves }: Plan): number | undefined {
  const own = curves.filter(({ line, xs }) => line.isLastAttempt && xs.length > 0);
  const [first, ...rest] = own;
  return rest.reduce((one, other) => (other.until > (one?.until ?? NaN) ? other : one), first)?.xs.at(-1);
}

/** Where the last attempt of a job has stepped back to. */
export function stepsBack({ curves }: Plan): number[] {
  const last = Math.max(...curves.map(({ line }) => line.attempt));
  const found = curves.filter(({ line }) => line.attempt === last && line.pass > 0);
  return [...new Set(found.flatMap(({ xs }) => xs[0] ?? []))];
}

function join(tables: readonly { xs: number[]; values: (number | null)[] }[]): Plan["columns"] {
  const xs = [...new Set(tables.flatMap((table) => table.xs))].sort((one, other) => one - other);
  const index = new Map(xs.map((x, at) => [x, at]));
  const columns = tables.map((table) => {
    const column = new Array<number | null | undefined>(xs.length).fill(undefined);
    table.xs.forEach((x, at) => {
      column[index.get(x) ?? 0] = table.values[at] ?? null;
    });
    return column;
  });
  return [xs, ...columns];
}

function lonePoints(column: readonly (number | null | undefined)[]): number[] {
  const places = column.flatMap((value, at) => (value === undefined ? [] : [at])); // undefined interrupts no line
  const isGap = (at: number | undefined) => at === undefined || column[at] === null;
  return places.filter((place, at) => !isGap(place) && isGap(places[at - 1]) && isGap(places[at + 1]));
}

/** What a curve has at a place: there, or else at the last point before it. */
export function valueAt(
  curve: Placed,
  x: number,
): { x: number; value: number; smoothed: number | undefined } | undefined {
  let [low, high] = [0, curve.xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((curve.xs[middle] ?? 0) <= x) low = middle + 1;
    else high = middle;
  }
  const [at, value] = [curve.xs[low - 1], curve.values[low - 1]];
  if (at === undefined || value === undefined) return undefined;
  return { x: at, value, smoothed: curve.smoothed?.[low - 1] ?? undefined };
}

/** The curves that are told of at `x`: of each job and metric those attempts that were there, else the last. */
export function curvesAt({ curves }: Plan, x: number | undefined): Placed[] {
  if (x === undefined) return curves.filter(({ line }) => line.isLastAttempt);
  const isThere = ({ xs }: Placed) => (xs[0] ?? Infinity) <= x && x <= (xs.at(-1) ?? -Infinity);
  const same = (one: Placed, other: Placed) => one.line.job === other.line.job && one.line.metric === other.line.metric;
  return curves.filter(
    (curve) =>
      isThere(curve) || (curve.line.isLastAttempt && !curves.some((other) => same(curve, other) && isThere(other))),
  );
}

/** What an earlier part of a curve is called. */
export function earlier(line: Line, curves: readonly Placed[]): string {
  const isLast = (one: Line) => one.job === line.job && one.attempt === line.attempt && one.pass > line.pass;
  const own = curves.some((one) => one.line.metric === line.metric && isLast(one.line));
  return `${own ? "before a step back in" : "of"} attempt ${line.attempt + 1}`;
}

/** In a sentence, for those who cannot see the chart: the values as they were reported. */
export function describe({ curves }: Plan, axisName: string, format: (value: number) => string): string {
  const parts = curves.flatMap(({ line, values }) => {
    const finite = values.filter((value) => Math.abs(value) <= LARGEST);
    const [first] = finite;
    const last = finite.at(-1);
    if (first === undefined || last === undefined) return [];
    const lowest = finite.reduce((least, value) => Math.min(least, value), Infinity);
    const highest = finite.reduce((most, value) => Math.max(most, value), -Infinity);
    const name = line.isLastAttempt ? line.metric : `${line.metric} ${earlier(line, curves)}`;
    const bad = values.length - finite.length;
    return [
      `${name}: ${finite.length} points, from ${format(first)} to ${format(last)}, between ${format(lowest)} and ${format(highest)}` +
        (bad > 0 ? `, and ${bad} that are not finite or too large` : ""),
    ];
  });
  return parts.length ? `By ${axisName.toLowerCase()}. ${parts.join(". ")}.` : "No points.";
}
