/** From curves to what uPlot draws: columns on one axis, a faint raw line and a smoothed one for each curve. */

import { isEvaluation, positions, type Axis, type Curve } from "../model/series";
import { LARGEST, SMALLEST_ON_LOG } from "./range";
import { smooth } from "./smoothing";

/** A curve and what it belongs to: which of the compared jobs, and when its job began (seconds). */
export interface Owned {
  readonly curve: Curve;
  readonly job: number;
  readonly start: number;
}

export interface Line {
  readonly metric: string;
  readonly job: number;
  readonly attempt: number;
  readonly isLastAttempt: boolean;
  readonly isRaw: boolean;
  readonly showsPoints: boolean;
}

export interface Plan {
  /** The axis first, then a column for each of `lines`; undefined is "no point here", null "a gap". */
  readonly columns: [number[], ...(number | null | undefined)[][]];
  readonly lines: readonly Line[];
  /** Axis positions of values that are not finite. */
  readonly broken: readonly number[];
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
  let hidden = 0;
  const lines: Line[] = [];
  const tables: { xs: number[]; values: (number | null)[] }[] = [];
  for (const { curve, job, start } of owned) {
    const { xs, values } = placed(curve, axis, start);
    const shown = values.map((value, at) => {
      if (!(Math.abs(value) <= LARGEST)) {
        broken.push(xs[at] ?? 0);
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
      isLastAttempt: curve.attempt === last,
      showsPoints: isEvaluation(curve.metric) || xs.length <= FEW,
    };
    const isSmoothed = weight > 0 && xs.length > 2 && !isEvaluation(curve.metric);
    tables.push({ xs, values: shown });
    lines.push({ ...line, isRaw: isSmoothed });
    if (isSmoothed) {
      tables.push({ xs, values: smooth(shown, weight) });
      lines.push({ ...line, isRaw: false, showsPoints: false });
    }
  }
  return { columns: join(tables), lines, broken, hidden };
}

/** By position; of several points at one place the last counts (a step that is reported again). */
function placed(curve: Curve, axis: Axis, start: number): { xs: number[]; values: number[] } {
  const at = new Map<number, number>();
  positions(curve, axis, start).forEach((x, index) => {
    if (x !== null) at.set(x, curve.values[index] ?? NaN);
  });
  const xs = [...at.keys()].sort((one, other) => one - other);
  return { xs, values: xs.map((x) => at.get(x) ?? NaN) };
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

/** In a sentence, for those who cannot see the chart. */
export function describe(plan: Plan, axisName: string, format: (value: number) => string): string {
  const parts = plan.lines.flatMap((line, at) => {
    if (line.isRaw && plan.lines[at + 1]?.metric === line.metric) return [];
    const column = (plan.columns[at + 1] ?? []).filter((value): value is number => typeof value === "number");
    const [first] = column;
    const last = column.at(-1);
    if (first === undefined || last === undefined) return [];
    const lowest = column.reduce((least, value) => Math.min(least, value), Infinity);
    const highest = column.reduce((most, value) => Math.max(most, value), -Infinity);
    return [
      `${line.metric}: ${column.length} points, from ${format(first)} to ${format(last)}, between ${format(lowest)} and ${format(highest)}`,
    ];
  });
  return parts.length ? `By ${axisName.toLowerCase()}. ${parts.join(". ")}.` : "No points.";
}
