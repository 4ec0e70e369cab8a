"""Whatever the published OpenAPI allows or forbids to ask: no answer is other than it promises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st
from schemathesis import GenerationMode

from tests.e2e.api import Api
from tests.e2e.clients.made_up_requests import (
    ACCEPTED,
    EVERYTHING_ONCE,
    LISTS,
    OPERATIONS,
    TRANSFORMED,
    Known,
    check,
    target_of,
)
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import Workspace
from tests.unit.resource_server import BASE_REVISION, ResourceServer, WatchClient

_NAMES = ("bert", "gpt", "llama")


@pytest.fixture(scope="module")
def direct(shared: Workspace, server: VisibilityServer) -> Iterator[Api]:
    """The administrator at the server itself."""
    pair = shared.admin.pair
    api = Api(server.url, ca_file=server.authority.bundle, cert=(pair.cert, pair.key))
    yield api
    api.close()


@pytest.fixture(scope="module")
def known(shared: Workspace, jobs: QuietJobs) -> Known:
    for name in _NAMES:
        jobs.create(name, {"tier": "gold", "n": "5"} if name == "bert" else {})
    jobs.wait_served(*_NAMES)
    page = shared.cluster.admin.get(jobs.collection, limit="1")["metadata"]
    return Known(
        namespace=shared.name, names=_NAMES, revision=int(page["resourceVersion"]), token=page["continue"]
    )


@pytest.mark.parametrize(
    ("label", "mode"),
    [
        pytest.param(label, mode, id=f"{mode.value} {label.removeprefix('GET /apis/')}")
        for label, operation in OPERATIONS.items()
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or operation.query  # without parameters nothing can be wrong
    ],
)
def test_every_answer_is_what_the_published_api_promises(
    known: Known, direct: Api, label: str, mode: GenerationMode
) -> None:
    seen: set[int] = set()

    @EVERYTHING_ONCE
    @given(case=OPERATIONS[label].as_strategy(mode), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        if case.path_parameters and data.draw(st.booleans(), label="a place that is"):
            place = data.draw(known.places())
            case.path_parameters = {key: place[key] for key in case.path_parameters}
        case.query = {**(case.query or {}), **data.draw(known.queries())}
        case.query.pop("watch", None)  # which has its own test
        accepted = data.draw(ACCEPTED)
        answer = direct.raw("GET", target_of(case), headers={"Accept": accepted})
        seen.add(answer.status_code)
        check(case, answer)

    ask()
    # An operation of its own refuses every parameter that cannot be read; the resource path ignores some.
    # These jobs have no pods, so no log.
    is_refused = mode is GenerationMode.NEGATIVE or label.endswith("/log-tail")
    assert 200 in seen or (is_refused and 400 in seen)


async def read_watch(target: str, accepted: str) -> tuple[WatchClient, list[dict[str, Any]]]:
    """In process: there a watch can be ended, and so read whole, as soon as it has begun."""
    server = ResourceServer()
    for name in _NAMES:
        server.put(name, labels={"tier": "gold"} if name == "bert" else {})
    async with server.watch(target, ("Accept", accepted)) as client:
        while not (client.is_ended or len(server.watches)):  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0)
        server.watches.drain()
        return client, await client.rest() if client.status == 200 else []


def refusal(client: WatchClient) -> httpx.Response:
    """A whole answer, as an HTTP client would have it."""
    return httpx.Response(
        client.status,
        headers=client.headers,
        content=b"".join(client.chunks),
        request=httpx.Request("GET", "https://server/"),
    )


@pytest.mark.parametrize("label", LISTS)
def test_every_watch_is_a_stream_of_events_or_a_refusal(label: str) -> None:
    known = Known(namespace="team-a", names=_NAMES, revision=BASE_REVISION + 1, token="e30")
    seen: set[int] = set()
    types: set[str] = set()

    @settings(EVERYTHING_ONCE)
    @given(case=OPERATIONS[label].as_strategy(), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        if case.path_parameters:
            case.path_parameters = {"namespace": known.namespace}
        case.query = {**(case.query or {}), **data.draw(known.queries()), "watch": "true"}
        client, events = asyncio.run(read_watch(target_of(case), data.draw(ACCEPTED)))
        seen.add(client.status)
        if client.status != 200:
            check(case, refusal(client))
            return
        assert client.headers["content-type"] == "application/json"
        for event in events:
            types.add(event["type"])
            assert event["type"] in ("ADDED", "BOOKMARK", "ERROR")
            assert event["object"]["kind"] in TRANSFORMED | {"TrainJobProgress", "Status"}
            assert (event["type"] == "ERROR") is (event["object"]["kind"] == "Status")

    ask()
    assert seen >= {200, 400}
    assert "ADDED" in types
