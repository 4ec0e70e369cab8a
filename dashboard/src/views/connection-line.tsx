/** Says that what is shown may be old, since when, and when it is tried again. */

import { overall, type Fleet } from "../model/fleet";
import { age } from "../model/format";
import { visible } from "../model/text";
import { useChanges, useNow } from "./hooks";
import type { Connection } from "../api/watch";

export function ConnectionLine({ fleet }: { fleet: Fleet }) {
  useChanges(fleet.changed, 250);
  return <LostConnection connection={overall(fleet.connections.values())} retry={() => fleet.retryNow()} />;
}

export function LostConnection({ connection, retry }: { connection: Connection; retry: () => void }) {
  const now = useNow();
  const lost = connection.state === "lost" ? connection : undefined;
  const refused = connection.state === "refused" && connection.hasBeenLive ? connection : undefined;
  return (
    <div class="connection">
      <p class={lost || refused ? "lost" : "quiet"}>
        <span role="status">
          {refused && (
            <>
              <strong>{refused.error.code === 401 ? "You are logged out." : "You may not see this any more."}</strong>{" "}
              What is shown is old. {visible(refused.error.message)}
            </>
          )}
          {lost && (
            <>
              <strong>Connection lost.</strong> What is shown may be old. {visible(lost.error.message)}
            </>
          )}
        </span>
        {refused && (
          <button type="button" class="button" onClick={retry}>
            Try again
          </button>
        )}
        {lost && (
          <>
            <span class="muted">
              Since {age((now - lost.since) / 1000)}; next try{" "}
              {lost.retryAt > now ? `in ${age((lost.retryAt - now) / 1000 + 1)}` : "now"}
            </span>
            <button type="button" class="button" onClick={retry}>
              Try now
            </button>
          </>
        )}
      </p>
    </div>
  );
}
