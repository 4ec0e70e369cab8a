/** A chart of curves, drawn by uPlot on a canvas. Read and zoomed with a mouse, a finger, or keys. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import type { Axis } from "../model/series";
import { duration, tickTexts, timeTicks } from "../model/format";
import { useSize } from "../views/hooks";
import { faint, type Palette } from "./palette";
import { divisible, logTicks } from "./range";
import type { Line, Plan } from "./series-plan";

export interface Range {
  readonly min: number;
  readonly max: number;
}

export interface LineStyle {
  readonly colour: string;
  /** Lengths of dash and gap; none for a whole line. */
  readonly dash: readonly number[];
}

interface Props {
  plan: Plan;
  axis: Axis;
  isLog: boolean;
  zone: string | undefined;
  colours: Palette;
  styleOf: (line: Line) => LineStyle;
  /** Changes when what `styleOf` returns does. */
  styleKey: string;
  /** Positions at which attempts began. */
  marks: readonly { at: number; label: string }[];
  range: Range | undefined;
  zoom: (range: Range | undefined) => void;
  /** The place under the pointer; undefined when there is none. */
  point: (x: number | undefined) => void;
  /** Whether the keyboard is in it. */
  read: (isRead: boolean) => void;
  height: number;
  syncKey: string;
  description: string;
}

export function LineChart(props: Props) {
  const [box, { width }] = useSize<HTMLDivElement>();
  const chart = useRef<uPlot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const { plan, axis, isLog, zone, colours, height, range, description } = props;
  const shape = JSON.stringify([plan.lines, axis, isLog, zone, colours.text, props.styleKey]);
  useLayoutEffect(() => {
    const parent = box.current;
    if (!parent || width === 0) return;
    const made = new uPlot(options(latest, width), plan.columns as uPlot.AlignedData, parent);
    chart.current = made;
    applyRange(made, latest.current.range);
    return () => {
      made.destroy();
      chart.current = undefined;
    };
  }, [shape, width > 0]);
  useEffect(() => {
    if (width > 0) chart.current?.setSize({ width, height });
  }, [width, height]);
  useEffect(() => {
    const drawn = chart.current;
    if (!drawn) return;
    drawn.setData(plan.columns as uPlot.AlignedData, false);
    applyRange(drawn, range);
  }, [plan, range]);
  return (
    <div
      class="plot"
      ref={box}
      role="img"
      tabIndex={0}
      aria-label={description}
      style={{ height: `${height}px` }}
      onFocus={() => props.read(true)}
      onBlur={() => {
        props.read(false);
        chart.current?.setCursor({ left: -10, top: -10 });
      }}
      onKeyDown={(event) => {
        if (chart.current && !readByKey(event, chart.current)) zoomByKey(event, chart.current, latest.current.zoom);
      }}
    />
  );
}

function applyRange(chart: uPlot, range: Range | undefined): void {
  const xs = chart.data[0];
  const first = xs[0];
  const last = xs[xs.length - 1];
  if (first === undefined || last === undefined) return chart.redraw();
  const room = first === last ? 1 : 0;
  const [min, max] = range ? divisible(range.min, range.max) : divisible(first - room, last + room);
  chart.setScale("x", { min, max });
}

function options(latest: { current: Props }, width: number): uPlot.Options {
  const { plan, axis, isLog, zone, colours, styleOf, height, syncKey } = latest.current;
  const font = "11px system-ui, sans-serif";
  const axisLook = { stroke: colours.text, font, grid: { stroke: colours.grid, width: 1 }, ticks: { show: false } };
  return {
    width,
    height,
    padding: [10, axis === "time" || axis === "relative" ? 38 : 20, 0, 0], // half of the last tick's text
    legend: { show: false },
    cursor: {
      drag: { x: true, y: false, setScale: false },
      sync: { key: syncKey, setSeries: false },
      points: { size: 6, width: 1 },
      dataIdx: (chart, series, index) => nearest(chart, series, index),
    },
    scales: {
      x: { time: axis === "time", auto: false },
      y: { distr: isLog ? 3 : 1, range: (_, low, high) => yRange(low, high, isLog) },
    },
    ...(zone === undefined ? {} : { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1e3), zone) }),
    axes: [
      {
        ...axisLook,
        size: 26,
        gap: 4,
        space: axis === "time" ? 92 : 70,
        ...(axis === "time"
          ? {
              values: (_: uPlot, ticks: number[], _at: number, _space: number, step: number) =>
                timeTicks(ticks, step, zone),
            }
          : {}),
        ...(axis === "relative"
          ? { values: (_: uPlot, ticks: number[]) => ticks.map((tick) => duration(tick)), incrs: SPANS }
          : {}),
        ...(axis === "step" ? { values: (_: uPlot, ticks: number[]) => ticks.map(shortCount), incrs: WHOLE } : {}),
      },
      {
        ...axisLook,
        size: (_, texts) => Math.max(54, 14 + 6.4 * Math.max(0, ...(texts ?? []).map((text) => text.length))),
        incrs: TICKS,
        gap: 4,
        ...(isLog
          ? {
              splits: (chart: uPlot, _axis: number, min: number, max: number) =>
                logTicks(min, max, Math.max(2, chart.bbox.height / devicePixelRatio / 30)),
              filter: (_: uPlot, ticks: number[]) => ticks,
            }
          : {}),
        values: (_, ticks, _axis, _space, step) => tickTexts(ticks, isLog ? undefined : step),
      },
    ],
    series: [
      {},
      ...plan.lines.map((line): uPlot.Series => {
        const { colour, dash } = styleOf(line);
        return {
          stroke: line.isRaw
            ? faint(colour, line.isLastAttempt ? "38" : "22")
            : line.isLastAttempt
              ? colour
              : faint(colour, "80"),
          width: line.isRaw ? 1 : 1.8,
          dash: line.isRaw ? [] : [...dash],
          spanGaps: false,
          points: {
            show: line.showsPoints && !line.isRaw,
            filter: (_, index, isShown) =>
              isShown || line.isRaw ? null : [...(latest.current.plan.lone[index - 1] ?? [])],
            size: 5,
            fill: colour,
          },
        };
      }),
    ],
    hooks: {
      setSelect: [
        (chart) => {
          const { left, width: wide } = chart.select;
          if (wide < 4) return;
          const range = { min: chart.posToVal(left, "x"), max: chart.posToVal(left + wide, "x") };
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          latest.current.zoom(range);
        },
      ],
      setCursor: [(chart) => latest.current.point(chart.data[0][chart.cursor.idx ?? -1])],
      ready: [
        (chart) => {
          chart.over.addEventListener("dblclick", () => latest.current.zoom(undefined));
          zoomByFinger(chart);
        },
      ],
      drawClear: [(chart) => drawMarks(chart, latest.current)],
    },
  };
}

const WHOLE = [1, 2, 5]
  .flatMap((one) => Array.from({ length: 13 }, (_, power) => one * 10 ** power))
  .sort((a, b) => a - b);

// Also of a loss that has run away: uPlot's own steps end at 1e16.
const TICKS = Array.from({ length: 330 }, (_, power) =>
  [1, 2, 2.5, 5].map((one) => Number(`${one}e${power - 24}`)),
).flat();

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].concat(
  [2, 5, 10, 20, 50, 100].map((days) => days * 86400),
); // seconds

function shortCount(value: number): string {
  if (value >= 1e9) return `${value / 1e9}G`;
  if (value >= 1e6) return `${value / 1e6}M`;
  return value >= 1e3 ? `${value / 1e3}k` : String(value);
}

/** The nearest point of this curve: other curves may have points in between. */
function nearest(chart: uPlot, series: number, index: number): number {
  const column = chart.data[series];
  if (!column || column[index] != null) return index;
  for (let away = 1; away < 400; away++) {
    if (column[index - away] != null) return index - away;
    if (column[index + away] != null) return index + away;
  }
  return index;
}

function yRange(low: number | null, high: number | null, isLog: boolean): uPlot.Range.MinMax {
  if (low === null || high === null) return isLog ? [0.1, 1] : [0, 1];
  if (isLog) return [low / 1.15, high * 1.15];
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.06;
  return divisible(low - room, high + room);
}

/** Where attempts began, and where values were not finite. */
function drawMarks(chart: uPlot, { marks, plan, colours }: Props): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = colours.mark;
  ctx.fillStyle = colours.text;
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  for (const { at, label } of marks) {
    const x = Math.round(chart.valToPos(at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(label, x + 4 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
  }
  ctx.setLineDash([]);
  ctx.strokeStyle = colours.bad;
  for (const at of plan.broken) {
    const x = Math.round(chart.valToPos(at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    const y = bbox.top + bbox.height;
    const arm = 4 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x - arm, y - 2 * arm);
    ctx.lineTo(x + arm, y);
    ctx.moveTo(x + arm, y - 2 * arm);
    ctx.lineTo(x - arm, y);
    ctx.stroke();
  }
  ctx.restore();
}

/** A finger that is drawn across selects, as the mouse does: uPlot knows no touch. Up and down the page is scrolled. */
function zoomByFinger(chart: uPlot): void {
  const { over } = chart;
  let from: number | undefined;
  const place = (event: PointerEvent) =>
    Math.max(0, Math.min(over.clientWidth, event.clientX - over.getBoundingClientRect().left));
  const select = (to: number, isDone: boolean) => {
    const [left, width] = [Math.min(from ?? to, to), Math.abs(to - (from ?? to))];
    chart.setSelect({ left, width, top: 0, height: over.clientHeight }, isDone);
  };
  over.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") from = event.isPrimary ? place(event) : undefined;
  });
  over.addEventListener("pointermove", (event) => from !== undefined && select(place(event), false));
  over.addEventListener("pointerup", (event) => {
    if (from !== undefined) select(place(event), true);
    from = undefined;
  });
  over.addEventListener("pointercancel", () => {
    if (from !== undefined) select(from, false);
    from = undefined;
  });
}

/** Goes from point to point. Returns whether the key was one for that. */
function readByKey(event: KeyboardEvent, chart: uPlot): boolean {
  const [xs] = chart.data;
  const { min, max } = chart.scales["x"] ?? {};
  if (min == null || max == null || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return false;
  const first = xs.findIndex((x) => x >= min);
  const last = xs.findLastIndex((x) => x <= max);
  const at = chart.cursor.idx ?? last;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: first, End: last }[event.key];
  if (to === undefined) return false;
  event.preventDefault();
  const x = xs[Math.max(first, Math.min(last, to))];
  if (x !== undefined) chart.setCursor({ left: chart.valToPos(x, "x"), top: chart.over.clientHeight / 2 });
  return true;
}

function zoomByKey(event: KeyboardEvent, chart: uPlot, zoom: Props["zoom"]): void {
  const { min, max } = chart.scales["x"] ?? {};
  if (min == null || max == null) return;
  const width = max - min;
  const moves: Record<string, Range | undefined> = {
    "+": { min: min + width / 4, max: max - width / 4 },
    "=": { min: min + width / 4, max: max - width / 4 },
    "-": { min: min - width / 2, max: max + width / 2 },
    ArrowLeft: { min: min - width / 5, max: max - width / 5 },
    ArrowRight: { min: min + width / 5, max: max + width / 5 },
    "0": undefined,
  };
  if (!Object.hasOwn(moves, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  zoom(moves[event.key]);
}
