/** Where the API is, found from the page's own address: the page may lie behind any prefix (`kubectl proxy`). */

export const GROUP = "visibility.trainer.kubeflow.org";
const PAGE_PATH = new RegExp(`^(.*)(/apis/${GROUP.replaceAll(".", "\\.")}/[^/]+)(?:/namespaces/([^/]+))?/dashboard/?$`);

export interface Address {
  /** What comes before /apis: empty, or the prefix of a proxy. */
  readonly prefix: string;
  /** Path of the group version, with the prefix. */
  readonly base: string;
  /** The only namespace that the page shows; absent when it shows all. */
  readonly namespace?: string;
}

/** Throws an Error when the page is not where this API serves it. */
export function parseAddress(pathname: string): Address {
  const match = PAGE_PATH.exec(pathname);
  if (!match) throw new Error(`The address ${pathname} is not that of a dashboard of ${GROUP}.`);
  const [, prefix = "", group = "", namespace] = match;
  const address = { prefix, base: prefix + group };
  return namespace === undefined ? address : { ...address, namespace: decodeURIComponent(namespace) };
}

export function pageOf(address: Address, namespace?: string): string {
  const scope = namespace === undefined ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${address.base}${scope}/dashboard`;
}

/** The path of a collection, or of one object or subresource of it. */
export function resourcePath(address: Address, plural: string, namespace?: string, ...rest: string[]): string {
  const scope = namespace === undefined ? [] : ["namespaces", namespace];
  return [address.base, ...[...scope, plural, ...rest].map(encodeURIComponent)].join("/");
}

export function corePath(address: Address, ...rest: string[]): string {
  return [`${address.prefix}/api/v1`, ...rest.map(encodeURIComponent)].join("/");
}

/** `query` without what is undefined; a list becomes a parameter each. */
export function withQuery(
  path: string,
  query: Record<string, string | number | readonly string[] | undefined>,
): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? (value as readonly string[]) : [String(value)]) search.append(name, one);
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}
