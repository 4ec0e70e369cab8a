/** Notifications of what has become of jobs, for those who have asked for them. */

import { useEffect, useMemo, useRef } from "preact/hooks";

import type { Fleet } from "../model/fleet";
import { matcher, type Filter, type Today } from "../model/filter";
import { count } from "../model/format";
import { toJob } from "../model/job";
import { fleetLink, jobLink } from "../model/routes";
import { Outcomes, outcomeOf, withoutState, type NotifiedJob, type Outcome } from "../model/tab";
import { visible } from "../model/text";
import type { JobDocument } from "../api/types";
import type { JobRef } from "../api/requests";
import { useSettings } from "../settings";
import { notify } from "./tab";

const MOST = 3; // more at once are told as one

const told = ({ job, outcome }: NotifiedJob) => `${visible(job.name)} ${outcome}`;

/** Of the jobs that the list is narrowed to, whatever their state. */
export function useListNotices(fleet: Fleet, filter: Filter, today: Today, version: number): void {
  const { notifies } = useSettings();
  const key = JSON.stringify(withoutState(filter));
  const outcomes = useMemo(() => new Outcomes(), [fleet, key, notifies]);
  useEffect(() => {
    if (!notifies || !fleet.hasListed) return;
    const matches = matcher(withoutState(filter), today);
    const found = outcomes.take([...fleet.jobs.values()].filter(matches), today.now);
    if (found.length > MOST) {
      const first = found.slice(0, MOST).map(told).join(", ");
      notify(`${count(found.length)} jobs have failed, stalled or diverged`, `${first}, …`, "list", fleetLink(filter));
    } else for (const one of found) tell(one);
  }, [outcomes, version]);
}

export function useJobNotices(ref: JobRef, document: JobDocument | undefined): void {
  const { notifies } = useSettings();
  const before = useRef<{ uid: string | undefined; outcome: Outcome } | undefined>(undefined);
  useEffect(() => {
    if (!document) return;
    const job = toJob(ref.plural, document);
    const outcome = outcomeOf(job);
    const known = before.current;
    before.current = { uid: job.uid, outcome };
    if (notifies && known?.uid === job.uid && outcome && outcome !== known.outcome) tell({ job, outcome });
  }, [document, notifies]);
}

function tell(one: NotifiedJob): void {
  const { job, outcome } = one;
  notify(told(one), [job.namespace, job.why].filter(Boolean).map(visible).join(" · "), job.key + outcome, jobLink(job));
}
