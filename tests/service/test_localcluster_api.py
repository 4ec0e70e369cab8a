"""The local API server over real TLS: identities, rights, lists, watches, writes, restarts."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client as kubernetes, config, watch as kubernetes_watch

from localcluster import LocalCluster
from localcluster.apiserver.identity import User
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


async def test_the_front_proxys_certificate_is_no_client_certificate(cluster: LocalCluster) -> None:
    pair = (
        cluster.directory / "pki" / "front-proxy-client.crt",
        cluster.directory / "pki" / "front-proxy-client.key",
    )
    async with ApiClient(cluster.url, client_context(cluster.ca_file.read_text(), *pair)) as proxy:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await proxy.list("pods")


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


async def test_remote_user_headers_mean_nothing_to_the_api_server(cluster: LocalCluster) -> None:
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    async with (
        client_for(cluster) as nobody,
        nobody.session.get(cluster.url + CONFIGMAPS, headers=headers) as answer,
    ):
        assert answer.status == 403


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


async def test_paths_are_granted_by_pattern(cluster: LocalCluster) -> None:
    assert await may(cluster, "ann", ["system:authenticated"], path="/openapi/v3/apis/x", verb="get")
    assert not await may(cluster, "ann", ["system:authenticated"], path="/metrics", verb="get")
    assert await may(cluster, "prometheus", ["system:monitoring"], path="/readyz/ping", verb="get")


async def test_a_role_labelled_for_view_widens_view(cluster: LocalCluster) -> None:
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rule = {"apiGroups": ["visibility.trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["get"]}
    await cluster.admin.create(
        "clusterroles", {"metadata": {"name": "more", "labels": label}, "rules": [rule]}
    )
    async with asyncio.timeout(DEADLINE_S):
        while rule not in ((await cluster.admin.get("clusterroles", "view")).get("rules") or []):  # noqa: ASYNC110 - it happens behind an API
            await asyncio.sleep(0.01)


# Writes


async def test_a_stale_update_is_a_conflict(cluster: LocalCluster) -> None:
    first = await cluster.admin.create("configmaps", config_map("c", data={"k": "1"}))
    await cluster.admin.request("PUT", f"{CONFIGMAPS}/c", first | {"data": {"k": "2"}})
    with pytest.raises(ApiError, match="the object has been modified") as refused:
        await cluster.admin.request("PUT", f"{CONFIGMAPS}/c", first | {"data": {"k": "3"}})
    assert refused.value.code == 409


async def test_a_write_without_change_keeps_the_version(cluster: LocalCluster) -> None:
    first = await cluster.admin.create("configmaps", config_map("c", data={"k": "1"}))
    again = await cluster.admin.patch("configmaps", "c", {"data": {"k": "1"}}, "default")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_status_and_spec_are_written_apart(cluster: LocalCluster) -> None:
    job = {"runtimeRef": {"name": "none"}, "suspend": True}
    meta = {"name": "j", "namespace": "default"}
    made = await cluster.admin.create("trainjobs", {"metadata": meta, "spec": job, "status": {"lost": True}})
    assert "status" not in made
    await cluster.admin.patch("trainjobs", "j", {"status": {"lost": True}}, "default")
    assert "status" not in await cluster.admin.get("trainjobs", "j", "default")
    patch = {"status": {"kept": True}, "spec": {"suspend": False}}
    after = await cluster.admin.patch("trainjobs", "j", patch, "default", subresource="status")
    assert (after["status"], after["spec"]["suspend"]) == ({"kept": True}, True)
    assert after["metadata"]["generation"] == 1


async def test_dependents_go_with_their_owner(cluster: LocalCluster) -> None:
    owner = await cluster.admin.create("configmaps", config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await cluster.admin.create("configmaps", config_map("owned", metadata={"ownerReferences": [reference]}))
    await cluster.admin.delete("configmaps", "owner", "default")
    assert await cluster.admin.list("configmaps", "default") == []


async def test_finalizers_hold_an_object_until_they_are_taken_off(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("c", metadata={"finalizers": ["example.org/hold"]}))
    held = await cluster.admin.delete("configmaps", "c", "default")
    assert "deletionTimestamp" in held["metadata"]
    await cluster.admin.patch("configmaps", "c", {"metadata": {"finalizers": None}}, "default")
    assert await cluster.admin.list("configmaps", "default") == []


async def test_a_definition_adds_its_resource(cluster: LocalCluster) -> None:
    names = {"plural": "tfjobs", "kind": "TFJob"}
    versions = [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}]
    spec = {"group": "kubeflow.org", "names": names, "scope": "Namespaced", "versions": versions}
    made = await cluster.admin.create(
        "customresourcedefinitions", {"metadata": {"name": "tfjobs.kubeflow.org"}, "spec": spec}
    )
    assert "Established" in [found["type"] for found in made["status"]["conditions"]]
    path = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
    await cluster.admin.request(
        "POST", path, {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "t"}}
    )
    assert (await cluster.admin.request("GET", path))["kind"] == "TFJobList"


# Lists and watches


async def test_selectors_choose_by_label_and_field(cluster: LocalCluster) -> None:
    for name, tier in (("a", "one"), ("b", "two"), ("c", "")):
        labels = {"tier": tier} if tier else {}
        await cluster.admin.create("configmaps", config_map(name, metadata={"labels": labels}))

    async def names(**query: str) -> list[str]:
        return [
            each["metadata"]["name"] for each in await cluster.admin.list("configmaps", "default", **query)
        ]

    assert await names(labelSelector="tier in (one,two)") == ["a", "b"]
    assert await names(labelSelector="tier notin (one),tier") == ["b"]
    assert await names(labelSelector="!tier") == ["c"]
    assert await names(labelSelector="tier!=one") == ["b", "c"]
    assert await names(fieldSelector="metadata.name=b") == ["b"]
    assert await names(fieldSelector="metadata.name!=b,metadata.namespace=default") == ["a", "c"]


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


async def test_a_table_watch_describes_its_columns_once(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("a"))
    await cluster.admin.create("configmaps", config_map("b"))
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    url = f"{cluster.url}{CONFIGMAPS}?watch=1&resourceVersion=0&timeoutSeconds=1"
    async with cluster.admin.session.get(url, headers=headers) as answer:
        tables = [json.loads(line)["object"] for line in (await answer.read()).splitlines()]
    assert [table["kind"] for table in tables] == ["Table", "Table"]
    assert [bool(table["columnDefinitions"]) for table in tables] == [True, False]
    assert tables[1]["rows"][0]["cells"][0] == "b"


async def test_the_metadata_form_leaves_everything_else_out(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("a", data={"k": "v"}))
    headers = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    async with cluster.admin.session.get(cluster.url + CONFIGMAPS, headers=headers) as answer:
        body = await answer.json()
    assert body["kind"] == "PartialObjectMetadataList"
    assert sorted(body["items"][0]) == ["apiVersion", "kind", "metadata"]
    headers = {"Accept": "application/vnd.kubernetes.protobuf"}
    async with cluster.admin.session.get(cluster.url + CONFIGMAPS, headers=headers) as answer:
        assert answer.status == 406


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


async def test_users_keep_their_tokens_over_a_restart_without_state(cluster: LocalCluster) -> None:
    token = cluster.apiserver.authenticator.add_token(User(name="tina", groups=("system:masters",)))
    await cluster.restart(keep_state=False)
    async with client_for(cluster, token) as tina:
        assert await tina.list("nodes")


# Another client


async def test_kubernetes_asyncio_loads_the_kubeconfig_and_watches(cluster: LocalCluster) -> None:
    configuration = kubernetes.Configuration()
    await config.load_kube_config(str(cluster.kubeconfig("admin")), client_configuration=configuration)
    async with kubernetes.ApiClient(configuration) as api:
        core = kubernetes.CoreV1Api(api)
        listed = await core.list_namespaced_config_map("default")
        await core.create_namespaced_config_map("default", {"metadata": {"name": "seen"}, "data": {"k": "v"}})
        version = listed.metadata.resource_version
        async with asyncio.timeout(DEADLINE_S), kubernetes_watch.Watch() as watcher:
            async for event in watcher.stream(
                core.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=80
            ):
                assert (event["type"], event["object"].data) == ("ADDED", {"k": "v"})
                break


async def test_secrets_given_as_text_are_stored_encoded(cluster: LocalCluster) -> None:
    made = await cluster.admin.create("secrets", config_map("s", stringData={"k": "v"}))
    assert base64.b64decode(made["data"]["k"]) == b"v"
    assert "stringData" not in made


async def test_a_dry_run_is_refused_rather_than_done(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("c", data={"k": "v"}))
    for method, path in (("POST", CONFIGMAPS), ("PATCH", f"{CONFIGMAPS}/c"), ("DELETE", f"{CONFIGMAPS}/c")):
        with pytest.raises(ApiError, match="dryRun") as refused:
            await cluster.admin.request(method, path, config_map("c"), query={"dryRun": "All"})
        assert refused.value.code == 400
    assert (await cluster.admin.get("configmaps", "c", "default"))["data"] == {"k": "v"}


async def test_only_items_of_custom_resources_carry_their_kind(cluster: LocalCluster) -> None:
    await cluster.admin.create("configmaps", config_map("c"))
    job = {"metadata": {"name": "j", "namespace": "default"}, "spec": {"runtimeRef": {"name": "none"}}}
    await cluster.admin.create("trainjobs", job)
    jobs = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
    plain = (await cluster.admin.request("GET", CONFIGMAPS))["items"][0]
    custom = (await cluster.admin.request("GET", jobs))["items"][0]
    assert sorted(plain) == ["metadata"]
    assert (custom["kind"], custom["apiVersion"]) == ("TrainJob", "trainer.kubeflow.org/v1alpha1")


async def test_unchanged_discovery_is_not_sent_again(cluster: LocalCluster) -> None:
    headers = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    async with cluster.admin.session.get(f"{cluster.url}/apis", headers=headers) as first:
        headers["If-None-Match"] = first.headers["ETag"]
        assert "as=APIGroupDiscoveryList" in first.headers["Content-Type"]
    async with cluster.admin.session.get(f"{cluster.url}/apis", headers=headers) as again:
        assert (again.status, await again.read()) == (304, b"")
