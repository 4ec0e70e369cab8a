/** How the list is arranged, kept under a name, and taken along. */

import { useMemo, useState } from "preact/hooks";

import type { Fleet } from "../model/fleet";
import { EXTRAS, MOST_COLUMNS, toQuery, type Extra, type Filter } from "../model/filter";
import { byLabel, groupingName, GROUPINGS, type Grouping } from "../model/groups";
import type { Job } from "../model/job";
import { labelsOf } from "../model/labels";
import { listCsv } from "../model/list-csv";
import { visible } from "../model/text";
import { isSpan, SPAN_NAMES, SPANS, type Span } from "../model/timeline";
import { MOST_VIEWS, removeView, saveView, useChooseSettings, useSettings } from "../settings";
import { toggled } from "./filter-bar";
import { Popover } from "./popover";
import { save } from "./save";
import { NotKept } from "./settings-menu";

interface Props {
  fleet: Fleet;
  /** Those that the list is narrowed to, in its order. */
  jobs: readonly Job[];
  filter: Filter;
  change: (filter: Filter) => void;
  /** As of when the list is known. */
  asOf: number;
}

export function ListTools({ fleet, jobs, filter, change, asOf }: Props) {
  const { group, columns, extras, span } = filter;
  const chosen = extras.length + columns.length;
  const download = () => {
    const at = new Date(asOf).toISOString().slice(0, 19).replaceAll(":", "-");
    save(listCsv(jobs, columns), `training-jobs-${at}Z.csv`, "text/csv");
  };
  return (
    <>
      <label class="span-choice">
        <span class="unseen">Show as</span>
        <select
          value={span ?? ""}
          onChange={({ currentTarget: { value } }) => change({ ...filter, span: isSpan(value) ? value : undefined })}
        >
          <option value="">Table</option>
          {(Object.keys(SPANS) as Span[]).map((one) => (
            <option key={one} value={one}>
              Timeline: {SPAN_NAMES[one]}
            </option>
          ))}
        </select>
      </label>
      <Popover label={group ? `Group: ${visible(groupingName(group))}` : "Group"} isChosen={group !== ""} side="right">
        <Groupings fleet={fleet} filter={filter} change={change} />
      </Popover>
      <Popover label={chosen ? `Columns: ${chosen}` : "Columns"} isChosen={chosen > 0} side="right">
        <ExtraColumns filter={filter} change={change} />
        <LabelColumns fleet={fleet} filter={filter} change={change} />
      </Popover>
      <Popover label="Views" side="right">
        <Views filter={filter} />
      </Popover>
      <button type="button" class="button" disabled={!fleet.hasListed} onClick={download}>
        CSV
      </button>
    </>
  );
}

type ChoiceProps = Pick<Props, "fleet" | "filter" | "change">;
/** Read when the menu is opened. */
const useLabels = (fleet: Fleet) => useMemo(() => labelsOf(fleet.jobs.values()), [fleet]);

function Groupings({ fleet, filter, change }: ChoiceProps) {
  const labels = useLabels(fleet);
  const offered: (Grouping | "")[] = ["", ...(Object.keys(GROUPINGS) as Grouping[]), ...labels.map(byLabel)];
  return (
    <div class="options" role="radiogroup" aria-label="Group by">
      {[...new Set([...offered, filter.group])].map((one) => (
        <label key={one}>
          <input
            type="radio"
            name="group"
            checked={filter.group === one}
            onChange={() => change({ ...filter, group: one, open: [] })}
          />
          <span class="option-name">{one === "" ? "No groups" : visible(groupingName(one))}</span>
        </label>
      ))}
    </div>
  );
}

function ExtraColumns({ filter, change }: Pick<Props, "filter" | "change">) {
  return (
    <div class="options" role="group" aria-label="Further columns">
      {(Object.keys(EXTRAS) as Extra[]).map((extra) => (
        <label key={extra}>
          <input
            type="checkbox"
            checked={filter.extras.includes(extra)}
            onChange={() => change({ ...filter, extras: toggled(filter.extras, extra) })}
          />
          <span class="option-name">{EXTRAS[extra]}</span>
        </label>
      ))}
    </div>
  );
}

function LabelColumns({ fleet, filter, change }: ChoiceProps) {
  const { columns } = filter;
  const labels = useLabels(fleet);
  const offered = [...new Set([...columns, ...labels])];
  return (
    <>
      <div class="options" role="group" aria-label="Labels that have a column">
        {offered.map((label) => (
          <label key={label}>
            <input
              type="checkbox"
              checked={columns.includes(label)}
              disabled={columns.length >= MOST_COLUMNS && !columns.includes(label)}
              onChange={() => change({ ...filter, columns: toggled(columns, label) })}
            />
            <span class="option-name">{visible(label)}</span>
          </label>
        ))}
      </div>
      <small>{offered.length === 0 ? "No job has a label." : `At most ${MOST_COLUMNS} labels.`}</small>
    </>
  );
}

/** Kept by this browser. A view is the address of the list, so it can be sent to others as a link too. */
function Views({ filter }: { filter: Filter }) {
  const settings = useSettings();
  const choose = useChooseSettings();
  const [name, setName] = useState("");
  const query = toQuery(filter).toString();
  const isThere = settings.views.some((view) => view.name === name.trim());
  const isFull = settings.views.length >= MOST_VIEWS && !isThere;
  return (
    <>
      {settings.views.length > 0 && (
        <ul class="views" aria-label="Saved views">
          {settings.views.map((view) => (
            <li key={view.name}>
              <a
                href={`#/?${view.query}`}
                title={visible(view.name)}
                aria-current={view.query === query ? "page" : undefined}
              >
                <bdi>{visible(view.name)}</bdi>
              </a>
              <button
                type="button"
                class="button plain"
                aria-label={`Remove the view ${visible(view.name)}`}
                onClick={() => choose(removeView(settings, view.name))}
              >
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
      <form
        class="save-view"
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim() && !isFull) choose(saveView(settings, { name: name.trim(), query }));
          setName("");
        }}
      >
        <input
          type="text"
          placeholder="Name of this view"
          aria-label="Name of this view"
          maxLength={60}
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <button type="submit" class="button" disabled={!name.trim() || isFull}>
          {isThere ? "Replace" : "Save"}
        </button>
      </form>
      {isFull && <small>At most {MOST_VIEWS} views are kept: remove one first.</small>}
      <NotKept />
    </>
  );
}
