import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

import { onClockChange, serverNow } from "../api/clock";
import { ApiError } from "../api/http";
import type { Notifier } from "../model/notifier";

/** Draws the component again when `notifier` tells. Returns how often it has. */
export function useChanges(notifier: Notifier): number {
  const [version, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => notifier.subscribe(() => again(undefined as never)), [notifier]);
  return version;
}

/** The time by the server's clock. It moves on every `ms`, and stands still while nobody sees the page. */
export function useNow(ms = 1000): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const move = () => {
      if (!document.hidden) setNow(serverNow());
    };
    const timer = setInterval(move, ms);
    const stop = onClockChange(() => setNow(serverNow()));
    document.addEventListener("visibilitychange", move);
    return () => {
      clearInterval(timer);
      stop();
      document.removeEventListener("visibilitychange", move);
    };
  }, [ms]);
  return now;
}

/** Width and height of an element, as they change. */
export function useSize<E extends HTMLElement>() {
  const element = useRef<E>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const seen = element.current;
    if (!seen) return;
    setSize({ width: seen.clientWidth, height: seen.clientHeight }); // also when it is drawn for paper, in one go
    const observer = new ResizeObserver(([entry]) => {
      if (entry) setSize({ width: Math.round(entry.contentRect.width), height: Math.round(entry.contentRect.height) });
    });
    observer.observe(seen);
    return () => observer.disconnect();
  }, []);
  return [element, size] as const;
}

export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const listen = () => setMatches(list.matches);
    listen();
    list.addEventListener("change", listen);
    return () => list.removeEventListener("change", listen);
  }, [query]);
  return matches;
}

/** `asOf`: when it came, by the server's clock. */
export type Loaded<T> =
  { state: "loading" } | { state: "here"; value: T; asOf: number } | { state: "failed"; error: Error };

/** What `load` brings; asked again when one of `causes` changes. What came before stays until then. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, causes: readonly unknown[]): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({ state: "loading" });
  useEffect(() => {
    const stopping = new AbortController();
    load(stopping.signal).then(
      (value) => !stopping.signal.aborted && setLoaded({ state: "here", value, asOf: serverNow() }),
      (error: Error) => !stopping.signal.aborted && setLoaded({ state: "failed", error }),
    );
    return () => stopping.abort();
  }, causes);
  return loaded;
}

/** `asOf`: when `value` came, by the server's clock. `error`: why it could not be read since. */
export interface Polled<T> {
  readonly value: T | undefined;
  readonly asOf: number;
  readonly error: Error | undefined;
}

interface Polling {
  /** What it is of: another one is read anew. */
  of: string;
  /** `once`: nothing more can come. `paused`: only another one is read. `unseen`: nothing is. */
  when: "again" | "once" | "paused" | "unseen";
  everyMs: number;
}

const NOT_YET = { value: undefined, asOf: NaN, error: undefined };

/** What `read` brings, read again while somebody looks. A refusal ends it; whatever else goes wrong is tried again. */
export function usePolled<T>(read: (signal: AbortSignal) => Promise<T>, { of, when, everyMs }: Polling): Polled<T> {
  const [polled, set] = useState<Polled<T>>(NOT_YET);
  const latest = useRef({ read, everyMs });
  latest.current = { read, everyMs };
  const known = useRef("");
  const askedAt = useRef(-Infinity);
  useEffect(() => {
    const stopping = new AbortController();
    const { signal } = stopping;
    const isNew = known.current !== of;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const isRead = when === "again" || when === "once" || (when === "paused" && isNew);
    let state: "waiting" | "asking" | "done" = isRead ? "waiting" : "done";
    let waitMs = 0;
    if (isNew) set(NOT_YET);
    const ask = async () => {
      state = "asking";
      askedAt.current = performance.now();
      waitMs = latest.current.everyMs;
      let error: Error | undefined;
      try {
        const value = await latest.current.read(signal);
        if (signal.aborted) return;
        known.current = of;
        set({ value, asOf: serverNow(), error });
      } catch (cause) {
        if (signal.aborted) return;
        error = cause as Error;
        set((before) => ({ ...before, error }));
        if (error instanceof ApiError) waitMs = Math.max(waitMs, (error.retryAfterSeconds ?? 0) * 1000);
      }
      state = when === "again" || error ? "waiting" : "done";
      if (error && isFinal(error, when === "once")) state = "done";
      schedule();
    };
    const schedule = () => {
      clearTimeout(timer);
      if (document.hidden || state !== "waiting") return;
      timer = setTimeout(() => void ask(), Math.max(0, askedAt.current + waitMs - performance.now()));
    };
    if (!isNew) waitMs = latest.current.everyMs;
    document.addEventListener("visibilitychange", schedule);
    schedule(); // once more when the job has ended: its last lines have just been written
    return () => {
      stopping.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", schedule);
    };
  }, [of, when]);
  return polled;
}

function isFinal(error: Error, isLast: boolean): boolean {
  if (!(error instanceof ApiError)) return false;
  return error.code === 401 || error.code === 403 || (isLast && error.code < 500 && error.code !== 429);
}

const AHEAD = "500px"; // drawn that far before it comes into view

const PER_FRAME = 2;
const waiting = new Set<() => void>();

/** `run` in one of the next frames, after those that came before: none has to do much. Returns how to give it up. */
function inTurn(run: () => void): () => void {
  if (waiting.size === 0) requestAnimationFrame(takeTurns);
  waiting.add(run);
  return () => waiting.delete(run);
}

function takeTurns(): void {
  for (const run of [...waiting].slice(0, PER_FRAME)) {
    waiting.delete(run);
    run();
  }
  if (waiting.size > 0) requestAnimationFrame(takeTurns);
}

/** Whether an element is in the window, or `ahead` of it; of many that come into it together, a few in each frame. */
export function useSeen<E extends HTMLElement>(ahead = AHEAD) {
  const element = useRef<E>(null);
  const [isSeen, see] = useState(false);
  useEffect(() => {
    if (!element.current) return;
    let giveUp = () => undefined as unknown;
    const notice = (entries: IntersectionObserverEntry[]) => {
      giveUp();
      if (entries.at(-1)?.isIntersecting) giveUp = inTurn(() => see(true));
      else see(false);
    };
    const observer = new IntersectionObserver(notice, { rootMargin: ahead });
    observer.observe(element.current);
    return () => {
      giveUp();
      observer.disconnect();
    };
  }, []);
  return [element, isSeen] as const;
}

/** `is`, when it has been so for `ms`. */
export function useLasting(is: boolean, ms: number): boolean {
  const [lasts, set] = useState(false);
  useEffect(() => {
    if (!is) return set(false);
    const timer = setTimeout(() => set(true), ms);
    return () => clearTimeout(timer);
  }, [is, ms]);
  return lasts;
}

let isPrinting = false; // for what is drawn for paper only: it comes after the event
globalThis.addEventListener?.("beforeprint", () => (isPrinting = true));
globalThis.addEventListener?.("afterprint", () => (isPrinting = false));

/** Whether the page is being printed: then what is out of the window is needed too. */
export function usePrinting(): boolean {
  const [isPrinted, print] = useState(isPrinting);
  useEffect(() => {
    const [begin, end] = [() => print(true), () => print(false)];
    print(isPrinting); // the print may have begun after this was drawn
    window.addEventListener("beforeprint", begin);
    window.addEventListener("afterprint", end);
    return () => {
      window.removeEventListener("beforeprint", begin);
      window.removeEventListener("afterprint", end);
    };
  }, []);
  return isPrinted;
}
