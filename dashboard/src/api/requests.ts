/** What the page asks beside the lists that it follows. */

import { corePath, GROUP, resourcePath, withQuery, type Address } from "./address";
import { linesOf } from "../model/log";
import { ApiError, ConnectionLost, getJson, getText, postJson } from "./http";
import { ensure } from "./rights";
import type { Diagnosis, History, JobDocument, JobRecord, JobSums, KubernetesEvent, LogTail } from "./types";

/** A job's place in the API. `plural` is the resource, such as trainjobs. */
export interface JobRef {
  readonly plural: string;
  readonly namespace: string;
  readonly name: string;
}

export interface HistoryQuery {
  metrics?: readonly string[];
  since?: string;
  maxPoints?: number;
}

const subject = (address: Address, ref: JobRef, ...rest: string[]) =>
  resourcePath(address, ref.plural, ref.namespace, ref.name, ...rest);

function historyPath(address: Address, ref: JobRef, query: HistoryQuery): string {
  const { metrics, since, maxPoints } = query;
  return withQuery(subject(address, ref, "history"), { metric: metrics, since, maxPoints });
}

export async function getHistory(
  address: Address,
  ref: JobRef,
  query: HistoryQuery,
  signal?: AbortSignal,
): Promise<History> {
  const found = await getJson<History>(historyPath(address, ref, query), signal);
  if (!Array.isArray(found?.series) || !found.metadata) throw new ConnectionLost("The answer is no history.");
  return found;
}

export const getHistoryCsv = (address: Address, ref: JobRef, query: HistoryQuery) =>
  getText(historyPath(address, ref, query), "text/csv");

export const getJob = (address: Address, ref: JobRef, signal?: AbortSignal) =>
  getDocument(subject(address, ref), signal);

/** The resource of records: jobs that are gone. */
export const RECORDS = "jobrecords";
const isRecord = (found: JobDocument | JobRecord): found is JobRecord => "summary" in found;

async function getDocument(path: string, signal?: AbortSignal): Promise<JobDocument> {
  const got = await getJson<JobDocument | JobRecord>(path, signal);
  const found = got && isRecord(got) ? ofRecord(got) : got;
  if (!found?.metadata || !found.status) throw new ConnectionLost("The answer is no job.");
  return found;
}

/** A record as the last document of its job. */
function ofRecord({ jobRef, metadata, summary, progress }: JobRecord): JobDocument {
  const { phase, endTime } = summary;
  const status = { phase, ...(endTime && { endTime }), ...progress } as JobDocument["status"];
  return { kind: `${jobRef.kind}Progress`, jobRef, metadata: metadata as JobDocument["metadata"], status };
}

const MOST_RECORDS = 500; // that are looked through

/** Records of jobs of this name, the latest first; `isAll` unless there are further records in the namespace. */
export async function getRecords(address: Address, { plural, namespace, name }: JobRef, signal?: AbortSignal) {
  await ensure(address, namespace, { verb: "list", group: GROUP, resource: RECORDS });
  const path = withQuery(resourcePath(address, RECORDS, namespace), { limit: MOST_RECORDS });
  const found = await getJson<{ items?: JobRecord[]; metadata?: { continue?: string } }>(path, signal);
  if (!Array.isArray(found?.items)) throw new ConnectionLost("The answer has no records.");
  const records = found.items.filter(({ jobRef }) => jobRef.name === name && jobRef.resource === plural);
  return { records, isAll: !found.metadata?.continue };
}

let served: Promise<boolean> | undefined;

/** Whether the server keeps records of jobs that are gone. */
export function hasRecords({ base }: Address): Promise<boolean> {
  served ??= getJson<{ resources?: { name: string }[] }>(base).then(
    ({ resources = [] }) => resources.some(({ name }) => name === RECORDS),
    () => {
      served = undefined; // it is asked again
      return false;
    },
  );
  return served;
}

/** Over the jobs that the viewer may list, ten groups at most. */
export async function getSums(
  address: Address,
  query: { sumBy: string; window: string },
  signal?: AbortSignal,
): Promise<JobSums> {
  await ensure(address, address.namespace, { verb: "list", group: GROUP, resource: "trainingjobs" });
  const path = withQuery(resourcePath(address, "trainingjobs", address.namespace), query);
  const found = await getJson<JobSums>(path, signal);
  if (found?.kind !== "TrainingJobSums" || !found.total || !Array.isArray(found.groups))
    throw new ConnectionLost("The answer has no sums.");
  return found;
}

/** With a status for each replica, 1,000 at most: those after the replica named `after`. */
export async function getReplicas(address: Address, ref: JobRef, after: string | undefined, signal?: AbortSignal) {
  await ensure(address, ref.namespace, ofJob(ref, "get", "progress"));
  return getDocument(withQuery(subject(address, ref, "progress"), { replicas: "all", continue: after }), signal);
}

/** To a subresource of the job. */
export const ofJob = ({ plural, name }: JobRef, verb: "get" | "create", subresource: string) =>
  ({ verb, group: GROUP, resource: plural, subresource, name }) as const;
const LOGS = { verb: "get", resource: "pods", subresource: "log" } as const;

/** The last diagnosis of the job, with the stacks of its ranks. */
export async function getDiagnosis(address: Address, ref: JobRef, signal?: AbortSignal): Promise<Diagnosis> {
  await ensure(address, ref.namespace, ofJob(ref, "get", "diagnose"));
  await ensure(address, ref.namespace, LOGS);
  const { diagnosis } = await getJson<{ diagnosis?: Diagnosis }>(subject(address, ref, "diagnose"), signal);
  if (!diagnosis?.reason) throw new ConnectionLost("The answer is no diagnosis.");
  return diagnosis;
}

/** Has the ranks of the job read now; its document has what was found, within a minute. */
export const diagnose = (address: Address, ref: JobRef) => postJson(subject(address, ref, "diagnose"), {});

export const getYaml = (address: Address, ref: JobRef, signal?: AbortSignal) =>
  getText(subject(address, ref), "application/yaml", signal);

const LINES = 500;
const MOST_BYTES = 1 << 20;

/** `previous`: of the run before; without it the server chooses that which failed. */
export async function getLogTail(
  address: Address,
  ref: JobRef,
  pod: string | undefined,
  query: { previous?: string },
  signal?: AbortSignal,
): Promise<LogTail> {
  await ensure(address, ref.namespace, ofJob(ref, "get", "log-tail"));
  await ensure(address, ref.namespace, { ...LOGS, name: pod });
  return getJson<LogTail>(withQuery(subject(address, ref, "log-tail"), { lines: LINES, ...query }), signal);
}

/** Of a pod that runs: through kube-apiserver, with the viewer's own right; else, where only we are reached, by us. */
export async function getLog(
  address: Address,
  ref: JobRef,
  podName: string,
  containerName: string,
  signal?: AbortSignal,
): Promise<LogTail> {
  const path = corePath(address, "namespaces", ref.namespace, "pods", podName, "log");
  await ensure(address, ref.namespace, { ...LOGS, name: podName });
  try {
    for (let tailLines = LINES; ; tailLines = Math.ceil(tailLines / 10)) {
      const query = { container: containerName, tailLines, limitBytes: MOST_BYTES };
      const text = await getText(withQuery(path, query), "*/*", signal);
      // `limitBytes` keeps the beginning of what `tailLines` selects: what fills it lacks the newest lines.
      if (tailLines > 1 && new Blob([text]).size >= MOST_BYTES) continue;
      const lines = linesOf(text);
      return { podName, containerName, previous: false, truncated: lines.length >= tailLines, lines };
    }
  } catch (error) {
    // An answer without a reason is not kube-apiserver's.
    if (!(error instanceof ApiError) || (error.code !== 404 && error.code !== 405) || error.reason) throw error;
    return getLogTail(address, ref, podName, { previous: "false" }, signal);
  }
}

const EVENTS_A_PAGE = 500;
const MOST_EVENT_PAGES = 10;

/** Of the job and what bears its name (its JobSet), and of one pod. Only behind kube-apiserver. */
export async function getEvents(address: Address, ref: JobRef, pod?: string): Promise<KubernetesEvent[]> {
  const path = corePath(address, "namespaces", ref.namespace, "events");
  await ensure(address, ref.namespace, { verb: "list", resource: "events" });
  const names = pod === undefined ? [ref.name] : [ref.name, pod];
  const lists = await Promise.all(names.map((name) => getEventsOf(path, name)));
  return lists.flat();
}

/** They come by name, so the newest are in the last page. */
async function getEventsOf(path: string, name: string): Promise<KubernetesEvent[]> {
  const found: KubernetesEvent[] = [];
  let token: string | undefined;
  for (let pages = 0; pages < MOST_EVENT_PAGES; pages++) {
    const query = { fieldSelector: `involvedObject.name=${name}`, limit: EVENTS_A_PAGE, continue: token };
    const page = await getJson<{ items?: KubernetesEvent[]; metadata?: { continue?: string } }>(withQuery(path, query));
    found.push(...(page.items ?? []));
    token = page.metadata?.continue || undefined;
    if (token === undefined) break;
  }
  return found;
}

/** The namespaces that the viewer may list; rejects for most. */
export async function getNamespaces(address: Address): Promise<string[]> {
  const found = await getJson<{ items?: { metadata: { name?: string } }[] }>(
    withQuery(corePath(address, "namespaces"), { limit: 500 }),
  );
  return (found.items ?? []).flatMap(({ metadata }) => metadata.name ?? []);
}
