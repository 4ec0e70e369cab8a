"""A watch against a kube-apiserver that cuts streams, stalls, expires versions and breaks the protocol."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from visibility_api.kinds.trainjob import TrainJob
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, TooLarge, Unreachable
from visibility_api.kube.separate import SeparateNamespaces, SeparationLimits
from visibility_api.kube.watch import FOREIGN, Backoff, Watch, WatchLimits
from visibility_api.workloads.objects import mark_unread

from .fake_apiserver import fake_apiserver

PATH = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
DEADLINE_S = 90.0


def trainjob(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": str(version)}}


def a_list(version: int, *items: Any, token: str = "") -> web.Response:
    return web.json_response(
        {"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(items)}
    )


def status(code: int, reason: str, retry_after_s: int = 0) -> web.Response:
    details = {"retryAfterSeconds": retry_after_s} if retry_after_s else {}
    return web.json_response(
        {"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details}, status=code
    )


def line(type_: str, object_: Any) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


class Script:
    """Answers requests in order by the given steps, then holds every further watch open."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.requests: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.accepted: list[str] = []
        self.encodings: list[str] = []
        self.ended = asyncio.Event()
        self.asked = asyncio.Condition()

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(DEADLINE_S), self.asked:
            await self.asked.wait_for(lambda: len(self.requests) >= times)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        self.paths.append(request.path)
        self.accepted.append(request.headers["Accept"])
        self.encodings.append(request.headers["Accept-Encoding"])
        async with self.asked:
            self.asked.notify_all()
        if not self.steps:
            if "watch" not in request.query:
                return a_list(1)
            response = web.StreamResponse()
            await response.prepare(request)
            await self.ended.wait()
            return response
        step = self.steps.pop(0)
        if isinstance(step, web.Response):
            return step
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in step:
            if piece is CUT:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(piece)
        return response


CUT = object()


def _told(object_: TrainJob) -> str:
    return " ".join(filter(None, (object_.metadata.name, object_.metadata.unread)))


class Seen:
    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.log: list[str] = []
        self.unread: list[str] = []  # reasons
        self.changed = asyncio.Condition()

    async def on_list(self, objects: AsyncIterable[TrainJob]) -> None:
        self.names = {_told(o): o.metadata.uid async for o in objects}
        self._tell("LIST " + ",".join(self.names))

    def on_event(self, type_: str, object_: TrainJob) -> None:
        self._tell(f"{type_} {_told(object_)}")

    def _tell(self, entry: str) -> None:
        self.log.append(entry)
        self._notifier = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, *log: str) -> None:
        async with asyncio.timeout(DEADLINE_S), self.changed:
            await self.changed.wait_for(lambda: self.log == list(log))


SOON = WatchLimits(first_delay_s=0.01, absent_delay_s=0.01, longest_delay_s=0.05)


@asynccontextmanager
async def following(
    script: Script, limits: WatchLimits = SOON, **of_client: Any
) -> AsyncIterator[tuple[Seen, Watch[TrainJob]]]:
    seen = Seen()
    async with fake_apiserver(script.handle, **of_client) as client:
        watch = Watch(
            client,
            PATH,
            kind=TrainJob,
            on_list=seen.on_list,
            on_event=seen.on_event,
            label_selector="team",
            limits=limits,
            mark=mark_unread,
            count_unread=seen.unread.append,
        )
        task = asyncio.create_task(watch.run())
        try:
            yield seen, watch
        finally:
            task.cancel()
            script.ended.set()
            await asyncio.gather(task, return_exceptions=True)


async def test_it_lists_in_pages_then_watches_from_the_lists_version() -> None:
    script = Script(a_list(7, trainjob("a", 1), token="more"), a_list(7, trainjob("b", 2)))
    async with following(script) as (seen, watch):
        await seen.until("LIST a,b")
        await script.until_asked(3)
    assert watch.health.synced
    assert script.requests[1]["continue"] == "more"
    watched = script.requests[2]
    assert watched["resourceVersion"] == "7"
    assert watched["allowWatchBookmarks"] == "true"
    assert {request["labelSelector"] for request in script.requests} == {"team"}


async def test_an_empty_list_may_have_null_for_its_items() -> None:
    empty = web.json_response({"metadata": {"resourceVersion": "7"}, "items": None})
    script = Script(empty, [line("ADDED", trainjob("a", 8))])
    async with following(script) as (seen, watch):
        await seen.until("LIST ", "ADDED a")
    assert watch.health.synced


async def test_it_watches_from_the_first_pages_version() -> None:
    """A later page may be newer: of a server that goes on where its token has expired."""
    script = Script(a_list(7, trainjob("a", 1), token="more"), a_list(9, trainjob("b", 8)))
    async with following(script) as (seen, _):
        await seen.until("LIST a,b")
        await script.until_asked(3)
    assert script.requests[2]["resourceVersion"] == "7"


@pytest.mark.parametrize("broken", [status(410, "Expired"), status(503, "")], ids=["expired", "in trouble"])
async def test_a_list_that_fails_between_two_pages_is_started_again(broken: web.Response) -> None:
    script = Script(a_list(7, trainjob("a", 1), token="more"), broken, a_list(9, trainjob("b", 8)))
    async with following(script) as (seen, watch):
        await seen.until("LIST b")
        await script.until_asked(4)
        assert watch.health.synced
    assert "continue" not in script.requests[2]
    assert script.requests[3]["resourceVersion"] == "9"


async def test_a_page_is_read_with_pauses() -> None:
    turns = 0
    turns_at: list[int] = []

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def on_list(objects: AsyncIterable[TrainJob]) -> None:
        turns_at.extend([turns async for _ in objects])
        listed.set()

    listed = asyncio.Event()
    script = Script(a_list(7, *(trainjob(f"job-{number}", 1) for number in range(500))))
    async with fake_apiserver(script.handle) as client, asyncio.TaskGroup() as group:
        limits = WatchLimits(slice_s=0.0)  # a pause after each object
        watch = Watch(client, PATH, kind=TrainJob, on_list=on_list, on_event=lambda *_: None, limits=limits)
        tasks = [group.create_task(watch.run()), group.create_task(take_turns())]
        async with asyncio.timeout(DEADLINE_S):
            await listed.wait()
        for task in tasks:
            task.cancel()
        script.ended.set()
    assert len(turns_at) == 500
    assert len(set(turns_at)) > 400


async def test_events_that_arrive_at_once_are_taken_with_pauses() -> None:
    """Hundreds of a tenant's pods arrived in one piece, and were 722 ms of the event loop without a pause."""
    turns = 0
    turns_at: list[int] = []

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def on_event(_type: str, _object: TrainJob) -> None:
        turns_at.append(turns)
        if len(turns_at) == 500:
            came.set()

    async def on_list(objects: AsyncIterable[TrainJob]) -> None:
        assert [object_ async for object_ in objects] == []

    came = asyncio.Event()
    script = Script(
        a_list(7), [b"".join(line("ADDED", trainjob(f"job-{number}", 8 + number)) for number in range(500))]
    )
    async with fake_apiserver(script.handle) as client, asyncio.TaskGroup() as group:
        limits = WatchLimits(slice_s=0.0)  # a pause after each event
        watch = Watch(client, PATH, kind=TrainJob, on_list=on_list, on_event=on_event, limits=limits)
        tasks = [group.create_task(watch.run()), group.create_task(take_turns())]
        async with asyncio.timeout(DEADLINE_S):
            await came.wait()
        for task in tasks:
            task.cancel()
        script.ended.set()
    assert len(set(turns_at)) > 400


async def test_it_resumes_after_a_cut_from_the_last_event_or_bookmark() -> None:
    bookmark = {"metadata": {"resourceVersion": "40"}, "kind": "TrainJob"}
    script = Script(
        a_list(7),
        [line("ADDED", trainjob("a", 12)), line("BOOKMARK", bookmark), CUT],
        [line("DELETED", trainjob("a", 41))],
    )
    async with following(script) as (seen, _):
        await seen.until("LIST ", "ADDED a", "DELETED a")
    assert script.requests[2]["resourceVersion"] == "40"


async def test_an_event_cut_in_the_middle_is_not_taken_and_comes_again() -> None:
    whole = line("ADDED", trainjob("a", 12))
    script = Script(a_list(7), [whole[:40], CUT], [whole[:30], whole[30:]])
    async with following(script) as (seen, _):
        await seen.until("LIST ", "ADDED a")
    assert script.requests[2]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    "expired",
    [
        [line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})],
        status(410, "Expired"),
    ],
    ids=["as an event", "as a status"],
)
async def test_it_lists_again_when_its_version_has_expired(expired: Any) -> None:
    script = Script(a_list(7, trainjob("a", 1)), expired, a_list(90, trainjob("b", 80)))
    async with following(script) as (seen, _):
        await seen.until("LIST a", "LIST b")


@pytest.mark.parametrize(
    "refused", [status(500, "InternalError"), status(429, "TooManyRequests", 1), status(503, "")]
)
async def test_it_outlives_a_server_in_trouble(refused: web.Response) -> None:
    script = Script(refused, a_list(7, trainjob("a", 1)))
    async with following(script) as (seen, watch):
        await seen.until("LIST a")
        assert watch.health.last_error == ""


async def test_a_collection_that_may_not_be_read_is_tried_again_and_counts_as_unknown() -> None:
    script = Script(status(403, "x"), status(403, "x"))
    async with following(script) as (_, watch):
        await script.until_asked(2)
        assert (watch.health.attempted, watch.health.synced) == (True, False)


async def test_a_collection_that_is_not_served_counts_as_empty_until_its_crd_comes() -> None:
    script = Script(status(404, "x"), status(404, "x"), a_list(7, trainjob("a", 1)))
    async with following(script) as (seen, watch):
        await seen.until("LIST ", "LIST a")
        assert watch.health.synced


async def test_a_404_after_a_list_takes_nothing_away() -> None:
    script = Script(a_list(7, trainjob("a", 1)), status(404, "x"), a_list(8, trainjob("b", 8)))
    async with following(script) as (seen, _):
        await seen.until("LIST a", "LIST b")


def test_failures_in_a_row_are_waited_for_longer_but_not_cuts_of_a_watch_that_worked() -> None:
    backoff, longest_s = Backoff(SOON), SOON.longest_delay_s
    in_a_row = [backoff.wait_s(lasted_s=0) for _ in range(10)]
    assert in_a_row == sorted(in_a_row)
    assert in_a_row[-1] == longest_s
    assert {backoff.wait_s(lasted_s=2 * longest_s) for _ in range(10)} == {in_a_row[0]}


@pytest.mark.parametrize("garbage", [web.Response(body=b"<html>"), web.Response(body=b'{"items":7}')])
async def test_an_answer_that_is_no_list_is_outlived(garbage: web.Response) -> None:
    script = Script(garbage, a_list(7, trainjob("a", 1)))
    async with following(script) as (seen, _):
        await seen.until("LIST a")


ODD = {"metadata": {"name": "odd", "namespace": "a", "uid": "o", "labels": 7, "resourceVersion": "8"}}


async def test_an_object_of_unexpected_shape_hides_no_other() -> None:
    nameless = {"metadata": {"name": 7, "resourceVersion": "8"}}
    script = Script(
        a_list(7, ODD, trainjob("a", 1)), [line("ADDED", nameless), line("ADDED", trainjob("b", 9))]
    )
    async with following(script) as (seen, _):
        await seen.until("LIST odd ObjectUnreadable,a", "ADDED b")


@pytest.mark.parametrize("change", ["MODIFIED", "DELETED"])
async def test_an_object_that_cannot_be_read_any_more_is_not_shown_as_it_was(change: str) -> None:
    script = Script(a_list(7, trainjob("odd", 1)), [line(change, ODD), line("ADDED", trainjob("b", 9))])
    async with following(script) as (seen, _):
        await seen.until("LIST odd", f"{change} odd ObjectUnreadable", "ADDED b")


def deep(name: str, version: int) -> bytes:
    """As kube-apiserver takes it from anybody who may create one: managedFields nested 9,900 deep."""
    fields = b'{"f:a":' * 9_900 + b"{}" + b"}" * 9_900
    meta = b'"name":"%s","namespace":"a","uid":"d","resourceVersion":"%d"' % (name.encode(), version)
    return b'{"metadata":{"managedFields":[{"fieldsV1":%s}],%s}}' % (fields, meta)


async def test_an_object_nested_ten_thousand_deep_is_read_like_any_other() -> None:
    page = b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s]}' % (
        deep("deep", 1),
        json.dumps(trainjob("a", 1)).encode(),
    )
    script = Script(
        web.Response(body=page, content_type="application/json"),
        [b'{"type":"MODIFIED","object":%s}\n' % deep("deep", 8), line("ADDED", trainjob("b", 9))],
    )
    async with following(script) as (seen, _):
        await seen.until("LIST deep,a", "MODIFIED deep", "ADDED b")


async def test_large_objects_are_listed_in_smaller_pages() -> None:
    script = Script(
        web.Response(body=b" " * 1001),
        web.Response(body=b" " * 1001),
        a_list(7, trainjob("a", 1), token="more"),
        a_list(7, trainjob("b", 2)),
    )
    async with following(script, replace(SOON, page_bytes=1000)) as (seen, _):
        await seen.until("LIST a,b")
    assert [request["limit"] for request in script.requests[:4]] == ["500", "62", "7", "14"]


async def read_to_the_end(client: KubeClient, *, silence_s: float) -> None:
    async with client.lines(PATH, query=[("watch", "true")], silence_s=silence_s) as lines:
        async for _ in lines:
            pass


async def test_a_stream_on_which_nothing_arrives_is_given_up() -> None:
    script = Script()

    async with fake_apiserver(script.handle) as client:
        with pytest.raises(Unreachable):
            await read_to_the_end(client, silence_s=0.2)
        script.ended.set()


async def test_a_line_without_end_is_given_up() -> None:
    script = Script([b"x" * 600] * 20)
    async with fake_apiserver(script.handle, max_line_bytes=1000) as client:
        with pytest.raises(TooLarge, match="10000 bytes"):
            await read_to_the_end(client, silence_s=DEADLINE_S)


def large(name: str, version: int) -> dict[str, Any]:
    return trainjob(name, version) | {"spec": {"podTemplateOverrides": "<" * 5000}}


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (line("MODIFIED", large("odd", 8)), "ObjectTooLarge"),
        (b'{"type":"MODIFIED","object":{7}}\n', "ObjectUnreadable"),
    ],
    ids=["too large", "broken"],
)
async def test_an_event_that_is_not_read_costs_its_object_alone(event: bytes, why: str) -> None:
    script = Script(
        a_list(7, trainjob("odd", 1)),
        [event[:600], event[600:], line("ADDED", trainjob("b", 9))],
        [line("BOOKMARK", trainjob("", 7)), line("MODIFIED", trainjob("odd", 8))],
    )
    async with following(script, max_line_bytes=4000) as (seen, _):
        await seen.until("LIST odd", f"MODIFIED odd {why}", "ADDED b")
        assert seen.unread == [why]
    assert sum("watch" not in request for request in script.requests) == 1  # it was not listed again
    assert script.requests[2]["resourceVersion"] == "7"
    assert "as=PartialObjectMetadata;" in script.accepted[2]


async def test_a_namespace_of_large_events_gets_a_watch_of_its_own() -> None:
    """Else the others wait until kube-apiserver has encoded them (decision 0040)."""
    seen, other = Seen(), Seen()
    script = Script(
        a_list(7, trainjob("b", 1)),
        [
            line("MODIFIED", large("odd", 8)),
            line("MODIFIED", large("odd", 9)),
            line("MODIFIED", large("odd", 10)),
        ],
    )
    async with fake_apiserver(script.handle) as client:

        def make(namespace: str | None) -> Watch[TrainJob]:
            return Watch(
                client,
                f"/namespaces/{namespace}/trainjobs" if namespace else PATH,
                kind=TrainJob,
                on_list=(other if namespace else seen).on_list,
                on_event=(other if namespace else seen).on_event,
                scope=namespace,
                separate=None if namespace else separate,
                limits=SOON,
            )

        limits = SeparationLimits(large_bytes=1000, bytes_a_minute=6000)
        separate: SeparateNamespaces[Watch[TrainJob]] = SeparateNamespaces(make, limits)
        watch = make(None)
        task = asyncio.create_task(watch.run())
        await other.until("LIST ")
        await seen.until("LIST b", "MODIFIED odd", "MODIFIED odd")
        await script.until_asked(5)
        by_path = [
            (path, query.get("resourceVersion"), query.get("fieldSelector"))
            for path, query in zip(script.paths, script.requests, strict=True)
        ]
        assert (PATH, "9", "metadata.namespace!=a") in by_path
        assert ("/namespaces/a/trainjobs", "1", None) in by_path
        (part,) = separate
        part.health.down_since = time.monotonic() - 61
        assert list(watch.down_scopes(60)) == ["a"]  # and of no other namespace
        assert (watch.is_down("a"), watch.is_down("b")) == (True, False)
        task.cancel()
        script.ended.set()
        await asyncio.gather(task, return_exceptions=True)


async def test_events_whose_metadata_cannot_be_had_are_met_twice_and_then_listed() -> None:
    spoilt = [[line("MODIFIED", large("odd", 8))], status(500, "InternalError")]
    script = Script(a_list(7, trainjob("odd", 1)), *spoilt, *spoilt, a_list(9, trainjob("b", 9)))
    async with following(script, max_line_bytes=4000) as (seen, _):
        await seen.until("LIST odd", "LIST b")


@pytest.mark.parametrize("code", [500, 503])
async def test_an_error_that_comes_twice_after_the_same_version_is_answered_by_a_list(code: int) -> None:
    error = [line("ERROR", {"kind": "Status", "code": code, "reason": "InternalError", "message": "no"})]
    script = Script(a_list(7, trainjob("a", 1)), error, error, a_list(9, trainjob("b", 9)))
    async with following(script) as (seen, _):
        await seen.until("LIST a", "LIST b")


async def test_an_object_too_large_for_any_page_is_listed_by_its_metadata() -> None:
    whole = a_list(7, large("odd", 1), token="more")
    known = a_list(7, trainjob("odd", 1), token="more")
    script = Script(*[web.Response(body=whole.body) for _ in range(4)], known, a_list(7, trainjob("b", 2)))
    async with following(script, replace(SOON, page_bytes=1000)) as (seen, _):
        await seen.until("LIST odd ObjectTooLarge,b")
    assert [request["limit"] for request in script.requests[:6]] == ["500", "62", "7", "1", "1", "2"]
    assert "as=PartialObjectMetadataList;" in script.accepted[4]


async def test_a_refusal_carries_the_status_and_nothing_longer() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        body = {"reason": "Forbidden", "message": "m" * 10_000, "details": {"retryAfterSeconds": 3}}
        return web.json_response(body, status=403)

    async with fake_apiserver(refuse) as client:
        with pytest.raises(ApiError) as raised:
            await client.get(PATH)
    assert (raised.value.status, raised.value.reason, raised.value.retry_after_s) == (403, "Forbidden", 3.0)
    assert len(raised.value.message) == 500


async def test_a_refusal_that_comes_in_pieces_is_read_whole() -> None:
    """A read of aiohttp's returns what has come, not all that was asked for."""
    began = asyncio.Event()

    async def refuse(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=403)
        await response.prepare(request)
        await response.write(b'{"reason":"Forbidden",')
        await began.wait()
        await response.write(b'"message":"no"}')
        return response

    async with fake_apiserver(refuse) as client:
        asyncio.get_running_loop().call_later(0.05, began.set)
        with pytest.raises(ApiError) as raised:
            await client.get(PATH)
    assert (raised.value.reason, raised.value.message) == ("Forbidden", "no")


async def test_an_answer_beyond_its_bound_is_not_kept() -> None:
    async def flood(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 5000)

    async with fake_apiserver(flood) as client:
        with pytest.raises(Unreachable, match="exceeds 1000 bytes"):
            await client.get(PATH, max_bytes=1000)


async def test_a_server_that_never_answers_is_given_up() -> None:
    ended = asyncio.Event()

    async def stall(_request: web.Request) -> web.Response:
        await ended.wait()
        return web.Response()

    async with fake_apiserver(stall) as client:
        with pytest.raises(Unreachable, match="no response within"):
            await client.get(PATH, timeout_s=0.1)
        ended.set()


async def test_a_redirect_is_not_followed() -> None:
    async def redirect(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://169.254.169.254/"})

    async with fake_apiserver(redirect) as client:
        with pytest.raises(ApiError) as raised:
            await client.get(PATH)
    assert raised.value.status == 302


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        ("Thu, 01 Jan 1970 00:00:10 GMT", 1_700_000_000 - 10),
        *((date, 0) for date in ("", "soon", "Thu, 01 Jan 1970 00:00:10 +99999999999", "31 Feb", "\xb2")),
    ],
)
async def test_the_date_of_an_answer_says_how_far_our_clock_is_ahead_and_nonsense_says_nothing(
    monkeypatch: pytest.MonkeyPatch, date: str, ahead_s: float
) -> None:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.json_response({}, headers={"Date": date})

    async with fake_apiserver(handle) as client:
        monkeypatch.setattr("visibility_api.kube.client.time.time", lambda: 1_700_000_000.0)
        await client.get("/apis")
        assert client.clock_ahead_s == ahead_s


LINK_LOCAL = "http://169.254.169.254/latest/meta-data"
HOSTILE = replace(FOREIGN, first_delay_s=0.01, longest_delay_s=0.05, rest_s=0.0, pages=20)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (a_list(7, token="more"), "the list has more than 20 pages"),
        (a_list(7, *[{}] * 60_000), "a page has more than 20000 commas"),
        (a_list(7, *[0] * 60_000), "a page has more than 20000 commas"),
        (a_list(7, trainjob("a" * 2**20, 1)), "the response exceeds 524288 bytes"),
        (web.Response(status=302, headers={"Location": LINK_LOCAL}), "redirects are not followed"),
    ],
    ids=["list without end", "objects without names", "many numbers", "large object", "redirect"],
)
async def test_a_hostile_list_of_another_cluster_ends_and_says_why(
    step: web.Response, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer, whatever is asked, is this one. The longest is 1 MiB."""
    made = step.body, step.status, step.headers
    script = Script()

    async def handle(request: web.Request) -> web.StreamResponse:
        script.requests.append(dict(request.query))
        body, status_, headers = made
        return web.Response(body=body, status=status_, headers=headers)  # type: ignore[arg-type]

    monkeypatch.setattr(script, "handle", handle)
    async with following(script, HOSTILE, is_foreign=True) as (seen, watch):
        await _failed(watch)
        assert says in watch.health.last_error
    assert not seen.log


async def test_another_cluster_compresses_nothing_and_its_empty_lines_end_the_stream() -> None:
    script = Script(a_list(7), [b"\n" * 500, line("ADDED", trainjob("a", 8)), b"\n" * 5000])
    async with following(script, HOSTILE, is_foreign=True) as (seen, watch):
        await seen.until("LIST ", "ADDED a")
        await _failed(watch)
        assert watch.health.last_error == "size limit exceeded: more than 1000 empty lines"
    assert set(script.encodings) == {"identity"}


async def _failed(watch: Watch[TrainJob]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not watch.health.last_error:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
