/** What the viewer may do, as kube-apiserver reviews it: so nothing is asked that would be refused. */

import { GROUP, type Address } from "./address";
import { ApiError, postJson } from "./http";

export interface Right {
  readonly verb: "get" | "list" | "create";
  /** Of the core group without one. */
  readonly group?: typeof GROUP;
  readonly resource: string;
  readonly subresource?: string;
  /** Of one object only. */
  readonly name?: string | undefined;
}

const KEPT_MS = 60_000; // as rights change
const kept = new Map<string, { at: number; is: Promise<boolean | undefined> }>();
let isReviewed = true; // not where a proxy leads to this API only

/** In one namespace, or in all. Undefined where that cannot be found out. */
export function may(address: Address, namespace: string | undefined, right: Right): Promise<boolean | undefined> {
  const key = [namespace, right.verb, right.group, right.resource, right.subresource, right.name].join(" ");
  const known = kept.get(key);
  if (known && performance.now() - known.at < KEPT_MS) return known.is;
  const is = review(address, namespace, right);
  kept.set(key, { at: performance.now(), is });
  return is;
}

async function review({ prefix }: Address, namespace: string | undefined, right: Right): Promise<boolean | undefined> {
  if (!isReviewed) return undefined;
  const [apiVersion, kind] = ["authorization.k8s.io/v1", "SelfSubjectAccessReview"];
  const body = { apiVersion, kind, spec: { resourceAttributes: { namespace, ...right } } };
  try {
    const path = `${prefix}/apis/${apiVersion}/selfsubjectaccessreviews`;
    return (await postJson<{ status?: { allowed?: boolean } }>(path, body)).status?.allowed;
  } catch (error) {
    if (error instanceof ApiError && error.code < 500 && error.code !== 429) isReviewed = false;
    return undefined;
  }
}

/** Throws the refusal that the server would give. */
export async function ensure(address: Address, namespace: string | undefined, right: Right): Promise<void> {
  if ((await may(address, namespace, right)) !== false) return;
  const { verb, group = "", resource, subresource } = right;
  const what = [resource, subresource].filter(Boolean).join("/");
  const where = namespace === undefined ? "at the cluster scope" : `in the namespace "${namespace}"`;
  const message = `You cannot ${verb} resource "${what}" in API group "${group}" ${where}.`;
  throw new ApiError(403, "Forbidden", message);
}
