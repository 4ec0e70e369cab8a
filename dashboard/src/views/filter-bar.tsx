/** Search, and what the list is narrowed to. Every choice says how many jobs it would show of all. */

import type { ComponentChildren, Ref } from "preact";
import { useMemo, useState } from "preact/hooks";

import { hasTrouble, isFiltering, NONE, PHASES, TROUBLES, unfiltered, type Filter, type Today } from "../model/filter";
import { serverNow } from "../api/clock";
import { count } from "../model/format";
import type { Job } from "../model/job";
import { SORTS, type SortKey } from "../model/sort";
import { visible } from "../model/text";
import { useChooseSettings, useSettings } from "../settings";
import { Popover } from "./popover";

interface Props {
  jobs: Iterable<Job>;
  version: number;
  filter: Filter;
  change: (filter: Filter, replace?: boolean) => void;
  search: Ref<HTMLInputElement>;
}

export function FilterBar({ jobs, version, filter, change, search }: Props) {
  const { zone, me } = useSettings();
  const counts = useMemo(() => countAll(jobs, { now: serverNow(), zone }), [version, zone]);
  return (
    <div class="filters" role="search">
      <input
        ref={search}
        type="search"
        class="search"
        placeholder="Search jobs, nodes, queues"
        aria-label="Search by name, namespace, queue or node"
        aria-keyshortcuts="/"
        value={filter.text}
        onInput={(event) => change({ ...filter, text: event.currentTarget.value }, true)}
      />
      <div class="chips" role="group" aria-label="Phase">
        {PHASES.filter((phase) => counts.phase.get(phase) || filter.phases.includes(phase)).map((phase) => (
          <Chip
            key={phase}
            name={phase}
            number={counts.phase.get(phase) ?? 0}
            isOn={filter.phases.includes(phase)}
            toggle={() => change({ ...filter, phases: toggled(filter.phases, phase) })}
          />
        ))}
      </div>
      <div class="chips" role="group" aria-label="Condition">
        {TROUBLES.filter((trouble) => counts.trouble.get(trouble) || filter.troubles.includes(trouble)).map(
          (trouble) => (
            <Chip
              key={trouble}
              name={trouble}
              number={counts.trouble.get(trouble) ?? 0}
              isOn={filter.troubles.includes(trouble)}
              toggle={() => change({ ...filter, troubles: toggled(filter.troubles, trouble) })}
            />
          ),
        )}
      </div>
      <div class="choices">
        <Choice
          name="Namespace"
          counts={counts.namespace}
          chosen={filter.namespaces}
          change={(namespaces) => change({ ...filter, namespaces })}
        />
        <Choice
          name="Queue"
          counts={counts.queue}
          chosen={filter.queues}
          change={(queues) => change({ ...filter, queues })}
        />
        <Choice
          name="Kind"
          counts={counts.kind}
          chosen={filter.kinds}
          change={(kinds) => change({ ...filter, kinds })}
        />
        <Choice
          name="Owner"
          counts={counts.owner}
          chosen={filter.owners}
          change={(owners) => change({ ...filter, owners })}
        >
          <Me owners={counts.owner} />
        </Choice>
        {me && (
          <Chip
            name="Mine"
            number={counts.owner.get(me) ?? 0}
            isOn={filter.owners.length === 1 && filter.owners[0] === me}
            toggle={() => change({ ...filter, owners: filter.owners.includes(me) ? [] : [me] })}
          />
        )}
        <label class="sort-choice">
          <span class="unseen">Sort by</span>
          <select
            value={filter.sort}
            onChange={(event) => change({ ...filter, sort: event.currentTarget.value as SortKey, descending: false })}
          >
            {Object.entries(SORTS).map(([key, name]) => (
              <option key={key} value={key}>
                Sort: {name}
              </option>
            ))}
          </select>
        </label>
        {isFiltering(filter) && (
          <button type="button" class="button plain" onClick={() => change(unfiltered(filter))}>
            Remove filters
          </button>
        )}
      </div>
    </div>
  );
}

interface ChipProps {
  name: string;
  number: number;
  isOn: boolean;
  toggle: () => void;
}

function Chip({ name, number, isOn, toggle }: ChipProps) {
  return (
    <button type="button" class="chip" aria-pressed={isOn} onClick={toggle}>
      {name} <span class="number">{count(number)}</span>
    </button>
  );
}

interface ChoiceProps {
  name: string;
  counts: Map<string, number>;
  chosen: readonly string[];
  change: (chosen: string[]) => void;
  children?: ComponentChildren;
}

const MANY = 10;
const MOST_SHOWN = 200;

/** Nothing to choose from is no choice: one namespace, one kind. */
function Choice({ name, counts, chosen, change, children }: ChoiceProps) {
  const [text, setText] = useState("");
  if (counts.size < 2 && chosen.length === 0) return null;
  const values = [...new Set([...chosen, ...[...counts.keys()].sort()])];
  const found = values.filter((value) => value.toLowerCase().includes(text.toLowerCase()));
  const label = (value: string) => (value === NONE && (name === "Queue" || name === "Owner") ? "none" : visible(value));
  const summary =
    chosen.length === 0 ? name : `${name}: ${chosen.length === 1 ? label(chosen[0] ?? "") : chosen.length}`;
  return (
    <Popover label={summary} isChosen={chosen.length > 0}>
      {values.length > MANY && (
        <input
          type="search"
          placeholder={`Find a ${name.toLowerCase()}`}
          aria-label={`Find a ${name.toLowerCase()}`}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      )}
      <div class="options" role="group" aria-label={name}>
        {found.slice(0, MOST_SHOWN).map((value) => (
          <label key={value}>
            <input type="checkbox" checked={chosen.includes(value)} onChange={() => change(toggled(chosen, value))} />
            <span class="option-name">{label(value)}</span>
            <span class="number">{count(counts.get(value) ?? 0)}</span>
          </label>
        ))}
        {found.length > MOST_SHOWN && (
          <p class="muted">{count(found.length - MOST_SHOWN)} more: type a part of the name.</p>
        )}
      </div>
      {chosen.length > 0 && (
        <button type="button" class="button plain" onClick={() => change([])}>
          All
        </button>
      )}
      {children}
    </Popover>
  );
}

/** Kubernetes does not tell the page who its viewer is in the words of a label, so the viewer says it. */
function Me({ owners }: { owners: Map<string, number> }) {
  const settings = useSettings();
  const choose = useChooseSettings();
  const names = [...new Set([settings.me, ...[...owners.keys()].sort()])].filter((name) => name && name !== NONE);
  return (
    <label class="field">
      Mine are those of
      <select value={settings.me} onChange={(event) => choose({ ...settings, me: event.currentTarget.value })}>
        <option value="">nobody</option>
        {names.slice(0, MOST_SHOWN).map((name) => (
          <option key={name} value={name}>
            {visible(name)}
          </option>
        ))}
      </select>
    </label>
  );
}

export function toggled<T>(chosen: readonly T[], value: T): T[] {
  return chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value];
}

function countAll(jobs: Iterable<Job>, today: Today) {
  const counts = {
    phase: new Map<string, number>(),
    trouble: new Map<string, number>(),
    namespace: new Map<string, number>(),
    queue: new Map<string, number>(),
    kind: new Map<string, number>(),
    owner: new Map<string, number>(),
  };
  const add = (to: Map<string, number>, value: string) => to.set(value, (to.get(value) ?? 0) + 1);
  for (const job of jobs) {
    add(counts.phase, job.phase);
    add(counts.namespace, job.namespace);
    add(counts.queue, job.queue || NONE);
    add(counts.owner, job.owner || NONE);
    add(counts.kind, job.kind);
    for (const trouble of TROUBLES) if (hasTrouble(job, trouble, today)) add(counts.trouble, trouble);
  }
  return counts;
}
