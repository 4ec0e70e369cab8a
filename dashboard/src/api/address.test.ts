import { expect, test } from "vitest";

import { corePath, pageOf, parseAddress, resourcePath, withQuery } from "./address";

const GROUP = "/apis/visibility.trainer.kubeflow.org/v1alpha1";

test("the API is found from the page's own address, behind whatever prefix", () => {
  expect(parseAddress(`${GROUP}/dashboard`)).toEqual({ prefix: "", base: GROUP });
  expect(parseAddress(`/k8s/clusters/c-1${GROUP}/dashboard/`)).toEqual({
    prefix: "/k8s/clusters/c-1",
    base: `/k8s/clusters/c-1${GROUP}`,
  });
});

test("the namespaced page is of that namespace only", () => {
  expect(parseAddress(`${GROUP}/namespaces/team-a/dashboard`).namespace).toBe("team-a");
});

test("another address is refused", () => {
  expect(() => parseAddress("/somewhere/dashboard")).toThrow(/is not that of a dashboard/);
});

test("paths of requests stay below the prefix, and names are escaped", () => {
  const address = parseAddress(`/proxy${GROUP}/dashboard`);
  expect(resourcePath(address, "trainjobs", "a/../b", "x?y")).toBe(
    `/proxy${GROUP}/namespaces/a%2F..%2Fb/trainjobs/x%3Fy`,
  );
  expect(corePath(address, "namespaces", "n", "events")).toBe("/proxy/api/v1/namespaces/n/events");
  expect(pageOf(address, "team-a")).toBe(`/proxy${GROUP}/namespaces/team-a/dashboard`);
});

test("a list in a query is one parameter each, and nothing stands for what is undefined", () => {
  expect(withQuery("/p", { metric: ["a b", "c"], since: undefined, maxPoints: 5 })).toBe(
    "/p?metric=a+b&metric=c&maxPoints=5",
  );
});
