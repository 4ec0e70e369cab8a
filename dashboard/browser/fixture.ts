/** A server of the page and of made-up jobs, which does what a real one does only seldom: cuts, expires, forbids. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { readFileSync } from "node:fs";
import { extname, join } from "node:path";
import type { AddressInfo, Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import type { JobDocument, SecondsByKind, SumsOfJobs } from "../src/api/types";
import { MadeJob, windowOf } from "./fixture-jobs";

const GROUP = "/apis/visibility.trainer.kubeflow.org/v1alpha1";
const BUILT = fileURLToPath(new URL("../../visibility_api/dashboard", import.meta.url));
const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
/** As the server sends it. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

interface Watcher {
  response: ServerResponse;
  resource: string;
  namespace: string | undefined;
  name: string | undefined;
  kinds: readonly string[];
}

interface Change {
  version: number;
  job: MadeJob;
  /** As of its own resource, and as of trainingjobs. */
  own: string;
  all: string;
}

export interface Options {
  jobs: number;
  /** What comes before /apis, as behind a proxy. */
  prefix?: string;
  /** Namespaces that may be listed; absent: all, and the whole cluster. A test may change it. */
  allowed?: string[] | undefined;
  port?: number;
  /** Whether there is a list of the jobs of all kinds, and who may read it. */
  allKinds?: "served" | "forbidden" | "unknown";
}

export class Fixture {
  jobs: MadeJob[];
  readonly requests: string[] = [];
  revision = 1000;
  /** Revisions before this are answered 410. */
  oldest = 0;
  isDown = false;
  /** Connections stay open, and nothing comes any more. */
  isSilent = false;
  isLoggedOut = false;
  /** A login proxy before the server: a page of HTML with 200 for whatever is asked, or a redirect to another host. */
  login: "html" | "redirect" | undefined;
  /** Heads of watches come through, and nothing of what follows, as by a proxy that buffers. */
  isBuffered = false;
  hasHistory = true;
  /** Jobs that are gone, of which the server has records; undefined where it keeps none. */
  records: MadeJob[] | undefined;
  /** Whether the viewer may list records. */
  mayReadRecords = true;
  /** Kinds that the viewer may read; a test may change it. */
  readable: readonly string[] = [...KINDS];
  /** Whether the viewer may list and watch jobs, beside getting one. */
  mayList = true;
  mayWatch = true;
  /** Whether the viewer may read logs and list events. */
  mayReadMore = true;
  /** Whether the viewer may have ranks read. */
  mayDiagnose = true;
  /** Whether kube-apiserver is there, which reviews what the viewer may do. */
  hasReviews = true;
  /** What was asked by other means than GET. */
  readonly posts: string[] = [];
  /** Whether the viewer may get `progress`. */
  mayReadProgress = true;
  /** What is answered there instead. */
  fault: { path: RegExp; code: number; reason?: string; message?: string; retryAfterSeconds?: number } | undefined;
  private held: { path: RegExp; release: Promise<void> } | undefined;
  private readonly watchers = new Set<Watcher>();
  private readonly changes: Change[] = [];
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    readonly options: Options,
  ) {
    const now = Date.now();
    this.jobs = Array.from({ length: options.jobs }, (_, number) => new MadeJob(number, now));
    server.on("request", (request: IncomingMessage, response: ServerResponse) => this.answer(request, response));
    server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
  }

  static async start(options: Options): Promise<Fixture> {
    const server = createServer();
    const fixture = new Fixture(server, options);
    await new Promise<void>((resolve) => server.listen(options.port ?? 0, "127.0.0.1", resolve));
    return fixture;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  page(namespace?: string): string {
    const scope = namespace === undefined ? "" : `/namespaces/${namespace}`;
    return `${this.origin}${this.options.prefix ?? ""}${GROUP}${scope}/dashboard`;
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** Every connection breaks, as when a proxy ends. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  /** Every watch ends in order, as each does after a while. */
  endWatches(): void {
    for (const { response } of this.watchers) response.end();
  }

  /** Every watch is told that its revision is gone, and ends. */
  expireWatches(): void {
    const object = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
    for (const { response } of this.watchers) response.end(`${JSON.stringify({ type: "ERROR", object })}\n`);
  }

  /** Answers to what is asked there are as of now, and come when what is returned is called. */
  hold(path: RegExp): () => void {
    let release: () => void = () => undefined;
    this.held = { path, release: new Promise((resolve) => (release = resolve)) };
    return () => {
      this.held = undefined;
      release();
    };
  }

  private open = 0;
  private lastAt = 0;

  /** Nothing is asked beside the watches, and nothing was for a while. */
  get isQuiet(): boolean {
    return this.open === 0 && Date.now() - this.lastAt > 400;
  }

  get watching(): number {
    return this.watchers.size;
  }

  /** All revisions so far are of an earlier process. */
  forget(): void {
    this.revision += 1_000_000;
    this.oldest = this.revision;
  }

  change(job: MadeJob, type: "ADDED" | "MODIFIED" | "DELETED" = "MODIFIED"): void {
    if (type === "MODIFIED") job.advance();
    if (type === "DELETED") this.jobs = this.jobs.filter((one) => one !== job);
    job.version = ++this.revision;
    const line = (object: JobDocument) => `${JSON.stringify({ type, object })}\n`;
    const document = job.document(Date.now());
    const change = { version: job.version, job, own: line(document), all: line(ofAllKinds(job, document)) };
    this.changes.push(change);
    if (!this.isSilent) for (const watcher of this.watchers) tell(watcher, change);
  }

  add(number: number): MadeJob {
    const job = new MadeJob(number, Date.now());
    this.jobs.push(job);
    this.change(job, "ADDED");
    return job;
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? "/", this.origin);
    const prefix = this.options.prefix ?? "";
    this.requests.push(url.pathname + url.search);
    if (!url.searchParams.has("watch")) {
      this.open++;
      response.on("close", () => {
        this.open--;
        this.lastAt = Date.now();
      });
    }
    if (this.isSilent) return;
    if (this.held && [url.pathname, url.pathname + url.search].some((path) => this.held?.path.test(path))) {
      const end = response.end.bind(response) as (body?: unknown) => ServerResponse;
      const { release } = this.held;
      response.end = ((body: unknown) => {
        void release.then(() => end(body));
        return response;
      }) as typeof response.end;
    }
    if (this.fault?.path.test(url.pathname)) return sendFault(response, this.fault);
    // The browser asks for the icon when it likes, and tells of a redirect as a fault of the page.
    if (this.login && !url.pathname.endsWith(".svg"))
      return sendLogin(response, this.login, url.searchParams.has("watch"));
    if (this.isLoggedOut) return sendStatus(response, 401, "Unauthorized", "the login has ended");
    if (this.isDown)
      return sendStatus(response, 503, "ServiceUnavailable", "the server is currently unable to handle the request");
    if (!url.pathname.startsWith(prefix)) return sendStatus(response, 404, "", "not below the prefix");
    const path = url.pathname.slice(prefix.length);
    if (path === "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" && this.hasReviews)
      return this.review(request, response);
    const core = /^\/api\/v1\/namespaces(?:\/([^/]+)\/events)?$/.exec(path);
    // As the kubelet does: the last lines, and of these the first bytes.
    const log = /^\/api\/v1\/namespaces\/[^/]+\/pods\/([^/]+)\/log$/.exec(path);
    if (log) return this.podLog(response, log[1] ?? "", url.searchParams);
    if (core) return this.core(response, core[1], url.searchParams);
    if (!path.startsWith(GROUP))
      return sendStatus(response, 404, "", "the server could not find the requested resource");
    const rest = path.slice(GROUP.length).split("/").filter(Boolean).map(decodeURIComponent);
    if (rest.length === 0) return send(request, response, discovery(this.records ? ["jobrecords"] : []));
    const namespace = rest[0] === "namespaces" ? rest[1] : undefined;
    const [resource, name, subresource] = namespace === undefined ? rest : rest.slice(2);
    if (resource === "dashboard") return sendFile(request, response, name);
    if (resource === "jobrecords" && this.records)
      return this.record(request, response, this.records, name, subresource, url.searchParams);
    if (KINDS.has(resource ?? "") && !this.readable.includes(resource ?? ""))
      return sendStatus(response, 403, "Forbidden", `User "bob" cannot get resource "${resource}"`);
    const isAll = resource === "trainingjobs" && this.options.allKinds !== "unknown";
    if (resource === undefined || !(isAll || KINDS.has(resource)))
      return sendStatus(response, 404, "", "the server could not find the requested resource");
    if (isAll && this.options.allKinds === "forbidden")
      return sendStatus(response, 403, "Forbidden", 'User "bob" cannot list resource "trainingjobs"');
    if (this.options.allowed && !this.options.allowed.includes(namespace ?? "")) {
      const where = namespace === undefined ? "at the cluster scope" : `in the namespace "${namespace}"`;
      return sendStatus(
        response,
        403,
        "Forbidden",
        `trainjobs.visibility.trainer.kubeflow.org is forbidden: User "bob" cannot list resource "trainjobs" in API group "visibility.trainer.kubeflow.org" ${where}`,
      );
    }
    const verb = url.searchParams.has("watch") ? "watch" : "list";
    if (name === undefined && !(this.mayList && (verb === "list" || this.mayWatch)))
      return sendStatus(response, 403, "Forbidden", `User "bob" cannot ${verb} resource "${resource}"`);
    if (name === undefined) return this.collection(request, response, resource, namespace, url.searchParams);
    const job = this.jobs.find((one) => one.plural === resource && one.namespace === namespace && one.name === name);
    if (!job)
      return sendStatus(
        response,
        404,
        "NotFound",
        `trainjobs.visibility.trainer.kubeflow.org "${name}" not found`,
        name,
      );
    if (subresource === "log-tail") return this.logTail(response, job);
    if (subresource === "diagnose") return this.diagnosis(request, response, job);
    if (subresource === "history") return this.history(request, response, job, url.searchParams);
    if (subresource === "progress") return this.progress(request, response, job, url.searchParams);
    if (subresource !== undefined)
      return sendStatus(response, 404, "", "the server could not find the requested resource");
    send(request, response, job.document(Date.now()));
  }

  private review(request: IncomingMessage, response: ServerResponse): void {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const { verb, resource, subresource } = (JSON.parse(text) as Review).spec.resourceAttributes;
      const allowed = {
        events: this.mayReadMore,
        "pods/log": this.mayReadMore,
        progress: this.mayReadProgress,
        jobrecords: this.mayReadRecords,
        diagnose: verb === "get" || this.mayDiagnose,
        trainingjobs: this.options.allKinds !== "forbidden",
      };
      const names = [resource, subresource, `${resource}/${subresource}`] as (keyof typeof allowed)[];
      sendJson(response, { status: { allowed: names.every((name) => allowed[name] ?? true) } }, 201);
    });
  }

  /** As the server does it: of the last one the stacks, or another one, which comes a little later. */
  private diagnosis(request: IncomingMessage, response: ServerResponse, job: MadeJob): void {
    const { diagnosis } = job.document(Date.now()).status;
    if (request.method === "GET") {
      if (!this.mayReadMore) return sendStatus(response, 403, "Forbidden", 'User "bob" cannot get resource "pods/log"');
      if (!diagnosis) return sendStatus(response, 404, "NotFound", "The ranks of the job were not read yet.");
      const frames = [
        ["torch/distributed/distributed_c10d.py:all_reduce:2501", "train.py:step:88"],
        ["torch/utils/data/dataloader.py:_try_get_data:1131", "<b>\u202etrain.py:main:40"],
      ];
      const groups = diagnosis.groups?.map((group, at) => ({ ...group, frames: frames[at] ?? [] }));
      return sendJson(response, { kind: "TrainJobDiagnosis", metadata: {}, diagnosis: { ...diagnosis, groups } });
    }
    this.posts.push(request.url ?? "");
    if (!this.mayDiagnose) return sendStatus(response, 403, "Forbidden", 'cannot create resource "trainjobs/diagnose"');
    sendJson(response, { kind: "Status", status: "Success", code: 202 }, 202);
  }

  private collection(
    request: IncomingMessage,
    response: ServerResponse,
    resource: string,
    namespace: string | undefined,
    query: URLSearchParams,
  ): void {
    const name = /^metadata\.name=(.+)$/.exec(query.get("fieldSelector") ?? "")?.[1];
    if (query.has("watch")) {
      this.tellKinds(response, resource);
      response.writeHead(200, { "Content-Type": "application/json" });
      if (Number(query.get("resourceVersion")) < this.oldest) {
        const object = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
        return void response.end(`${JSON.stringify({ type: "ERROR", object })}\n`);
      }
      response.flushHeaders();
      if (this.isBuffered) return;
      const watcher = { response, resource, namespace, name, kinds: this.readable };
      this.watchers.add(watcher);
      for (const change of this.changes) {
        if (change.version > Number(query.get("resourceVersion"))) tell(watcher, change);
      }
      response.on("close", () => this.watchers.delete(watcher));
      return;
    }
    const isAll = resource === "trainingjobs";
    const found = this.jobs.filter(
      (job) =>
        (isAll || job.plural === resource) &&
        this.readable.includes(job.plural) &&
        (namespace ?? job.namespace) === job.namespace &&
        (name ?? job.name) === job.name,
    );
    const sumBy = query.get("sumBy");
    if (isAll && sumBy !== null) return this.sums(request, response, found, sumBy, query.get("window") ?? "day");
    const from = Number(query.get("continue") ?? 0);
    const limit = Number(query.get("limit") ?? 0) || found.length;
    const items = found.slice(from, from + limit).map((job) => {
      const document = job.document(Date.now());
      return isAll ? ofAllKinds(job, document) : document;
    });
    const rest = Math.max(0, found.length - from - limit);
    const more = rest > 0 ? { continue: String(from + limit), remainingItemCount: rest } : {};
    this.tellKinds(response, resource);
    send(request, response, {
      kind: "TrainJobProgressList",
      metadata: { resourceVersion: String(this.revision), ...more },
      items,
    });
  }

  private tellKinds(response: ServerResponse, resource: string): void {
    if (resource === "trainingjobs") response.setHeader("Readable-Resources", this.readable.join(","));
  }

  /** As the server sums them: groups with the most accelerator-seconds first, ten of them, and the others. */
  private sums(request: IncomingMessage, response: ServerResponse, jobs: MadeJob[], by: string, window: string): void {
    const now = Date.now();
    const nameOf = (job: MadeJob) => {
      const labels = job.document(now).metadata.labels ?? {};
      if (by === "namespace") return job.namespace;
      if (by === "kind") return job.kind;
      if (by === "nodePool") return job.hasRun ? `pool-${job.number % 3}` : "";
      return labels[by === "queue" ? "kueue.x-k8s.io/queue-name" : by.replace("label:", "")] ?? "";
    };
    const groups = new Map<string, MadeJob[]>();
    for (const job of jobs) groups.set(nameOf(job), [...(groups.get(nameOf(job)) ?? []), job]);
    const sums = [...groups].map(([name, some]) => sumsOf(name, some, window, now));
    const weight = ({ goodput }: SumsOfJobs) =>
      Object.values(goodput.acceleratorSeconds ?? {}).reduce((a, b) => a + b, 0);
    sums.sort((one, other) => weight(other) - weight(one));
    const rest = jobs.filter((job) => sums.slice(10).some(({ name }) => (name ?? "") === nameOf(job)));
    send(request, response, {
      kind: "TrainingJobSums",
      metadata: { resourceVersion: String(this.revision) },
      time: new Date(now).toISOString().replace(/\.\d+Z$/, "Z"),
      sumBy: by,
      window,
      total: sumsOf("", jobs, window, now),
      groups: sums.slice(0, 10),
      ...(rest.length > 0 ? { others: sumsOf("", rest, window, now) } : {}),
    });
  }

  private history(request: IncomingMessage, response: ServerResponse, job: MadeJob, query: URLSearchParams): void {
    if (!this.hasHistory) return sendStatus(response, 404, "", "the server could not find the requested resource");
    const now = Date.now();
    const { metadata } = job.document(now);
    if (job.hasHistory) return send(request, response, { kind: HISTORY, metadata, ...job.hasHistory });
    const most = Number(query.get("maxPoints") ?? 500);
    const asked = query.getAll("metric");
    const names = asked.length ? asked : job.metrics(1).map(({ name }) => name);
    const series = names.flatMap((name) => job.series(name, most, now));
    const progress = series.filter(({ metric }) => metric === names[0]).map((one) => job.progress(one));
    const numbers = [...new Set(series.map((one) => one.attempt))];
    const attempts = numbers.map((number) => {
      const times = series.filter((one) => one.attempt === number).flatMap((one) => one.times);
      const steps = series.filter((one) => one.attempt === number).flatMap((one) => one.steps ?? []) as number[];
      return {
        number,
        startTime: new Date(Math.min(...times) * 1000).toISOString(),
        lastTime: new Date(Math.max(...times) * 1000).toISOString(),
        firstStep: Math.min(...steps),
        lastStep: Math.max(...steps),
      };
    });
    send(request, response, {
      kind: HISTORY,
      metadata,
      attempts,
      progress,
      series,
    });
  }

  private record(
    request: IncomingMessage,
    response: ServerResponse,
    jobs: readonly MadeJob[],
    name: string | undefined,
    subresource: string | undefined,
    query: URLSearchParams,
  ): void {
    const nameOf = (job: MadeJob) => `${job.name}-${job.uid.slice(0, 8)}`;
    const of = (job: MadeJob) => {
      const { metadata, status } = job.document(Date.now());
      const { kind, plural: resource, uid } = job;
      return {
        kind: "JobRecord",
        metadata: { ...metadata, name: nameOf(job) },
        jobRef: { kind, resource, name: job.name, uid },
        summary: {
          phase: status.phase,
          endTime: status.endTime ?? status.lastUpdatedTime,
          durationSeconds: 7260,
          metrics: status.metrics,
          goodputPercentage: status.goodput?.whole.percentage,
          cause: status.failure?.class,
        },
        progress: status,
      };
    };
    if (!this.mayReadRecords) return sendStatus(response, 403, "Forbidden", 'User "bob" cannot list "jobrecords"');
    if (name === undefined) return send(request, response, { items: jobs.map(of), metadata: {} });
    const job = jobs.find((one) => nameOf(one) === name);
    if (!job) return sendStatus(response, 404, "NotFound", `jobrecords "${name}" not found`, name);
    if (subresource === "history") return this.history(request, response, job, query);
    send(request, response, of(job));
  }

  /** What a pod that runs has written, by the name of its job. */
  readonly logs = new Map<string, string>();

  /** As kube-apiserver has it. */
  private podLog(response: ServerResponse, pod: string, query: URLSearchParams): void {
    if (!this.mayReadMore) {
      const message = `pods "${pod}" is forbidden: User "bob" cannot get resource "pods/log"`;
      return sendStatus(response, 403, "Forbidden", message);
    }
    const [job] = pod.split("-node-");
    response.writeHead(200, { "Content-Type": "text/plain" });
    const lines = (this.logs.get(job ?? "") ?? "step 1 loss 2.5\nstep 2 loss 2.4\n").split(/(?<=\n)/);
    response.end(
      lines
        .slice(-Number(query.get("tailLines")))
        .join("")
        .slice(0, Number(query.get("limitBytes"))),
    );
  }

  /** With a status for each replica, in pages as the server has them. */
  private progress(request: IncomingMessage, response: ServerResponse, job: MadeJob, query: URLSearchParams): void {
    if (!this.mayReadProgress) {
      const message = `User "bob" cannot get resource "${job.plural}/progress"`;
      return sendStatus(response, 403, "Forbidden", message);
    }
    const document = job.document(Date.now());
    if (query.get("replicas") !== "all") return send(request, response, document);
    const all = job.pods(Date.now());
    const from = query.has("continue") ? all.findIndex(({ name }) => name === query.get("continue")) + 1 : 0;
    const replicaStatuses = all.slice(from, from + 1000);
    const more = from + 1000 < all.length ? { replicaStatusesContinue: replicaStatuses.at(-1)?.name } : {};
    const replicaStatusesTime = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const status = { ...document.status, replicaStatuses, replicaStatusesTime, ...more };
    send(request, response, { ...document, status });
  }

  private logTail(response: ServerResponse, job: MadeJob): void {
    if (!this.mayReadMore) {
      const message = `pods "${job.name}-node-0-2-q8fzt" is forbidden: User "bob" cannot get resource "pods/log"`;
      return sendStatus(response, 403, "Forbidden", message);
    }
    sendJson(response, {
      kind: "TrainJobLogTail",
      podName: `${job.name}-node-0-2-q8fzt`,
      containerName: "node",
      previous: true,
      truncated: true,
      lines: ["Traceback (most recent call last):", "\u001b[31mRuntimeError\u001b[0m: \u202e<b>device-side assert</b>"],
    });
  }

  private core(response: ServerResponse, namespace: string | undefined, query: URLSearchParams): void {
    if (namespace === undefined) {
      if (this.options.allowed) return sendStatus(response, 403, "Forbidden", "namespaces is forbidden");
      return sendJson(response, {
        items: [...new Set(this.jobs.map((job) => job.namespace))].map((name) => ({ metadata: { name } })),
      });
    }
    if (!this.mayReadMore) {
      const message = `events is forbidden: User "bob" cannot list resource "events" in API group "" in the namespace "${namespace}"`;
      return sendStatus(response, 403, "Forbidden", message);
    }
    const name = /involvedObject\.name=(.+)$/.exec(query.get("fieldSelector") ?? "")?.[1];
    const job = this.jobs.find((one) => one.namespace === namespace && one.name === name);
    const all = job?.events(Date.now()) ?? [];
    const end = Number(query.get("continue") ?? 0) + Number(query.get("limit"));
    const metadata = end < all.length ? { continue: String(end) } : {};
    sendJson(response, { metadata, items: all.slice(Number(query.get("continue") ?? 0), end) });
  }
}

interface Review {
  spec: { resourceAttributes: { verb: string; resource: string; subresource?: string } };
}

function sumsOf(name: string, jobs: readonly MadeJob[], window: string, now: number): SumsOfJobs {
  const [seconds, weights]: [SecondsByKind, SecondsByKind] = [{}, {}];
  const add = (to: SecondsByKind, some: SecondsByKind = {}) => {
    for (const [kind, more] of Object.entries(some) as [keyof SecondsByKind, number][])
      to[kind] = (to[kind] ?? 0) + more;
  };
  for (const job of jobs) {
    const { goodput } = job.document(now).status;
    const spent = (window === "whole" ? goodput?.whole : goodput?.[window as "hour" | "day"]) ?? goodput?.whole;
    add(seconds, spent?.seconds);
    add(weights, spent?.acceleratorSeconds);
  }
  const hasAny = Object.values(weights).some((some) => some > 0);
  const running = jobs.filter(({ phase }) => phase === "Running");
  const held = running.map((job) => job.document(now).status.resources?.accelerators ?? 0);
  return {
    ...(name ? { name } : {}),
    jobs: jobs.length,
    running: running.length,
    accelerators: held.reduce((sum, one) => sum + one, 0),
    goodput: {
      ...windowOf(seconds, 0, hasAny ? weights : seconds),
      ...(hasAny ? { acceleratorSeconds: weights } : {}),
    },
  };
}

function tell({ response, resource, namespace, name, kinds }: Watcher, { job, own, all }: Change): void {
  if (!kinds.includes(job.plural)) return;
  if ((namespace ?? job.namespace) !== job.namespace || (name ?? job.name) !== job.name) return;
  if (resource === "trainingjobs") response.write(all);
  else if (resource === job.plural) response.write(own);
}

/** As an item of `trainingjobs`. */
function ofAllKinds({ plural, kind, name, uid }: MadeJob, document: JobDocument): JobDocument {
  const metadata = { ...document.metadata, name: `${plural}.${name}` };
  return { ...document, kind: "TrainingJob", metadata, jobRef: { kind, resource: plural, name, uid } };
}

const KINDS = new Set(["trainjobs", "jobs", "pytorchjobs", "volcanojobs"]);
const HISTORY = "TrainJobProgressHistory";
const discovery = (more: readonly string[]) => ({
  kind: "APIResourceList",
  resources: ["trainingjobs", ...KINDS, ...more].map((name) => ({
    name,
    namespaced: true,
    verbs: ["get", "list", "watch"],
  })),
});

function sendJson(response: ServerResponse, body: unknown, code = 200): void {
  response.writeHead(code, { "Content-Type": "application/json" });
  response.end(JSON.stringify(body));
}

function send(request: IncomingMessage, response: ServerResponse, body: unknown): void {
  const accept = request.headers.accept ?? "";
  if (/yaml|csv/.test(accept)) {
    response.writeHead(200, { "Content-Type": accept });
    response.end(JSON.stringify(body, undefined, 2));
    return;
  }
  response.writeHead(200, { "Content-Type": "application/json", "Content-Encoding": "gzip" });
  response.end(gzipSync(JSON.stringify(body), { level: 1 }));
}

function sendStatus(response: ServerResponse, code: number, reason: string, message: string, name?: string): void {
  sendJson(
    response,
    { kind: "Status", apiVersion: "v1", status: "Failure", code, reason, message, details: { name } },
    code,
  );
}

/** As a proxy's, of HTML, where no reason is given. */
function sendFault(response: ServerResponse, fault: NonNullable<Fixture["fault"]>): void {
  const { code, reason, message, retryAfterSeconds } = fault;
  if (reason === undefined) {
    response.writeHead(code, { "Content-Type": "text/html" });
    response.end(`<html><h1>${code}</h1>nginx</html>`);
    return;
  }
  if (retryAfterSeconds !== undefined) response.setHeader("Retry-After", retryAfterSeconds);
  sendJson(
    response,
    { kind: "Status", status: "Failure", code, reason, message, details: { retryAfterSeconds } },
    code,
  );
}

/** For a watch it comes slowly, and the connection stays open. */
function sendLogin(response: ServerResponse, how: "html" | "redirect", isSlow: boolean): void {
  if (how === "redirect") {
    response.writeHead(302, { Location: "http://login.invalid/?then=/" });
    response.end();
    return;
  }
  response.writeHead(200, { "Content-Type": "text/html" });
  response.write("<!doctype html>\n<title>Log in</title>\n".slice(0, isSlow ? 10 : undefined));
  if (!isSlow) response.end();
}

function sendFile(request: IncomingMessage, response: ServerResponse, name: string | undefined): void {
  const isPage = name === undefined;
  let content = readFileSync(isPage ? join(BUILT, "index.html") : join(BUILT, "assets", name));
  if (isPage) content = Buffer.from(content.toString().replaceAll("./assets/", "./dashboard/"));
  const gzipped = /gzip/.test(String(request.headers["accept-encoding"])) ? gzipSync(content) : undefined;
  response.writeHead(200, {
    "Content-Type": TYPES[extname(name ?? ".html")] ?? "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    ...(gzipped ? { "Content-Encoding": "gzip" } : {}),
  });
  response.end(gzipped ?? content);
}
