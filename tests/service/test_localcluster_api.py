"""The local API server over real TLS: identities, rights, lists, watches, writes, restarts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest

from localcluster import LocalCluster
from localcluster.machinery.client import ApiClient, Reflector
from localcluster.machinery.pki import Authority, client_context, write_pair
from localcluster.machinery.status import ApiError
from tests.service.waiting import DEADLINE_S

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"} | rest.pop("metadata", {}), **rest}


def client_for(cluster: LocalCluster, token: str | None = None) -> ApiClient:
    return ApiClient(cluster.url, client_context(cluster.ca_file.read_text()), token)


async def next_events(stream: AsyncIterator[tuple[str, Any]], count: int) -> list[tuple[str, str]]:
    async with asyncio.timeout(DEADLINE_S):
        return [
            (kind, thing["metadata"].get("name", ""))
            for kind, thing in [await anext(stream) for _ in range(count)]
        ]


# Identity


async def test_a_client_certificate_names_user_and_groups(cluster: LocalCluster) -> None:
    pair = write_pair(
        cluster.directory, "ann", cluster.apiserver.client_authority.issue_client("ann", ["red", "blue"])
    )
    context = client_context(cluster.ca_file.read_text(), *pair)
    async with ApiClient(cluster.url, context) as ann:
        body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        answer = await ann.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    who = answer["status"]["userInfo"]
    assert (who["username"], who["groups"]) == ("ann", ["red", "blue", "system:authenticated"])
    assert who["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


async def test_a_certificate_of_a_foreign_authority_gets_no_connection(cluster: LocalCluster) -> None:
    pair = write_pair(
        cluster.directory, "eve", Authority("foreign").issue_client("kubernetes-admin", ["system:masters"])
    )
    context = client_context(cluster.ca_file.read_text(), *pair)
    async with ApiClient(cluster.url, context) as eve:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await eve.list("pods")


async def test_a_wrong_token_is_401_and_no_token_is_anonymous(cluster: LocalCluster) -> None:
    async with client_for(cluster, "wrong") as wrong, client_for(cluster) as nobody:
        with pytest.raises(ApiError, match="Unauthorized") as refused:
            await wrong.list("pods")
        assert refused.value.code == 401
        with pytest.raises(
            ApiError, match='User "system:anonymous" cannot list resource "pods"'
        ) as forbidden:
            await nobody.list("pods")
        assert forbidden.value.code == 403
        assert (await nobody.request("GET", "/version"))["major"] == "1"


# Service accounts and reviews


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


# Writes


async def test_a_stale_update_is_a_conflict(cluster: LocalCluster) -> None:
    first = await cluster.admin.create("configmaps", config_map("c", data={"k": "1"}))
    await cluster.admin.request("PUT", f"{CONFIGMAPS}/c", first | {"data": {"k": "2"}})
    with pytest.raises(ApiError, match="the object has been modified") as refused:
        await cluster.admin.request("PUT", f"{CONFIGMAPS}/c", first | {"data": {"k": "3"}})
    assert refused.value.code == 409


async def test_dependents_go_with_their_owner(cluster: LocalCluster) -> None:
    owner = await cluster.admin.create("configmaps", config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await cluster.admin.create("configmaps", config_map("owned", metadata={"ownerReferences": [reference]}))
    await cluster.admin.delete("configmaps", "owner", "default")
    assert await cluster.admin.list("configmaps", "default") == []


# Lists and watches


async def test_an_object_that_leaves_the_selector_is_deleted_for_its_watcher(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("c", metadata={"labels": {"in": "yes"}}))
    async with aclosing(cluster.admin.watch("configmaps", "default", labelSelector="in=yes")) as events:
        assert await next_events(events, 1) == [("ADDED", "c")]
        await cluster.admin.patch("configmaps", "c", {"data": {"k": "v"}}, "default")
        await cluster.admin.patch("configmaps", "c", {"metadata": {"labels": {"in": "no"}}}, "default")
        changed = await cluster.admin.patch(
            "configmaps", "c", {"metadata": {"labels": {"in": "yes"}}}, "default"
        )
        async with asyncio.timeout(DEADLINE_S):
            seen = [await anext(events) for _ in range(3)]
    assert [kind for kind, _ in seen] == ["MODIFIED", "DELETED", "ADDED"]
    assert seen[1][1]["metadata"]["labels"] == {"in": "yes"}  # its last content while it matched (W13)
    versions = [int(thing["metadata"]["resourceVersion"]) for _, thing in seen]
    assert versions == sorted(set(versions))
    assert versions[-1] == int(changed["metadata"]["resourceVersion"])


async def test_a_streamed_list_ends_with_its_bookmark(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with aclosing(cluster.admin.watch("configmaps", "default", **query)) as events:
        async with asyncio.timeout(DEADLINE_S):
            first, bookmark = await anext(events), await anext(events)
        assert (first[0], bookmark[0]) == ("ADDED", "BOOKMARK")
        assert bookmark[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark[1]["kind"] == "ConfigMap"
        await cluster.admin.create("configmaps", config_map("b"))
        assert await next_events(events, 1) == [("ADDED", "b")]


async def test_a_watch_resumes_where_it_was_and_only_there(cluster: LocalCluster) -> None:
    first = await cluster.admin.create("configmaps", config_map("a"))
    await cluster.admin.create("configmaps", config_map("b"))
    await cluster.admin.delete("configmaps", "a", "default")
    version = first["metadata"]["resourceVersion"]
    async with aclosing(cluster.admin.watch("configmaps", "default", resourceVersion=version)) as events:
        assert await next_events(events, 2) == [("ADDED", "b"), ("DELETED", "a")]


@pytest.mark.parametrize("version", ["1", "99999999"])
async def test_a_version_that_is_not_held_is_expired(cluster: LocalCluster, version: str) -> None:
    await cluster.admin.create("configmaps", config_map("a"))
    cluster.apiserver.compact()
    async with aclosing(cluster.admin.watch("configmaps", "default", resourceVersion=version)) as events:
        with pytest.raises(ApiError, match="too old resource version") as refused:
            await anext(events)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


async def test_compaction_ends_open_watches_with_410(cluster: LocalCluster) -> None:
    async with aclosing(cluster.admin.watch("configmaps", "default")) as events:
        await cluster.admin.create("configmaps", config_map("a"))
        assert await next_events(events, 1) == [("ADDED", "a")]
        cluster.apiserver.compact()
        with pytest.raises(ApiError) as refused:
            await anext(events)
    assert refused.value.code == 410


# Restarts


async def test_a_reflector_outlives_cuts_compaction_and_restarts(cluster: LocalCluster) -> None:
    reflector = Reflector(cluster.admin, "configmaps", fieldSelector="metadata.namespace=default")
    running = asyncio.create_task(reflector.run())

    async def sees(*names: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while {key[1] for key in reflector.objects} != set(names):  # noqa: ASYNC110 - it happens behind an API
                await asyncio.sleep(0.01)

    try:
        await cluster.admin.create("configmaps", config_map("a"))
        await sees("a")
        cluster.apiserver.cut_watches()
        await cluster.admin.create("configmaps", config_map("b"))
        await sees("a", "b")
        cluster.apiserver.compact()
        await cluster.admin.delete("configmaps", "a", "default")
        await sees("b")
        port = cluster.apiserver.port
        await cluster.restart()
        assert cluster.apiserver.port == port
        await cluster.admin.create("configmaps", config_map("c"))
        await sees("b", "c")
        await cluster.restart(keep_state=False)
        await sees()
        await cluster.admin.create("configmaps", config_map("d"))
        await sees("d")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# Another client


async def test_a_dry_run_is_refused_rather_than_done(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("c", data={"k": "v"}))
    for method, path in (("POST", CONFIGMAPS), ("PATCH", f"{CONFIGMAPS}/c"), ("DELETE", f"{CONFIGMAPS}/c")):
        with pytest.raises(ApiError, match="dryRun") as refused:
            await cluster.admin.request(method, path, config_map("c"), query={"dryRun": "All"})
        assert refused.value.code == 400
    assert (await cluster.admin.get("configmaps", "c", "default"))["data"] == {"k": "v"}
