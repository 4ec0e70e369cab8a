/** Labels of jobs: which are kept, and which one names the job's owner. */

export type Labels = Readonly<Record<string, string>>;

export const QUEUE_LABEL = "kueue.x-k8s.io/queue-name";

/** Before the name of one, where something else could stand. */
export const LABEL = "label:";

const MOST = 24; // of each of thousands of jobs

/** Kubernetes keeps no creator of an object; these are the names that people give such a label. */
const OWNER = /(^|[/.])(owner|user|username|user-?name|created-?by|creator|submitted-?by)$/i;

const MOST_OFFERED = 100;

/** Those that jobs have, to choose from. */
export function labelsOf(jobs: Iterable<{ readonly labels: Labels }>): string[] {
  const found = new Set<string>();
  for (const { labels } of jobs) for (const label of Object.keys(labels)) found.add(label);
  found.delete(QUEUE_LABEL);
  return [...found].sort().slice(0, MOST_OFFERED);
}

const OF_TOOLS = /(^|\.)(kubernetes|k8s|kubeflow)\.(io|org)\//;

/** Of too many those that people have chosen. */
export function keptLabels(labels: Labels): Labels {
  const all = Object.entries(labels);
  if (all.length <= MOST) return labels;
  const weight = ([name]: [string, string]) => (OWNER.test(name) ? 0 : OF_TOOLS.test(name) ? 2 : 1);
  return Object.fromEntries(all.sort((one, other) => weight(one) - weight(other)).slice(0, MOST));
}

/** "" for a job that has no such label. */
export const labelOf = ({ labels }: { labels: Labels }, name: string): string =>
  Object.hasOwn(labels, name) ? (labels[name] ?? "") : "";

export function ownerOf(labels: Labels): string {
  const key = Object.keys(labels).find((name) => OWNER.test(name));
  return key === undefined ? "" : (labels[key] ?? "");
}
