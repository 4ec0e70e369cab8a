/** The list, of which only the rows in view are in the document: the page scrolls, whatever the number of jobs. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { EXTRAS, type Filter } from "../model/filter";
import { clock, count } from "../model/format";
import { isGroup, type Group } from "../model/groups";
import { takeLastOpened } from "../model/last-opened";
import type { Job } from "../model/job";
import { beginsWithMost, type SortKey } from "../model/sort";
import type { Sparks } from "../model/sparks";
import { tickAt, TICKS, type Window } from "../model/timeline";
import { useSettings } from "../settings";
import { toggled } from "./filter-bar";
import { GroupRow } from "./group-row";
import { useChanges, useMedia, usePrinting } from "./hooks";
import { JobRow } from "./job-row";
import { Text } from "./parts";

interface Props {
  rows: readonly (Job | Group)[];
  sparks: Sparks;
  filter: Filter;
  change: (filter: Filter) => void;
  now: number;
  isLoading: boolean;
  timeline: Timeline | undefined;
  /** Whether jobs are of several kinds, so that each tells its own. */
  hasKinds: boolean;
  ticked: ReadonlySet<string>;
  tick: (key: string) => void;
}

const EXTRA_PX = 80; // as wide as its head

/** What bars are drawn over, and up to when they are known. */
export interface Timeline {
  readonly window: Window;
  readonly until: number;
}

export const NARROW = "screen and (max-width: 760px)";
const ROW = 46; // pixels; as in fleet.css
const NARROW_ROW = 104;
const SETTLED_MS = 3 * 60_000; // since the end of a job; then its row tells minutes, and is drawn again that often
const FIRST_ROWS = 8;
const MOST_PRINTED = 2000;
const MOST_ROOMY = 2; // columns beside the usual ones that keep their least widths
const BEYOND = 6; // rows drawn above and below what is seen

const COLUMNS: readonly [name: string, sort: SortKey | undefined, kind: string][] = [
  ["Job", "name", "name"],
  ["State", "state", "state"],
  ["Progress", "progress", "progress"],
  ["Metric", "metric", "metric"],
  ["Ends", "end", "end"],
  ["Seen", "seen", "seen"],
  ["Accelerators", "accelerators", "accelerators"],
];

export function JobList({ rows, sparks, filter, change, now, isLoading, timeline, hasKinds, ticked, tick }: Props) {
  const { columns, extras } = filter;
  const { zone } = useSettings();
  const isNarrow = useMedia(NARROW);
  const height = isNarrow ? NARROW_ROW : ROW;
  const body = useRef<HTMLDivElement>(null);
  const [first, last] = useRowsInView(body, height, rows.length);
  const sparked = useChanges(sparks.changed);
  const isPrinted = usePrinting();
  const most = useGrowing(last - first);
  const { focused, ...keys } = useRowKeys(body, rows, height);
  const from = isPrinted ? 0 : first;
  const inView = rows.slice(from, isPrinted ? MOST_PRINTED : Math.min(last, first + most));
  const seen = inView.map((row, at) => ({ row, index: from + at }));
  if (focused && !inView.includes(focused.row)) seen.push(focused); // else the keyboard would lose its place
  useEffect(() =>
    sparks.show(inView.filter((row): row is Job => !isGroup(row) && (!timeline || (row.attempts ?? 1) > 1))),
  );
  const more = extras.length + columns.length + (hasKinds ? 1 : 0);
  const least = `${more > MOST_ROOMY ? 0 : 70}px`;
  const toggle = (name: string) => change({ ...filter, open: toggled(filter.open, name) });
  return (
    <div
      class={`list ${timeline ? "over-time" : ""} ${more > MOST_ROOMY ? "crowded" : ""}`}
      style={{
        "--more": [
          ...extras.map(() => `minmax(${EXTRA_PX}px, 0.8fr)`),
          ...columns.map(() => `minmax(${least}, 0.8fr)`),
        ].join(" "),
        "--kind": hasKinds ? `minmax(${least}, 1fr)` : "",
      }}
      role="table"
      aria-label="Training jobs"
      aria-rowcount={rows.length + 1}
      aria-busy={isLoading}
    >
      <div role="rowgroup" class="head">
        <div role="row" class="row header" aria-rowindex={1}>
          {COLUMNS.slice(0, timeline ? 2 : undefined).map(([name, sort, kind]) => (
            <ColumnHead key={name} name={name} sort={sort} kind={kind} filter={filter} change={change} />
          ))}
          {timeline && (
            <div role="columnheader" class="cell timeline">
              {TICKS.map((at) => (
                <span key={at} style={{ left: `${at}%` }}>
                  {clock(tickAt(timeline.window, at), zone, timeline.until)}
                </span>
              ))}
            </div>
          )}
          {hasKinds && <ColumnHead name="Kind" sort="kind" kind="label of-kind" filter={filter} change={change} />}
          {extras.map((extra) => (
            <ColumnHead
              key={extra}
              name={EXTRAS[extra]}
              sort={extra}
              kind="label extra"
              filter={filter}
              change={change}
            />
          ))}
          {columns.map((label) => (
            <div key={label} role="columnheader" class="cell label">
              <Text>{label}</Text>
            </div>
          ))}
        </div>
      </div>
      <div
        role="rowgroup"
        ref={body}
        class="body"
        style={{ height: `${(isPrinted ? inView.length : rows.length) * height}px` }}
        {...keys}
      >
        {seen.map(({ row, index }) =>
          isGroup(row) ? (
            <GroupRow
              key={row.key}
              group={row}
              index={index}
              top={index * height}
              isOpen={filter.open.includes(row.name)}
              toggle={toggle}
            />
          ) : (
            <JobRow
              key={row.key}
              job={row}
              index={index}
              top={index * height}
              now={now - row.ended > SETTLED_MS ? Math.floor(now / 60_000) * 60_000 : now}
              spark={sparks.of(row)}
              version={sparked}
              hasKind={hasKinds}
              extras={extras}
              columns={columns}
              timeline={timeline}
              isTicked={ticked.has(row.key)}
              tick={tick}
            />
          ),
        )}
      </div>
      {isPrinted && rows.length > inView.length && (
        <p>
          The first {count(inView.length)} of {count(rows.length)} rows.
        </p>
      )}
    </div>
  );
}

interface HeadProps {
  name: string;
  sort: SortKey | undefined;
  kind: string;
  filter: Filter;
  change: (filter: Filter) => void;
}

function ColumnHead({ name, sort, kind, filter, change }: HeadProps) {
  if (sort === undefined)
    return (
      <div role="columnheader" class={`cell ${kind}`}>
        {name}
      </div>
    );
  const isSorted = filter.sort === sort;
  const isDescending = filter.descending !== beginsWithMost(sort);
  const direction = isDescending ? "descending" : "ascending";
  const next = (): Filter => {
    if (!isSorted) return { ...filter, sort, descending: false };
    return filter.descending ? { ...filter, sort: "attention", descending: false } : { ...filter, descending: true };
  };
  return (
    <div role="columnheader" class={`cell ${kind}`} aria-sort={isSorted ? direction : "none"}>
      <button type="button" onClick={() => change(next())}>
        {name}
        <span class="arrow" aria-hidden="true">
          {isSorted ? (isDescending ? "▾" : "▴") : ""}
        </span>
      </button>
    </div>
  );
}

/** How many rows may be drawn: a few in each frame at first, so that no frame takes long, and soon all. */
function useGrowing(wanted: number): number {
  const [most, grow] = useState(FIRST_ROWS);
  useEffect(() => {
    if (most === Infinity || wanted === 0) return;
    const frame = requestAnimationFrame(() => grow(most < wanted ? most + FIRST_ROWS : Infinity));
    return () => cancelAnimationFrame(frame);
  }, [most, wanted]);
  return most;
}

/** Which rows lie in the window, and some beyond it. */
function useRowsInView(body: { current: HTMLDivElement | null }, height: number, all: number): [number, number] {
  const [view, setView] = useState<[number, number]>([0, FIRST_ROWS]); // to ask the window's height is to lay it out
  const measure = () => {
    const top = body.current?.getBoundingClientRect().top ?? 0;
    const first = Math.max(0, Math.floor(-top / height) - BEYOND);
    const last = Math.ceil((window.innerHeight - top) / height) + BEYOND;
    setView((old) => (old[0] === first && old[1] === last ? old : [first, last]));
  };
  useEffect(measure, [height, all]); // after the frame is laid out, so that it is not laid out for this alone
  useEffect(() => {
    let isDue = false;
    const listen = () => {
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(() => {
        isDue = false;
        measure();
      });
    };
    window.addEventListener("scroll", listen, { passive: true });
    window.addEventListener("resize", listen);
    return () => {
      window.removeEventListener("scroll", listen);
      window.removeEventListener("resize", listen);
    };
  }, [height]);
  const first = Math.min(view[0], Math.max(0, all - 1));
  return [first, Math.min(all, Math.max(view[1], first + 1))];
}

/** Arrows, Home and End go from row to row, into those that are not drawn yet too. The focus stays on a job that moves,
 * and goes to the next one when it is gone. */
function useRowKeys<R extends { key: string }>(
  body: { current: HTMLDivElement | null },
  rows: readonly R[],
  height: number,
) {
  const focus = useRef<{ key: string; index: number } | undefined>(undefined);
  const at = focus.current ? rows.findIndex(({ key }) => key === focus.current?.key) : -1;
  const row = rows[at];
  const wanted = useRef<string | undefined>(undefined);
  useLayoutEffect(() => {
    if (focus.current && !row) {
      const next = rows[Math.min(focus.current.index, rows.length - 1)];
      focus.current = undefined;
      const place = linkOf(body.current, next?.key ?? "") ?? body.current?.querySelector<HTMLElement>(LINKS);
      if (document.activeElement === document.body) place?.focus({ preventScroll: true });
    } else if (focus.current) focus.current.index = at;
    if (wanted.current === undefined) return;
    const link = linkOf(body.current, wanted.current);
    if (!link) return;
    wanted.current = undefined;
    link.focus({ preventScroll: true });
  });
  useEffect(() => {
    const back = takeLastOpened();
    const at = back === undefined ? -1 : rows.findIndex((row) => row.key === back);
    if (at < 0 || document.activeElement !== document.body) return;
    scrollToRow(body.current, at * height, height);
    const link = linkOf(body.current, back ?? "");
    if (link) link.focus({ preventScroll: true });
    else wanted.current = back;
  }, []);
  const keyOf = ({ target }: Event) => (target as HTMLElement).closest<HTMLElement>("[data-key]")?.dataset["key"];
  const onFocusIn = (event: FocusEvent) => {
    const key = keyOf(event);
    focus.current = key === undefined ? undefined : { key, index: rows.findIndex((one) => one.key === key) };
  };
  const onFocusOut = ({ target }: FocusEvent) => {
    const left = focus.current;
    // An element that is taken away loses the focus just before.
    setTimeout(() => {
      if ((target as HTMLElement).isConnected && focus.current === left) focus.current = undefined;
    });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const key = keyOf(event);
    const at = rows.findIndex((row) => row.key === key);
    const page = Math.max(1, Math.floor(window.innerHeight / height) - 4);
    const steps: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: rows.length - 1,
    };
    const to = steps[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = rows[Math.max(0, Math.min(rows.length - 1, to))];
    if (!next) return;
    event.preventDefault();
    const index = rows.indexOf(next);
    scrollToRow(body.current, index * height, height);
    const link = linkOf(body.current, next.key);
    if (link) link.focus({ preventScroll: true });
    else wanted.current = next.key;
  };
  return { focused: row && { row, index: at }, onKeyDown, onFocusIn, onFocusOut };
}

const LINKS = ":is(a, button)";

function linkOf(body: HTMLElement | null, key: string): HTMLElement | null {
  return body?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"] ${LINKS}`) ?? null;
}

const HEAD = 110; // what is fixed at the top of the window

function scrollToRow(body: HTMLElement | null, offset: number, height: number): void {
  if (!body) return;
  const top = body.getBoundingClientRect().top + offset;
  if (top < HEAD) window.scrollBy(0, top - HEAD);
  else if (top + height > window.innerHeight) window.scrollBy(0, top + 2 * height - window.innerHeight);
}
