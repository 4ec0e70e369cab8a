/** What a reason means for the viewer and what to do about it, in short; the rest is in the documentation. */

export interface Help {
  readonly text: string;
  /** File and heading below docs/ of the project. */
  readonly page: string;
}

const REPORTING = "troubleshooting.md#a-job-shows-no-progress";
const RUNNING = "troubleshooting.md#a-job-does-not-run";

const HELP: Record<string, Help> = {
  NotYetProbed: { text: "The job is known; its first probe is still to come. Wait one interval.", page: REPORTING },
  NoRank0Pod: { text: "There is no pod of index 0 yet: look at the queue, the quota and the image.", page: REPORTING },
  Rank0NotRunning: { text: "The container waits or has ended.", page: RUNNING },
  NoProgressFile: {
    text: "The program writes no progress file. Instrument the training loop, or run the program under trainjob_progress.run.",
    page: "instrument.md",
  },
  NoProgressInLog: { text: "The log has no line that is recognised as progress.", page: "logs.md#reasons" },
  NotYetReported: { text: "The job is to push its progress, and has not yet.", page: "push.md#when-nothing-arrives" },
  NotInStatus: { text: "The job runs in another cluster, whose status here has no progress.", page: REPORTING },
  ProgressFileUnreadable: {
    text: "The file is a directory, or its owner may not be read by the container's user.",
    page: REPORTING,
  },
  OutdatedReport: {
    text: "The file is still that of the run before; the first report overwrites it.",
    page: REPORTING,
  },
  ExecFailed: { text: "The container runtime could not run cat: look at the events of the pod.", page: REPORTING },
  EndedWithoutReport: {
    text: "The job ended before a report of it was read. Write a termination message.",
    page: "document.md",
  },
  NoCatInImage: { text: "The image has no cat. Use one with coreutils or busybox.", page: REPORTING },
  ProbeTimeout: {
    text: "Reading did not end in time: a hung file system, a port without an answer, a slow node.",
    page: REPORTING,
  },
  NothingListens: {
    text: "The port is closed: training has not opened it yet, or it is another one.",
    page: REPORTING,
  },
  NoProgressYet: {
    text: "The process answers and has nothing to report yet. Wait for the first step.",
    page: REPORTING,
  },
  NoRouteToPod: { text: "The network leads to no such address: look at the NetworkPolicies.", page: REPORTING },
  SourceNotEnabled: { text: "The job names a source that this server has not switched on.", page: "install.md" },
  ExecForbidden: { text: "The server has no right to exec in this namespace.", page: "install.md" },
  LogsForbidden: { text: "The server has no right to read logs in this namespace.", page: "logs.md#reasons" },
  PodUnreachable: { text: "kube-apiserver or the kubelet did not answer. It is probed again soon.", page: REPORTING },
  InternalError: { text: "The server failed on this job and on no other. Please report it.", page: REPORTING },
  SwitchedOff: { text: "The job's annotation says that nothing is to be read of it.", page: "annotations.md" },
  NoNewReport: {
    text: "What rank 0 reports does not change: evaluation, a checkpoint, or it hangs.",
    page: "troubleshooting.md#the-numbers-are-old",
  },
  NoAdvance: {
    text: "Look at the process: a collective that hangs, storage, a data loader that waits.",
    page: "troubleshooting.md#stalled-or-diverged-is-true",
  },
  NonFiniteMetric: {
    text: "A loss or gradient norm is NaN or infinite; nothing that follows is of use. Stop the job, or go back to a checkpoint.",
    page: "troubleshooting.md#stalled-or-diverged-is-true",
  },
  Queued: { text: "The job waits in its queue until there is room.", page: RUNNING },
  NoPod: { text: "There is no pod yet: look at the quota and at the events.", page: RUNNING },
  Unscheduled: { text: "No node takes the pod: look at accelerators, taints and quota.", page: RUNNING },
  ImagePullBackOff: { text: "The image cannot be pulled: look at its name and at the pull secret.", page: RUNNING },
  ErrImagePull: { text: "The image cannot be pulled: look at its name and at the pull secret.", page: RUNNING },
  CrashLoopBackOff: { text: "The container ends again and again: read its last log.", page: RUNNING },
  OOMKilled: { text: "The container used more memory than it may. Give it more, or a smaller batch.", page: RUNNING },
};
const UNREADABLE = [
  "Empty",
  "NotJSON",
  "NotUTF8",
  "NotAnObject",
  "MissingField",
  "InvalidField",
  "TooDeep",
  "TooLarge",
];

export function helpFor(reason: string | undefined): Help | undefined {
  if (reason === undefined) return undefined;
  if (UNREADABLE.includes(reason)) {
    return { text: "There is something to read, and it is no progress document.", page: "document.md" };
  }
  return Object.hasOwn(HELP, reason) ? HELP[reason] : undefined;
}

export const INSTRUMENT = `pip install ./reporter    # in a checkout of trainjob-visibility

from trainjob_progress import report

with report(total_steps=1000) as r:
    for batch in loader:
        r.step(loss=train_on(batch))`;
