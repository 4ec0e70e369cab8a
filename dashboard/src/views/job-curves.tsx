/** Every metric of a job as curves, with those of other jobs beside them. */

import { useEffect, useMemo, useState } from "preact/hooks";

import type { Address } from "../api/address";
import type { Range } from "../charts/line-chart";
import { nameOf, readCompared, refOf, type ComparedJob } from "../model/compared";
import type { Fleet } from "../model/fleet";
import type { FollowedJob } from "../model/followed-job";
import { docsLink, type JobLook } from "../model/routes";
import { INSTRUMENT } from "../model/instrument";
import { groupMetrics, metricNames, usableAxes, type Axis } from "../model/series";
import { visible } from "../model/text";
import { Compare, ComparedJobs } from "./compare";
import { CurvePanel } from "./curve-panel";
import { CurveTools } from "./curve-tools";
import { useNow } from "./hooks";
import { Code, Notice } from "./parts";

interface Props {
  address: Address;
  fleet: Fleet;
  followed: FollowedJob;
  look: JobLook;
  change: (look: JobLook) => void;
}

const AGAIN_MS = 30_000;
const NO_JOBS: ComparedJob[] = [];

export function Curves({ address, fleet, followed, look, change }: Props) {
  const { curves, ref, document } = followed;
  const others = useCompared(address, ref.plural, look.others);
  const jobs = useMemo(() => [{ ref, curves, error: undefined }, ...others], [ref, curves, others]);
  const all = useMemo(() => jobs.flatMap((job) => job.curves.curves), [jobs]);
  const axes = usableAxes(all);
  const axis: Axis = look.axis && axes.includes(look.axis) ? look.axis : (axes[0] ?? "step");
  const reported = document?.status.metrics?.map(({ name }) => name) ?? [];
  const names = [...new Set([...reported.filter((name) => metricNames(all).includes(name)), ...metricNames(all)])];
  const groups = groupMetrics(names.filter((name) => look.metrics.length === 0 || look.metrics.includes(name)));
  const [range, zoom] = useState<Range>();
  useEffect(() => zoom(undefined), [axis]);
  if (all.length === 0) return <NoCurves followed={followed} />;
  const error = others.find((job) => job.error);
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
      {error && (
        <Notice kind="warn" title={`${visible(nameOf(error.ref))} cannot be compared.`}>
          {visible(error.error?.message ?? "")}
        </Notice>
      )}
      <div class={`charts ${groups.size === 1 ? "single" : ""}`}>
        {[...groups].map(([group, metrics]) => (
          <CurvePanel
            key={group}
            group={group}
            metrics={metrics}
            jobs={jobs}
            axis={axis}
            look={look}
            range={range}
            zoom={zoom}
            isLarge={groups.size === 1}
          />
        ))}
      </div>
    </section>
  );
}

function useCompared(address: Address, plural: string, names: readonly string[]): ComparedJob[] {
  const [jobs, setJobs] = useState<ComparedJob[]>(NO_JOBS);
  const turn = Math.floor(useNow(AGAIN_MS) / AGAIN_MS);
  const key = names.join(" ");
  useEffect(() => {
    if (names.length === 0) return setJobs(NO_JOBS);
    const stopping = new AbortController();
    const refs = names.flatMap((name) => refOf(name, plural) ?? []);
    void readCompared(address, refs, stopping.signal).then((read) => {
      if (!stopping.signal.aborted) setJobs(read);
    });
    return () => stopping.abort();
  }, [address, plural, key, turn]);
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
  return (
    <section class="panel teaching" aria-labelledby="no-metrics">
      <h2 id="no-metrics">No metrics</h2>
      <p>This job has reported no metric. Three lines in the training loop are enough:</p>
      <Code>{INSTRUMENT}</Code>
      <p>
        <a href={docsLink({ page: "instrument", at: "" })}>How to instrument a training</a>
      </p>
    </section>
  );
}
