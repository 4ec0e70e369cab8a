/** Says that what is shown is old: as of when, why, and when it is tried again. */

import type { Link } from "../api/watch";
import { isStale } from "../model/link";
import type { Fleet } from "../model/fleet";
import { age, clock } from "../model/format";
import { visible } from "../model/text";
import { useSettings } from "../settings";
import { useChanges, useNow } from "./hooks";

export function ConnectionLine({ fleet }: { fleet: Fleet }) {
  useChanges(fleet.changed);
  return <StaleLine link={fleet.link} isShown={fleet.jobs.size > 0} retry={() => fleet.hub.retry()} />;
}

interface Props {
  link: Link;
  /** Whether anything is there that could be old. */
  isShown: boolean;
  retry: () => void;
}

export function StaleLine({ link, isShown, retry }: Props) {
  const now = useNow();
  const { zone } = useSettings();
  const isOld = isStale(link, now) && (isShown || link.state === "lost");
  const { error, asOf, retryAt } = link;
  return (
    <div class="connection">
      <p class={isOld ? "lost" : "quiet"}>
        <span role="status">
          {isOld && (
            <>
              <strong>{headline(link)}</strong>{" "}
              {isShown && asOf !== undefined && `What is shown is as of ${clock(asOf, zone, now)}. `}
              {error && visible(error.message)}
            </>
          )}
        </span>
        {isOld && (
          <>
            {isShown && asOf !== undefined && <span class="muted">{age((now - asOf) / 1000)} old</span>}
            {retryAt !== undefined && (
              <span class="muted">
                {retryAt > now ? `next try in ${age((retryAt - now) / 1000 + 1)}` : "trying now"}
              </span>
            )}
            {error?.code === 401 && (
              <button type="button" class="button" onClick={() => location.reload()}>
                Load the page again
              </button>
            )}
            <button type="button" class="button" onClick={retry}>
              {link.state === "refused" ? "Try again" : "Try now"}
            </button>
          </>
        )}
      </p>
    </div>
  );
}

function headline({ state, error }: Link): string {
  if (state === "refused") return error?.code === 401 ? "You are logged out." : "You may not see this any more.";
  if (state !== "lost") return "Connecting again.";
  if (error?.code === 429) return "The server is busy.";
  return error?.code === 500 ? "The server has failed." : "Connection lost.";
}
