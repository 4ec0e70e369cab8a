"""The http source against real servers: what it sends, whom it never probes, how it reads any response."""

from __future__ import annotations

import asyncio
import socket
import zlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from tests.jobs import RANK0, REF
from visibility_api.jobs.job import Rank0
from visibility_api.probing.http_source import HttpSource
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass
from visibility_api.reports.fields import MAX_DOCUMENT_BYTES

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

    async def ask(self, rank0: Rank0 = ASKED, *, timeout_s: float = 90.0) -> Outcome:
        return await HttpSource(timeout_s=timeout_s, connect=self.connect).probe(REF, rank0)


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


def refused(outcome: Outcome) -> Refused:
    assert isinstance(outcome, Refused), outcome
    return outcome


# What it asks for, and of whom


async def test_the_document_that_the_pod_serves_is_read() -> None:
    async with pod_that(sized(DOCUMENT)) as pod:
        outcome = await pod.ask()
    assert isinstance(outcome, Progress)
    assert (outcome.step, outcome.total_steps) == (3, 9)


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (DOCUMENT, True),
        (b'{"currentStep":3,"totalSteps":9}', True),
        (b'{"timestamp":"2026-01-23T10:30:45Z","message":"%b"}' % SECRET, False),
        (b"3/9", False),
    ],
)
async def test_at_a_port_that_an_annotation_names_other_programs_json_is_no_report(
    body: bytes, is_read: bool
) -> None:
    annotated = (("http", "annotation visibility.trainer.kubeflow.org/port"),)
    async with pod_that(sized(body)) as pod:
        outcome = await pod.ask(replace(ASKED, declared=annotated))
    assert isinstance(outcome, Progress) is is_read
    assert SECRET.decode() not in repr(outcome)


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


async def test_no_proxy_of_the_environment_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pod_that(sized(DOCUMENT)) as pod, pod_that(sized(DOCUMENT)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        outcome = await pod.ask()
    assert isinstance(outcome, Progress)
    assert proxy.requests == []


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
async def test_a_redirect_is_not_followed(status: str) -> None:
    async with pod_that(sized(DOCUMENT)) as elsewhere:
        location = f"Location: http://127.0.0.1:{elsewhere.port}/latest/meta-data"
        async with pod_that(sized(b"", location, "Refresh: 0; url=/", status=status)) as pod:
            outcome = await pod.ask()
    assert refused(outcome).reason == "HTTPStatus"
    assert status[:3] in refused(outcome).message
    assert (len(pod.requests), elsewhere.requests) == (1, [])


async def test_a_pod_in_its_nodes_network_is_never_dialled() -> None:
    async with pod_that(sized(DOCUMENT)) as pod:
        outcome = await pod.ask(replace(ASKED, host_network=True))
    assert (refused(outcome).reason, refused(outcome).retry) == ("HostNetwork", RetryClass.RARELY)
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
    # What leads to an IPv4 address inside: NAT64, 6to4, Teredo, and the older forms.
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1"),
    *("::127.0.0.1", "::ffff:0:127.0.0.1", "fec0::7", "100::7", "5f00::7"),
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
        outcome = await pod.ask(replace(ASKED, pod_ip=pod_ip))
    assert (refused(outcome).reason, refused(outcome).retry) == ("PodIPRefused", RetryClass.RARELY)
    assert pod.dialled == []
    assert pod_ip not in refused(outcome).message


async def test_our_own_host_is_not_probed_though_it_would_answer() -> None:
    """Without the stand-in for dialling: the real one must never get there."""
    async with pod_that(sized(DOCUMENT)) as pod:
        own = replace(ASKED, pod_ip="127.0.0.1", http_port=pod.port)
        outcome = await HttpSource(timeout_s=5).probe(REF, own)
    assert refused(outcome).reason == "PodIPRefused"
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
    outcome = asyncio.run(source.probe(REF, replace(ASKED, pod_ip=pod_ip)))
    assert refused(outcome).reason in ("NoPodIP", "PodIPRefused", "NothingListens")
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
        outcome = await pod.ask()
    assert isinstance(outcome, Progress), outcome
    assert outcome.step == 3


@pytest.mark.parametrize(
    ("raw", "reason", "retry"),
    [
        (b"", "AnswerCutShort", RetryClass.LATER),
        (b"HTTP/1.1 200 OK\r\n", "AnswerCutShort", RetryClass.LATER),
        (http(DOCUMENT, "Content-Length: 1000"), "AnswerCutShort", RetryClass.LATER),
        (chunked(DOCUMENT)[:-5], "AnswerCutShort", RetryClass.LATER),
        (b"SSH-2.0-OpenSSH_9.9\r\n" + SECRET, "NotHTTP", RetryClass.RARELY),
        (bytes.fromhex("15030300020246"), "NotHTTP", RetryClass.RARELY),  # a TLS alert
        (b"HTTP/1.1 abc OK\r\n\r\n" + DOCUMENT, "NotHTTP", RetryClass.RARELY),
        (http(DOCUMENT, "Transfer-Encoding: chunked"), "NotHTTP", RetryClass.RARELY),
        (http(b"", "Content-Length: 99999999999999999999"), "NotHTTP", RetryClass.RARELY),
        (http(b"", "Upgrade: x", "Connection: upgrade", status="101 Other"), "NotHTTP", RetryClass.RARELY),
        (http(b"", "X: " + "h" * 200_000), "NotHTTP", RetryClass.RARELY),
        (http(b"", *(f"X-{i}: h" for i in range(20_000))), "NotHTTP", RetryClass.RARELY),
        (http(b"", status="100 Continue") * 20_000, "NotHTTP", RetryClass.RARELY),
        (chunked(DOCUMENT).replace(b"0\r\n\r\n", b"5" + b";x" * 200_000), "NotHTTP", RetryClass.RARELY),
        (sized(SECRET, status="404 " + SECRET.decode()), "HTTPStatus", RetryClass.LATER),
        (sized(SECRET, status="500 Internal Server Error"), "HTTPStatus", RetryClass.LATER),
        (sized(b"", status="204 No Content"), "HTTPStatus", RetryClass.LATER),
        (sized(DOCUMENT, status="206 Partial Content"), "HTTPStatus", RetryClass.LATER),
        (sized(b"nothing reported yet", status="503 Unavailable"), "NoProgressYet", RetryClass.LATER),
        (sized(zlib.compress(DOCUMENT), "Content-Encoding: deflate"), "AnswerCompressed", RetryClass.RARELY),
        (sized(DOCUMENT, "Content-Encoding: GZIP"), "AnswerCompressed", RetryClass.RARELY),
        (sized(DOCUMENT, "Content-Encoding: identity, br"), "AnswerCompressed", RetryClass.RARELY),
        (sized(b" " * (MAX_DOCUMENT_BYTES + 1)), "TooLarge", RetryClass.RARELY),
        (http(b" " * (MAX_DOCUMENT_BYTES + 1)), "TooLarge", RetryClass.RARELY),
        (sized(b""), "Empty", RetryClass.LATER),
        (sized(SECRET), "NotJSON", RetryClass.LATER),
        (sized(b'# TYPE loss gauge\nloss{job="' + SECRET + b'"} 1\n'), "NotJSON", RetryClass.LATER),
        (sized(b'{"' + SECRET + b'":1}'), "MissingField", RetryClass.LATER),
    ],
)  # fmt: skip
async def test_every_other_response_is_refused_without_quoting_it(
    raw: bytes, reason: str, retry: RetryClass
) -> None:
    async with pod_that(raw) as pod:
        outcome = await pod.ask()
    assert (refused(outcome).reason, refused(outcome).retry) == (reason, retry)
    assert SECRET.decode() not in repr(outcome)
    assert len(refused(outcome).message) < 200


async def test_a_body_of_the_most_bytes_allowed_is_taken() -> None:
    async with pod_that(sized(DOCUMENT.ljust(MAX_DOCUMENT_BYTES))) as pod:
        assert isinstance(await pod.ask(), Progress)


async def test_a_closed_port_differs_from_one_that_does_not_answer() -> None:
    with socket.socket() as taken:  # nobody else can
        taken.bind(("127.0.0.1", 0))
        outcome = await Pod(taken.getsockname()[1]).ask()
    assert (refused(outcome).reason, refused(outcome).retry) == ("NothingListens", RetryClass.LATER)


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
        outcome = await pod.ask()
    assert refused(outcome).reason == "TooLarge"
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
        outcome = await pod.ask(timeout_s=0.3)  # or for ever
        assert refused(outcome).reason == "ProbeTimeout"
        assert "NetworkPolicy" in refused(outcome).message
        async with asyncio.timeout(90):
            await left.wait()  # the connection does not outlive the look


async def test_a_connection_that_breaks_is_not_an_error_of_this_server() -> None:
    async def reset(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b"{", "Content-Length: 100"))
        await writer.drain()
        writer.transport.abort()

    async with pod_that(reset) as pod:
        assert refused(await pod.ask()).reason == "AnswerCutShort"


async def test_an_address_without_a_route_is_reported_with_its_likely_cause() -> None:
    async def connect(_: str, __: int) -> tuple[StreamReader, StreamWriter]:
        raise OSError(113, f"no route to {SECRET.decode()}")

    outcome = await HttpSource(timeout_s=5, connect=connect).probe(REF, ASKED)
    assert (refused(outcome).reason, refused(outcome).retry) == ("NoRouteToPod", RetryClass.SOON)
    assert SECRET.decode() not in repr(outcome)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", http(b"")]))
def test_any_bytes_become_an_answer(tail: bytes, head: bytes) -> None:
    async def ask() -> Outcome:
        async with pod_that(head + tail) as pod:
            return await pod.ask()

    assert isinstance(asyncio.run(ask()), (Progress, Refused))
