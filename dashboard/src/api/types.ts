/** The wire, generated from the published OpenAPI. What other servers serve has what is used of it. */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type ProgressStatus = Schemas["org.kubeflow.trainer.visibility.v1alpha1.ProgressStatus"];
export type Condition = NonNullable<ProgressStatus["conditions"]>[number];
export type Phase = ProgressStatus["phase"];
export type ReplicaStatus = NonNullable<ProgressStatus["replicaStatuses"]>[number];
export type History = Schemas["org.kubeflow.trainer.visibility.v1alpha1.TrainJobProgressHistory"];
export type Series = History["series"][number];
export type Attempt = History["attempts"][number];
export type GoodputOfWindow = Schemas["org.kubeflow.trainer.visibility.v1alpha1.GoodputOfWindow"];
export type SecondsByKind = Schemas["org.kubeflow.trainer.visibility.v1alpha1.SecondsByKind"];

export type Diagnosis = NonNullable<ProgressStatus["diagnosis"]>;

/** Sums over some jobs; without a name of those that have no such label. */
export interface SumsOfJobs {
  name?: string;
  jobs: number;
  running: number;
  accelerators: number;
  goodput: GoodputOfWindow;
}

/** What a list of `trainingjobs` answers with `sumBy`. */
export interface JobSums {
  kind: "TrainingJobSums";
  /** The end of the window. */
  time: string;
  total: SumsOfJobs;
  groups: SumsOfJobs[];
  others?: SumsOfJobs;
}

/** The end of a log, of the container that failed first or of rank 0's. */
export interface LogTail {
  podName: string;
  containerName?: string;
  previous: boolean;
  truncated: boolean;
  lines: string[];
}

export interface ObjectMeta {
  name?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string | null;
  labels?: Record<string, string>;
}

/** What is kept of a job that is gone. */
export type JobRecord = Schemas["org.kubeflow.trainer.visibility.v1alpha1.JobRecord"];

/** The document of one job, of whatever kind. */
export interface JobDocument {
  kind?: string;
  metadata: ObjectMeta;
  /** Of an item of `trainingjobs`, whose name has the resource before that of the job. */
  jobRef?: { kind: string; resource: string; name: string; uid: string };
  status: ProgressStatus;
}

export interface DocumentList {
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items: JobDocument[];
}

export interface WatchEvent {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: JobDocument & Partial<Status>;
}

export interface Status {
  code: number;
  reason: string;
  message: string;
  details?: { retryAfterSeconds?: number; name?: string };
}

/** An Event of Kubernetes, as little of it as is shown. */
export interface KubernetesEvent {
  metadata: ObjectMeta;
  type?: string;
  reason?: string;
  message?: string;
  note?: string;
  count?: number;
  firstTimestamp?: string | null;
  lastTimestamp?: string | null;
  eventTime?: string | null;
  series?: { count?: number; lastObservedTime?: string };
  involvedObject?: { kind?: string; name?: string; uid?: string };
}
