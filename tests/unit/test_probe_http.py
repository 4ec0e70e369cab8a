"""The http source against real servers: what it asks, whom it never asks, and what it makes of any answer."""

from __future__ import annotations

import asyncio
import socket
import zlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from visibility_api.probe.http_source import HttpSource
from visibility_api.probe.source import Answer, Patience
from visibility_api.progress.document import MAX_DOCUMENT_BYTES, Progress, Refused
from visibility_api.progress.job import Rank0

from .test_progress_tracker import RANK0, REF

PORT = 28080
ASKED = replace(RANK0, http_port=PORT)
DOCUMENT = b'{"step":3,"totalSteps":9,"timestamp":"2026-01-23T10:30:45Z"}'
SECRET = b"hunter2-do-not-echo"

Talk = Callable[[StreamReader, StreamWriter], Awaitable[None]]


class Pod:
    """A server of this test in a pod's place: whatever address is dialled, the connection ends here."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.dialled: list[tuple[str, int]] = []
        self.requests: list[bytes] = []

    async def connect(self, address: str, port: int) -> tuple[StreamReader, StreamWriter]:
        self.dialled.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, rank0: Rank0 = ASKED, *, timeout_s: float = 90.0) -> Answer:
        return await HttpSource(timeout_s=timeout_s, connect=self.connect).ask(REF, rank0)


@asynccontextmanager
async def pod_that(talks: Talk | bytes) -> AsyncIterator[Pod]:
    """`talks` after the request has been read, or sends these bytes and closes."""
    pod = Pod(0)

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            pod.requests.append(await reader.readuntil(b"\r\n\r\n"))
            if isinstance(talks, bytes):
                writer.write(talks)
                await writer.drain()
            else:
                await talks(reader, writer)
        except ConnectionError:
            pass  # whoever asked has seen enough
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pod.port = server.sockets[0].getsockname()[1]
    try:
        yield pod
    finally:
        server.close()
        await server.wait_closed()


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode() + body


def sized(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return http(body, f"Content-Length: {len(body)}", *headers, status=status)


def chunked(*chunks: bytes) -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return http(framed + b"0\r\n\r\n", "Transfer-Encoding: chunked")


def refused(answer: Answer) -> Refused:
    assert isinstance(answer.outcome, Refused), answer
    return answer.outcome


# What it asks for, and of whom


async def test_the_document_that_the_pod_serves_is_read() -> None:
    async with pod_that(sized(DOCUMENT)) as pod:
        answer = await pod.ask()
    assert isinstance(answer.outcome, Progress)
    assert (answer.outcome.step, answer.outcome.total_steps) == (3, 9)


async def test_the_request_goes_to_the_pods_own_address_and_carries_no_identity() -> None:
    async with pod_that(sized(DOCUMENT)) as pod:
        await pod.ask()
        await pod.ask(replace(ASKED, pod_ip="fd00::7", http_port=1))
    assert pod.dialled == [("10.0.0.7", PORT), ("fd00::7", 1)]
    first, second = (request.decode().split("\r\n") for request in pod.requests)
    assert first == [
        "GET /metrics HTTP/1.1",
        "Host: 10.0.0.7:28080",
        "User-Agent: trainjob-visibility",
        "Accept: application/json",
        "Accept-Encoding: identity",
        "Connection: close",
        "",
        "",
    ]
    assert second[1] == "Host: [fd00::7]:1"


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pod_that(sized(DOCUMENT)) as pod, pod_that(sized(DOCUMENT)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        answer = await pod.ask()
    assert isinstance(answer.outcome, Progress)
    assert proxy.requests == []


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
async def test_a_redirect_is_not_followed(status: str) -> None:
    async with pod_that(sized(DOCUMENT)) as elsewhere:
        location = f"Location: http://127.0.0.1:{elsewhere.port}/latest/meta-data"
        async with pod_that(sized(b"", location, "Refresh: 0; url=/", status=status)) as pod:
            answer = await pod.ask()
    assert refused(answer).reason == "HTTPStatus"
    assert status[:3] in refused(answer).message
    assert (len(pod.requests), elsewhere.requests) == (1, [])


async def test_a_pod_in_its_nodes_network_is_never_dialled() -> None:
    async with pod_that(sized(DOCUMENT)) as pod:
        answer = await pod.ask(replace(ASKED, host_network=True))
    assert (refused(answer).reason, answer.patience) == ("HostNetwork", Patience.RARELY)
    assert pod.dialled == []


ODD_ADDRESSES = (
    *(
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "224.0.0.1",
    ),
    *("ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.7", "::ffff:169.254.169.254", "fd00::7%1"),
    *(
        "localhost",
        "kubernetes.default.svc",
        "10.0.0.7:80",
        "10.0.0.7/8",
        "[fd00::7]",
        "user@10.0.0.7",
        "10.0.0",
    ),
    *(
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "10.0.0.7 ",
        "10.0.0.7\r\nX: y",
        "10.0.0.7#",
        "10.0.0.7\0",
    ),
    *("http://10.0.0.7", "../", "1" * 100_000),
)


@pytest.mark.parametrize("pod_ip", ODD_ADDRESSES, ids=lambda text: text[:24])
async def test_an_address_that_no_pod_has_is_never_dialled(pod_ip: str) -> None:
    async with pod_that(sized(DOCUMENT)) as pod:
        answer = await pod.ask(replace(ASKED, pod_ip=pod_ip))
    assert (refused(answer).reason, answer.patience) == ("PodIPRefused", Patience.RARELY)
    assert pod.dialled == []
    assert pod_ip not in refused(answer).message


async def test_our_own_host_is_not_asked_though_it_would_answer() -> None:
    """Without the stand-in for dialling: the real one must never get there."""
    async with pod_that(sized(DOCUMENT)) as pod:
        own = replace(ASKED, pod_ip="127.0.0.1", http_port=pod.port)
        answer = await HttpSource(timeout_s=5).ask(REF, own)
    assert refused(answer).reason == "PodIPRefused"
    assert pod.requests == []


@pytest.mark.parametrize(
    ("rank0", "reason"),
    [
        (replace(ASKED, http_port=None), "NoPort"),
        (replace(ASKED, pod_ip=None), "NoPodIP"),
        (replace(ASKED, pod_ip=""), "NoPodIP"),
    ],
)
async def test_what_is_not_known_is_not_guessed(rank0: Rank0, reason: str) -> None:
    async with pod_that(sized(DOCUMENT)) as pod:
        assert refused(await pod.ask(rank0)).reason == reason
    assert pod.dialled == []


@given(st.text(max_size=40) | st.ip_addresses().map(str))
def test_only_plain_addresses_outside_the_special_ranges_are_dialled(pod_ip: str) -> None:
    dialled: list[str] = []

    async def connect(address: str, port: int) -> tuple[StreamReader, StreamWriter]:
        dialled.append(address)
        raise ConnectionRefusedError

    source = HttpSource(timeout_s=5, connect=connect)
    answer = asyncio.run(source.ask(REF, replace(ASKED, pod_ip=pod_ip)))
    assert refused(answer).reason in ("NoPodIP", "PodIPRefused", "NothingListens")
    assert dialled in ([], [pod_ip])
    assert not any(d.startswith(("127.", "169.254.", "fe80:", "ff", "::ffff:")) for d in dialled)


# What it makes of answers


@pytest.mark.parametrize(
    "raw",
    [
        sized(DOCUMENT),
        http(DOCUMENT),  # ends with the connection, as Open Data Hub's handlers do
        http(DOCUMENT).replace(b"HTTP/1.1", b"HTTP/1.0"),
        chunked(DOCUMENT[:7], DOCUMENT[7:]),
        chunked(*(DOCUMENT[i : i + 1] for i in range(len(DOCUMENT)))),
        http(b"", status="100 Continue") + http(b"", status="103 Early Hints") + sized(DOCUMENT),
        http(b"", "Content-Encoding: gzip", status="103 Early Hints") + sized(DOCUMENT),
        sized(DOCUMENT) + b"HTTP/1.1 200 OK\r\n\r\nmore than was asked for",
        sized(DOCUMENT) + b"no HTTP",
        sized(DOCUMENT, "Content-Encoding: identity"),
        sized(DOCUMENT, "Set-Cookie: a=b", "WWW-Authenticate: Basic", "Content-Type: text/html"),
    ],
)  # fmt: skip
async def test_every_way_to_frame_an_answer_is_understood(raw: bytes) -> None:
    async with pod_that(raw) as pod:
        answer = await pod.ask()
    assert isinstance(answer.outcome, Progress), answer
    assert answer.outcome.step == 3


@pytest.mark.parametrize(
    ("raw", "reason", "patience"),
    [
        (b"", "AnswerCutShort", Patience.LATER),
        (b"HTTP/1.1 200 OK\r\n", "AnswerCutShort", Patience.LATER),
        (http(DOCUMENT, "Content-Length: 1000"), "AnswerCutShort", Patience.LATER),
        (chunked(DOCUMENT)[:-5], "AnswerCutShort", Patience.LATER),
        (b"SSH-2.0-OpenSSH_9.9\r\n" + SECRET, "NotHTTP", Patience.RARELY),
        (bytes.fromhex("15030300020246"), "NotHTTP", Patience.RARELY),  # a TLS alert
        (b"HTTP/1.1 abc OK\r\n\r\n" + DOCUMENT, "NotHTTP", Patience.RARELY),
        (http(DOCUMENT, "Transfer-Encoding: chunked"), "NotHTTP", Patience.RARELY),
        (http(b"", "Content-Length: 99999999999999999999"), "NotHTTP", Patience.RARELY),
        (http(b"", "Upgrade: x", "Connection: upgrade", status="101 Switching"), "NotHTTP", Patience.RARELY),
        (http(b"", "X: " + "h" * 200_000), "NotHTTP", Patience.RARELY),
        (http(b"", *(f"X-{i}: h" for i in range(20_000))), "NotHTTP", Patience.RARELY),
        (http(b"", status="100 Continue") * 20_000, "NotHTTP", Patience.RARELY),
        (chunked(DOCUMENT).replace(b"0\r\n\r\n", b"5" + b";x" * 200_000), "NotHTTP", Patience.RARELY),
        (sized(SECRET, status="404 " + SECRET.decode()), "HTTPStatus", Patience.LATER),
        (sized(SECRET, status="500 Internal Server Error"), "HTTPStatus", Patience.LATER),
        (sized(b"", status="204 No Content"), "HTTPStatus", Patience.LATER),
        (sized(DOCUMENT, status="206 Partial Content"), "HTTPStatus", Patience.LATER),
        (sized(b"nothing reported yet", status="503 Unavailable"), "NoProgressYet", Patience.LATER),
        (sized(zlib.compress(DOCUMENT), "Content-Encoding: deflate"), "AnswerCompressed", Patience.RARELY),
        (sized(DOCUMENT, "Content-Encoding: GZIP"), "AnswerCompressed", Patience.RARELY),
        (sized(DOCUMENT, "Content-Encoding: identity, br"), "AnswerCompressed", Patience.RARELY),
        (sized(b" " * (MAX_DOCUMENT_BYTES + 1)), "TooLarge", Patience.RARELY),
        (http(b" " * (MAX_DOCUMENT_BYTES + 1)), "TooLarge", Patience.RARELY),
        (sized(b""), "Empty", Patience.LATER),
        (sized(SECRET), "NotJSON", Patience.LATER),
        (sized(b'# TYPE loss gauge\nloss{job="' + SECRET + b'"} 1\n'), "NotJSON", Patience.LATER),
        (sized(b'{"' + SECRET + b'":1}'), "MissingField", Patience.LATER),
    ],
)  # fmt: skip
async def test_every_other_answer_is_refused_in_our_own_words(
    raw: bytes, reason: str, patience: Patience
) -> None:
    async with pod_that(raw) as pod:
        answer = await pod.ask()
    assert (refused(answer).reason, answer.patience) == (reason, patience)
    assert SECRET.decode() not in repr(answer)
    assert len(refused(answer).message) < 200


async def test_a_body_of_the_most_bytes_allowed_is_taken() -> None:
    async with pod_that(sized(DOCUMENT.ljust(MAX_DOCUMENT_BYTES))) as pod:
        assert isinstance((await pod.ask()).outcome, Progress)


async def test_nothing_that_listens_is_told_apart_from_no_answer() -> None:
    with socket.socket() as taken:  # nobody else can
        taken.bind(("127.0.0.1", 0))
        answer = await Pod(taken.getsockname()[1]).ask()
    assert (refused(answer).reason, answer.patience) == ("NothingListens", Patience.LATER)


async def test_an_endless_answer_is_left_when_it_is_too_large() -> None:
    sent = 0

    async def flood(_: StreamReader, writer: StreamWriter) -> None:
        nonlocal sent
        writer.write(http(b""))
        while True:
            writer.write(b" " * 65536)
            await writer.drain()
            sent += 65536

    async with pod_that(flood) as pod:
        answer = await pod.ask()
    assert refused(answer).reason == "TooLarge"
    assert sent < 64 * 1024 * 1024  # what the kernel's buffers hold, not what a flood could send in its time


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\n", http(b"{")])
async def test_an_answer_that_drips_or_never_comes_ends_at_the_deadline(begin: bytes) -> None:
    left = asyncio.Event()

    async def drip(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(begin)
        while not writer.transport.is_closing():
            writer.write(b" " if begin.endswith(b"{") else b"X: y\r\n" if begin else b"")
            if reader.at_eof():
                break
            await asyncio.wait({asyncio.ensure_future(reader.read(1))}, timeout=0.02)
        left.set()

    async with pod_that(drip) as pod:
        answer = await pod.ask(timeout_s=0.3)  # or for ever
        assert refused(answer).reason == "ProbeTimeout"
        assert "NetworkPolicy" in refused(answer).message
        async with asyncio.timeout(90):
            await left.wait()  # the connection does not outlive the look


async def test_a_connection_that_breaks_is_no_error_of_ours() -> None:
    async def reset(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b"{", "Content-Length: 100"))
        await writer.drain()
        writer.transport.abort()

    async with pod_that(reset) as pod:
        assert refused(await pod.ask()).reason == "AnswerCutShort"


async def test_an_address_without_a_route_is_told_with_what_may_be_the_cause() -> None:
    async def connect(_: str, __: int) -> tuple[StreamReader, StreamWriter]:
        raise OSError(113, f"no route to {SECRET.decode()}")

    answer = await HttpSource(timeout_s=5, connect=connect).ask(REF, ASKED)
    assert (refused(answer).reason, answer.patience) == ("NoRouteToPod", Patience.SOON)
    assert SECRET.decode() not in repr(answer)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", http(b"")]))
def test_any_bytes_become_an_answer(tail: bytes, head: bytes) -> None:
    async def ask() -> Answer:
        async with pod_that(head + tail) as pod:
            return await pod.ask()

    assert isinstance(asyncio.run(ask()).outcome, (Progress, Refused))
