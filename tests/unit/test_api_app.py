"""The chain in front of the handlers: who is refused where, and what every answer carries.

R2 to R6, R15, R17, Z2, Z7, P11, D15, W3, W20, W23, W24.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import pytest

from tests.asgi import Answer, http_scope
from tests.unit.api_shell import BASE, JANE, ONE, Shell
from visibility_api.api import app as app_module
from visibility_api.api.app import Limits
from visibility_api.api.message import Request, Response, Stream
from visibility_api.api.resources import RESOURCES
from visibility_api.api.routing import Routes
from visibility_api.auth.errors import AccessDenied, ReviewFailed, Unauthenticated
from visibility_api.auth.identity import ANONYMOUS, Attributes, Identity

ADMIN = Identity(user="admin", groups=("system:masters",))
UNKNOWN_ROUTE = "the server could not find the requested resource"
WRONG_METHOD = "the server does not allow this method on the requested resource"


def denial(attributes: Attributes | None = None) -> AccessDenied:
    return AccessDenied(JANE, attributes or Attributes(verb="get", path="/x"))


# --- routes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/trainjobs",
        f"{BASE}/trainjobs/",
        f"{BASE}/trainjobs?watch=1",
        f"{BASE}/namespaces/a/trainjobs",
        f"{BASE}/namespaces/a/trainjobs/x",
        f"{BASE}/namespaces/a/trainjobs/x/",
        f"{BASE}/namespaces/a/trainjobs/x/progress",
    ],
)
async def test_what_is_served_is_found_in_both_spellings(path: str) -> None:
    """D15: never by a redirect."""
    shell = Shell()
    assert (await shell.get(path)).status == 200
    assert len(shell.requests) == 1


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/trainjobs/x",  # R4: a namespace is missing
        f"{BASE}/trainjobs/x/progress",
        f"{BASE}/namespaces/a/trainjobs/x/status",
        f"{BASE}/namespaces/a/trainjobs/x/progress/more",
        f"{BASE}/namespaces/a/trainjobs//progress",
        f"{BASE}/namespaces//trainjobs",
        f"{BASE}/namespaces/a",
        f"{BASE}/nonsense",
        f"{BASE}/watch/trainjobs",  # Z7
        f"{BASE}/watch/namespaces/a/trainjobs",
        "/apis/visibility.trainer.kubeflow.org/v1/trainjobs",
        "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
async def test_what_is_not_served_is_an_unknown_route(path: str, method: str) -> None:
    """R1, R4, Z7."""
    shell = Shell()
    answer = await shell.get(path, method=method)
    body = answer.json()
    assert (answer.status, body["message"], body["reason"]) == (404, UNKNOWN_ROUTE, "NotFound")
    assert shell.requests == []


@pytest.mark.parametrize(
    "path", [f"{BASE}/trainjobs", f"{BASE}/namespaces/a/trainjobs", ONE, ONE + "/progress"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "PURGE"])
async def test_resources_are_only_got(path: str, method: str) -> None:
    """R6: HEAD too is authorised, and then refused."""
    shell = Shell()
    answer = await shell.get(path, method=method)
    assert (answer.status, answer.json()["message"]) == (405, WRONG_METHOD)
    assert shell.requests == []
    assert len(shell.asked) == 1


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz/ping", "/metrics", "/version", "/openapi/v3", "/apis", BASE]
)
async def test_documents_of_the_server_itself_answer_get_and_head_only(path: str) -> None:
    """R6."""
    shell = Shell()
    got, head = await shell.get(path), await shell.get(path, method="HEAD")
    assert got.status == head.status == 200
    assert (await shell.get(path, method="POST")).status == 405
    if path != "/metrics":  # it counts the requests in between
        assert got.header("content-length") == head.header("content-length")


@pytest.mark.parametrize("path", ["/", "/nonsense", "/api", "/api/v1/pods", "/livez/nonsense", "/apis/other"])
async def test_other_paths_are_not_found_in_the_api_servers_words(path: str) -> None:
    """R5, D8."""
    answer = await Shell().get(path)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert answer.header("x-content-type-options") == "nosniff"


def test_a_promise_without_a_handler_is_found_at_the_start() -> None:
    """D5."""
    with pytest.raises(ValueError, match="differ in"):
        Routes(resources=RESOURCES, handlers={}, endpoints={})


# --- rights ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "method"),
    [(ONE, "GET"), (f"{BASE}/nonsense", "GET"), (ONE, "DELETE"), ("/nonsense", "GET"), ("/metrics", "POST")],
)
async def test_whoever_has_no_right_learns_nothing_of_what_exists(target: str, method: str) -> None:
    """Z2: authorisation comes before routing."""
    shell = Shell(verdict=denial())
    shell.is_synced = False
    assert (await shell.get(target, method=method)).status == 403
    assert shell.requests == []


@pytest.mark.parametrize(("identity", "code"), [(Unauthenticated("x"), 401), (JANE, 200), (ANONYMOUS, 200)])
async def test_nobody_is_authorised_before_they_are_known(identity: Any, code: int) -> None:
    """A1, A20."""
    shell = Shell(identity=identity)
    assert (await shell.get(ONE)).status == code
    assert len(shell.asked) == (code == 200)


async def test_the_review_asks_what_the_request_asks() -> None:
    """Z3 to Z8: one reading serves both."""
    shell = Shell()
    await shell.get(f"{ONE}/progress")
    await shell.get("/metrics/")
    assert shell.asked[0] == shell.requests[0].attributes
    assert (shell.asked[0].subresource, shell.asked[0].name, shell.asked[0].verb) == (
        "progress",
        "bert",
        "get",
    )
    assert shell.asked[1] == Attributes(verb="get", path="/metrics/")


async def test_an_escaped_slash_cannot_lead_elsewhere_than_what_was_authorised() -> None:
    """Z7: both see the decoded path, as in Go."""
    shell = Shell()
    await shell.get(f"{BASE}/namespaces/team-a%2Ftrainjobs%2Fbert")
    assert (shell.asked[0].namespace, shell.asked[0].resource, shell.asked[0].name) == (
        "team-a",
        "trainjobs",
        "bert",
    )


async def test_a_failed_review_is_no_verdict() -> None:
    """Z13: fails closed, as a 500 in text."""
    shell = Shell(verdict=ReviewFailed("connection refused"))
    answer = await shell.get(f"{ONE}?pretty=1")
    assert (answer.status, answer.header("content-type")) == (500, "text/plain; charset=utf-8")
    assert answer.text.startswith(f'Internal Server Error: "{ONE}?pretty=1": ')
    assert "refused" not in answer.text
    assert shell.requests == []


async def test_one_users_answer_is_never_anothers() -> None:
    shell = Shell()
    assert (await shell.get(ONE)).status == 200
    shell.verdict = denial()
    assert (await shell.get(ONE)).status == 403


# --- what every answer carries --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "method"),
    [
        (ONE, "GET"),
        (f"{BASE}/trainjobs?watch", "GET"),
        ("/livez", "GET"),
        ("/nope", "GET"),
        (ONE, "PUT"),
        ("/metrics", "GET"),
    ],
)
async def test_every_answer_has_the_requests_audit_id_and_forbids_caching(target: str, method: str) -> None:
    """R15."""
    answer = await Shell().get(target, ("Audit-ID", "4a8b-1"), method=method)
    assert answer.header("audit-id") == "4a8b-1"
    assert answer.header("cache-control") == "no-cache, private"


@pytest.mark.parametrize("sent", [None, "", "two words", "x" * 500, "café", "a\tb"])
async def test_without_a_usable_audit_id_a_new_one_is_made(sent: str | None) -> None:
    """R15: it goes into a header of ours, so it is not taken as it comes."""
    answer = await Shell().get(ONE, *([("Audit-ID", sent)] if sent is not None else []))
    made = answer.header("audit-id")
    assert made is not None
    assert uuid.UUID(made).version == 4


async def test_two_answers_do_not_share_a_made_audit_id() -> None:
    shell = Shell()
    assert (await shell.get(ONE)).header("audit-id") != (await shell.get(ONE)).header("audit-id")


async def test_a_handlers_own_caching_rule_replaces_the_default() -> None:
    """R15, D12, O4."""

    async def handler(_: Request) -> Response:
        return Response(headers=((b"cache-control", b"public"), (b"etag", b'"1"')))

    answer = await Shell(handler=handler).get(ONE)
    assert (answer.header("cache-control"), answer.header("etag")) == ("public", '"1"')


async def test_errors_take_the_form_the_client_accepts() -> None:
    """R10."""
    answer = await Shell().get(f"{BASE}/nonsense", ("Accept", "application/yaml"))
    assert (answer.header("content-type"), answer.text.splitlines()[0]) == (
        "application/yaml",
        "apiVersion: v1",
    )


async def test_the_unforeseen_is_a_500_without_its_cause() -> None:
    """R1: the cause is for the log, found by the Audit-Id."""

    async def handler(_: Request) -> Response:
        raise KeyError("a secret of the store")

    answer = await Shell(handler=handler).get(ONE)
    assert (answer.status, answer.json()["reason"]) == (500, "InternalError")
    assert "secret" not in answer.text


# --- not now --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [ONE, f"{BASE}/trainjobs", f"{BASE}/trainjobs?watch=1"])
async def test_before_the_caches_are_filled_nothing_is_said_of_documents(target: str) -> None:
    """R3: 404 would mean absent, and controllers act on that."""
    shell = Shell()
    shell.is_synced = False
    answer = await shell.get(target)
    assert (answer.status, answer.json()["reason"]) == (503, "ServiceUnavailable")
    assert answer.header("retry-after") == "1"
    assert shell.requests == []
    shell.is_synced = True
    assert (await shell.get(target)).status == 200


@pytest.mark.parametrize("path", ["/livez", "/apis", BASE, "/openapi/v2", "/openapi/v3", f"{BASE}/nonsense"])
async def test_before_the_caches_are_filled_all_else_is_answered(path: str) -> None:
    """O2, D1: a 404 from OpenAPI or a failing discovery at the start would be remembered."""
    shell = Shell()
    shell.is_synced = False
    assert (await shell.get(path)).status in (200, 404)


async def test_while_draining_only_new_watches_are_refused() -> None:
    """W24, P10."""
    shell = Shell()
    shell.is_draining = True
    assert (await shell.get(f"{BASE}/trainjobs")).status == 200
    answer = await shell.get(f"{BASE}/trainjobs?watch=1")
    assert (answer.status, answer.json()["message"]) == (503, "apiserver is shutting down")
    assert answer.header("retry-after") == "1"


class Gate:
    """Handlers wait here; `entered` counts them."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.entered = asyncio.Semaphore(0)

    async def handle(self, _: Request) -> Response:
        self.entered.release()
        await self.opened.wait()
        return Response(body=b"{}")


async def fill(shell: Shell, gate: Gate, number: int) -> list[asyncio.Task[Answer]]:
    waiting = [asyncio.create_task(shell.get(ONE)) for _ in range(number)]
    for _ in waiting:
        await gate.entered.acquire()
    return waiting


async def test_too_much_in_flight_is_refused_in_text_and_passes() -> None:
    """P11, R1."""
    gate = Gate()
    shell = Shell(handler=gate.handle, limits=Limits(in_flight=3))
    waiting = await fill(shell, gate, 3)
    refused = await shell.get(f"{BASE}/trainjobs")
    assert (refused.status, refused.text) == (429, "Too many requests, please try again later.\n")
    assert refused.header("retry-after") == "1"
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 3
    gate.opened.set()
    assert [a.status for a in await asyncio.gather(*waiting)] == [200, 200, 200]
    assert (await shell.get(ONE)).status == 200
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


async def test_overload_spares_the_aggregator_and_the_kubelet() -> None:
    """P11, D1, D2: or an overload would become an outage."""
    gate = Gate()
    shell = Shell(handler=gate.handle, limits=Limits(in_flight=2))
    waiting = await fill(shell, gate, 2)
    assert (await shell.get(BASE)).status == 429
    shell.identity = ADMIN
    assert (await shell.get(BASE)).status == 200
    shell.identity = ANONYMOUS
    assert (await shell.get("/readyz")).status == 200
    gate.opened.set()
    await asyncio.gather(*waiting)


async def test_who_waits_to_be_identified_is_bounded_too() -> None:
    """P11: an identity may take a review, so a flood of tokens must not pile up."""
    gate = Gate()
    shell = Shell(handler=gate.handle, identity=ADMIN, limits=Limits(in_flight=1))
    waiting = await fill(shell, gate, 2)
    shell.identity = Unauthenticated("would be asked for")
    assert (await shell.get(ONE)).status == 429
    gate.opened.set()
    await asyncio.gather(*waiting)


async def test_refused_and_failed_requests_leave_nothing_in_flight() -> None:
    async def handler(_: Request) -> Response:
        raise KeyError

    shell = Shell(handler=handler)
    for target in (ONE, f"{BASE}/nonsense", "/x?" + "&".join(["a"] * 1000)):
        await shell.get(target)
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


# --- limits of time -------------------------------------------------------------------------------------


async def test_a_request_that_takes_too_long_is_a_504() -> None:
    """R17."""
    gate = Gate()
    answer = await Shell(handler=gate.handle).get(f"{ONE}?timeout=20ms")
    assert (answer.status, answer.json()["reason"]) == (504, "Timeout")
    assert answer.json()["message"] == "Timeout: request did not complete within the allotted timeout"


async def test_the_limit_cancels_the_work() -> None:
    """R17."""
    cancelled = asyncio.Event()

    async def handler(_: Request) -> Response:
        await asyncio.sleep(0)  # more than one suspension
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    assert (await Shell(handler=handler).get(f"{ONE}?timeout=10ms")).status == 504
    assert cancelled.is_set()


@pytest.mark.parametrize("path", [ONE, BASE, "/livez"])
async def test_a_broken_timeout_is_told_after_authorisation(path: str) -> None:
    """R17, Z2."""
    shell = Shell()
    answer = await shell.get(f"{path}?timeout=5")
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")
    assert answer.json()["message"] == (
        'invalid timeout specified in the request URL - time: invalid duration "5"'
    )
    shell.verdict = denial()
    assert (await shell.get(f"{path}?timeout=5")).status == 403


async def test_a_request_that_is_cancelled_from_outside_stays_cancelled() -> None:
    gate = Gate()
    shell = Shell(handler=gate.handle)
    task = asyncio.create_task(shell.get(ONE))
    await gate.entered.acquire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


async def test_a_reader_too_slow_for_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """R17: nothing holds its place for ever; the server below closes the connection."""
    monkeypatch.setattr(app_module, "SEND_TIMEOUT_S", 0.01)

    async def never(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    shell = Shell()
    answer = await shell.get(ONE, before_send=never)
    assert not answer.is_complete
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


# --- streams --------------------------------------------------------------------------------------------

Writer = Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]


def streaming(write: Writer) -> Callable[[Request], Awaitable[Response | Stream]]:
    async def handler(_: Request) -> Response | Stream:
        return Stream(write=write)

    return handler


async def test_a_streams_headers_leave_before_there_is_anything_to_tell() -> None:
    """W2, W3: client-go's Watch returns only then."""
    seen: list[str] = []
    started = asyncio.Event()
    tell = asyncio.Event()

    async def write(send: Callable[[bytes], Awaitable[None]]) -> None:
        await tell.wait()
        await send(b"{}\n")

    async def note(message: dict[str, Any]) -> None:
        seen.append(message["type"])
        started.set()

    shell = Shell(handler=streaming(write))
    task = asyncio.create_task(
        shell.get(f"{BASE}/trainjobs?watch=1", ("Accept-Encoding", "gzip"), before_send=note)
    )
    await started.wait()
    assert seen == ["http.response.start"]
    assert shell.sample("apiserver_longrunning_requests", verb="WATCH") == 1
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0  # P11
    tell.set()
    answer = await task
    assert (answer.header("content-type"), answer.header("content-length")) == ("application/json", None)
    assert answer.header("content-encoding") is None  # R14
    assert (answer.chunks, answer.is_complete) == ([b"{}\n", b""], True)  # W24: a clean end
    assert shell.sample("apiserver_longrunning_requests", verb="WATCH") == 0


async def test_a_watcher_too_slow_is_cut_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """W20: so that it resumes from its last resourceVersion."""
    monkeypatch.setattr(app_module, "CHUNK_TIMEOUT_S", 0.01)

    async def write(send: Callable[[bytes], Awaitable[None]]) -> None:
        await send(b"1\n")
        await send(b"2\n")

    async def stuck(message: dict[str, Any]) -> None:
        if message.get("body") == b"2\n":
            await asyncio.Event().wait()

    answer = await Shell(handler=streaming(write)).get(f"{BASE}/trainjobs?watch=1", before_send=stuck)
    assert (answer.chunks, answer.is_complete) == ([b"1\n"], False)


async def test_a_stream_that_breaks_is_not_ended_as_if_it_were_whole() -> None:
    async def write(send: Callable[[bytes], Awaitable[None]]) -> None:
        await send(b"1\n")
        raise KeyError

    shell = Shell(handler=streaming(write))
    answer = await shell.get(f"{BASE}/trainjobs?watch=1")
    assert (answer.status, answer.chunks, answer.is_complete) == (200, [b"1\n"], False)
    assert shell.sample("apiserver_longrunning_requests", verb="WATCH") == 0


async def test_watches_are_bounded() -> None:
    end = asyncio.Event()
    running = asyncio.Event()

    async def write(_: Callable[[bytes], Awaitable[None]]) -> None:
        running.set()
        await end.wait()

    shell = Shell(handler=streaming(write), limits=Limits(watches=1))
    first = asyncio.create_task(shell.get(f"{BASE}/trainjobs?watch=1"))
    await running.wait()
    assert (await shell.get(f"{BASE}/trainjobs?watch=1")).status == 429
    end.set()
    await first
    assert (await shell.get(f"{BASE}/trainjobs?watch=1")).status == 200


# --- other protocols ------------------------------------------------------------------------------------


async def drive(
    shell: Shell, scope: dict[str, Any], incoming: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    waiting = list(incoming)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    await shell.api(scope, receive, send)
    assert waiting == []
    return sent


async def test_the_lifespan_starts_and_ends_in_order() -> None:
    sent = await drive(
        Shell(), {"type": "lifespan"}, [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    )
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_refused_cleanly() -> None:
    """W23."""
    scope = {**http_scope("GET", f"{BASE}/trainjobs?watch=1"), "type": "websocket"}
    connect = [{"type": "websocket.connect"}]
    assert [m["type"] for m in await drive(Shell(), scope, connect)] == ["websocket.close"]
    scope["extensions"] = {"websocket.http.response": {}}
    start, body = await drive(Shell(), scope, connect)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 400)
    assert b"HTTP" in body["body"]


# --- requests as handlers see them ----------------------------------------------------------------------


async def test_a_handler_sees_the_request_as_it_was_sent() -> None:
    shell = Shell()
    await shell.get(f"{ONE}?pretty=&a=1&a=2", ("Accept", "application/json"))
    (request,) = shell.requests
    assert (request.method, request.path, request.identity) == ("GET", ONE, JANE)
    assert request.query == (("pretty", ""), ("a", "1"), ("a", "2"))
    assert (request.parameter("a"), request.parameter("pretty"), request.parameter("b")) == ("1", "", None)
    assert request.header(b"accept") == "application/json"


async def test_long_request_lines_are_answered_like_short_ones() -> None:
    shell = Shell()
    name = "x" * 2000  # beyond what is kept between requests
    assert (await shell.get(f"{BASE}/namespaces/a/trainjobs/{name}")).status == 200
    assert shell.requests[0].attributes.name == name


async def test_a_request_line_without_measure_is_refused() -> None:
    answer = await Shell().get("/x?" + "a" * 100_000)
    assert (answer.status, json.loads(answer.body)["reason"]) == (400, "BadRequest")
