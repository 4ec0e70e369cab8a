/** Where the time of all jobs went, in groups. It is summed by the server, and read while it is open and seen. */

import { useState } from "preact/hooks";

import type { Address } from "../api/address";
import { ApiError } from "../api/http";
import { getSums } from "../api/requests";
import type { JobSums, SumsOfJobs } from "../api/types";
import { isFiltering, type Filter } from "../model/filter";
import { acceleratorTime, count } from "../model/format";
import { KINDS, partsOf, percentage, WINDOWS, type Window } from "../model/goodput";
import { time } from "../model/job";
import { docsLink } from "../model/routes";
import { isSumming, SUMMINGS, summingName, weighed, type Summing } from "../model/sums";
import { LABEL } from "../model/labels";
import { visible } from "../model/text";
import { usePolled } from "./hooks";
import { WindowChoice } from "./job-goodput";
import { AsOf, Notice, Text } from "./parts";
import { KindSwatch, SpentBar } from "./spent-bar";

interface Props {
  address: Address;
  filter: Filter;
  change: (filter: Filter, replace?: boolean) => void;
  /** That jobs have. */
  labels: () => string[];
  now: number;
}

const AGAIN_MS = 60_000; // of 10,000 jobs they take the server 0.3 s
const LATE_MS = 150_000; // what is read each minute, and a minute for the answer
const USUAL = { by: "namespace", window: "day" } as const;

export function FleetGoodput({ address, filter, change, labels, now }: Props) {
  const { sums } = filter;
  const toggle = (event: Event) => {
    event.preventDefault(); // the address opens it
    change({ ...filter, sums: sums ? undefined : USUAL }, true);
  };
  return (
    <details class="panel goodput" open={sums !== undefined}>
      <summary onClick={toggle}>
        <h2>Where the time went</h2>
        {!sums && <span class="muted">of all jobs, by namespace, queue, kind, node pool or label</span>}
      </summary>
      {sums && <Sums {...{ address, filter, change, labels, now, sums }} />}
    </details>
  );
}

function Sums({ address, filter, change, labels, now, sums }: Props & { sums: NonNullable<Filter["sums"]> }) {
  const { by, window } = sums;
  const { value, error } = usePolled((signal) => getSums(address, { sumBy: by, window }, signal), {
    of: `${by} ${window}`,
    when: "again",
    everyMs: AGAIN_MS,
  });
  const choose = (next: Partial<typeof sums>) => change({ ...filter, sums: { ...sums, ...next } }, true);
  return (
    <>
      <div class="goodput-head">
        <Grouping by={by} labels={labels} choose={(next) => choose({ by: next })} />
        <WindowChoice windows={ALL_WINDOWS} chosen={window} choose={(next) => choose({ window: next })} />
        <span class="fill" />
        {value && isFiltering(filter) && <p class="muted">Of all jobs, not only of those that the list shows.</p>}
      </div>
      {!value && !error && <p class="muted">Summing the jobs</p>}
      {!value && error && <NoSums error={error} />}
      {value && <AsOf what="Sums are" at={time(value.time)} now={now} lateMs={LATE_MS} />}
      {value && <SumsTable {...{ value, by, window, filter, change }} />}
    </>
  );
}

const ALL_WINDOWS = Object.keys(WINDOWS) as Window[];

interface GroupingProps {
  by: Summing;
  labels: () => string[];
  choose: (by: Summing) => void;
}

function Grouping({ by, labels, choose }: GroupingProps) {
  const [known] = useState(labels);
  const offered = [...Object.keys(SUMMINGS), ...known.map((label) => LABEL + label), by];
  return (
    <label>
      By{" "}
      <select
        aria-label="Sum by"
        value={by}
        onChange={({ currentTarget: { value } }) => {
          if (isSumming(value)) choose(value);
        }}
      >
        {[...new Set(offered)].filter(isSumming).map((one) => (
          <option key={one} value={one}>
            {visible(summingName(one))}
          </option>
        ))}
      </select>
    </label>
  );
}

function NoSums({ error }: { error: Error }) {
  const isForbidden = error instanceof ApiError && error.code === 403;
  return (
    <Notice kind="calm" title={isForbidden ? "You may not see these sums." : "The sums cannot be read."}>
      {isForbidden && (
        <>
          They take the right to <code>list</code> <code>trainingjobs</code>.{" "}
        </>
      )}
      {visible(error.message)}
    </Notice>
  );
}

interface TableProps {
  value: JobSums;
  by: Summing;
  window: Window;
  filter: Filter;
  change: (filter: Filter) => void;
}

function SumsTable({ value, by, window, filter, change }: TableProps) {
  const { total, groups, others } = value;
  const rows: [name: string | undefined, sums: SumsOfJobs][] = [
    ...(groups.length > 1 ? [["All", total] as [string, SumsOfJobs]] : []),
    ...groups.map((group): [undefined, SumsOfJobs] => [undefined, group]),
    ...(others ? [["All others", others] as [string, SumsOfJobs]] : []),
  ];
  const present = new Set(rows.flatMap(([, sums]) => partsOf(weighed(sums).seconds).map(({ kind }) => kind.key)));
  const kinds = KINDS.filter(({ key }) => present.has(key));
  const unit = weighed(total).unit;
  return (
    <>
      <ul class="kinds" aria-label="Kinds of time">
        {kinds.map((kind) => (
          <li key={kind.key} title={kind.meaning}>
            <KindSwatch kind={kind} /> {kind.name}
          </li>
        ))}
      </ul>
      <div class="scrolled" tabIndex={0} role="group" aria-label={`Time by ${summingName(by).toLowerCase()}`}>
        <table class="sums">
          <caption class="unseen">
            {WINDOWS[window]}, by {visible(summingName(by))}
          </caption>
          <thead>
            <tr>
              <th>{visible(summingName(by))}</th>
              <th class="bar-of">Spent on</th>
              <th class="right">Goodput</th>
              <th class="right">{unit === "accelerators" ? "Accelerator time" : "Time"}</th>
              <th class="right">Jobs</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([title, sums]) => (
              <SumsRow key={title ?? `group ${sums.name ?? ""}`} {...{ title, sums, by, unit, filter, change }} />
            ))}
          </tbody>
        </table>
      </div>
      <details>
        <summary>As a table</summary>
        <div class="scrolled" tabIndex={0} role="group" aria-label="Time by kind">
          <table class="by-kind">
            <thead>
              <tr>
                <th>{visible(summingName(by))}</th>
                {kinds.map(({ key, name }) => (
                  <th key={key} class="right">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(([title, sums]) => (
                <tr key={title ?? `group ${sums.name ?? ""}`}>
                  <th scope="row">{title ?? <GroupName name={sums.name} />}</th>
                  {kinds.map(({ key }) => (
                    <td key={key} class="right">
                      {told(weighed(sums).seconds[key] ?? 0)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        <p class="muted">
          {unit === "accelerators"
            ? "Time of accelerators; of groups that request none, time of jobs. "
            : "Time of jobs: none requests accelerators. "}
          What is hatched counts as wasted.{" "}
          <a href={docsLink({ page: "goodput", at: "many-jobs" })}>More about goodput</a>
        </p>
      </details>
    </>
  );
}

const told = (seconds: number) => (seconds > 0 ? acceleratorTime(seconds) : "");

function GroupName({ name }: { name: string | undefined }) {
  return name === undefined ? <>(none)</> : <Text>{name}</Text>;
}

interface RowProps {
  title: string | undefined;
  sums: SumsOfJobs;
  by: Summing;
  unit: "accelerators" | "jobs";
  filter: Filter;
  change: (filter: Filter) => void;
}

function SumsRow({ title, sums, by, unit, filter, change }: RowProps) {
  const { seconds, all, unit: own } = weighed(sums);
  const share = sums.goodput.percentage;
  const name = title ?? sums.name;
  const narrow = title === undefined && sums.name !== undefined ? narrowed(filter, by, sums.name) : undefined;
  return (
    <tr>
      <th scope="row">
        {narrow ? (
          <button type="button" class="button plain" onClick={() => change(narrow)} title="Show only these jobs">
            <GroupName name={sums.name} />
          </button>
        ) : (
          (title ?? <GroupName name={sums.name} />)
        )}
      </th>
      <td class="bar-of">
        <SpentBar parts={partsOf(seconds)} label={visible(name ?? "none")} tell={acceleratorTime} height={18} />
      </td>
      <td class="right">{share !== undefined && percentage(share)}</td>
      <td class="right">
        {told(all)}
        {own !== unit && <small> of jobs</small>}
      </td>
      <td class="right">
        {count(sums.jobs)}
        {sums.running > 0 && <small> {count(sums.running)} running</small>}
      </td>
    </tr>
  );
}

function narrowed(filter: Filter, by: Summing, name: string): Filter | undefined {
  if (by === "namespace") return { ...filter, namespaces: [name] };
  if (by === "queue") return { ...filter, queues: [name] };
  return by === "kind" ? { ...filter, kinds: [name] } : undefined;
}
