/** The list as a table of comma-separated values (RFC 4180), for a spreadsheet. */

import type { Job } from "./job";
import { labelOf } from "./labels";

type Value = string | number | undefined;

const COLUMNS: readonly [name: string, of: (job: Job) => Value][] = [
  ["namespace", (job) => job.namespace],
  ["name", (job) => job.name],
  ["kind", (job) => job.kind],
  ["phase", (job) => job.phase],
  ["conditions", (job) => job.flags.join(" ")],
  ["why", (job) => job.why],
  ["queue", (job) => job.queue],
  ["owner", (job) => job.owner],
  ["rank0Node", (job) => job.node],
  ["progressPercentage", (job) => job.percent],
  ["step", (job) => job.step],
  ["totalSteps", (job) => job.totalSteps],
  ["stepsPerSecond", (job) => job.rate],
  ["epoch", (job) => job.epoch],
  ["totalEpochs", (job) => job.totalEpochs],
  ["metric", (job) => job.metric?.name],
  ["value", (job) => job.metric?.value],
  ["remainingSeconds", (job) => job.remainingS],
  ["completion", (job) => instant(job.completion)],
  ["created", (job) => instant(job.created)],
  ["started", (job) => instant(job.started)],
  ["lastReport", (job) => instant(job.updated)],
  ["ended", (job) => instant(job.ended)],
  ["attempts", (job) => job.attempts],
  ["accelerators", (job) => job.accelerators],
  ["wastedAcceleratorSeconds", (job) => job.wastedS],
  ["goodputPercentage", (job) => job.goodput],
  ["checkpointStep", (job) => job.checkpoint?.step],
  ["checkpointTime", (job) => instant(job.checkpoint?.at ?? NaN)],
];

const instant = (at: number) => (Number.isNaN(at) ? undefined : new Date(at).toISOString());

export function listCsv(jobs: readonly Job[], labels: readonly string[]): string {
  const columns = [
    ...COLUMNS,
    ...labels.map((label): [string, (job: Job) => Value] => [label, (job) => labelOf(job, label)]),
  ];
  return csv([columns.map(([name]) => name), ...jobs.map((job) => columns.map(([, of]) => of(job)))]);
}

export const csv = (rows: readonly (readonly Value[])[]) =>
  `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;

/** Text that a spreadsheet would take for a formula gets an apostrophe before it: names come from strangers. */
function cell(value: Value): string {
  if (value === undefined) return "";
  if (typeof value === "number") return String(value);
  const isNumber = value.trim() !== "" && !Number.isNaN(Number(value));
  const text = /^[=+\-@\t\r]/.test(value) && !isNumber ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
