/** One job: where it is, what is wrong, its curves, and everything else that is known of it. */

import { useEffect, useMemo } from "preact/hooks";

import type { Address } from "../api/address";
import { RECORDS, type JobRef } from "../api/requests";
import type { Fleet } from "../model/fleet";
import { opened } from "../model/last-opened";
import { FollowedJob } from "../model/followed-job";
import { backLink, type Route } from "../model/routes";
import { jobTab } from "../model/tab";
import { visible } from "../model/text";
import { ConditionList } from "./job-conditions";
import { Attempts } from "./job-attempts";
import { StaleLine } from "./connection-line";
import { Curves } from "./job-curves";
import { Events } from "./job-events";
import { Diagnosis } from "./job-diagnosis";
import { Failure, RunningLog } from "./job-failure";
import { JobGoodput } from "./job-goodput";
import { JobHead } from "./job-head";
import { Reading } from "./job-reading";
import { EarlierRuns, OfRecord } from "./job-records";
import { Replicas } from "./job-replicas";
import { useJobNotices } from "./notices";
import { useIsLive, useTab } from "./tab";
import { Yaml } from "./job-yaml";
import { Empty, Notice, PrintedAsOf } from "./parts";
import { useChanges, useNow } from "./hooks";

interface Props {
  address: Address;
  fleet: Fleet;
  route: Extract<Route, { view: "job" }>;
  go: (route: Route, replace?: boolean) => void;
}

export function JobView({ address, fleet, route, go }: Props) {
  const { ref, look } = route;
  const followed = useMemo(() => new FollowedJob(fleet.hub, address, ref), [fleet.hub, address]);
  useEffect(() => {
    followed.start();
    return () => followed.stop();
  }, [followed]);
  useChanges(followed.changed);
  useFocus(ref);
  const now = useNow();
  const { document: found, link, isGone } = followed;
  const name = visible(ref.name);
  const isRecord = ref.plural === RECORDS;
  const isLive = useIsLive(link) && !isGone && !isRecord;
  useTab(jobTab(ref.name, found?.status, isLive || isRecord));
  useJobNotices(ref, found);
  const earlier = !isRecord && (
    <EarlierRuns address={address} jobRef={ref} uid={found?.metadata.uid} look={look} now={now} />
  );
  const diagnosis = found && (
    <Diagnosis address={address} jobRef={ref} status={found.status} now={now} isLive={isLive} />
  );
  return (
    <>
      <StaleLine link={link} isShown={found !== undefined} retry={() => fleet.hub.retry()} />
      <main id="content" tabIndex={-1} class="job">
        <nav aria-label="Path" class="path">
          <a href={backLink()}>All jobs</a> <span aria-hidden="true">/</span> <bdi>{visible(ref.namespace)}</bdi>
        </nav>
        {!found && (
          <>
            <h1>
              <bdi>{name}</bdi>
            </h1>
            <Missing followed={followed} retry={() => fleet.hub.retry()} />
            {isGone && earlier}
          </>
        )}
        {found && (
          <>
            <PrintedAsOf at={followed.asOf(now)} />
            <JobHead
              plural={ref.plural}
              document={found}
              now={now}
              asOf={followed.asOf(now)}
              isGone={isGone || isRecord}
            />
            {isRecord && <OfRecord document={found} />}
            {isGone && (
              <Notice kind="warn" title="This job has been deleted.">
                What is shown is the last that was known of it.
              </Notice>
            )}
            <Failure address={address} jobRef={ref} status={found.status} now={now} />
            {found.status.diagnosis && diagnosis}
            <ConditionList status={found.status} now={now} asOf={followed.asOf(now)} />
            <JobGoodput
              job={found}
              now={now}
              asOf={followed.asOf(now)}
              window={look.window}
              choose={(window) => go({ ...route, look: { ...look, window } }, true)}
            />
            <Curves
              address={address}
              fleet={fleet}
              followed={followed}
              look={look}
              change={(next) => go({ ...route, look: next }, true)}
            />
            <Attempts attempts={followed.curves.attempts} job={found} asOf={followed.asOf(now)} now={now} />
            {earlier}
            {!isRecord && (
              <>
                <div class="facts">
                  <Replicas address={address} jobRef={ref} job={found} now={now} />
                  <Reading status={found.status} now={now} isLive={isLive} />
                </div>
                {!found.status.diagnosis && diagnosis}
                <RunningLog address={address} jobRef={ref} status={found.status} />
                <Events
                  address={address}
                  jobRef={ref}
                  job={found.metadata}
                  kind={(found.kind ?? "").replace(/Progress$/, "")}
                  pod={found.status.rank0?.podName}
                  now={now}
                />
              </>
            )}
            <Yaml address={address} jobRef={ref} version={found.metadata.resourceVersion} />
          </>
        )}
      </main>
    </>
  );
}

/** The keyboard goes on in the job that was opened, not at the top of the page. */
function useFocus(ref: JobRef) {
  useEffect(() => {
    opened(ref);
    const isFree = document.activeElement === document.body || document.activeElement === null;
    if (isFree) document.getElementById("content")?.focus({ preventScroll: true });
  }, []);
}

const REFUSALS: Record<number, string> = {
  401: "The server does not know who you are",
  403: "You may not see this job",
};

function Missing({ followed, retry }: { followed: FollowedJob; retry: () => void }) {
  const { link, isGone } = followed;
  if (link.state === "refused") {
    return (
      <Empty title={REFUSALS[link.error?.code ?? 0] ?? "This job cannot be shown"}>
        <p class="server-says">{visible(link.error?.message ?? "")}</p>
        {link.error?.code === 403 && (
          <p>
            It takes the right to <code>get</code> <code>{visible(followed.ref.plural)}</code> of{" "}
            <code>visibility.trainer.kubeflow.org</code> in the namespace <bdi>{visible(followed.ref.namespace)}</bdi>.
          </p>
        )}
        <button type="button" class="button" onClick={retry}>
          Try again
        </button>
      </Empty>
    );
  }
  if (isGone) {
    return (
      <Empty title="There is no such job">
        <p>It may have been deleted, or its name is another one.</p>
      </Empty>
    );
  }
  return <p class="muted">Reading the job</p>;
}
