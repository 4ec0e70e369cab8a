"""Whatever the published OpenAPI allows or forbids to ask: no answer is other than it promises.

schemathesis makes up the requests, good and bad ones. What it cannot know (names that exist, tokens,
selectors that mean something) is mixed in here, so that more than the parsers are reached.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from msgspec.structs import replace

from tests.asgi import Answer
from tests.jobs import NOW, document, rank0
from tests.past import Past
from tests.unit.api_shell import BASE, Shell
from tests.unit.resource_server import BASE_REVISION, ResourceServer, WatchClient
from tests.unit.test_app_diagnose import DIAGNOSIS
from tests.unit.test_app_log_tail import Kubelet, Rights
from tests.unit.test_archive import Past as Archive
from visibility_api.app.dependencies import Diagnoses, Found, HistorySource, LogTails
from visibility_api.jobs.job import JobRef, Phase as JobPhase
from visibility_api.kinds import ALL_RESOURCES, RESOURCES
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kube.client import KubeClient
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse, ResourceStream
from visibility_api.kubeapi.training_jobs import AllKinds
from visibility_api.models.served import JOB_RECORDS, TRAINING_JOBS
from visibility_api.probing.log_end import LogEnds
from visibility_api.store.memory import MemoryStore

PUBLISHED = Path(__file__).parents[2] / "openapi" / "v3.json"
_PATHS: dict[str, dict[str, Any]] = json.loads(PUBLISHED.read_bytes())["paths"]
# By label, whether it has other parameters than those of its place.
LABELS = {
    f"{method.upper()} {path}": len(each.get("parameters", ())) > path.count("{") or "parameters" in operation
    for path, each in _PATHS.items()
    for method, operation in each.items()
    if method != "parameters"
    # Those of the other kinds are made by the same code, for documents of the same fields.
    and not any(f"/{other.plural}" in path for other in RESOURCES[1:])
}
LISTS = [label for label in LABELS if label.endswith("/trainjobs")]


@cache
def operations() -> dict[str, Any]:
    """By label. schemathesis is slow to import, and each process that tests collects this module."""
    import schemathesis

    every = schemathesis.openapi.from_path(PUBLISHED).get_all_operations()
    return {operation.label: operation for operation in (found.ok() for found in every)}


def strategy_of(label: str, mode: str = "positive") -> Any:
    from schemathesis import GenerationMode

    return operations()[label].as_strategy(GenerationMode(mode))


def checks() -> list[Any]:
    from schemathesis.specs.openapi import checks

    return [
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.status_code_conformance,
    ]


NAMES = ("bert", "gpt", "llama")
FORM = "application/json;as={};v=v1;g=meta.k8s.io"
TRANSFORMED = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
ACCEPTED = st.sampled_from(
    (
        *("application/json", "application/yaml", "*/*", "text/html", "application/json;q=x, ;", ""),
        "application/vnd.kubernetes.protobuf, application/json;q=0.5",
        f"{FORM.format('Table')}, application/json",
        *map(FORM.format, TRANSFORMED),
        "application/json;as=Table;v=v9;g=meta.k8s.io",
    )
)
ONCE = settings(
    phases=(Phase.generate,),
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def queries(token: str, revision: int) -> st.SearchStrategy[dict[str, str]]:
    """A few parameters that mean something, or nearly."""
    selectors = "tier=gold|tier|!tier|tier in (gold,x)|tier notin ()|n>3|n>x|tier=,|="
    fields = r"metadata.name=bert|status.phase!=Pending|metadata.namespace=x|a=b|x\|,,"
    values = {
        "labelSelector": selectors.split("|"),
        "fieldSelector": fields.split("|"),
        "limit": ("1", "2", "500", "0", "-1", "x", "9223372036854775808", ""),
        "continue": (token, token[:-3], "e30", "x", ""),
        "resourceVersion": (str(revision), "0", "1", "", "x", "-1", "007", str(revision + 10**12), "9" * 40),
        "resourceVersionMatch": ("Exact", "NotOlderThan", "exact", ""),
        "sendInitialEvents": ("true", "false", "", "x"),
        "allowWatchBookmarks": ("true", "false"),
        "timeout": ("5s", "0", "1h", "x", "-1s", ""),
        "pretty": ("true", "1", "false", "x"),
        "includeObject": ("None", "Metadata", "Object", "x"),
        "timeoutSeconds": ("1", "x", "-1"),
        "export": ("false", "true"),
    }
    pairs = [(key, value) for key, some in values.items() for value in some]
    return st.lists(st.sampled_from(pairs), max_size=3).map(dict)


def served() -> Shell:
    """Three jobs, with the past of the first one and the end of every log."""
    store, history = MemoryStore(base_revision=BASE_REVISION), Past().history
    for name in NAMES:
        labels = {"tier": "gold", "n": "5"} if name == "bert" else {}
        made = document(name, labels=labels, diagnosis=DIAGNOSIS if name == "bert" else None)
        store.put(replace(made, job=replace(made.job, rank0=rank0())))
    view = AllKinds(RESOURCES, Rights())
    archive = Archive(Path(tempfile.mkdtemp(prefix="records-")))
    for name in NAMES:
        archive.show(name=name, phase=JobPhase.SUCCEEDED, ended_at=NOW, labels={"tier": "gold", "n": "5"})
    archive.log = b'{"podName":"bert-0","previous":false,"truncated":false,"lines":["the end"]}'
    asyncio.run(archive.settle())
    of_records = {
        ("", "get"): archive.records.get,
        ("", "list"): archive.records.list,
        ("", "delete"): archive.records.delete,
        ("history", "get"): archive.records.history,
        ("log-tail", "get"): archive.records.log_tail,
    }
    collections = {
        "trainjobs": Collection(TrainJobKind.served, store, now=lambda: NOW),
        "trainingjobs": Collection(TRAINING_JOBS, store, now=lambda: NOW, view=view),
    }

    def find_history(resource: str, namespace: str, name: str) -> Found | None:
        entry = store.get(resource, namespace, name)
        return None if entry is None else (entry, history if name == "bert" else None)

    async def handle(request: ResourceRequest) -> ResourceResponse | ResourceStream:
        if request.attributes.resource == JOB_RECORDS.plural:
            return await of_records[request.attributes.subresource, request.attributes.verb](request)
        documents = collections[request.attributes.resource]
        return await (documents.get if request.attributes.verb == "get" else documents.list)(request)

    logs = LogEnds(cast(KubeClient, Kubelet()), timeout_s=5)
    return Shell(
        handler=handle,
        resources=(*ALL_RESOURCES, JOB_RECORDS),
        histories=HistorySource(find=find_history, now=lambda: NOW),
        log_tails=LogTails(find=store.get, authorizer=Rights(), logs=logs),
        diagnoses=Diagnoses(find=store.get, authorizer=Rights(), request=accept, is_on=True),
    )


async def accept(ref: JobRef) -> float:
    """One of the jobs was read just now."""
    return 41.2 if ref.name == "gpt" else 0.0


def target_of(case: Any) -> str:
    """Path and query, percent-encoded."""
    made = case.as_transport_kwargs(base_url="https://server")
    target = requests.Request(made["method"], made["url"], params=made["params"]).prepare().path_url
    return str(target)


def check(case: Any, status: int, headers: Any, content: bytes) -> None:
    """A promised body; a refusal says why, and only a revision from the future is an error above 499."""
    answer = httpx.Response(
        status, headers=headers, content=content, request=httpx.Request("GET", "https://server/")
    )
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    body = answer.json() if is_json else None
    if body is not None and body.get("kind") in TRANSFORMED:
        assert (status, body["apiVersion"]) == (200, "meta.k8s.io/v1")
        return
    answer.elapsed = timedelta(0)  # schemathesis wants to know it
    case.validate_response(answer, checks=checks())
    if status < 400 or body is None:
        return
    assert (body["kind"], body["apiVersion"], body["code"]) == ("Status", "v1", status)
    assert body["reason"]
    if status >= 500:
        causes = [cause["reason"] for cause in body["details"]["causes"]]
        assert (status, causes) == (504, ["ResourceVersionTooLarge"]), body


@pytest.mark.parametrize(
    ("label", "mode"),
    [
        pytest.param(label, mode, id=f"{mode} {label.removeprefix('GET /apis/')}")
        for label, has_query in LABELS.items()
        for mode in ("positive", "negative")
        if mode == "positive" or has_query  # without parameters nothing can be wrong
    ],
)
def test_every_answer_is_what_the_published_api_promises(label: str, mode: str) -> None:
    shell, seen = served(), set[int]()
    page = asyncio.run(shell.get(f"{BASE}/trainjobs?limit=1")).json()["metadata"]
    known = queries(page["continue"], int(page["resourceVersion"]))

    def send(case: Any, accepted: str) -> None:
        answer: Answer = asyncio.run(shell.get(target_of(case), ("Accept", accepted), method=case.method))
        seen.add(answer.status)
        check(case, answer.status, answer.headers, answer.body)

    def place_of(name: str, keys: Iterable[str]) -> dict[str, str]:
        shown = f"trainjobs.{name}" if "/trainingjobs" in label else name
        place = {"namespace": "team-a", "name": f"{name}-uid-of-t" if "/jobrecords" in label else shown}
        return {key: place[key] for key in keys}

    @ONCE
    @given(case=strategy_of(label, mode), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        if case.path_parameters and data.draw(st.booleans(), label="a place that is"):
            case.path_parameters = place_of(
                data.draw(st.sampled_from((*NAMES, "nobody"))), case.path_parameters
            )
        case.query = {**(case.query or {}), **data.draw(known)}
        case.query.pop("watch", None)  # which has its own test
        send(case, data.draw(ACCEPTED))

    ask()
    if mode == "positive":  # of those made up, hardly any has a name that is and a good timeout
        keys = [parameter.name for parameter in operations()[label].path_parameters]
        for name in NAMES:
            send(operations()[label].Case(path_parameters=place_of(name, keys)), "application/json")
    # An operation of its own refuses every parameter that cannot be read; the resource path ignores some.
    assert {200, 202} & seen or (mode == "negative" and 400 in seen)


async def read_watch(target: str, accepted: str) -> tuple[WatchClient, list[dict[str, Any]]]:
    """A watch is ended, and so read whole, as soon as it has begun."""
    server = ResourceServer()
    for name in NAMES:
        server.put(name, labels={"tier": "gold"} if name == "bert" else {})
    async with server.watch(target, ("Accept", accepted)) as client:
        while not (client.is_ended or len(server.watches)):  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0)
        server.watches.drain()
        return client, await client.rest() if client.status == 200 else []


@pytest.mark.parametrize("label", LISTS)
def test_every_watch_is_a_stream_of_events_or_a_refusal(label: str) -> None:
    known = queries("e30", BASE_REVISION + 1)
    seen: set[int] = set()
    types: set[str] = set()

    @settings(ONCE, max_examples=30)
    @given(case=strategy_of(label), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        if case.path_parameters:
            case.path_parameters = {"namespace": "team-a"}
        case.query = {**(case.query or {}), **data.draw(known), "watch": "true"}
        client, events = asyncio.run(read_watch(target_of(case), data.draw(ACCEPTED)))
        seen.add(client.status)
        if client.status != 200:
            check(case, client.status, client.headers, b"".join(client.chunks))
            return
        assert client.headers["content-type"] == "application/json"
        for event in events:
            types.add(event["type"])
            assert event["type"] in ("ADDED", "BOOKMARK", "ERROR")
            assert event["object"]["kind"] in {*TRANSFORMED, "TrainJobProgress", "Status"}
            assert (event["type"] == "ERROR") is (event["object"]["kind"] == "Status")

    ask()
    assert seen >= {200, 400}
    assert "ADDED" in types
