/** A log: read again every few seconds while the job runs and somebody looks, and searched. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError } from "../api/http";
import type { LogTail } from "../api/types";
import { count, fullTime } from "../model/format";
import { pieces, search } from "../model/log";
import { visible, visibleLine } from "../model/text";
import { useSettings } from "../settings";
import { useNow, usePolled } from "./hooks";

const AGAIN_MS = 5000;
const LATE_MS = 20_000;

interface Props {
  read: (signal: AbortSignal) => Promise<LogTail>;
  /** Whether more can come. */
  goesOn: boolean;
  /** What another log would be of: then it is read anew. */
  of: string;
  /** What to do where the log may not be read. */
  refused: ComponentChildren;
}

export function Log({ read, goesOn, of, refused }: Props) {
  const [isPaused, pause] = useState(false);
  const when = isPaused ? "paused" : goesOn ? "again" : "once";
  const { value: tail, asOf, error } = usePolled(read, { of, when, everyMs: AGAIN_MS });
  const now = useNow(AGAIN_MS);
  const { zone } = useSettings();
  if (!tail) {
    if (!error) return <p class="muted">Reading the log</p>;
    return (
      <>
        <p class="muted">{visible(error.message)}</p>
        {isRefusal(error) && refused}
      </>
    );
  }
  const { podName, containerName, previous, truncated, lines } = tail;
  const place = [podName, containerName].filter(Boolean).map((part) => visible(part ?? ""));
  const isLive = goesOn && !isPaused && !error && now - asOf < LATE_MS;
  return (
    <>
      <p class="muted">
        Of <bdi>{place.join(" / ")}</bdi>
        {previous && ", before its last restart"}
        {truncated && "; what came before is left out"}. As of {fullTime(asOf, zone)}
        {isLive ? ", read every 5 s." : "."} {isPaused && "Paused."}
        {goesOn && !isPaused && !isLive && !error && " No answer has come since."}
        {error && <span class="warn-text"> It cannot be read again: {visible(error.message)}</span>}
      </p>
      <LogLines lines={lines}>
        {goesOn && (
          <button type="button" class="button" aria-pressed={isPaused} onClick={() => pause(!isPaused)}>
            {isPaused ? "Go on" : "Pause"}
          </button>
        )}
      </LogLines>
    </>
  );
}

function LogLines({ lines, children }: { lines: readonly string[]; children: ComponentChildren }) {
  const [text, setText] = useState("");
  const sought = visible(text);
  const seen = useMemo(() => lines.map(visibleLine), [lines]); // what is seen can be found
  const found = useMemo(() => search(seen, sought), [seen, sought]);
  const shown = useMemo(
    () =>
      found.map((line) =>
        pieces(line, sought)
          .map((piece, at) => (at % 2 ? <mark>{piece}</mark> : piece))
          .concat("\n"),
      ),
    [found],
  );
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (box.current && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, text]);
  if (lines.length === 0) return <p class="muted">The log is empty.</p>;
  return (
    <>
      <div class="chart-search" role="search">
        <input
          type="search"
          placeholder="Find in these lines"
          aria-label="Find in these lines"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <span class="muted" role="status">
          {text !== "" && `${count(found.length)} of ${count(lines.length)} lines`}
        </span>
        {children}
      </div>
      <pre
        class="code log"
        tabIndex={0}
        ref={box}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          isAtEnd.current = scrollTop + clientHeight > scrollHeight - 20;
        }}
      >
        <code>{shown}</code>
      </pre>
    </>
  );
}

const isRefusal = (error: Error) => error instanceof ApiError && (error.code === 403 || error.code === 404);
