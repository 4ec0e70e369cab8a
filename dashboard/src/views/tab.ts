/** Title, icon and notifications of the tab. */

import { useEffect, useLayoutEffect, useReducer } from "preact/hooks";

import { serverNow } from "../api/clock";
import type { Link } from "../api/watch";
import { isStale } from "../model/link";
import type { Mark, TabState } from "../model/tab";

const TICK_MS = 5000; // in a hidden tab the browser makes it a minute

/** Whether what is shown is live now; asked again and again, also while nobody sees the tab. */
export function useIsLive(link: Link): boolean {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const timer = setInterval(again as () => void, TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return link.state === "live" && !isStale(link, serverNow());
}

export function useTab({ title, mark }: TabState): void {
  useLayoutEffect(() => {
    document.title = title;
  }, [title]);
  useLayoutEffect(() => setIcon(mark), [mark]);
}

const DOTS: Record<Mark, string | undefined> = { plain: undefined, good: "#1f9d55", bad: "#d92d20", old: "#8a949a" };
let usual: string | undefined;

function setIcon(mark: Mark): void {
  const link = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (!link) return;
  usual ??= link.href;
  const dot = DOTS[mark];
  link.href = dot === undefined ? usual : `data:image/svg+xml,${encodeURIComponent(icon(dot, mark))}`;
}

/** As icon.svg, with a large dot; grey as a whole when what is known is old. */
const icon = (dot: string, mark: Mark) =>
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="${
    mark === "old" ? "#8a949a" : "#0f6b78"
  }"/><path d="M5 8c4 9 7 13 12 14s7 1 10 2" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/>${
    mark === "old" ? "" : `<circle cx="23" cy="23" r="9" fill="${dot}" stroke="#fff" stroke-width="2"/>`
  }</svg>`;

export const canNotify = () => "Notification" in window && isSecureContext;

/** Tells it unless somebody looks at the page. Tabs that tell the same make one notification of it. */
export function notify(title: string, body: string, tag: string, hash: string): void {
  if (!canNotify() || Notification.permission !== "granted" || document.hasFocus()) return;
  const shown = new Notification(title, { body, tag });
  shown.onclick = () => {
    window.focus();
    location.hash = hash;
    shown.close();
  };
}
