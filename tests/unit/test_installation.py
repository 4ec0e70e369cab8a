"""`visibility-api check`: each link that an operator may have broken is named, with what mends it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.certificates import SERVER, Authority
from visibility_api.installation.links import CHECKS, own_arguments
from visibility_api.installation.look import Finding, Look, State, run
from visibility_api.installation.report import describe, encode, is_good
from visibility_api.kinds import USERS
from visibility_api.kube.errors import ApiError, Unreachable

NOW = datetime.now(UTC).replace(microsecond=0)
NAMESPACE = "trainjob-visibility"
CORE, APPS = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.trainer.kubeflow.org"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/trainjob-visibility"
EXTENSION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
JOBS = "/apis/visibility.trainer.kubeflow.org/v1alpha1/trainingjobs"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to"
VIEWER = "trainjob-visibility:viewer"
ROLES, PAGE = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings/trainjob-visibility:page"
OURS = Authority("ours")


def encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def secret(
    left: timedelta = timedelta(days=80),
    host: str = "visibility-api.trainjob-visibility.svc",
    issuer: Authority = OURS,
) -> Any:
    """With the intermediates that lead to a root; `host` "": the certificate has no name."""
    hosts, begins = [host] if host else [], NOW - timedelta(days=100)
    leaf = issuer.issue("server", usages=[SERVER], hosts=hosts, not_before=begins, not_after=NOW + left)
    above = "".join(each.public_bytes(Encoding.PEM).decode() for each in leaf.intermediates)
    return {"data": {"tls.crt": encoded(leaf.pem + above)}}


def role(name: str, group: str = "visibility.trainer.kubeflow.org") -> Any:
    rule = {"apiGroups": [group], "resources": ["trainjobs", "trainjobs/progress"], "verbs": ["get"]}
    return {"metadata": {"name": name}, "rules": [rule]}


class Cluster:
    """What kube-apiserver shows of a good installation."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {
            "/version": {"minor": "36", "gitVersion": "v1.36.2"},
            EXTENSION: {
                "data": {"requestheader-client-ca-file": "PEM", "requestheader-allowed-names": '["proxy"]'}
            },
            "/apis/trainer.kubeflow.org/v1alpha1": {"resources": [{"name": "trainjobs"}]},
            "/apis/apps/v1/deployments": {"items": [{"status": {"readyReplicas": 1}}]},
            "/apis/jobset.x-k8s.io/v1alpha2": {"resources": [{"name": "jobsets"}]},
            f"{APPS}/deployments/visibility-api": {
                "spec": {
                    "replicas": 2,
                    "template": {
                        "spec": {
                            "containers": [
                                {"args": ["serve", "--sources=status", "--sources=push", "--peers=a"]}
                            ]
                        }
                    },
                },
                "status": {"readyReplicas": 2},
            },
            f"{CORE}/services/visibility-api": {"spec": {"ports": [{"port": 443}]}},
            SLICES: {"items": [{"endpoints": [{"conditions": {"ready": True}}], "ports": [{"port": 10250}]}]},
            f"{CORE}/secrets/visibility-api-certificate": secret(),
            f"{CORE}/pods": {"items": []},
            API_SERVICE: {
                "spec": {
                    "caBundle": encoded(OURS.pem),
                    "service": {"namespace": NAMESPACE, "name": "visibility-api", "port": 443},
                },
                "status": {"conditions": [{"type": "Available", "status": "True"}]},
            },
            JOBS: {"items": []},
            ROLES: {
                "items": [role(name) for name in ("admin", "edit", "view", "trainjob-visibility:viewer")]
            },
            PAGE: {},
            LEASE: {"spec": {"holderIdentity": "pod-a", "renewTime": f"{NOW:%Y-%m-%dT%H:%M:%S.%fZ}"}},
        }
        self.faults: dict[str, Exception] = {}
        self.denied: set[tuple[str, str]] = set()  # verb and resource
        self.asked: list[dict[str, str]] = []
        self.may_impersonate = True
        self.done: list[str] = []  # as the service account

    async def get(self, path: str, *, query: Any) -> bytes:
        if (fault := self.faults.get(path)) is not None:
            raise fault
        if path not in self.objects:
            raise ApiError(404, "NotFound")
        return json.dumps(self.objects[path]).encode()

    async def post(self, path: str, body: bytes) -> bytes:
        if path.endswith("selfsubjectreviews"):
            return who("kubernetes-admin")
        asked = json.loads(body)["spec"]["resourceAttributes"]
        self.asked.append(asked)
        is_allowed = (asked["verb"], asked["resource"]) not in self.denied
        return json.dumps({"status": {"allowed": is_allowed}}).encode()

    async def patch(self, path: str, body: bytes, *, query: Any, headers: Any) -> bytes:
        raise NotImplementedError

    async def check(self, **known: Any) -> list[tuple[str, Finding]]:
        look = Look(self, NAMESPACE, server=ServiceAccount(self), now=lambda: NOW, **known)
        return await run(look, CHECKS)

    def without(self, path: str) -> None:
        del self.objects[path]

    def change(self, path: str, *keys: str | int, to: Any) -> None:
        found = self.objects[path]
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = to


class ServiceAccount:
    """The server's: what it does is noted, and answered 404 where nothing else is said."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def _answer(self, verb: str, path: str) -> bytes:
        self.cluster.done.append(f"{verb} {path}")
        if (fault := self.cluster.faults.get(f"{verb} {path}")) is not None:
            raise fault
        raise ApiError(404, "NotFound")

    async def get(self, path: str, *, query: Any) -> bytes:
        return self._answer("get", path)

    async def patch(self, path: str, body: bytes, *, query: Any, headers: Any) -> bytes:
        assert query == (("dryRun", "All"),)
        return self._answer("patch", path)

    async def post(self, path: str, body: bytes) -> bytes:
        if path.endswith("selfsubjectreviews"):
            if not self.cluster.may_impersonate:
                raise ApiError(403, "Forbidden", 'cannot impersonate resource "serviceaccounts"')
            return who(f"system:serviceaccount:{NAMESPACE}:visibility-api")
        assert path.endswith("?dryRun=All")
        return self._answer("create", path.removesuffix("?dryRun=All"))


def who(name: str) -> bytes:
    created = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    return json.dumps(
        {"metadata": {"creationTimestamp": created}, "status": {"userInfo": {"username": name}}}
    ).encode()


async def test_each_right_is_tried_as_the_service_account_and_nothing_is_kept() -> None:
    cluster = Cluster()
    deployment = f"{APPS}/deployments/visibility-api"
    arguments = ["serve", "--sources=exec,logs,push", "--peers=a", "--events=true", "--write-back=true"]
    arguments += ["--certificate-secret=kept", "--node-faults=true"]
    cluster.change(deployment, "spec", "template", "spec", "containers", 0, "args", to=arguments)
    assert dict(await cluster.check())["rights"].says.endswith(
        "has the rights of its sources, and each was tried"
    )
    for done in (
        "get /api/v1/pods",
        "get /apis/trainer.kubeflow.org/v1alpha1/trainjobs",
        f"get {CORE}/pods/visibility-check/log",
        f"patch {CORE}/secrets/kept",
        f"patch {API_SERVICE}",
        f"patch {LEASE}",
        f"patch /apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs/visibility-check/status",
        "create /apis/authentication.k8s.io/v1/tokenreviews",
        f"create /apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events",
        "get /api/v1/nodes/visibility-check",
        "get /api/v1/namespaces/default/events",
    ):
        assert done in cluster.done
    assert not any("exec" in done for done in cluster.done)


async def test_a_right_that_is_there_and_of_no_use_is_a_fault() -> None:
    cluster = Cluster()
    why = "conversion webhook failed"
    cluster.faults["get /apis/trainer.kubeflow.org/v1alpha1/trainjobs"] = ApiError(500, "", why)
    found = dict(await cluster.check())["rights"]
    assert found.state is State.FAULT
    assert "it may list trainjobs, but that fails: HTTP 500: conversion webhook failed" in found.says
    assert "crd" in found.do


async def test_who_may_not_act_as_the_service_account_has_its_rights_reviewed() -> None:
    cluster = Cluster()
    cluster.may_impersonate = False
    found = dict(await cluster.check())["rights"]
    assert (found.state, cluster.done) == (State.OK, [])
    assert "has the rights of its sources; reviewed only: you may not act as it" in found.says
    assert "faults of nodes are not read" in found.says


async def test_rights_in_some_namespaces_are_enough_where_these_are_served() -> None:
    cluster = Cluster()
    deployment = f"{APPS}/deployments/visibility-api"
    arguments = ["serve", "--namespaces=a,b"]
    cluster.change(deployment, "spec", "template", "spec", "containers", 0, "args", to=arguments)
    assert dict(await cluster.check())["rights"].state is State.OK
    assert {each["namespace"] for each in cluster.asked if each["resource"] == "trainjobs"} == {"a", "b"}
    assert "get /apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs" in cluster.done


async def test_a_kind_that_an_operator_left_out_is_no_fault() -> None:
    cluster = Cluster()
    cluster.denied.add(("list", "rayjobs"))
    found = dict(await cluster.check())["rights"]
    assert found.state is State.WARNING
    assert "may not list rayjobs, so such jobs are not shown" in found.says


async def test_in_its_own_container_the_server_is_asked_for_its_arguments(tmp_path: Path) -> None:
    cmdline = tmp_path / "cmdline"
    cmdline.write_bytes(
        b"/opt/visibility/bin/python\0/opt/visibility/bin/visibility-api\0serve\0--sources=logs\0"
    )
    cluster = Cluster()
    cluster.faults[f"{APPS}/deployments/visibility-api"] = ApiError(403, "Forbidden", "not yours")
    cluster.denied.add(("get", "pods"))  # and of no other source
    found = dict(await cluster.check(own_arguments=own_arguments(cmdline)))["rights"]
    assert "may not get pods/log" in found.says
    assert own_arguments(tmp_path / "none such") == ()


async def test_a_good_installation_has_no_broken_link() -> None:
    cluster = Cluster()
    found = await cluster.check()
    assert {finding.state for _, finding in found} == {State.OK}
    assert is_good(found)
    assert describe(found).endswith("Every link holds.\n")
    asked = {(each["verb"], each["resource"]) for each in cluster.asked}
    assert {(verb, objects.plural) for verb in ("list", "watch") for objects in USERS} <= asked


async def test_who_may_see_nothing_has_checked_nothing() -> None:
    cluster = Cluster()
    cluster.faults = {path: ApiError(401, "Unauthorized") for path in cluster.objects}
    found = await cluster.check()
    assert not is_good(found)
    assert "Nothing was checked" in describe(found)


async def test_where_nothing_is_installed_that_alone_is_said() -> None:
    cluster = Cluster()
    kept = ("/version", EXTENSION, "/apis/trainer.kubeflow.org/v1alpha1", "/apis/apps/v1/deployments")
    api_service = cluster.objects[API_SERVICE]
    cluster.objects = {path: found for path, found in cluster.objects.items() if path in kept}
    found = await cluster.check()
    name, last = found[-1]
    assert name == "installation"
    assert last.says.startswith("not installed: ")
    assert last.do.startswith("kubectl apply -k deploy/mine")
    assert [name for name, each in found if each.state is State.FAULT] == ["installation"]
    cluster.objects[API_SERVICE] = api_service
    cluster.change(API_SERVICE, "spec", "service", "namespace", to="elsewhere")
    name, last = (await cluster.check())[-1]
    assert (name, last.do) == ("installation", "visibility-api check --namespace elsewhere")


Break = Callable[[Cluster], None]
BROKEN: dict[str, tuple[str, Break, str, str]] = {
    "another CA": (
        "certificate",
        lambda it: it.change(API_SERVICE, "spec", "caBundle", to=encoded(Authority("other").pem)),
        "lacks the CA that has signed",
        "rollout restart",
    ),
    "no CA": (
        "certificate",
        lambda it: it.change(API_SERVICE, "spec", "caBundle", to=None),
        "has no caBundle",
        "rollout restart",
    ),
    "a certificate that has ended": (
        "certificate",
        lambda it: it.objects.update(
            {f"{CORE}/secrets/visibility-api-certificate": secret(-timedelta(days=1))}
        ),
        "the certificate ended on",
        "rollout restart",
    ),
    "a certificate for another name": (
        "certificate",
        lambda it: it.objects.update(
            {f"{CORE}/secrets/visibility-api-certificate": secret(host="other.svc")}
        ),
        "not for visibility-api.trainjob-visibility.svc",
        "rollout restart",
    ),
    "a certificate for no name": (
        "certificate",
        lambda it: it.objects.update({f"{CORE}/secrets/visibility-api-certificate": secret(host="")}),
        "not for visibility-api.trainjob-visibility.svc",
        "rollout restart",
    ),
    "a missing right": (
        "rights",
        lambda it: it.denied.add(("watch", "trainjobs")),
        "may not watch trainjobs",
        "deploy/base",
    ),
    "a missing right of a source": (
        "rights",
        lambda it: it.denied.add(("get", "pods")),
        "may not get pods",
        "deploy/components/source-push",
    ),
    "no aggregation layer": (
        "aggregation layer",
        lambda it: it.without(EXTENSION),
        "has no aggregation layer",
        "--requestheader-",
    ),
    "another port": (
        "APIService",
        lambda it: it.change(API_SERVICE, "spec", "service", "port", to=8443),
        "names port 8443, but the Service has 443",
        "kubectl apply -k",
    ),
    "a clock that is ahead": (
        "owner and clocks",
        lambda it: it.change(LEASE, "spec", "renewTime", to=(NOW + timedelta(hours=2)).isoformat()),
        "the clock of pod-a is 7200 s ahead",
        "timedatectl set-ntp true    # on the node of pod-a",
    ),
    "an owner that has ended": (
        "owner and clocks",
        lambda it: it.change(LEASE, "spec", "renewTime", to=(NOW - timedelta(hours=1)).isoformat()),
        "has not renewed its Lease for 3600 s",
        "kubectl -n trainjob-visibility logs",
    ),
    "no owner": ("owner and clocks", lambda it: it.without(LEASE), "no replica owns the jobs", "logs"),
    "no endpoint": (
        "Service",
        lambda it: it.change(SLICES, "items", to=[]),
        "has no endpoint",
        "get pods,endpointslices",
    ),
    "no Service": (
        "Service",
        lambda it: it.without(f"{CORE}/services/visibility-api"),
        "no Service visibility-api",
        "kubectl apply -k",
    ),
    "no Deployment": (
        "pods",
        lambda it: it.without(f"{APPS}/deployments/visibility-api"),
        "no Deployment visibility-api",
        "kubectl apply -k",
    ),
    "a Deployment that is scaled to nothing": (
        "pods",
        lambda it: it.change(f"{APPS}/deployments/visibility-api", "spec", "replicas", to=0),
        "scaled to no pod",
        "scale deployment visibility-api --replicas=2",
    ),
    "no APIService": ("APIService", lambda it: it.without(API_SERVICE), "not registered", "kubectl apply -k"),
    "a server that cannot be reached": (
        "APIService",
        lambda it: it.change(
            API_SERVICE,
            *("status", "conditions"),
            to=[
                {"type": "Available", "status": "False", "reason": "FailedDiscoveryCheck", "message": "x509"}
            ],
        ),
        "FailedDiscoveryCheck: x509",
        "docs/troubleshooting.md",
    ),
    "jobs that are not listed": (
        "answers",
        lambda it: it.faults.update({JOBS: ApiError(503, "ServiceUnavailable", "not listed yet")}),
        "answers 503: not listed yet",
        "logs",
    ),
    "no kube-apiserver": (
        "Kubernetes",
        lambda it: it.faults.update({"/version": Unreachable("connection refused")}),
        "connection refused",
        "kubeconfig",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_link_is_named_with_what_mends_it(name: str) -> None:
    cluster = Cluster()
    link, break_, says, do = BROKEN[name]
    break_(cluster)
    found = await cluster.check()
    finding = dict(found)[link]
    assert finding.state is State.FAULT
    assert says in finding.says
    assert do in finding.do
    assert not is_good(found)


async def test_what_works_only_in_part_is_a_warning() -> None:
    cluster = Cluster()
    cluster.without("/apis/trainer.kubeflow.org/v1alpha1")
    cluster.change("/version", "minor", to="29+")
    cluster.objects[f"{CORE}/secrets/visibility-api-certificate"] = secret(timedelta(days=5))
    cluster.change(f"{APPS}/deployments/visibility-api", "status", "readyReplicas", to=1)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    cluster.objects[f"{CORE}/pods"] = {"items": [{"status": {"containerStatuses": [{"state": waiting}]}}]}
    silent = {"conditions": [{"type": "Reporting", "status": "False", "reason": "ExecForbidden"}]}
    cluster.objects[JOBS] = {"items": [{"status": silent}, {"status": {}}]}
    found = dict(await cluster.check())
    for link, says in (
        ("Kubernetes", "older than 1.30"),
        ("kinds of jobs", "the CRD of Kubeflow Trainer is missing. Other kinds: jobsets"),
        ("certificate", "lasts 5 days"),
        ("pods", "1 of 2 pods are ready: ImagePullBackOff: no such image"),
        ("jobs", "of 2 running jobs 1 do not report: 1 ExecForbidden"),
    ):
        assert found[link].state is State.WARNING, link
        assert says in found[link].says
        assert found[link].do


async def test_trainjobs_that_nobody_turns_into_pods_are_a_warning() -> None:
    cluster = Cluster()
    for deployments, says in (
        ([], "no Deployment kubeflow-trainer-controller-manager"),
        ([{"status": {"replicas": 1}}], "no pod of kubeflow-trainer-controller-manager is ready"),
    ):
        cluster.change("/apis/apps/v1/deployments", "items", to=deployments)
        found = dict(await cluster.check())["Trainer"]
        assert found.state is State.WARNING
        assert says in found.says
    cluster.without("/apis/trainer.kubeflow.org/v1alpha1")
    assert dict(await cluster.check())["Trainer"].state is State.OK


async def test_who_may_read_is_said() -> None:
    cluster = Cluster()
    every = "admin, edit, trainjob-visibility:viewer, view"
    assert dict(await cluster.check())["users"].says == f"progress may be read with the ClusterRoles {every}"
    cluster.without(PAGE)
    assert "nobody is bound to trainjob-visibility:page" in dict(await cluster.check())["users"].says
    elsewhere, viewer = role("view", group="trainer.kubeflow.org"), role(VIEWER)
    for roles, says, do in (
        ([role("admin")], "viewer is missing: only admin may read progress", "kubectl apply -k"),
        ([elsewhere], "viewer is missing: nobody may read progress", "kubectl apply -k"),
        (
            [role("admin"), role("edit"), elsewhere, viewer],
            "users with view in a namespace may not read progress there",
            f"kubectl label clusterrole {VIEWER} --overwrite {AGGREGATE}-view=true",
        ),
    ):
        cluster.change(ROLES, "items", to=roles)
        found = dict(await cluster.check())["users"]
        assert found.state is (State.FAULT if "is missing" in says else State.WARNING)
        assert says in found.says
        assert do in found.do


async def test_a_certificate_may_be_signed_by_an_intermediate_that_is_sent_with_it() -> None:
    cluster = Cluster()
    cluster.objects[f"{CORE}/secrets/visibility-api-certificate"] = secret(issuer=OURS.intermediate("team"))
    assert is_good(await cluster.check())


async def test_a_service_that_leads_elsewhere_has_no_endpoints_of_its_own() -> None:
    cluster = Cluster()
    cluster.change(
        f"{CORE}/services/visibility-api", "spec", to={"type": "ExternalName", "externalName": "vm"}
    )
    assert dict(await cluster.check())["Service"].says == "the Service visibility-api leads to vm"


async def test_a_single_replica_needs_no_lease() -> None:
    cluster = Cluster()
    cluster.without(LEASE)
    deployment = f"{APPS}/deployments/visibility-api"
    cluster.change(deployment, "spec", "template", "spec", "containers", 0, "args", to=["serve"])
    assert is_good(await cluster.check())


async def test_what_may_not_be_seen_is_unknown_and_no_fault() -> None:
    cluster = Cluster()
    for path in (f"{CORE}/secrets/visibility-api-certificate", EXTENSION):
        cluster.faults[path] = ApiError(403, "Forbidden", "not yours")
    found = await cluster.check()
    unknown = [name for name, finding in found if finding.state is State.UNKNOWN]
    assert unknown == ["aggregation layer", "certificate"]
    assert is_good(found)
    assert "No link is broken; 2 of 14 need a look." in describe(found)


async def test_what_is_printed_fits_a_terminal_and_a_program() -> None:
    cluster = Cluster()
    BROKEN["another port"][1](cluster)
    cluster.change(SLICES, "items", to=[])
    found = await cluster.check()
    lines = describe(found).splitlines()
    assert all(len(line) < 80 for line in lines if not line.startswith("        do: "))
    assert lines[-1] == "2 of 14 links are broken. Mend Service first."
    told = json.loads(encode(found))
    assert [each["link"] for each in told] == [name for name, _ in CHECKS]
    assert {each["state"] for each in told} == {"ok", "fault"}


@pytest.mark.parametrize("answer", [b"", b"[]", b"null", b'{"items": 3}', b'{"status": []}', b"\xff"])
async def test_answers_of_any_form_break_no_check(answer: bytes) -> None:
    class Odd(Cluster):
        async def get(self, path: str, *, query: Any) -> bytes:
            return answer

        async def post(self, path: str, body: bytes) -> bytes:
            return answer

        async def patch(self, path: str, body: bytes, *, query: Any, headers: Any) -> bytes:
            return answer

    assert len(await Odd().check()) == len(CHECKS)
