import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

import { serverNow } from "../api/clock";
import type { Notifier } from "../model/notifier";

/** Draws the component again when `notifier` tells, at most every `ms`. Returns how often it has. */
export function useChanges(notifier: Notifier, ms = 0): number {
  const [version, again] = useReducer((count: number) => count + 1, 0);
  const last = useRef(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      last.current = performance.now();
      again(undefined as never);
    };
    const stop = notifier.subscribe(() => {
      const wait = last.current + ms - performance.now();
      if (wait <= 0 && timer === undefined) draw();
      else timer ??= setTimeout(draw, wait);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [notifier, ms]);
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
    document.addEventListener("visibilitychange", move);
    return () => {
      clearInterval(timer);
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

/** Whether an element is in the window, or nearly; of many that come into it together, a few in each frame. */
export function useSeen<E extends HTMLElement>() {
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
    const observer = new IntersectionObserver(notice, { rootMargin: AHEAD });
    observer.observe(element.current);
    return () => {
      giveUp();
      observer.disconnect();
    };
  }, []);
  return [element, isSeen] as const;
}

/** Whether the page is being printed: then what is out of the window is needed too. */
export function usePrinting(): boolean {
  const [isPrinted, print] = useState(false);
  useEffect(() => {
    const [begin, end] = [() => print(true), () => print(false)];
    window.addEventListener("beforeprint", begin);
    window.addEventListener("afterprint", end);
    return () => {
      window.removeEventListener("beforeprint", begin);
      window.removeEventListener("afterprint", end);
    };
  }, []);
  return isPrinted;
}
