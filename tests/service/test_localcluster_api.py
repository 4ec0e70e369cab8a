"""The local API server over real TLS: identities, rights, lists, watches, writes, restarts."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from localcluster import LocalCluster
from localcluster.machinery.status import ApiError

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"} | rest.pop("metadata", {}), **rest}


async def test_a_pod_bound_token_names_its_pod_and_dies_with_it(cluster: LocalCluster) -> None:
    await cluster.admin.create("serviceaccounts", {"metadata": {"name": "trainer", "namespace": "default"}})
    pod = await cluster.admin.create(
        "pods",
        {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "command": ["sleep", "60"]}],
                "nodeName": "elsewhere",
            },
        },
    )
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}
    path = "/api/v1/namespaces/default/serviceaccounts/trainer/token"
    body = {"spec": {"audiences": ["visibility"], "boundObjectRef": reference}}
    token = (await cluster.admin.request("POST", path, body))["status"]["token"]

    status = await token_review(cluster, token, ["other", "visibility"])
    assert status["authenticated"] is True
    assert status["audiences"] == ["visibility"]
    assert status["user"]["username"] == "system:serviceaccount:default:trainer"
    assert "system:serviceaccounts:default" in status["user"]["groups"]
    extra = status["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [pod["metadata"]["uid"]]

    assert "authenticated" not in await token_review(cluster, token, None)  # not meant for the API server
    assert "authenticated" not in await token_review(cluster, token + "x", ["visibility"])
    await cluster.admin.delete("pods", "p", "default", gracePeriodSeconds=0)
    assert "authenticated" not in await token_review(cluster, token, ["visibility"])


async def token_review(cluster: LocalCluster, token: str, audiences: list[str] | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"token": token} | ({"audiences": audiences} if audiences else {})
    answer = await cluster.admin.request(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec}
    )
    return dict(answer["status"])


async def may(cluster: LocalCluster, user: str, groups: list[str] | None = None, **attributes: str) -> bool:
    kind = "nonResourceAttributes" if "path" in attributes else "resourceAttributes"
    spec = {"user": user, "groups": groups or [], kind: attributes}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool((await cluster.admin.request("POST", path, {"spec": spec}))["status"]["allowed"])


async def test_rules_hold_for_exactly_what_they_name(cluster: LocalCluster) -> None:
    rules = [
        {
            "apiGroups": ["trainer.kubeflow.org"],
            "resources": ["trainjobs"],
            "verbs": ["get"],
            "resourceNames": ["bert"],
        },
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["get"]},
    ]
    await cluster.admin.create("roles", {"metadata": {"name": "r", "namespace": "default"}, "rules": rules})
    subjects = [
        {"kind": "User", "name": "ann"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
    ]
    reference = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    await cluster.admin.create(
        "rolebindings",
        {"metadata": {"name": "b", "namespace": "default"}, "subjects": subjects, "roleRef": reference},
    )
    job = {"group": "trainer.kubeflow.org", "resource": "trainjobs", "namespace": "default"}
    assert await may(cluster, "ann", verb="get", name="bert", **job)
    assert await may(cluster, "system:serviceaccount:default:robot", verb="get", name="bert", **job)
    assert not await may(cluster, "ann", verb="get", name="gpt", **job)
    assert not await may(cluster, "ann", verb="list", **job)
    assert not await may(cluster, "ann", verb="get", name="bert", **(job | {"namespace": "other"}))
    assert await may(cluster, "ann", verb="get", resource="pods", subresource="log", namespace="default")
    assert not await may(cluster, "ann", verb="get", resource="pods", namespace="default")
    assert await may(cluster, "ann", verb="get", name="x", subresource="status", **job)
    assert not await may(cluster, "bob", verb="get", name="bert", **job)


@pytest.mark.parametrize("version", ["1", "99999999"])
async def test_a_version_that_is_not_held_is_expired(cluster: LocalCluster, version: str) -> None:
    await cluster.admin.create("configmaps", config_map("a"))
    cluster.apiserver.compact()
    async with aclosing(cluster.admin.watch("configmaps", "default", resourceVersion=version)) as events:
        with pytest.raises(ApiError, match="too old resource version") as refused:
            await anext(events)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


async def test_a_dry_run_is_refused_rather_than_done(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("c", data={"k": "v"}))
    for method, path in (("POST", CONFIGMAPS), ("PATCH", f"{CONFIGMAPS}/c"), ("DELETE", f"{CONFIGMAPS}/c")):
        with pytest.raises(ApiError, match="dryRun") as refused:
            await cluster.admin.request(method, path, config_map("c"), query={"dryRun": "All"})
        assert refused.value.code == 400
    assert (await cluster.admin.get("configmaps", "c", "default"))["data"] == {"k": "v"}
