/** Every metric of a job as curves, with those of other jobs beside them. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Address } from "../api/address";
import type { Range } from "../charts/line-chart";
import { nameOf, readCompared, refOf, type ComparedJob } from "../model/compared";
import type { Fleet } from "../model/fleet";
import type { FollowedJob } from "../model/followed-job";
import { docsLink, MOST_OTHERS, type JobLook } from "../model/routes";
import { INSTRUMENT } from "../model/instrument";
import {
  beginOf,
  groupMetrics,
  hasPointIn,
  keptSince,
  metricNames,
  NOTHING,
  positions,
  usableAxes,
  type Axis,
} from "../model/series";
import { visible } from "../model/text";
import { serverNow } from "../api/clock";
import { clock, count } from "../model/format";
import { time } from "../model/job";
import { togglePinned, useChooseSettings, useSettings } from "../settings";
import { Compare, ComparedJobs } from "./compare";
import { CompareTable } from "./compare-table";
import { CurvePanel, whereText } from "./curve-panel";
import { CurveTools } from "./curve-tools";
import { useNow, usePrinting } from "./hooks";
import { AsOf, Code, Notice } from "./parts";

interface Props {
  address: Address;
  fleet: Fleet;
  followed: FollowedJob;
  look: JobLook;
  change: (look: JobLook) => void;
}

const AGAIN_MS = 30_000;
const MOVES_MS = 10_000; // what the last hour is
const NO_JOBS: ComparedJob[] = [];

const MOST_GAPS = 3; // that are told
const MOST_READ = 256; // metrics of a report
const FEW = 8; // charts that need no search
const PAGE = 24; // charts, until more are asked for

export function Curves({ address, fleet, followed, look, change }: Props) {
  const { curves, ref, document } = followed;
  const { zone } = useSettings();
  const others = useCompared(address, look.others.slice(0, MOST_OTHERS));
  const status = document?.status;
  const jobs = useMemo(
    () => [{ ref, curves, error: undefined, asOf: Infinity, status }, ...others],
    [ref, curves, others, status],
  );
  const all = useMemo(() => jobs.flatMap((job) => job.curves.curves), [jobs]);
  const axes = usableAxes(all);
  const axis: Axis = look.axis && axes.includes(look.axis) ? look.axis : (axes[0] ?? "step");
  const reported = document?.status.metrics?.map(({ name }) => name) ?? [];
  const known = metricNames(all);
  const names = [...new Set([...reported.filter((name) => known.includes(name)), ...known])];
  const chosen = names.filter((name) => look.metrics.length === 0 || look.metrics.includes(name));
  const asOf = () => followed.asOf(serverNow());
  const until = Math.floor(asOf() / MOVES_MS) * (MOVES_MS / 1000);
  const { last } = look;
  const range = useMemo(() => {
    if (last !== undefined && axis === "time") return { min: until - last, max: until };
    return look.axis === undefined || look.axis === axis ? look.range : undefined; // it is of its axis
  }, [look, axis, last && until]);
  const zoom = (next: Range | undefined) => change({ ...look, range: next, last: undefined });
  if (all.length === 0) return <NoCurves followed={followed} />;
  return (
    <section class="curves" aria-labelledby="curves">
      <h2 id="curves">Metrics</h2>
      <CurveTools
        address={address}
        jobRef={ref}
        axes={axes}
        axis={axis}
        names={names}
        look={look}
        change={change}
        isZoomed={range !== undefined}
        reset={() => zoom(undefined)}
      >
        <Compare fleet={fleet} jobs={jobs} look={look} change={change} />
      </CurveTools>
      <ComparedJobs jobs={jobs} look={look} change={change} />
      <NotRead jobs={others} />
      {jobs.length > 1 && (
        <AsOf what="Compared jobs are" at={Math.min(...jobs.map((job) => job.asOf))} now={serverNow()} />
      )}
      {jobs.length > 1 && <CompareTable jobs={jobs} metrics={chosen} />}
      {followed.hasAskedHistory && (
        <Missing
          metrics={look.metrics.filter((name) => !names.includes(name))}
          all={() => change({ ...look, metrics: [] })}
        />
      )}
      <CurvesAsOf followed={followed} />
      {reported.length >= MOST_READ && (
        <p class="muted">The server reads {MOST_READ} metrics of a run. Whatever it reports beyond is not shown.</p>
      )}
      <KeptSince followed={followed} />
      <NotKept jobs={jobs} axis={axis} />
      {axis === "relative" && <CountsFrom jobs={jobs} />}
      {range && !hasPointIn(jobs, axis, range) && (
        <Notice
          kind="calm"
          title={`Nothing lies between ${whereText(range.min, axis, zone)} and ${whereText(range.max, axis, zone)}.`}
        >
          "Show all" goes back.
        </Notice>
      )}
      <Charts names={chosen} jobs={jobs} axis={axis} look={look} range={range} zoom={zoom} asOf={asOf} />
    </section>
  );
}

function NotRead({ jobs }: { jobs: readonly ComparedJob[] }) {
  const failed = jobs.filter(({ error }) => error);
  const [first] = failed;
  if (!first) return null;
  const again = failed.every(({ curves }) => curves !== NOTHING) ? " again" : "";
  return (
    <Notice kind="warn" title={`${visible(failed.map(({ ref }) => nameOf(ref)).join(", "))} cannot be read${again}.`}>
      {visible(first.error?.message ?? "")}
    </Notice>
  );
}

/** A link may be of another job, or of an earlier run. */
function Missing({ metrics, all }: { metrics: readonly string[]; all: () => void }) {
  if (metrics.length === 0) return null;
  return (
    <Notice kind="calm" title={`There is no metric ${visible(metrics.join(", "))}.`}>
      <button type="button" class="button" onClick={all}>
        Show all metrics
      </button>
    </Notice>
  );
}

interface ChartsProps {
  names: readonly string[];
  jobs: readonly ComparedJob[];
  axis: Axis;
  look: JobLook;
  range: Range | undefined;
  zoom: (range: Range | undefined) => void;
  asOf: () => number;
}

function Charts({ names, ...shown }: ChartsProps) {
  const settings = useSettings();
  const choose = useChooseSettings();
  const [text, search] = useState("");
  const [isByName, sortByName] = useState(false);
  const [most, show] = useState(PAGE);
  const isPrinted = usePrinting();
  const groups = groupMetrics(names);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const isPinned = (group: string) => settings.pinned.includes(group);
  const found = [...groups].filter(([group, metrics]) => {
    const searched = [group, ...metrics].join(" ").toLowerCase();
    return words.every((word) => searched.includes(word));
  });
  if (isByName) found.sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
  const ordered = [...found.filter(([group]) => isPinned(group)), ...found.filter(([group]) => !isPinned(group))];
  return (
    <>
      {groups.size > FEW && (
        <div class="chart-search" role="search">
          <input
            type="search"
            placeholder="Find a metric"
            aria-label="Find a metric"
            value={text}
            onInput={(event) => search(event.currentTarget.value)}
          />
          <label class="check">
            <input type="checkbox" checked={isByName} onChange={() => sortByName(!isByName)} />
            By name
          </label>
          <span class="muted" role="status">
            {count(found.length)} of {count(groups.size)} charts
          </span>
        </div>
      )}
      <div class={`charts ${groups.size === 1 ? "single" : ""}`}>
        {ordered.slice(0, isPrinted ? undefined : most).map(([group, metrics]) => (
          <CurvePanel
            key={group}
            group={group}
            metrics={metrics}
            isLarge={groups.size === 1}
            isPinned={isPinned(group)}
            pin={() => choose(togglePinned(settings, group))}
            {...shown}
          />
        ))}
      </div>
      {ordered.length > most && (
        <button type="button" class="button" onClick={() => show(most + PAGE)}>
          Show {count(Math.min(PAGE, ordered.length - most))} more of {count(ordered.length - most)}
        </button>
      )}
    </>
  );
}

/** The history could not be read again: what came since is there only as far as the page was open. */
function CurvesAsOf({ followed: { historyError, historyAsOf } }: { followed: FollowedJob }) {
  const { zone } = useSettings();
  if (!historyError) return null;
  const asOf = historyAsOf === undefined ? "" : ` It was last read at ${clock(historyAsOf, zone, serverNow())}.`;
  return (
    <Notice kind="calm" title={historyAsOf === undefined ? "The history cannot be read." : "Curves may have gaps."}>
      {visible(historyError.message)}
      {asOf}
    </Notice>
  );
}

/** A server that kept nothing over a restart has no beginning of the curve. */
function KeptSince({ followed: { curves, document } }: { followed: FollowedJob }) {
  const { zone } = useSettings();
  const from = useMemo(() => keptSince(curves, time(document?.status.startTime) / 1000), [curves, document]);
  if (!from) return null;
  return (
    <p class="muted">
      Curves are kept since {clock(from.time * 1000, zone, serverNow())}
      {from.step !== null && ` (step ${count(from.step)})`}. The run began before.
    </p>
  );
}

/** A server that kept nothing over a restart, or an outage, leaves a gap. */
function NotKept({ jobs, axis }: { jobs: readonly ComparedJob[]; axis: Axis }) {
  const { zone } = useSettings();
  const told = jobs.flatMap(({ ref, curves, status }) =>
    curves.gaps.map((gap) => {
      const [from, to] = positions(gap, axis, beginOf(curves, status).start).map((x) =>
        whereText(x ?? undefined, axis, zone),
      );
      const between = from && to ? `between ${from} and ${to}` : "for a while";
      return `${jobs.length > 1 ? `${visible(nameOf(ref))}: ` : ""}No reports are kept ${between}.`;
    }),
  );
  if (told.length === 0) return null;
  return <p class="muted">{told.slice(0, MOST_GAPS).join(" ")} The lines are interrupted there.</p>;
}

/** Where the first attempts are lost, it is not known when the run began. */
function CountsFrom({ jobs }: { jobs: readonly ComparedJob[] }) {
  const unknown = jobs.filter(({ curves, status }) => !beginOf(curves, status).isKnown);
  if (unknown.length === 0) return null;
  const names = unknown.map(({ ref }) => visible(nameOf(ref).replace(/^[^/]+\/(?=[^/]+$)/, ""))).join(", ");
  return (
    <p class="muted">Elapsed time counts from the first report that is kept of {names}: earlier attempts are not.</p>
  );
}

function useCompared(address: Address, names: readonly string[]): ComparedJob[] {
  const [jobs, setJobs] = useState<ComparedJob[]>(NO_JOBS);
  const latest = useRef(jobs);
  latest.current = jobs;
  const turn = Math.floor(useNow(AGAIN_MS) / AGAIN_MS);
  const key = names.join(" ");
  useEffect(() => {
    if (names.length === 0) return setJobs(NO_JOBS);
    const stopping = new AbortController();
    const refs = names.flatMap((name) => refOf(name) ?? []);
    void readCompared(address, refs, latest.current, stopping.signal).then((read) => {
      if (!stopping.signal.aborted) setJobs(read);
    });
    return () => stopping.abort();
  }, [address, key, turn]);
  return jobs;
}

function NoCurves({ followed }: { followed: FollowedJob }) {
  const { document, historyError, hasAskedHistory } = followed;
  if (!hasAskedHistory) return <p class="muted">Reading the curves</p>;
  const isReporting = (document?.status.metrics?.length ?? 0) > 0;
  if (historyError && isReporting) {
    return (
      <Notice kind="calm" title="No curves.">
        {visible(historyError.message)}
      </Notice>
    );
  }
  const { phase = "Pending", startTime } = document?.status ?? {};
  if (phase !== "Running" && !startTime) return <p class="muted">The run has not begun.</p>;
  return (
    <section class="panel teaching" aria-labelledby="no-metrics">
      <h2 id="no-metrics">No metrics</h2>
      {document?.status.steps || document?.status.epochs ? (
        <p>
          This job reports how far it is, and no metric. With the reporter: <code>r.step(loss=…)</code>.
        </p>
      ) : (
        <>
          <p>This job has reported no metric. Three lines in the training loop are enough:</p>
          <Code>{INSTRUMENT}</Code>
        </>
      )}
      <p>
        <a href={docsLink({ page: "instrument", at: "" })}>How to instrument a training</a>
      </p>
    </section>
  );
}
