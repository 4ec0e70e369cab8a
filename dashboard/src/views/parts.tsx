/** Small parts that several views show. */

import type { ComponentChildren } from "preact";

import type { Phase } from "../api/types";
import { age, clock, fullTime } from "../model/format";
import { isStuckBy, type Flag } from "../model/job";
import { visible } from "../model/text";
import { useSettings } from "../settings";

/** A stranger's text: isolated, so that its direction does not reorder what is around it. */
export function Text({ children, class: name }: { children: string; class?: string }) {
  const shown = visible(children);
  return (
    <bdi class={name} title={shown.length > 20 ? shown : undefined}>
      {shown}
    </bdi>
  );
}

const PHASE_MARK: Record<Phase, string> = {
  Running: "●",
  Initializing: "◐",
  Pending: "○",
  Suspended: "‖",
  Succeeded: "✓",
  Failed: "✕",
  Unknown: "?",
};

export function PhaseBadge({ phase }: { phase: Phase }) {
  return (
    <span class={`badge phase-${phase.toLowerCase()}`}>
      <span class="mark" aria-hidden="true">
        {PHASE_MARK[phase]}
      </span>
      {phase}
    </span>
  );
}

export function FlagBadge({ flag }: { flag: Flag }) {
  return <span class={`badge ${isStuckBy(flag) ? "bad" : "warn"}`}>{flag}</span>;
}

export function ProgressBar({ percent, label, kind }: { percent: number | undefined; label: string; kind?: string }) {
  const value = percent === undefined ? undefined : Math.max(0, Math.min(100, percent));
  return (
    <div
      class={`bar ${kind ?? ""}`}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={value}
    >
      {value !== undefined && <div class="done" style={{ transform: `scaleX(${value / 100})` }} />}
    </div>
  );
}

/** How long ago, with the instant itself for those who point at it. */
export function Ago({ at, now }: { at: number; now: number }) {
  const { zone } = useSettings();
  if (Number.isNaN(at)) return null;
  return (
    <time dateTime={new Date(at).toISOString()} title={fullTime(at, zone)}>
      {age((now - at) / 1000)}
    </time>
  );
}

export function Instant({ at, now }: { at: number; now: number }) {
  const { zone } = useSettings();
  if (Number.isNaN(at)) return null;
  return (
    <time dateTime={new Date(at).toISOString()} title={fullTime(at, zone)}>
      {clock(at, zone, now)}
    </time>
  );
}

/** On paper nothing moves on: it says as of when it was true. */
export function PrintedAsOf({ at }: { at: number }) {
  const { zone } = useSettings();
  return <p class="printed">As of {fullTime(at, zone)}</p>;
}

const SOON_MS = 90_000; // what is read each half minute, and a minute for the answer

/** Says of what is read now and then when that was, if that is long ago. */
export function AsOf({ what, at, now, lateMs = SOON_MS }: { what: string; at: number; now: number; lateMs?: number }) {
  const { zone } = useSettings();
  if (!(now - at > lateMs)) return null;
  return (
    <p class="warn-text">
      {what} as of {clock(at, zone, now)}: no answer has come since.
    </p>
  );
}

export function Notice({
  kind,
  title,
  children,
}: {
  kind: "bad" | "warn" | "calm";
  title: string;
  children?: ComponentChildren;
}) {
  return (
    <div class={`notice ${kind}`}>
      <strong>{title}</strong>
      {children && <div class="notice-text">{children}</div>}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Code({ children }: { children: string }) {
  return (
    <pre class="code" tabIndex={0}>
      <code>{children}</code>
    </pre>
  );
}
