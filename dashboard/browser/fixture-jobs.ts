/** Made-up jobs, the same ones for the same number: what a fleet looks like on a usual day, and worse. */

import type {
  Condition,
  GoodputOfWindow,
  History,
  JobDocument,
  KubernetesEvent,
  Phase,
  ReplicaStatus,
  SecondsByKind,
  Series,
} from "../src/api/types";

const NAMES = [
  "bert-base",
  "llama-sft",
  "whisper-small",
  "resnet50",
  "vit-large",
  "t5-summary",
  "clip-align",
  "mixtral-dpo",
  "gpt-pretrain",
  "wav2vec",
];
const NAMESPACES = ["team-vision", "team-speech", "team-language", "research", "platform"];
const OWNERS = ["ann", "bob", "chloe", "dmitri"];
const QUEUES = ["gpu-a100", "gpu-h100", "spot", ""];

export const HOSTILE = {
  metric: "<img src=x onerror=\"document.title='owned'\">",
  bidi: "los\u202es_eslaf",
  message: "</small><script>document.title='owned'</script>\u0007\u001b[31mred",
  queue: "q\u200bueue",
};

/** 0 up to 1, of a number and of what it is for. */
function random(number: number, what: number): number {
  let x = Math.imul(number + 1, 0x9e3779b1) ^ Math.imul(what + 7, 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 15), 0x2c1b3ce5);
  x = Math.imul(x ^ (x >>> 12), 0x297a2d39);
  return ((x ^ (x >>> 15)) >>> 0) / 2 ** 32;
}

const pick = <T>(list: readonly T[], value: number): T => list[Math.floor(value * list.length)] as T;
const iso = (ms: number) => new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");

export class MadeJob {
  name: string;
  namespace: string;
  uid: string;
  /** Its resource, and its kind. */
  plural = "trainjobs";
  kind = "TrainJob";
  readonly phase: Phase;
  readonly trouble: "" | "Stalled" | "Diverged" | "Plateaued" | "Straggling" | "Silent";
  readonly total: number;
  readonly perSecond: number;
  readonly isHostile: boolean;
  step: number;
  version = 1;
  /** What a test says of it instead. */
  says: Partial<JobDocument["status"]> = {};
  /** Its pods instead of what its phase makes likely. */
  hasPods: ReplicaStatus[] | undefined;
  hasHistory: Pick<History, "attempts" | "progress" | "series"> | undefined;

  constructor(
    readonly number: number,
    readonly now: number,
  ) {
    const r = (what: number) => random(number, what);
    this.isHostile = number === 3;
    this.name = `${pick(NAMES, r(1))}-${String(number).padStart(4, "0")}`;
    this.namespace = pick(NAMESPACES, r(2));
    this.uid = `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`;
    this.phase = phaseOf(r(3), number);
    this.trouble = this.phase === "Running" ? troubleOf(r(4), number) : "";
    this.total = pick([2000, 5000, 12000, 60000], r(5));
    this.perSecond = this.total / (3600 * (1 + 11 * r(6)));
    this.step = Math.floor(this.total * (this.phase === "Succeeded" ? 1 : 0.05 + 0.9 * r(7)));
  }

  get startedAt(): number {
    return this.now - (this.step / this.perSecond) * 1000 - this.endedAgo;
  }

  private get endedAgo(): number {
    return this.phase === "Failed" || this.phase === "Succeeded" ? 3600_000 * 20 * random(this.number, 8) : 0;
  }

  get isTraining(): boolean {
    return this.phase === "Running" && this.trouble !== "Stalled" && this.trouble !== "Silent";
  }

  /** Whether it has ever reported. */
  get hasRun(): boolean {
    return !["Pending", "Initializing", "Suspended"].includes(this.phase) && this.trouble !== "Silent";
  }

  advance(): void {
    if (!this.isTraining) return;
    this.step = Math.min(this.total - 1, this.step + 1 + Math.floor(this.perSecond));
  }

  loss(step: number, what = 0): number {
    const scale = 2.2 + random(this.number, 20);
    const noise = (random(this.number * 7919 + step, 21 + what) - 0.5) * 0.25;
    return scale * Math.exp((-4 * step) / this.total) + 0.35 + 0.1 * what + noise * Math.exp(-step / this.total);
  }

  metrics(step: number): { name: string; value: string }[] {
    const loss = this.trouble === "Diverged" ? "NaN" : this.loss(step).toPrecision(5);
    const all = [
      { name: "loss", value: loss },
      { name: "eval_loss", value: this.loss(step - (step % 500), 1).toPrecision(5) },
      { name: "accuracy", value: (0.95 - 0.6 * Math.exp((-5 * step) / this.total)).toPrecision(4) },
      { name: "learning_rate", value: (3e-4 * (1 - step / this.total)).toExponential(3) },
      { name: "grad_norm", value: (0.4 + random(step + this.number, 30)).toPrecision(4) },
    ];
    if (this.isHostile) all.push({ name: HOSTILE.metric, value: "1.5" }, { name: HOSTILE.bidi, value: "2" });
    return all;
  }

  document(now: number): JobDocument {
    const { phase, step, total, hasRun } = this;
    const remaining = (total - step) / this.perSecond;
    const ended = now - this.endedAgo;
    const queue = this.isHostile ? HOSTILE.queue : pick(QUEUES, random(this.number, 9));
    const accelerators = pick([0, 1, 8, 8, 16, 64], random(this.number, 10));
    const held = phase === "Running" || phase === "Initializing";
    const isIdle = this.trouble === "Stalled" || this.trouble === "Diverged";
    const hasEnded = phase === "Failed" || phase === "Succeeded";
    const lag = this.trouble === "Stalled" ? 1_500_000 : 2_000;
    return {
      kind: `${this.kind}Progress`,
      metadata: {
        name: this.name,
        namespace: this.namespace,
        uid: this.uid,
        resourceVersion: String(this.version),
        creationTimestamp: iso(this.startedAt - 90_000),
        labels: {
          "app.kubernetes.io/created-by": pick(OWNERS, random(this.number, 40)),
          team: pick(["nlp", "vision", "speech"], random(this.number, 41)),
          ...(queue ? { "kueue.x-k8s.io/queue-name": queue } : {}),
        },
      },
      status: {
        phase,
        ...(phase === "Suspended"
          ? { phaseReason: "Queued", phaseMessage: "Waits in its queue for 16 accelerators." }
          : {}),
        ...(phase === "Initializing"
          ? { phaseReason: "PullingImage", phaseMessage: "The image of the trainer is being pulled." }
          : {}),
        ...(phase === "Pending"
          ? { phaseReason: "Unscheduled", phaseMessage: "0/12 nodes are available: insufficient nvidia.com/gpu." }
          : {}),
        ...(hasRun
          ? {
              progressPercentage: Math.floor((100 * step) / total),
              steps: { current: step, total, ...(this.isTraining ? { perSecond: this.perSecond } : {}) },
              epochs: { current: Number(((3 * step) / total).toFixed(3)), total: 3 },
              metrics: this.metrics(step),
              lastUpdatedTime: iso((hasEnded ? ended : now) - lag),
              startTime: iso(this.startedAt),
            }
          : {}),
        ...(this.isTraining
          ? {
              estimatedRemainingSeconds: Math.round(remaining),
              estimatedCompletionTime: iso(now + remaining * 1000),
              estimatedCompletionRange: { earliest: iso(now + remaining * 900), latest: iso(now + remaining * 1250) },
            }
          : {}),
        ...(hasEnded ? { endTime: iso(ended), durationSeconds: Math.round((ended - this.startedAt) / 1000) } : {}),
        ...(this.isHostile ? { message: HOSTILE.message } : {}),
        conditions: this.conditions(now),
        ...(hasRun
          ? {
              rank0: {
                podName: `${this.name}-node-0-0-x7k2p`,
                nodeName: `gpu-${this.number % 40}`,
                containerName: "node",
                restartCount: this.number % 7 === 0 ? 1 : 0,
              },
            }
          : {}),
        replicas: [
          { name: "dataset-initializer", desired: 1, ready: 0, active: 0, succeeded: 1, failed: 0 },
          {
            name: "node",
            desired: 4,
            ready: held ? 4 : 0,
            active: held ? 4 : 0,
            succeeded: phase === "Succeeded" ? 4 : 0,
            failed: phase === "Failed" ? 1 : 0,
          },
        ],
        attempts: this.number % 7 === 0 ? 2 : 1,
        ...(accelerators > 0
          ? {
              resources: {
                accelerators: hasEnded ? 0 : accelerators,
                byName: [{ name: "nvidia.com/gpu", count: accelerators }],
                acceleratorSeconds: Math.round((accelerators * (now - this.startedAt)) / 1000),
                wastedAcceleratorSeconds: isIdle
                  ? Math.round(accelerators * 1500 + 3600 * accelerators * random(this.number, 12))
                  : 0,
              },
            }
          : {}),
        ...this.spent(now, accelerators),
        ...(phase === "Failed" ? { failure: failureOf(this, iso(ended)) } : {}),
        ...(this.trouble === "Stalled" ? { diagnosis: diagnosisOf(this, iso(now - 60_000)) } : {}),
        observation:
          this.trouble === "Silent"
            ? {
                source: "exec",
                consecutiveFailures: 12,
                lastProbeTime: iso(now - 20_000),
                nextProbeTime: iso(now + 40_000),
                reason: "NoProgressFile",
                message:
                  "No progress file at /tmp/trainjob-progress.json (the default path; the job declares no other).",
              }
            : { source: "push", consecutiveFailures: 0, lastProbeTime: iso(now - 2_000) },
        ...this.says,
      },
    };
  }

  /** Seconds by kind, of as many as have passed. */
  seconds(all: number): SecondsByKind {
    const share = (what: number, most: number) => Math.floor(all * most * random(this.number, what));
    const queued = this.hasRun ? share(60, 0.15) : Math.floor(all);
    if (!this.hasRun) return { queued };
    const isStalled = this.trouble === "Stalled";
    const some: SecondsByKind = {
      queued,
      starting: share(61, 0.02),
      programStartup: share(62, 0.05),
      dataLoading: share(63, this.number % 3 === 0 ? 0.35 : 0.05),
      checkpointSave: share(64, 0.04),
      evaluation: share(65, 0.1),
      ...(this.number % 7 === 0 ? { lostProgress: share(66, 0.08), recovery: share(67, 0.06) } : {}),
      ...(isStalled ? { stalled: Math.min(1500, Math.floor(all / 4)) } : {}),
      other: share(68, 0.03),
    };
    const rest = Object.values(some).reduce((sum, one) => sum + one, 0);
    return { ...some, productive: Math.max(0, Math.floor(all) - rest) };
  }

  private spent(now: number, accelerators: number): Partial<JobDocument["status"]> {
    const until = this.hasRun ? now - this.endedAgo - 20_000 : this.startedAt - 60_000;
    const all = (until - this.startedAt + 90_000) / 1000;
    const waste = this.seconds(all);
    const wasted = [waste.starting && `Starting ${waste.starting}s`, waste.stalled && `Stalled ${waste.stalled}s`];
    return {
      ...(this.hasRun && this.number % 5 !== 4
        ? { checkpoint: { step: this.step - (this.step % 100), time: iso(now - this.endedAgo - 26 * 60_000) } }
        : {}),
      goodput: {
        time: iso(until),
        ...(this.phase === "Failed" || this.phase === "Succeeded"
          ? {}
          : { current: !this.hasRun ? "Queued" : this.trouble === "Stalled" ? "Stalled" : "Productive" }),
        whole: windowOf(waste, accelerators),
        ...(all > 3600 ? { hour: windowOf(this.seconds(3600), accelerators) } : {}),
        ...(all > 86400 ? { day: windowOf(this.seconds(86400), accelerators) } : {}),
        ...(wasted.some(Boolean) ? { wastedMessage: wasted.filter(Boolean).join(", ") } : {}),
      },
    };
  }

  private conditions(now: number): Condition[] {
    const make = (
      type: string,
      status: "True" | "False" | "Unknown",
      reason: string,
      message: string,
      agoMs = 600_000,
    ): Condition => ({
      type,
      status,
      reason,
      message,
      lastTransitionTime: iso(now - agoMs),
    });
    const is = (trouble: string): "True" | "False" => (this.trouble === trouble ? "True" : "False");
    const isSilent = this.trouble === "Silent";
    return [
      make(
        "Reporting",
        isSilent ? "False" : "True",
        isSilent ? "NoProgressFile" : "DocumentRead",
        isSilent ? "No progress file." : "",
      ),
      make("Fresh", is("Stalled") === "True" || isSilent ? "False" : "True", "RecentReport", ""),
      make(
        "Stalled",
        is("Stalled"),
        is("Stalled") === "True" ? "NoAdvance" : "Advancing",
        `Step ${this.step} has stood still for 25m; the longest pause before was 40s.`,
        1_500_000,
      ),
      make("Diverged", is("Diverged"), is("Diverged") === "True" ? "NonFiniteMetric" : "Finite", "loss is NaN."),
      make(
        "Plateaued",
        is("Plateaued"),
        "NoImprovement",
        "loss has not improved over the last 3,000 steps.",
        4_000_000,
      ),
      make(
        "Straggling",
        is("Straggling"),
        "SlowReplica",
        "Replica node-2 needs 1.8 times as long for a step as the others.",
      ),
      ...(this.phase === "Failed"
        ? [make("Failed", "True", "JobSetFailed", "jobset failed due to one or more job failures")]
        : []),
      ...(this.phase === "Succeeded" ? [make("Complete", "True", "AllJobsCompleted", "")] : []),
    ];
  }

  /** A curve of at most `most` points, in one attempt or two. */
  series(metric: string, most: number, now: number): Series[] {
    if (!this.hasRun || !this.metrics(1).some(({ name }) => name === metric)) return [];
    const isSeldom = metric.startsWith("eval");
    const points = Math.min(most, isSeldom ? Math.floor(this.step / 500) : this.step);
    const split = this.number % 7 === 0 ? Math.floor(this.step * 0.4) : 0;
    const part = (attempt: number, from: number, to: number): Series => {
      const length = Math.max(2, Math.round((points * (to - from)) / this.step));
      const steps = Array.from({ length }, (_, at) => Math.round(from + ((to - from) * at) / (length - 1)));
      const bad = this.trouble === "Diverged" ? this.step * 0.9 : Infinity;
      return {
        metric,
        attempt,
        steps,
        times: steps.map((step) => now / 1000 - 2 - (this.step - step) / this.perSecond),
        values: steps.map((step) => (step > bad && metric === "loss" ? "NaN" : (this.valueAt(metric, step) ?? "0"))),
      };
    };
    return split ? [part(0, 1, Math.floor(split * 1.15)), part(1, split, this.step)] : [part(0, 1, this.step)];
  }

  /** Epochs at the times of a curve. */
  progress({ attempt, times, steps = [] }: Series): History["progress"][number] {
    return { attempt, times, steps, epochs: steps.map((step) => Number(((3 * (step ?? 0)) / this.total).toFixed(3))) };
  }

  private valueAt(metric: string, step: number): string | undefined {
    if (metric === "loss") return this.loss(step).toPrecision(5);
    return this.metrics(step).find(({ name }) => name === metric)?.value;
  }

  /** As `progress?replicas=all` tells of them. */
  pods(now: number): ReplicaStatus[] {
    if (this.hasPods) return this.hasPods;
    if (!this.hasRun) return [];
    const state = this.phase === "Failed" || this.phase === "Succeeded" ? this.phase : "Running";
    const node = Array.from({ length: 4 }, (_, rank): ReplicaStatus => ({
      name: `node-${rank}`,
      rank,
      podName: `${this.name}-node-0-${rank}-${random(rank, 50).toString(36).slice(2, 7)}`,
      nodeName: `gpu-${(this.number + rank) % 40}`,
      state,
      restartCount: this.number % 7 === 0 && rank === 2 ? 1 : 0,
      ...(this.isTraining ? { lastReportTime: iso(now - 2_000), step: this.step, stepSeconds: 0.4 + 0.02 * rank } : {}),
    }));
    return [{ name: "dataset-initializer-0", state: "Succeeded", restartCount: 0 }, ...node];
  }

  hasEvents: KubernetesEvent[] | undefined;

  events(now: number): KubernetesEvent[] {
    if (this.hasEvents) return this.hasEvents;
    return [
      {
        metadata: { uid: `${this.uid}-1` },
        type: "Normal",
        reason: "JobsCreationSucceeded",
        message: "All Jobs of the TrainJob have been created",
        count: 1,
        lastTimestamp: iso(now - 3_000_000),
        involvedObject: { kind: "TrainJob", name: this.name },
      },
      {
        metadata: { uid: `${this.uid}-2` },
        type: "Warning",
        reason: "Stalled",
        message: "Step has stood still for 25m",
        count: 3,
        lastTimestamp: iso(now - 400_000),
        involvedObject: { kind: "TrainJob", name: this.name },
      },
    ];
  }
}

export function windowOf(seconds: SecondsByKind, accelerators: number, weights = seconds): GoodputOfWindow {
  const all = Object.values(weights).reduce((sum, one) => sum + one, 0);
  const held = all - (weights.queued ?? 0);
  const tenth = (share: number) => Math.round(1000 * share) / 10;
  const times = Object.entries(seconds).map(([kind, some]) => [kind, some * accelerators]);
  return {
    ...(held > 0 ? { percentage: tenth((weights.productive ?? 0) / held) } : {}),
    ...(all > 0 ? { schedulingPercentage: tenth(held / all) } : {}),
    seconds,
    ...(accelerators > 0 ? { acceleratorSeconds: Object.fromEntries(times) as SecondsByKind } : {}),
  };
}

function phaseOf(value: number, number: number): Phase {
  if (number < 4) return "Running";
  const edges: [number, Phase][] = [
    [0.62, "Running"],
    [0.66, "Initializing"],
    [0.7, "Pending"],
    [0.76, "Suspended"],
    [0.83, "Failed"],
  ];
  return edges.find(([edge]) => value < edge)?.[1] ?? "Succeeded";
}

function troubleOf(value: number, number: number): MadeJob["trouble"] {
  if (number === 0 || number === 3) return "";
  if (number === 1) return "Stalled";
  const edges: [number, MadeJob["trouble"]][] = [
    [0.03, "Stalled"],
    [0.05, "Diverged"],
    [0.07, "Plateaued"],
    [0.085, "Straggling"],
    [0.1, "Silent"],
  ];
  return edges.find(([edge]) => value < edge)?.[1] ?? "";
}

function diagnosisOf(job: MadeJob, time: string) {
  return {
    time,
    reason: "InDataLoader",
    message: "Rank 37 (gpu-9) is in the data loader for 6 min; 63 ranks wait for it in all_reduce.",
    hint: "Check its data: volume, network and the loader's worker processes.",
    ranksRead: 64,
    groups: [
      { count: 63, ranks: "0-36,38-63", where: "is in all_reduce" },
      { count: 1, ranks: "37", where: "is in the data loader" },
    ],
    suspects: [{ reason: "InDataLoader", rank: 37, podName: `${job.name}-node-0-37-q8fzt`, nodeName: "gpu-9" }],
  };
}

function failureOf(job: MadeJob, time: string) {
  const isMemory = random(job.number, 11) < 0.5;
  return {
    time,
    replica: "node-2",
    podName: `${job.name}-node-0-2-q8fzt`,
    nodeName: `gpu-${job.number % 40}`,
    containerName: "node",
    exitCode: isMemory ? 137 : 1,
    ...(isMemory ? { signal: 9 } : {}),
    reason: isMemory ? "OOMKilled" : "Error",
    message: isMemory
      ? "The container used more memory than its limit of 64Gi."
      : "RuntimeError: CUDA error: device-side assert triggered",
    retryable: !isMemory,
  };
}
