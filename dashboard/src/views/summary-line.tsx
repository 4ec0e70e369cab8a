import { useMemo } from "preact/hooks";

import { unfiltered, type Filter } from "../model/filter";
import { acceleratorTime, count } from "../model/format";
import type { Job } from "../model/job";
import { summarise } from "../model/summary";
import { useSettings } from "../settings";

interface Props {
  jobs: Iterable<Job>;
  version: number;
  now: number;
  filter: Filter;
  change: (filter: Filter) => void;
  /** Whether anything has been read. */
  isKnown: boolean;
}

const LEAST_S = 30; // less is "0 min"
const NOT_KNOWN = "–";

export function SummaryLine({ jobs, version, now, filter, change, isKnown }: Props) {
  const { zone } = useSettings();
  const minute = Math.floor(now / 60_000);
  const sum = useMemo(() => summarise(jobs, now, zone), [version, minute, zone]);
  const figure = (value: number) => (isKnown ? count(value) : NOT_KNOWN);
  const only = (what: Partial<Filter>) => () => change({ ...unfiltered(filter), ...what });
  return (
    <ul class="summary" aria-label="Summary">
      <Figure
        value={figure(sum.running)}
        name="running"
        note={sum.waiting > 0 ? `${count(sum.waiting)} waiting` : ""}
        choose={only({ phases: ["Running"] })}
      />
      <Figure
        value={figure(sum.stalled)}
        name="stalled"
        kind={sum.stalled > 0 ? "bad" : ""}
        choose={only({ troubles: ["Stalled"] })}
      />
      <Figure
        value={figure(sum.diverged)}
        name="diverged"
        kind={sum.diverged > 0 ? "bad" : ""}
        choose={only({ troubles: ["Diverged"] })}
      />
      <Figure
        value={figure(sum.failedToday)}
        name="failed today"
        kind={sum.failedToday > 0 ? "warn" : ""}
        choose={only({ troubles: ["Failed today"] })}
      />
      <Figure value={figure(sum.held)} name="accelerators" note={sum.idle > 0 ? `${count(sum.idle)} idle` : ""} />
      <Figure
        value={sum.wastedS >= LEAST_S ? acceleratorTime(sum.wastedS) : figure(0)}
        name="wasted"
        note="accelerator time"
        kind={sum.idle > 0 && sum.wastedS >= LEAST_S ? "warn" : ""}
        choose={only({ troubles: ["Wasting"] })}
      />
    </ul>
  );
}

interface FigureProps {
  value: string;
  name: string;
  note?: string;
  kind?: string;
  choose?: () => void;
}

function Figure({ value, name, note, kind, choose }: FigureProps) {
  const inside = (
    <>
      <b>{value}</b>{" "}
      <span>
        {name}
        {note && <small> · {note}</small>}
      </span>
    </>
  );
  return (
    <li class={`figure ${kind ?? ""}`}>
      {choose ? (
        <button type="button" onClick={choose} title={`Show only these: ${name}`}>
          {inside}
        </button>
      ) : (
        <div>{inside}</div>
      )}
    </li>
  );
}
