/** What the curves are drawn over and how. All of it is in the address of the page. */

import type { ComponentChildren } from "preact";

import type { Address } from "../api/address";
import { getHistoryCsv, type JobRef } from "../api/requests";
import type { JobLook } from "../model/routes";
import { AXES, type Axis } from "../model/series";
import { visible } from "../model/text";
import { Popover } from "./popover";

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
          <button key={one} type="button" aria-pressed={one === axis} onClick={() => change({ ...look, axis: one })}>
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
          <div class="options" role="group" aria-label="Metrics">
            {names.map((name) => (
              <div key={name} class="option">
                <label>
                  <input
                    type="checkbox"
                    checked={look.metrics.length === 0 || look.metrics.includes(name)}
                    onChange={() => toggle(name)}
                  />
                  <bdi class="option-name">{visible(name)}</bdi>
                </label>
                <button
                  type="button"
                  class="button plain only"
                  aria-label={`Only ${visible(name)}`}
                  onClick={() => change({ ...look, metrics: [name] })}
                >
                  only
                </button>
              </div>
            ))}
          </div>
          {look.metrics.length > 0 && (
            <button type="button" class="button plain" onClick={() => change({ ...look, metrics: [] })}>
              All
            </button>
          )}
        </Popover>
      )}
      {children}
      <button
        type="button"
        class="button"
        disabled={!isZoomed}
        onClick={reset}
        title="Drag in a chart to zoom; double click, or 0, shows all"
      >
        Show all
      </button>
      <button type="button" class="button" onClick={() => void download(address, jobRef)}>
        CSV
      </button>
    </div>
  );
}

async function download(address: Address, ref: JobRef): Promise<void> {
  const text = await getHistoryCsv(address, ref, {});
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${ref.namespace}-${ref.name}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}
