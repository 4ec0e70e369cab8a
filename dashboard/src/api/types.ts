/** The wire. Generated from the published OpenAPI; fields that not every server has are optional everywhere. */

import type { components } from "./schema";

type Schemas = components["schemas"];
export type ProgressStatus = Schemas["org.kubeflow.trainer.visibility.v1alpha1.ProgressStatus"] & LaterStatus;
export type Condition = NonNullable<ProgressStatus["conditions"]>[number];
export type Replica = NonNullable<ProgressStatus["replicas"]>[number];
export type Phase = ProgressStatus["phase"];

/** What servers of this version may leave out of their description, being older than this page. */
interface LaterStatus {
  estimatedCompletionRange?: { earliest?: string; latest?: string };
  phaseReason?: string;
  phaseMessage?: string;
  attempts?: number;
  failure?: Failure;
  resources?: Resources;
}

export interface Failure {
  time?: string;
  replica?: string;
  podName?: string;
  nodeName?: string;
  containerName?: string;
  exitCode?: number;
  signal?: number;
  reason?: string;
  message?: string;
  retryable?: boolean;
}

export interface Resources {
  accelerators?: number;
  byName?: { name: string; count: number }[];
  acceleratorSeconds?: number;
  wastedAcceleratorSeconds?: number;
}

export interface ObjectMeta {
  name?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string | null;
  labels?: Record<string, string>;
}

/** The document of one job, of whatever kind. */
export interface JobDocument {
  kind?: string;
  metadata: ObjectMeta;
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
  details?: { retryAfterSeconds?: number };
}

/** A point's place in the training; a column that would hold nothing but null is absent. */
export interface Positions {
  attempt: number;
  times: number[];
  steps?: (number | null)[];
  epochs?: (number | null)[];
}

export interface Series extends Positions {
  metric: string;
  values: string[];
}

export interface Attempt {
  number: number;
  startTime?: string;
  firstStep?: number;
  lastStep?: number;
  lastTime?: string;
}

export interface History {
  metadata: ObjectMeta;
  attempts?: Attempt[];
  progress?: Positions[];
  series?: Series[];
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
  involvedObject?: { kind?: string; name?: string };
}
