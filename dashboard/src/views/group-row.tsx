/** The head of a group of jobs: how they are, what they hold, and what they have wasted. */

import { acceleratorTime, count } from "../model/format";
import type { Group } from "../model/groups";
import { Text } from "./parts";

interface Props {
  group: Group;
  index: number;
  top: number;
  isOpen: boolean;
  toggle: (name: string) => void;
}

export function GroupRow({ group, index, top, isOpen, toggle }: Props) {
  const { name, jobs, running, waiting, stuck, failed, held, idle, wastedS } = group;
  const told = (number: number, what: string) => (number > 0 ? [`${count(number)} ${what}`] : []);
  const states = [...told(running, "running"), ...told(waiting, "waiting"), ...told(failed, "failed")];
  return (
    <div
      role="row"
      class={`row group ${idle > 0 ? "bad" : ""}`}
      aria-rowindex={index + 2}
      data-key={group.key}
      style={{ transform: `translateY(${top}px)` }}
    >
      <div role="cell" class="cell">
        <button type="button" class="fold" aria-expanded={isOpen} onClick={() => toggle(name)}>
          <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <b>{name === "" ? "(none)" : <Text>{name}</Text>}</b>
          <span class="number">
            {count(jobs.length)} {jobs.length === 1 ? "job" : "jobs"}
          </span>
        </button>
      </div>
      <div role="cell" class="cell">
        {states.join(", ")}
        {stuck > 0 && <span class="bad-text"> · {count(stuck)} stuck</span>}
      </div>
      <div role="cell" class="cell held">
        {held > 0 && `${count(held)} ${held === 1 ? "accelerator" : "accelerators"}`}
        {idle > 0 && <span class="bad-text"> · {count(idle)} idle</span>}
        {wastedS >= 60 && <small> {acceleratorTime(wastedS)} wasted</small>}
      </div>
    </div>
  );
}
