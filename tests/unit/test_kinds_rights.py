"""Users with rights for some kinds and namespaces: no answer has a row of another."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from tests import pushing
from tests.asgi import Answer, call, http_scope
from tests.jobs import NOW, document
from tests.kinds import DESCRIBED as DESCRIBED_SAMPLE, SAMPLES, Sample
from tests.unit.resource_server import WatchClient
from tests.unit.test_events import STALLED, FakeCluster, Process
from tests.unit.test_kinds import Cluster as Objects
from tests.unit.test_pushing_endpoint import post
from visibility_api.app import Limits, Parts, create_app
from visibility_api.app.dependencies import Diagnoses, Found, HistorySource, LogTails
from visibility_api.app.limits import new_shares
from visibility_api.app.page import read_page
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.app.resource_routes import RouteKey
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kinds import KINDS as JOB_KINDS, Kinds
from visibility_api.kinds.described.kind import DescribedKind
from visibility_api.kinds.described.model import read_description
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.message import Handler
from visibility_api.kubeapi.replicas import ProgressWithReplicas
from visibility_api.kubeapi.training_jobs import AllKinds
from visibility_api.kubeapi.watch import Watches
from visibility_api.models.served import TRAINING_JOBS
from visibility_api.pushing.paths import OWN_JOB
from visibility_api.store.memory import MemoryStore
from visibility_api.telemetry import Metrics
from visibility_api.workloads.replicas import ReplicaStatus, ReplicaStatuses

BASE = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
NAMESPACES = ("team-a", "team-b")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DESCRIPTION = Path(__file__).parents[2] / "deploy/components/kinds/kinds.yaml"
SERVED = Kinds((*JOB_KINDS, DescribedKind(read_description(yaml.safe_load(DESCRIPTION.read_text())))))
KINDS = tuple(each.plural for each in SERVED.resources)
Right = tuple[str, str]  # resource and namespace; "" for all


class Caller:
    """Somebody with just these rights; reads all verbs and subresources of them."""

    def __init__(self, rights: set[Right]) -> None:
        self.rights = rights

    async def authenticate(self, _scope: object) -> Identity:
        return Identity(user="alice")

    async def authorize(self, identity: Identity, wanted: Attributes) -> None:
        place = {(wanted.resource, wanted.namespace), (wanted.resource, "")}
        if not place & self.rights:
            raise AccessDenied(identity, wanted)


async def read_replicas(ref: JobRef, _client: str) -> ReplicaStatuses:
    pod = f"{ref.resource} in {ref.namespace}"
    return ReplicaStatuses(items=(ReplicaStatus(name="node-1", pod_name=pod, state="Running"),), at=NOW)


def served(caller: Caller, store: MemoryStore) -> Any:
    handlers: dict[RouteKey, Handler] = {}
    registry, limits = CollectorRegistry(), Limits()
    metrics = RequestMetrics(registry)
    Metrics(registry)
    of_all_kinds = AllKinds(SERVED.resources, caller)
    for resource in SERVED.all_resources:
        view = of_all_kinds if resource is TRAINING_JOBS else None
        documents = Collection(resource, store, now=lambda: NOW, view=view)
        count = partial(metrics.count_watch_events, resource.plural)
        changes = Watches(resource, store, now=lambda: NOW, view=view, count_events=count)
        for subresource, verb, handler in (
            ("", "get", documents.get),
            ("", "list", documents.list),
            ("", "watch", changes.watch),
            ("progress", "get", ProgressWithReplicas(resource, store, read_replicas, documents.get).get),
        ):
            if subresource and not resource.subresources:
                continue
            handlers[resource.plural, subresource, verb] = handler

    def find(resource: str, namespace: str, name: str) -> Found | None:
        entry = store.get(resource, namespace, name)
        return None if entry is None else (entry, None)

    return create_app(
        Parts(
            authenticator=caller,
            authorizer=caller,
            handlers=handlers,
            resources=SERVED.all_resources,
            registry=registry,
            metrics=metrics,
            limits=limits,
            shares=new_shares(limits),
            histories=HistorySource(find=find),
            log_tails=LogTails(find=store.get, authorizer=caller, logs=None),
            diagnoses=Diagnoses(find=store.get, authorizer=caller, request=refuse, is_on=False),
            page=read_page(),
        )
    )


async def refuse(_ref: JobRef) -> float:
    raise AssertionError


def shown_in(kind: str, namespace: str, **more: Any) -> JobProgress:
    return document("bert", resource=kind, namespace=namespace, uid=f"{kind} in {namespace}", **more)


def filled() -> MemoryStore:
    store = MemoryStore(base_revision=1)
    for kind, namespace in itertools.product(KINDS, NAMESPACES):
        store.put(shown_in(kind, namespace))
    return store


def rows_in(text: str) -> set[Right]:
    found = re.finditer(r"(\w+) in (team-[ab])", text)
    return {(each[1], each[2]) for each in found if each[1] in KINDS}


def rows_of(answer: Answer) -> set[Right]:
    return rows_in(answer.text)


def is_allowed(rights: set[Right], kind: str, namespace: str) -> bool:
    return bool({(kind, namespace), (kind, "")} & rights)


def expected_of(rights: set[Right], kinds: Sequence[str], namespace: str) -> list[Right]:
    """What a list, of all namespaces or of one, shows of these kinds, in its order."""
    return [
        (kind, place)
        for place, kind in itertools.product(NAMESPACES, sorted(kinds))
        if is_allowed(rights, kind, namespace) and namespace in ("", place)
    ]


@contextlib.asynccontextmanager
async def watching(app: Any, target: str, accept: str) -> AsyncIterator[WatchClient]:
    client = WatchClient()
    scope = http_scope("GET", target, [("Accept", accept)])
    task = asyncio.create_task(app(scope, client.receive, client.send))
    await client.started.wait()
    yield client
    client.disconnect()
    await task


USERS: dict[str, set[Right]] = {
    "one kind in one namespace": {("pytorchjobs", "team-a")},
    "two kinds, each in another namespace": {("jobs", "team-a"), ("jobsets", "team-b")},
    "one kind everywhere": {("rayjobs", "")},
    "one kind everywhere, another in one namespace": {("tfjobs", ""), ("trainjobs", "team-b")},
    "every kind in one namespace": {(kind, "team-b") for kind in KINDS},
    "nothing": set(),
}
by_rights = pytest.mark.parametrize("rights", USERS.values(), ids=USERS)
FORMS = ["application/json", f"{TABLE},application/json"]
by_form = pytest.mark.parametrize("accept", FORMS)
# Also what the page downloads.
by_every_form = pytest.mark.parametrize("accept", [*FORMS, "application/yaml", "text/csv,*/*;q=0.5"])


@by_rights
@by_every_form
async def test_no_answer_has_what_its_reader_has_no_right_to(rights: set[Right], accept: str) -> None:
    app = served(Caller(rights), filled())
    seen: set[Right] = set()
    for resource, namespace, rest in itertools.product(
        KINDS,
        ("", *NAMESPACES),
        (
            "",
            "/bert",
            "/bert/progress",
            "/bert/progress?replicas=all",
            "/bert/history",
            "/bert/log-tail",
            "/bert/diagnose",
        ),
    ):
        if rest and not namespace:
            continue
        scope = f"/namespaces/{namespace}" if namespace else ""
        answer = await call(app, f"{BASE}{scope}/{resource}{rest}", headers=[("Accept", accept)])
        is_off = rest in ("/bert/log-tail", "/bert/diagnose")  # its source is switched off, it was not read
        may = is_allowed(rights, resource, namespace) and not is_off
        assert (answer.status == 200) == may, (resource, namespace, rest)
        shown = rows_of(answer)
        assert shown <= set(expected_of(rights, [resource], namespace)), answer.body
        seen |= shown
    assert seen == {row for row in itertools.product(KINDS, NAMESPACES) if is_allowed(rights, *row)}


@by_rights
@by_form
async def test_no_watch_has_what_its_reader_has_no_right_to(rights: set[Right], accept: str) -> None:
    store = filled()
    app = served(Caller(rights | {("trainingjobs", "")}), store)
    for resource, namespace in itertools.product(("trainingjobs", *KINDS), ("", *NAMESPACES)):
        scope = f"/namespaces/{namespace}" if namespace else ""
        kinds = KINDS if resource == "trainingjobs" else [resource]
        expected = expected_of(rights, kinds, namespace)
        target = f"{BASE}{scope}/{resource}?watch=true&allowWatchBookmarks=true"
        async with watching(app, target, accept) as client:
            assert client.status == (200 if expected else 403), (resource, namespace)
            if not expected:
                continue
            initial = await client.events(len(expected) + 1)
            for kind, place in itertools.product(KINDS, NAMESPACES):
                store.put(shown_in(kind, place, step=store.revision))
            changes = await client.events(len(expected))
            assert initial.pop()["type"] == "BOOKMARK"
            for events in (initial, changes):
                found = json.dumps(events)
                assert rows_in(found) == set(expected)
        await client.rest()
        assert rows_in(b"".join(client.chunks).decode()) == set(expected)


@by_rights
@by_form
async def test_the_list_of_all_kinds_has_the_rows_of_the_lists_of_each(
    rights: set[Right], accept: str
) -> None:
    app = served(Caller(rights | {("trainingjobs", "")}), filled())
    for namespace in ("", *NAMESPACES):
        scope = f"/namespaces/{namespace}" if namespace else ""
        expected = expected_of(rights, KINDS, namespace)
        for query in ("", "?limit=100", "?resourceVersion=0"):
            target = f"{BASE}{scope}/trainingjobs{query}"
            answer = await call(app, target, headers=[("Accept", accept)])
            assert (answer.status == 200) == bool(expected), answer.body
            assert rows_of(answer) == set(expected)
            if answer.status == 200 and "Table" not in accept:
                names = [each["metadata"]["name"] for each in answer.json()["items"]]
                assert names == [f"{kind}.bert" for kind, _ in expected]
    for kind, namespace in itertools.product(KINDS, NAMESPACES):
        one = await call(app, f"{BASE}/namespaces/{namespace}/trainingjobs/{kind}.bert")
        assert one.status == (200 if is_allowed(rights, kind, namespace) else 403)


async def test_what_belongs_to_no_job_names_none() -> None:
    """Metrics, the page and discovery, of somebody who may read all jobs."""
    app = served(Caller({(kind, "") for kind in ("", "dashboard", *KINDS)}), filled())
    for kind, namespace in itertools.product(KINDS, NAMESPACES):
        target = f"{BASE}/namespaces/{namespace}/{kind}"
        await call(app, f"{target}/bert/progress")
        async with watching(app, f"{target}?watch=true", "application/json") as client:
            await client.events(1)
    page = f"{BASE}/dashboard"
    for path in ("/metrics", "/readyz?verbose", "/apis", BASE, "/openapi/v2", page):
        answer = await call(app, path)
        assert answer.status == 200, path
        assert not rows_of(answer)
        assert "bert" not in re.sub(r"pytorchjobs\.bert", "", answer.text), path
        if path == "/metrics":
            assert not [each for each in NAMESPACES if each in answer.text]


@by_rights
async def test_the_page_has_a_right_of_its_own(rights: set[Right]) -> None:
    """It has no data: it asks for that as its reader."""
    assert (await call(served(Caller(rights), filled()), f"{BASE}/dashboard")).status == 403


async def test_an_event_is_in_its_jobs_namespace_and_names_no_other_job() -> None:
    cluster = FakeCluster()
    process = Process(cluster, regarding=lambda ref: SERVED.by_resource[ref.resource].own[0])
    rows = list(itertools.product(KINDS, NAMESPACES))
    for row in rows:
        process.announcer.changed(shown_in(*row, conditions=(STALLED,)))
    await process.settle()
    requests = [each for each in cluster.requests if not each.endswith("?dryRun=All")]
    written = []
    for event, request in zip(cluster.events.values(), requests, strict=True):
        (row,) = rows_in(json.dumps(event))
        (kind, namespace), regarding = row, event["regarding"]
        assert regarding["uid"] == f"{kind} in {namespace}"
        assert (regarding["namespace"], event["metadata"]["namespace"]) == (namespace, namespace)
        assert f"/namespaces/{namespace}/" in request
        own = SERVED.by_resource[kind].own[0]
        assert (regarding["apiVersion"], regarding["kind"]) == (own.api_version, own.kind)
        written.append(row)
    assert sorted(written) == sorted(rows)


@pytest.mark.parametrize("sample", [*SAMPLES, DESCRIBED_SAMPLE], ids=lambda sample: sample.id)
async def test_a_push_counts_for_the_job_of_its_pod_and_tells_of_no_other(sample: Sample) -> None:
    """A token of this pod, at the path of every job of that name."""
    made = Objects(SERVED.kinds)
    await made.list_nothing()
    made.start(sample, sample.states["Running"])
    own, cluster = made.job(sample), pushing.Cluster()
    jobs = {row: shown_in(*row).job for row in itertools.product(KINDS, NAMESPACES)}
    cluster.jobs_by_place = jobs | {(sample.resource, "team-a"): own}
    cluster.objects = made.objects
    token = pushing.jwt(**pushing.pod_claims(sample.pod))
    cluster.add_token(token, pod=sample.pod, uid=f"uid of Pod {sample.pod}")
    endpoint = pushing.Endpoint(cluster, kinds=SERVED)
    for kind, namespace in jobs:
        path = f"{BASE}/namespaces/{namespace}/{kind}/bert/status"
        answer = await post(endpoint, token=token, path=path)
        is_own = (kind, namespace) == (sample.resource, "team-a")
        assert answer.status == (200 if is_own else 403), (path, answer.text)
        assert not rows_of(answer)
    assert (await post(endpoint, token=token, path=OWN_JOB)).status == 200
    assert [each.ref for each in endpoint.seen] == [own.ref, own.ref]
