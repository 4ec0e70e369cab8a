/** Every job: figures on top, filters, and the list. */

import { useCallback, useEffect, useMemo, useReducer, useRef } from "preact/hooks";

import type { Address } from "../api/address";
import { serverNow } from "../api/clock";
import type { Fleet } from "../model/fleet";
import { isFiltering, matcher, narrowedTo, unfiltered, type Filter } from "../model/filter";
import { count } from "../model/format";
import { grouped, rowsOf } from "../model/groups";
import { labelsOf } from "../model/labels";
import { windowOf } from "../model/timeline";
import type { Route } from "../model/routes";
import { sorted } from "../model/sort";
import { listTab } from "../model/tab";
import { visible } from "../model/text";
import type { Sparks } from "../model/sparks";
import { useSettings } from "../settings";
import { FilterBar } from "./filter-bar";
import { FleetGoodput } from "./fleet-goodput";
import { JobList } from "./job-list";
import { ListTools } from "./list-tools";
import { TickedJobs } from "./ticked-jobs";
import { TimelineKey } from "./timeline-bars";
import { NoJobs, Refused } from "./fleet-empty";
import { Empty, Notice, PrintedAsOf } from "./parts";
import { SummaryLine } from "./summary-line";
import { useListNotices } from "./notices";
import { useIsLive, useTab } from "./tab";
import { useChanges, useNow } from "./hooks";

interface Props {
  address: Address;
  fleet: Fleet;
  sparks: Sparks;
  filter: Filter;
  go: (route: Route, replace?: boolean) => void;
}

export function FleetView({ address, fleet, sparks, filter, go }: Props) {
  const version = useChanges(fleet.changed);
  const now = useNow();
  const { zone } = useSettings();
  const minute = Math.floor(now / 60_000);
  const shown = useMemo(() => {
    const today = { now: serverNow(), zone };
    const matches = matcher(filter, today);
    return sorted([...fleet.jobs.values()].filter(matches), filter.sort, filter.descending, today);
  }, [fleet, version, filter, zone]);
  const hasKinds = useMemo(() => new Set([...fleet.jobs.values()].map(({ kind }) => kind)).size > 1, [fleet, version]);
  const rows = useMemo(
    () => (filter.group ? rowsOf(grouped(shown, filter.group), filter.open) : shown),
    [shown, filter],
  );
  const [, draw] = useReducer((drawn: number) => drawn + 1, 0);
  const tick = useCallback(
    (key: string) => {
      if (!fleet.ticked.delete(key)) fleet.ticked.add(key);
      draw(undefined as never);
    },
    [fleet],
  );
  const change = (next: Filter, replace = false) => go({ view: "fleet", filter: next }, replace);
  const search = useRef<HTMLInputElement>(null);
  useSearchKey(search);
  const { link } = fleet;
  const isLive = useIsLive(link) && fleet.hasListed;
  const tab = useMemo(() => listTab(fleet.jobs.values(), { now, zone }, isLive), [version, minute, zone, isLive]);
  useTab(tab);
  const until = isLive ? now : (link.asOf ?? now); // what goes on is known up to then
  const seen = filter.span && windowOf(filter.span, until);
  const known = Math.floor(until / 10_000) * 10_000; // the bars are drawn anew every 10 s
  const timeline = useMemo(() => seen && { window: seen, until: known }, [seen?.from, seen?.to, known]);
  useListNotices(fleet, filter, { now, zone }, version);
  if (link.state === "refused" && link.error && fleet.jobs.size === 0) {
    return (
      <main id="content" tabIndex={-1} class="fleet">
        <h1 class="unseen">Training jobs</h1>
        <Refused address={address} error={link.error} retry={() => fleet.hub.retry()} />
      </main>
    );
  }
  const isEmpty = fleet.hasListed && fleet.jobs.size === 0;
  return (
    <main id="content" tabIndex={-1} class="fleet">
      <h1 class="unseen">Training jobs</h1>
      {isEmpty ? (
        <NoJobs />
      ) : (
        <>
          <PrintedAsOf at={until} />
          {isFiltering(filter) && <p class="printed">Narrowed to {visible(narrowedTo(filter))}</p>}
          <SummaryLine
            jobs={fleet.jobs.values()}
            version={version}
            now={now}
            filter={filter}
            change={change}
            isKnown={fleet.hasListed || fleet.jobs.size > 0}
          />
          <FleetGoodput
            address={address}
            filter={filter}
            change={change}
            labels={() => labelsOf(fleet.jobs.values())}
            now={now}
          />
          <FilterBar jobs={fleet.jobs.values()} version={version} filter={filter} change={change} search={search} />
          <div class="list-tools">
            <p class="matches" role="status">
              {wording(shown.length, fleet, isFiltering(filter))}
            </p>
            <span class="fill" />
            <ListTools fleet={fleet} jobs={shown} filter={filter} change={change} asOf={until} />
          </div>
          {fleet.lacks && (
            <Notice kind="calm" title="Only TrainJobs are shown.">
              Other kinds take the right to list and watch trainingjobs. {visible(fleet.lacks)}
            </Notice>
          )}
          {timeline && <TimelineKey />}
          {shown.length > 0 || !fleet.hasListed ? (
            <JobList
              rows={rows}
              sparks={sparks}
              filter={filter}
              change={change}
              now={until}
              isLoading={!fleet.hasListed}
              timeline={timeline}
              hasKinds={hasKinds}
              ticked={fleet.ticked}
              tick={tick}
            />
          ) : (
            <Empty title="No job matches">
              <p>
                {count(fleet.jobs.size)} {fleet.jobs.size === 1 ? "job is" : "jobs are"} there.
              </p>
              <button type="button" class="button" onClick={() => change(unfiltered(filter))}>
                Remove all filters
              </button>
            </Empty>
          )}
          <TickedJobs fleet={fleet} redraw={() => draw(undefined as never)} />
        </>
      )}
    </main>
  );
}

function wording(shown: number, fleet: Fleet, isFiltered: boolean): string {
  if (!fleet.hasListed && fleet.jobs.size === 0) return "Reading the jobs";
  const all = fleet.jobs.size;
  const loading = fleet.remaining > 0 ? `, ${count(fleet.remaining)} more to come` : "";
  if (isFiltered) return `${count(shown)} of ${count(all)} jobs${loading}`;
  return `${count(all)} ${all === 1 ? "job" : "jobs"}${loading}`;
}

/** "/" goes to the search, as on many pages. */
function useSearchKey(search: { current: HTMLInputElement | null }) {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName))
        return;
      event.preventDefault();
      search.current?.focus();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
