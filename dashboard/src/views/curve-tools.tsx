/** What the curves are drawn over and how. All of it is in the address of the page. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import type { Address } from "../api/address";
import { getHistoryCsv, type JobRef } from "../api/requests";
import { count } from "../model/format";
import type { JobLook } from "../model/routes";
import { AXES, type Axis } from "../model/series";
import { visible } from "../model/text";
import { Popover } from "./popover";
import { save } from "./save";

interface Props {
  address: Address;
  jobRef: JobRef;
  axes: readonly Axis[];
  axis: Axis;
  names: readonly string[];
  look: JobLook;
  change: (look: JobLook) => void;
  isZoomed: boolean;
  reset: () => void;
  children: ComponentChildren;
}

export function CurveTools({ address, jobRef, axes, axis, names, look, change, isZoomed, reset, children }: Props) {
  const toggle = (name: string) => {
    const chosen = look.metrics.length === 0 ? names : look.metrics;
    const next = chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name];
    change({ ...look, metrics: next.length === names.length ? [] : next });
  };
  return (
    <div class="tools">
      <div class="segments" role="group" aria-label="Over">
        {axes.map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === axis}
            onClick={() => change({ ...look, axis: one, range: undefined, last: undefined })}
          >
            {AXES[one]}
          </button>
        ))}
      </div>
      <label class="slider">
        Smoothing
        <input
          type="range"
          min="0"
          max="0.99"
          step="0.01"
          value={look.weight}
          onInput={(event) => change({ ...look, weight: Number(event.currentTarget.value) })}
        />
        <output>{look.weight.toFixed(2)}</output>
      </label>
      <label class="check">
        <input type="checkbox" checked={look.isLog} onChange={() => change({ ...look, isLog: !look.isLog })} />
        Log scale
      </label>
      {names.length > 1 && (
        <Popover
          label={look.metrics.length === 0 ? "All metrics" : `${look.metrics.length} of ${names.length} metrics`}
          isChosen={look.metrics.length > 0}
        >
          <MetricChoice
            names={names}
            chosen={look.metrics}
            toggle={toggle}
            only={(name) => change({ ...look, metrics: [name] })}
          />
          {look.metrics.length > 0 && (
            <button type="button" class="button plain" onClick={() => change({ ...look, metrics: [] })}>
              All
            </button>
          )}
        </Popover>
      )}
      {children}
      {axes.includes("time") && (
        <button
          type="button"
          class="button"
          aria-label="Last hour of the curves"
          aria-pressed={look.last === HOUR_S}
          onClick={() =>
            change({ ...look, axis: "time", range: undefined, last: look.last === HOUR_S ? undefined : HOUR_S })
          }
        >
          Last hour
        </button>
      )}
      <button
        type="button"
        class="button"
        disabled={!isZoomed}
        onClick={reset}
        title="Drag in a chart to zoom; double click, or 0, shows all"
      >
        Show all
      </button>
      <Download address={address} jobRef={jobRef} />
    </div>
  );
}

const HOUR_S = 3600;
const MANY = 12; // names that take a search
const MOST = 60; // names in the list

interface ChoiceProps {
  names: readonly string[];
  /** None means all. */
  chosen: readonly string[];
  toggle: (name: string) => void;
  only: (name: string) => void;
}

function MetricChoice({ names, chosen, toggle, only }: ChoiceProps) {
  const [text, search] = useState("");
  const found = names.filter((name) => name.toLowerCase().includes(text.toLowerCase()));
  return (
    <>
      {names.length > MANY && (
        <input
          type="search"
          placeholder="Find a metric"
          aria-label="Find a metric to choose"
          value={text}
          onInput={(event) => search(event.currentTarget.value)}
        />
      )}
      <div class="options" role="group" aria-label="Metrics">
        {found.slice(0, MOST).map((name) => (
          <div key={name} class="option">
            <label>
              <input
                type="checkbox"
                checked={chosen.length === 0 || chosen.includes(name)}
                disabled={chosen.length === 1 && chosen[0] === name}
                onChange={() => toggle(name)}
              />
              <bdi class="option-name">{visible(name)}</bdi>
            </label>
            <button
              type="button"
              class="button plain only"
              aria-label={`Only ${visible(name)}`}
              onClick={() => only(name)}
            >
              only
            </button>
          </div>
        ))}
        {found.length > MOST && <p class="muted">{count(found.length - MOST)} more: type a part of the name.</p>}
      </div>
    </>
  );
}

function Download({ address, jobRef }: { address: Address; jobRef: JobRef }) {
  const [error, fail] = useState<Error>();
  const download = async () => {
    fail(undefined);
    try {
      const text = await getHistoryCsv(address, jobRef, {});
      save(text, `${jobRef.namespace}-${jobRef.name}.csv`, "text/csv");
    } catch (cause) {
      fail(cause as Error);
    }
  };
  return (
    <>
      <button type="button" class="button" onClick={() => void download()}>
        CSV
      </button>
      <span role="status" class="bad-text">
        {error && `No CSV: ${visible(error.message)}`}
      </span>
    </>
  );
}
