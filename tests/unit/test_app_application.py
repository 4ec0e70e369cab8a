"""What every answer carries, and when the answer is "not now": R1, R3, R10, R15, R17, P11, W24."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.asgi import Answer
from tests.unit.api_shell import BASE, JANE, ONE, Shell
from tests.unit.virtual_time import in_virtual_time
from visibility_api.app import Limits
from visibility_api.auth.authenticator import OWN_CERTIFICATE
from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.errors import AccessDenied, Unauthenticated
from visibility_api.auth.identity import ANONYMOUS, Attributes, Identity
from visibility_api.errors.status import TooManyRequests
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse, ResourceStream

ADMIN = Identity(user="admin", groups=("system:masters",))


def denial() -> AccessDenied:
    return AccessDenied(JANE, Attributes(verb="get", path="/x"))


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

    async def handler(_: ResourceRequest) -> ResourceResponse:
        return ResourceResponse(headers=((b"cache-control", b"public"), (b"etag", b'"1"')))

    answer = await Shell(handler=handler).get(ONE)
    assert (answer.header("cache-control"), answer.header("etag")) == ("public", '"1"')


@pytest.mark.parametrize("target", [ONE, f"{BASE}/nonsense"])
async def test_a_remark_of_authentication_is_a_warning(target: str) -> None:
    """A15, R16."""
    shell = Shell()
    shell.warning = b'299 - "extra space"'
    assert (await shell.get(target)).header("warning") == '299 - "extra space"'


async def test_the_unforeseen_is_a_500_without_its_cause() -> None:
    """R1: the cause is for the log, found by the Audit-Id."""

    async def handler(_: ResourceRequest) -> ResourceResponse:
        raise KeyError("a secret of the store")

    answer = await Shell(handler=handler).get(ONE)
    assert (answer.status, answer.json()["reason"]) == (500, "InternalError")
    assert "secret" not in answer.text


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

    async def handle(self, _: ResourceRequest) -> ResourceResponse:
        self.entered.release()
        await self.opened.wait()
        return ResourceResponse(body=b"{}")


async def fill(shell: Shell, gate: Gate, number: int, target: str = ONE) -> list[asyncio.Task[Answer]]:
    waiting = [asyncio.create_task(shell.get(target)) for _ in range(number)]
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


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_health_is_answered_without_authentication(path: str) -> None:
    """Or a token on it would cost a review, and a kubelet's probe could wait for one."""
    shell = Shell(identity=Unauthenticated("would be asked for"), verdict=denial())
    for target in (path, f"{path}?verbose"):
        answer = await shell.get(target, ("Authorization", "Bearer made-up"))
        assert (answer.status, answer.header("content-type")) == (200, "text/plain; charset=utf-8")
        assert answer.header("x-content-type-options") == "nosniff"
    assert (await shell.get(path)).text == "ok"
    assert shell.asked == []
    assert (await shell.get(f"{path}/ping")).status == 401


async def test_those_who_wait_to_be_identified_take_no_places() -> None:
    """However many there are."""
    gate, shell = asyncio.Event(), Shell(limits=Limits(in_flight=1))

    async def authenticate(scope: Any) -> Identity:
        if ("authorization", "Bearer made-up") in [(k.decode(), v.decode()) for k, v in scope["headers"]]:
            await gate.wait()
            raise Unauthenticated("not accepted")
        return JANE

    shell.authenticate = authenticate  # type: ignore[method-assign]
    crowd = [asyncio.create_task(shell.get(ONE, ("Authorization", "Bearer made-up"))) for _ in range(50)]
    await asyncio.sleep(0)
    assert (await shell.get(ONE)).status == 200
    gate.set()
    assert {answer.status for answer in await asyncio.gather(*crowd)} == {401}


async def test_one_user_cannot_take_the_places_of_others() -> None:
    gate = Gate()
    shell = Shell(handler=gate.handle, limits=Limits(in_flight=4, in_flight_of_user=2))
    waiting = await fill(shell, gate, 2)
    refused = await shell.get(ONE)
    assert (refused.status, refused.json()["reason"]) == (429, "TooManyRequests")
    assert "when one of them has ended" in refused.json()["message"]
    assert refused.header("retry-after") == "1"
    shell.identity = Identity(user="joe")
    waiting += await fill(shell, gate, 1)
    gate.opened.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


async def test_users_who_take_all_the_places_that_they_may_leave_some_for_others() -> None:
    """Four namespaces with a hundred requests each kept everyone else out."""
    gate = Gate()
    shell = Shell(handler=gate.handle, limits=Limits(in_flight=40, in_flight_of_user=10))
    crowd = []
    for number in range(5):
        shell.identity = Identity(user=f"system:serviceaccount:team-{number}:robot")
        crowd += [asyncio.create_task(shell.get(ONE)) for _ in range(10)]
        await asyncio.sleep(0.01)
    shell.identity = Identity(user="joe")
    mine = asyncio.create_task(shell.get(ONE))
    await asyncio.sleep(0.01)
    gate.opened.set()
    assert (await mine).status == 200
    assert Counter([answer.status for answer in await asyncio.gather(*crowd)]) == {200: 38, 429: 12}


@in_virtual_time
@pytest.mark.parametrize("waits_for", ["its share", "the handler", "its reader", "the reader of a page"])
async def test_when_all_places_are_taken_who_has_most_gives_one_up_that_waits(waits_for: str) -> None:
    """Twelve namespaces with some requests each that wait took all places, one after the other."""
    target = "/openapi/v2" if waits_for == "the reader of a page" else ONE

    async def handle(request: ResourceRequest) -> ResourceResponse:
        if waits_for == "the handler" and request.identity != JANE:
            await asyncio.Event().wait()
        return ResourceResponse(body=[b"x" * 100_000] * 10)

    async def read_nothing(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and "reader" in waits_for:
            await asyncio.Event().wait()

    shell, crowd = Shell(handler=handle, limits=Limits(in_flight=40, in_flight_of_user=10)), []
    for number in range(12):
        shell.identity = Identity(user=f"system:serviceaccount:team-{number}:robot")
        if waits_for == "its share":
            shell.chain._shares.charge(f"system:serviceaccount:team-{number}", 10.0)
        crowd += [asyncio.create_task(shell.get(target, before_send=read_nothing)) for _ in range(10)]
        await asyncio.sleep(0.001)
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 40
    shell.identity, before = JANE, sum(task.done() for task in crowd)
    assert [(await shell.get(ONE)).status for _ in range(3)] == [200] * 3
    assert before < sum(task.done() for task in crowd) <= before + 3
    assert {task.result().status for task in crowd if task.done()} <= {
        429,
        200 if "reader" in waits_for else 429,
    }
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


@in_virtual_time
async def test_a_refusal_that_is_held_back_takes_no_place() -> None:
    shell = Shell(verdict=TooManyRequests("too many reviews"), limits=Limits(in_flight=1))
    state = {PEER: Peer()}
    for _ in range(4):
        assert (await shell.get(ONE, state=state)).status == 429
    held_back = asyncio.create_task(shell.get(ONE, state=state))
    await asyncio.sleep(0.5)
    assert not held_back.done()
    shell.verdict = None
    assert (await shell.get(ONE)).status == 200
    assert (await held_back).status == 429


async def test_when_all_watches_are_taken_who_has_most_gives_one_up_for_who_has_none() -> None:
    """32 namespaces with all watches that each may have kept everyone else out."""
    ended = list[str]()

    async def watch(request: ResourceRequest) -> ResourceStream:
        async def write(_send: Any) -> None:
            is_over = asyncio.Event()
            request.opened(is_over.set)
            await is_over.wait()
            ended.append(request.client)

        return ResourceStream(write=write)

    shell, watching = Shell(handler=watch, limits=Limits(watches=8, watches_of_user=3)), []

    async def begin(user: str) -> asyncio.Task[Answer]:
        shell.identity = Identity(user=user)
        watching.append(asyncio.create_task(shell.get(f"{BASE}/trainjobs?watch=1")))
        await asyncio.sleep(0.01)
        return watching[-1]

    for user in "aaabbbcdefgh":
        assert not (await begin(user)).done()
    assert Counter(ended) == {"a": 2, "b": 2}
    refused = await (await begin("i"))  # each has one
    assert refused.status == 429
    assert len(ended) == 4
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)


async def test_of_lists_that_kube_apiserver_forwards_a_user_has_few_under_way() -> None:
    """Each keeps a seat of kube-apiserver's, whether it is read, waits for its share, or is written."""
    gate, listing = Gate(), f"{BASE}/trainjobs"
    shell = Shell(handler=gate.handle, limits=Limits(forwarded_lists_of_user=2))
    shell.is_forwarded = True
    waiting = await fill(shell, gate, 2, listing)
    assert (await shell.get(listing)).status == 429
    waiting += await fill(shell, gate, 3, ONE)
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 5
    shell.identity = Identity(user="joe")
    waiting += await fill(shell, gate, 2, listing)
    shell.is_forwarded = False
    waiting += await fill(shell, gate, 5, listing)
    gate.opened.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@in_virtual_time
@pytest.mark.parametrize("is_forwarded", [False, True])
async def test_requests_over_a_share_that_kube_apiserver_forwards_do_not_wait_in_crowds(
    is_forwarded: bool,
) -> None:
    async def keep_the_loop(_request: ResourceRequest) -> ResourceResponse:
        time.sleep(0.01)  # noqa: ASYNC251 - what it is about
        return ResourceResponse(body=b"{}\n")

    shell = Shell(handler=keep_the_loop, limits=Limits(share_of_user=0.1, burst_of_user_s=0.005))
    shell.is_forwarded = is_forwarded
    assert (await shell.get(ONE)).status == 200
    statuses = Counter(
        [answer.status for answer in await asyncio.gather(*[shell.get(ONE) for _ in range(20)])]
    )
    assert statuses[429] == (12 if is_forwarded else 0)  # eight wait
    assert statuses[200] == 20 - statuses[429]


@in_virtual_time
async def test_whose_requests_take_more_than_a_share_of_the_loop_waits_and_others_do_not() -> None:
    """The service accounts of a namespace have one share: whoever rules it makes as many as it likes."""
    clock = asyncio.get_running_loop().time

    async def keep_the_loop(_request: ResourceRequest) -> ResourceResponse:
        time.sleep(0.01)  # noqa: ASYNC251 - what it is about
        return ResourceResponse(body=b"{}\n")

    shell = Shell(handler=keep_the_loop, limits=Limits(share_of_user=0.1, burst_of_user_s=0.005))
    identities = [Identity(user=f"system:serviceaccount:team-a:account-{number}") for number in range(5)]
    took = list[float]()
    for identity in identities:
        shell.identity, began = identity, clock()
        assert (await shell.get(ONE)).status == 200
        took.append(clock() - began)
    assert took[0] == 0
    assert min(took[1:]) > 0.05
    for identity in (Identity(user="system:serviceaccount:team-b:account-0"), Identity(user="joe"), ADMIN):
        shell.identity, began = identity, clock()
        assert (await shell.get(ONE)).status == 200
        assert clock() == began
    began = clock()
    assert (await shell.get(ONE)).status == 200  # system:masters have no such limit
    assert clock() == began


async def test_direct_callers_forwarded_ones_and_masters_have_places_of_their_own() -> None:
    gate = Gate()
    shell = Shell(handler=gate.handle, limits=Limits(in_flight=1))
    waiting = await fill(shell, gate, 1)
    assert (await shell.get(ONE)).status == 429
    shell.is_forwarded = True
    waiting += await fill(shell, gate, 1)
    assert (await shell.get(ONE)).status == 429
    shell.identity = ADMIN
    waiting += await fill(shell, gate, 1)
    assert (await shell.get(ONE)).status == 429
    gate.opened.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


@in_virtual_time
async def test_a_connection_that_tries_credentials_without_end_is_answered_ever_more_slowly() -> None:
    loop = asyncio.get_running_loop()
    shell = Shell(identity=Unauthenticated("not accepted"))
    limits = Limits()

    async def took_s(peer: Peer) -> float:
        began = loop.time()
        await shell.get(ONE, state={PEER: peer})
        return loop.time() - began

    stranger = Peer()
    took = [await took_s(stranger) for _ in range(int(limits.unknown_burst) + 2)]
    assert took == pytest.approx([0.0] * int(limits.unknown_burst) + [1 / limits.unknown_per_s] * 2)
    assert await took_s(Peer()) == 0.0  # another connection
    proxy = Peer(chain=(b"certificate",))
    assert [await took_s(proxy) for _ in range(30)] == [0.0] * 30  # its connections are shared by users
    shell.identity = JANE
    assert not stranger.is_known
    assert await took_s(stranger) == 0.0
    assert stranger.is_known


@in_virtual_time
@pytest.mark.parametrize("identity", [JANE, ANONYMOUS], ids=["user", "nobody"])
@pytest.mark.parametrize("refusal", ["places", "review", ""])
async def test_whoever_has_a_user_name_is_known_whether_or_not_the_request_is_refused(
    identity: Identity, refusal: str
) -> None:
    """A user's connection is kept then: else each that is over a limit would need another handshake."""
    shell = Shell(identity=identity, limits=Limits(in_flight=0) if refusal == "places" else Limits())
    if refusal == "review":
        shell.verdict = denial()
    peer = Peer()
    answer = await shell.get(ONE, state={PEER: peer})
    assert answer.status == {"places": 429, "review": 403, "": 200}[refusal]
    assert peer.is_known is (identity is JANE)


async def test_refused_and_failed_requests_leave_nothing_in_flight() -> None:
    async def handler(_: ResourceRequest) -> ResourceResponse:
        raise KeyError

    shell = Shell(handler=handler)
    for target in (ONE, f"{BASE}/nonsense", "/x?" + "&".join(["a"] * 1000)):
        await shell.get(target)
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


async def test_a_request_that_takes_too_long_is_a_504_and_its_work_is_cancelled() -> None:
    """R17."""
    cancelled = asyncio.Event()

    async def handler(_: ResourceRequest) -> ResourceResponse:
        await asyncio.sleep(0)  # more than one suspension
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    answer = await Shell(handler=handler).get(f"{ONE}?timeout=10ms")
    assert (answer.status, answer.json()["reason"]) == (504, "Timeout")
    assert answer.json()["message"] == "Timeout: request did not complete within the allotted timeout"
    assert cancelled.is_set()


@pytest.mark.parametrize("path", [ONE, BASE, "/livez/ping"])
async def test_a_broken_timeout_is_reported_after_authorisation(path: str) -> None:
    """R17, Z2."""
    shell = Shell()
    answer = await shell.get(f"{path}?timeout=5")
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")
    assert answer.json()["message"] == (
        'invalid timeout specified in the request URL: "5" is not a duration such as 30s'
    )
    shell.verdict = denial()
    assert (await shell.get(f"{path}?timeout=5")).status == 403


async def test_a_reader_that_stops_in_the_middle_of_a_list_is_left_soon() -> None:
    """It would keep a place, and one of kube-apiserver's, for as long as a whole list may take."""

    async def parts(_request: ResourceRequest) -> ResourceResponse:
        return ResourceResponse(body=[b"x" * 100_000] * 10)

    async def read_two(message: dict[str, Any]) -> None:
        sent.append(message)
        if len(sent) > 3:
            await asyncio.Event().wait()

    sent: list[dict[str, Any]] = []
    shell = Shell(handler=parts, limits=Limits(send_timeout_s=3600, chunk_timeout_s=0.01))
    answer = await shell.get(ONE, before_send=read_two)
    assert not answer.is_complete
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


@in_virtual_time
@pytest.mark.parametrize(("number", "longest_s"), [(1, 10.0), (4, 10.0), (20, 2.0), (60, 1.0)])
async def test_the_more_lists_a_client_leaves_unread_the_sooner_they_are_left(
    number: int, longest_s: float
) -> None:
    """Each keeps one of kube-apiserver's seats for this API, and there are some twenty."""

    async def parts(_request: ResourceRequest) -> ResourceResponse:
        return ResourceResponse(body=[b"x" * 100_000] * 10)

    async def read_nothing(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def left_after_s() -> float:
        assert not (await shell.get(ONE, before_send=read_nothing)).is_complete
        return asyncio.get_running_loop().time() - began

    shell, began = Shell(handler=parts), asyncio.get_running_loop().time()
    took = await asyncio.gather(*[left_after_s() for _ in range(number)])
    assert took[-1] == pytest.approx(longest_s)


async def test_a_reader_too_slow_for_its_answer_is_left() -> None:
    """R17: nothing holds its place for ever; the server below closes the connection."""

    async def never(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    shell = Shell(limits=Limits(send_timeout_s=0.01))
    answer = await shell.get(ONE, before_send=never)
    assert not answer.is_complete
    assert shell.sample("apiserver_current_inflight_requests", request_kind="readOnly") == 0


WORDS = st.sampled_from(
    ["apis", "visibility.trainer.kubeflow.org", "v1alpha1", "namespaces", "trainjobs", "progress", "watch",
     "a", "", "..", "%2f", "%00", "livez", "openapi", "v2", "v3", "healthz", "metrics", "\u00e9"]
)  # fmt: skip
PARAMETERS = st.sampled_from(
    ["watch=1", "watch", "timeout=1s", "timeout=x", "pretty=1", "verbose", "exclude=a", "hash=a", "%zz",
     "&&", "=", "fieldSelector=metadata.name=a", "fieldSelector=%00", "labelSelector=a in (b",
     "labelSelector=a=b,!c"]
)  # fmt: skip
HEADERS = st.tuples(
    st.sampled_from(
        ["Accept", "Accept-Encoding", "Audit-ID", "If-None-Match", "User-Agent", "X-Remote-User"]
    ),
    st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=30)
    | st.sampled_from(
        ["application/yaml", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io", "gzip"]
    ),
)


@given(
    st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "PATCH", "X"]),
    st.lists(WORDS, max_size=9),
    st.lists(PARAMETERS, max_size=4),
    st.lists(HEADERS, max_size=4),
)
async def test_any_request_gets_one_whole_answer_and_never_a_500(
    method: str, words: list[str], parameters: list[str], headers: list[tuple[str, str]]
) -> None:
    """R1, R15: a refusal under our group is a Status whose code is the answer's."""
    target = "/" + "/".join(words) + ("?" + "&".join(parameters) if parameters else "")
    answer = await Shell().get(target, *headers, method=method)
    assert answer.is_complete
    assert answer.status in (200, 304, 400, 404, 405, 406)
    assert answer.header("audit-id")
    assert answer.header("content-type")
    if answer.status >= 400 and answer.header("content-type") == "application/json":
        body = answer.json()
        assert (body["kind"], body["code"], body["status"]) == ("Status", answer.status, "Failure")


@in_virtual_time
@pytest.mark.parametrize("chain", [(), (b"certificate",)], ids=["token", "certificate"])
async def test_who_goes_on_over_a_limit_is_answered_ever_more_slowly(chain: tuple[bytes, ...]) -> None:
    """As slowly as Retry-After asks for; and only on that connection."""
    loop, limits = asyncio.get_running_loop(), Limits()
    shell = Shell(verdict=TooManyRequests("too many reviews"))
    peer, tries = Peer(chain=chain), int(limits.unknown_burst) + 2

    async def status() -> int:
        return (await shell.get(ONE, state={PEER: peer, **({OWN_CERTIFICATE: True} if chain else {})})).status

    began = loop.time()
    for _ in range(tries):
        assert await status() == 429
    assert loop.time() - began == pytest.approx(2 / limits.unknown_per_s)
    shell.verdict = None
    began = loop.time()
    assert await status() == 200
    assert loop.time() == began
