"""Authentication over real TLS, and identities that are only claimed; limits of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.certificates import DAY, SERVER, Authority, Certificate, client_context, now
from tests.service.tls_server import (
    DEADLINE_S,
    SERVING,
    Client,
    RunningServer,
    config_map,
    running_server,
    until,
)
from visibility_api.auth.authenticator import OWN_CERTIFICATE
from visibility_api.auth.errors import TrustUnusable
from visibility_api.serving.connection import (
    MAX_BODY_PIECES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_PATH_BYTES,
    MAX_PIPELINED,
    MAX_STRANGERS_HEAD_BYTES,
    MAX_STRANGERS_HEADERS,
    STRANGERS_PIECE_BYTES,
    TlsConnection,
)
from visibility_api.serving.connections import CONNECTION_BYTES, Connection, ConnectionLimits
from visibility_api.serving.tls import peer_of

CLIENTS, PROXIES, STRANGERS = Authority("kubernetes"), Authority("front-proxy"), Authority("kubernetes")
PROXY = PROXIES.issue("front-proxy-client")
FORGED = ("X-Remote-User: root", "X-Remote-Group: system:masters")
ANONYMOUS = "system:anonymous"
HEAD = b"GET /x HTTP/1.1\r\nHost: h\r\n"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running_server(tmp_path) as running:
        running.config.apply(config_map(client_ca_file=CLIENTS.pem, requestheader_client_ca_file=PROXIES.pem))
        yield running


async def ask(server: RunningServer, certificate: Certificate | None, *headers: str) -> dict[str, object]:
    async with server.connect(server.context(certificate) if certificate else None) as client:
        return await client.ask(*headers)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_front_proxy_authenticates_a_user(server: RunningServer, version: ssl.TLSVersion) -> None:
    """Name, groups and extra fields are the headers'; system:authenticated is added."""
    async with server.connect(server.context(PROXY, version=version)) as client:
        answer = await client.ask(
            "x-remote-user: jane",
            "X-Remote-Group: a,b",
            "X-REMOTE-GROUP: c",
            "X-Remote-Extra-Example.Org%2fScopes: x",
            "X-Remote-Uid: 7",
        )
    assert answer["user"] == "jane"
    assert answer["groups"] == ["a,b", "c", "system:authenticated"]
    assert answer["extra"] == {"example.org/scopes": ["x"]}
    assert answer["uid"] == ""  # no header is configured for it


async def test_forged_user_header_without_a_certificate_has_no_effect(server: RunningServer) -> None:
    """The request is anonymous."""
    answer = await ask(server, None, *FORGED)
    assert (answer["user"], answer["groups"]) == (ANONYMOUS, ["system:unauthenticated"])


async def test_front_proxys_name_from_the_client_ca_is_an_ordinary_user(server: RunningServer) -> None:
    """Whoever may request client certificates may request one with this name too."""
    answer = await ask(server, CLIENTS.issue("front-proxy-client", "team"), *FORGED)
    assert (answer["user"], answer["groups"]) == ("front-proxy-client", ["team", "system:authenticated"])


async def test_wrong_name_from_the_front_proxys_ca_is_refused(server: RunningServer) -> None:
    """Names are compared exactly, and case-sensitively."""
    for name in ("other", "Front-Proxy-Client", "front-proxy-client ", None):
        assert await ask(server, PROXIES.issue(name), *FORGED) == {
            "error": "Unauthenticated",
            "closes": False,
        }


@pytest.mark.parametrize(
    "certificate",
    [
        STRANGERS.issue("front-proxy-client"),
        PROXIES.issue("front-proxy-client", not_after=now() - DAY),
        PROXIES.issue("front-proxy-client", usages=[SERVER]),
    ],
    ids=["unknown CA", "expired", "for servers only"],
)
async def test_certificate_that_does_not_hold_fails_the_connection(
    server: RunningServer, certificate: Certificate
) -> None:
    """Python can refuse these only in the handshake (decision 0003); a Go server would answer 401."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask(server, certificate, *FORGED)
    assert server.seen == []


async def test_client_certificate_names_a_user_and_groups(server: RunningServer) -> None:
    """The common name and the organisations."""
    answer = await ask(server, CLIENTS.issue("jane", "dev", "ops"))
    assert (answer["user"], answer["groups"]) == ("jane", ["dev", "ops", "system:authenticated"])
    await ask(server, PROXY, "X-Remote-User: jane")
    assert [OWN_CERTIFICATE in scope["state"] for scope in server.seen] == [True, False]


async def test_intermediates_of_the_handshake_are_used(server: RunningServer) -> None:
    """With both TLS versions, by whatever this Python offers for it."""
    leaf = PROXIES.intermediate("region").intermediate("zone").issue("front-proxy-client")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        async with server.connect(server.context(leaf, version=version)) as client:
            assert (await client.ask("X-Remote-User: jane"))["user"] == "jane"


def test_a_python_without_access_to_the_chain_still_gives_the_certificate() -> None:
    class OldTls:
        def getpeercert(self, *, binary_form: bool) -> bytes:
            return PROXY.chain[0]

    assert peer_of(OldTls()).chain == PROXY.chain[:1]  # type: ignore[arg-type]  # a stand-in for SSLObject


async def test_every_request_of_a_connection_has_the_peer(server: RunningServer) -> None:
    """Kept alive and pipelined."""
    async with server.connect(server.context(PROXY)) as client:
        assert (await client.ask("X-Remote-User: a"))["user"] == "a"
        request = "GET /x HTTP/1.1\r\nHost: h\r\nX-Remote-User: {}\r\n\r\n"
        client.writer.write("".join(map(request.format, "bcde")).encode())
        assert [answer["user"] for answer in await client.answers(4)] == ["b", "c", "d", "e"]
        assert (await client.ask())["error"] == "Unauthenticated"  # A6: by itself it is nobody
    assert len({id(scope["state"]["peer"]) for scope in server.seen}) == 1


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
async def test_upgrade_nobody_serves_is_answered_and_ends_the_connection(
    server: RunningServer, protocol: str
) -> None:
    """The parser takes nothing more after it: a second request would wait for ever."""
    async with server.connect() as client:
        answer = await client.ask("Connection: Upgrade", f"Upgrade: {protocol}")
        assert (answer["user"], answer["closes"]) == (ANONYMOUS, True)
        assert await client.is_closed_by_server()


async def test_identity_headers_among_trailers_are_never_seen(server: RunningServer) -> None:
    """The aggregator forwards a client's trailers, and the parser reports them as headers."""
    async with server.connect(server.context(PROXY)) as client:
        client.writer.write(
            b"GET /x HTTP/1.1\r\nHost: h\r\nX-Remote-User: jane\r\nTransfer-Encoding: chunked\r\n"
            b"Trailer: X-Remote-Group\r\n\r\n1\r\nx\r\n0\r\nX-Remote-Group: system:masters\r\n\r\n"
        )
        (answer,) = await client.answers(1)
    assert answer["groups"] == ["system:authenticated"]
    assert b"system:masters" not in dict(server.seen[0]["headers"]).values()


async def test_rotated_ca_reaches_an_open_connection(server: RunningServer) -> None:
    """Certificates are verified for each request, by the CAs of that moment."""
    async with server.connect(server.context(PROXY)) as client:
        assert (await client.ask("X-Remote-User: jane"))["user"] == "jane"
        renewed = Authority("front-proxy")
        server.config.apply(config_map(client_ca_file=CLIENTS.pem, requestheader_client_ca_file=renewed.pem))
        assert (await client.ask("X-Remote-User: jane"))["error"] == "Unauthenticated"
    assert (await ask(server, renewed.issue("front-proxy-client"), "X-Remote-User: jane"))["user"] == "jane"
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask(server, PROXY, "X-Remote-User: jane")


async def test_connection_without_a_certificate_works_before_any_ca_is_known(tmp_path: Path) -> None:
    """And ends when the first CA comes: it was not asked, and could never be the front proxy's."""
    async with running_server(tmp_path) as server, server.connect(server.context(PROXY)) as early:
        assert (await early.ask("X-Remote-User: jane"))["user"] == ANONYMOUS
        server.config.apply(config_map(requestheader_client_ca_file=PROXIES.pem))
        assert await early.is_closed_by_server()
        assert (await ask(server, PROXY, "X-Remote-User: jane"))["user"] == "jane"


async def test_connection_that_is_ended_as_its_answer_is_ready_still_gets_that(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, server.connect() as early:
        server.then = lambda: server.config.apply(config_map(client_ca_file=CLIENTS.pem))
        assert (await early.ask())["user"] == ANONYMOUS
        assert await early.is_closed_by_server()


async def test_connections_without_a_certificate_outlive_later_rotations(server: RunningServer) -> None:
    async with server.connect() as client:
        await client.ask()
        server.config.apply(config_map(client_ca_file=STRANGERS.pem))
        assert (await client.ask())["user"] == ANONYMOUS


async def test_serving_certificate_is_read_again_when_its_files_change(server: RunningServer) -> None:
    """A pair that does not match leaves the old one in use."""
    assert server.tls.renew(server.files.read()) is False
    renewed = Authority("renewed")
    leaf = renewed.issue("server", usages=[], hosts=["127.0.0.1"])
    certificate_file, key_file = leaf.write(server.directory, "next")
    (server.directory / "server.crt").write_bytes(certificate_file.read_bytes())
    with pytest.raises(TrustUnusable, match=r"server\.crt"):
        server.files.read()
    assert (await ask(server, None))["user"] == ANONYMOUS
    (server.directory / "server.key").write_bytes(key_file.read_bytes())
    assert server.tls.renew(server.files.read()) is True
    async with server.connect(client_context(renewed.pem)) as client:
        assert (await client.ask())["user"] == ANONYMOUS
    with pytest.raises(ssl.SSLCertVerificationError):
        await ask(server, None)


async def test_changed_files_are_loaded_by_themselves(server: RunningServer) -> None:
    renewed = Authority("renewed")
    leaf = renewed.issue("server", usages=[], hosts=["127.0.0.1"])
    following = asyncio.ensure_future(server.files.follow(server.tls, interval_s=0.01))
    try:
        leaf.write(server.directory, "server")
        before = server.tls.context
        await until(lambda: server.tls.context is not before)
        async with server.connect(client_context(renewed.pem)) as client:
            assert (await client.ask())["user"] == ANONYMOUS
    finally:
        following.cancel()


async def test_only_http_1_1_is_negotiated_and_tls_1_1_is_refused(server: RunningServer) -> None:
    context = client_context(SERVING.pem)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with server.connect(context) as client:
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    assert server.tls.context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("first", ["AES128", "AES256"])
async def test_the_client_chooses_the_cipher(server: RunningServer, first: str) -> None:
    """In TLS 1.2, for Python cannot tell an order of TLS 1.3's suites."""
    context = client_context(SERVING.pem, version=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(f"ECDHE+{first}:ECDHE+AESGCM")
    async with server.connect(context) as client:
        name, _, _ = client.writer.get_extra_info("cipher")
        assert first in name


@pytest.mark.parametrize(
    ("certificate", "sent"),
    [
        (None, HEAD + b"a:\r\n" * (MAX_STRANGERS_HEADERS + 1)),
        (PROXY, HEAD + b"a:\r\n" * (MAX_HEADERS + 1)),
        (None, HEAD + b"A: " + b"b" * MAX_STRANGERS_HEAD_BYTES),
        (PROXY, HEAD + b"A: " + b"b" * MAX_HEAD_BYTES),
        (None, b"GET /" + b"%41" * MAX_PATH_BYTES + b" HTTP/1.1\r\nHost: h\r\n\r\n"),
        (None, b"GET /x HTTP/1.1\r\nHost h\r\n\r\n"),
    ],
    ids=["headers of a stranger", "headers", "bytes of a stranger", "bytes", "path", "no header"],
)
async def test_a_head_beyond_its_bounds_is_refused_before_it_is_complete(
    server: RunningServer, certificate: Certificate | None, sent: bytes
) -> None:
    async with server.connect(server.context(certificate) if certificate else None) as client:
        client.writer.write(sent)
        assert await client.reader.readexactly(12) == b"HTTP/1.1 400"
    assert server.seen == []


async def test_the_front_proxy_may_send_a_longer_head_than_a_client_that_is_not_known(
    server: RunningServer,
) -> None:
    for more in (["A: b"] * (MAX_STRANGERS_HEADERS + 1), ["A: " + "b" * MAX_STRANGERS_HEAD_BYTES]):
        assert (await ask(server, PROXY, "X-Remote-User: jane", *more))["user"] == "jane"


async def test_a_user_s_unfinished_heads_take_no_memory_without_bound(server: RunningServer) -> None:
    server.http.connections.limits = ConnectionLimits(head_bytes=100_000)
    jane = server.context(CLIENTS.issue("jane"))
    async with server.connect(jane) as one, server.connect(jane) as two:
        for each in (one, two):
            each.writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\nX-Big: " + b"a" * 110_000)
        reads = [asyncio.ensure_future(each.reader.read(12)) for each in (one, two)]
        done, pending = await asyncio.wait(reads, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result() for each in done] == [b"HTTP/1.1 400"]
        for read in pending:
            read.cancel()
        assert server.http.connections.head_bytes <= 100_000
    assert server.seen == []


async def test_headers_that_nothing_reads_are_not_kept(server: RunningServer) -> None:
    """Cookies, and what kube-apiserver adds."""
    async with server.connect() as client:
        await client.ask("COOKIE: session=s", "X-Forwarded-For: 10.0.0.7", "A: b", "X-Forwarded-Uri: /")
    assert [name for name, _ in server.seen[0]["headers"]] == [b"host", b"a"]


@pytest.mark.parametrize("certificate", [None, PROXY])
async def test_requests_sent_far_ahead_are_answered_up_to_a_bound(
    server: RunningServer, certificate: Certificate | None
) -> None:
    """One read of the socket holds thousands, and all that is known of each is kept until its turn."""
    async with server.connect(server.context(certificate) if certificate else None) as client:
        client.writer.write(
            b"GET /x HTTP/1.1\r\nHost: h\r\nX-Remote-User: jane\r\n\r\n" * (3 * MAX_PIPELINED)
        )
        answers = await client.answers(1 + MAX_PIPELINED)
        assert [answer["closes"] for answer in answers] == [False] * MAX_PIPELINED + [True]
        assert await client.is_closed_by_server()


@pytest.mark.parametrize(("chunks", "is_read"), [(MAX_BODY_PIECES, True), (MAX_BODY_PIECES + 1, False)])
async def test_a_body_in_very_many_chunks_is_not_taken_apart(
    server: RunningServer, chunks: int, is_read: bool
) -> None:
    """64 KiB in chunks of one byte cost thirteen times what they cost in one piece."""
    async with server.connect() as client:
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.writer.write(head + b"1\r\na\r\n" * chunks + b"0\r\n\r\n")
        status = await client.reader.readline()
        assert (status.split()[1] == b"200") is is_read
        if not is_read:
            await client.reader.read()  # the server closes


async def test_a_body_in_many_chunks_is_put_together_once(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that a part is added to a body, all of it is copied."""
    added = 0
    add = HttpToolsProtocol.on_body

    def counting(self: HttpToolsProtocol, body: bytes) -> None:
        nonlocal added
        added += 1
        add(self, body)

    monkeypatch.setattr(HttpToolsProtocol, "on_body", counting)
    async with server.connect() as client:
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.writer.write(head + b"1\r\na\r\n" * 1000 + b"0\r\n\r\n")
        assert (await client.reader.readline()).split()[1] == b"200"
    assert 1 <= added < 10


async def test_a_body_of_a_client_that_is_not_known_is_read_in_pieces(server: RunningServer) -> None:
    body = b"a" * (5 * STRANGERS_PIECE_BYTES)
    async with server.connect() as client:
        for _ in range(2):
            client.writer.write(
                b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
        answers = await client.answers(2)
        assert [answer["closes"] for answer in answers] == [False, False]


async def test_what_is_no_request_does_not_take_the_answer_of_the_one_before(server: RunningServer) -> None:
    async with server.connect() as client:
        client.writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\nno request\r\n\r\n")
        (answer,) = await client.answers(1)
        assert (answer.get("user"), answer["closes"]) == (ANONYMOUS, True)
        assert await client.is_closed_by_server()


async def test_a_body_that_cannot_be_read_is_refused(server: RunningServer) -> None:
    async with server.connect() as client:
        client.writer.write(b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n")
        assert await client.reader.readexactly(12) == b"HTTP/1.1 400"


async def test_endless_trailers_end_the_connection(server: RunningServer) -> None:
    async with server.connect() as client:
        client.writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await send_without_end(client, b"X-T: " + b"a" * 8192 + b"\r\n")


async def send_without_end(client: Client, line: bytes) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            client.writer.write(line)
            await client.writer.drain()
            await asyncio.sleep(0)  # or nobody here would notice the end


async def test_a_connection_that_never_completes_a_head_is_closed(
    server: RunningServer,
) -> None:
    async with server.connect() as slow, server.connect() as dribbling:
        for each in (slow, dribbling):
            await each.ask()
        server.http.connections.limits = ConnectionLimits(head_timeout_s=0.05)
        async with server.connect() as silent:
            assert await silent.is_closed_by_server()
        slow.writer.write(b"GET /x HT")
        assert await slow.is_closed_by_server()
        dribbling.writer.write(b"\r\n")  # no request begins with it, and it ends uvicorn's own timer
        assert await dribbling.is_closed_by_server()


async def test_connection_between_two_requests_has_more_time_than_one_within_a_head(
    server: RunningServer,
) -> None:
    """The aggregator keeps its idle connections for 90 s."""
    server.http.connections.limits = ConnectionLimits(head_timeout_s=0.05)

    async def talk(idle: Client) -> bool:
        """False when the machine stood still just within a head."""
        try:
            await idle.ask()
            idle.writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n")  # a head in two parts does not end that
            idle.writer.write(b"\r\n")
            await idle.answers(1)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        return True

    has_talked = False
    while not has_talked:
        async with server.connect() as idle:
            if has_talked := await talk(idle):
                async with server.connect() as silent:
                    assert await silent.is_closed_by_server()
                assert (await idle.ask())["user"] == ANONYMOUS


def test_all_of_it_holds_on_uvloop_too(tmp_path: Path) -> None:
    """The production loop has a TLS transport of its own."""

    async def scenario() -> None:
        async with running_server(tmp_path) as server, server.connect() as early:
            await early.ask()
            server.config.apply(
                config_map(client_ca_file=CLIENTS.pem, requestheader_client_ca_file=PROXIES.pem)
            )
            assert await early.is_closed_by_server()
            leaf = PROXIES.intermediate("region").issue("front-proxy-client")
            assert (await ask(server, leaf, "X-Remote-User: jane"))["user"] == "jane"
            assert (await ask(server, CLIENTS.issue("front-proxy-client"), *FORGED))["user"] != "root"
            assert (await ask(server, None, *FORGED))["user"] == ANONYMOUS

    uvloop.run(scenario())


async def test_connections_beyond_the_bound_are_ended_and_the_others_go_on(
    server: RunningServer,
) -> None:
    server.http.connections.limits = ConnectionLimits(connections=1, reserve=0)
    async with server.connect(server.context(PROXY)) as first:
        assert (await first.ask("X-Remote-User: jane"))["user"] == "jane"
        async with server.connect() as surplus:
            with contextlib.suppress(ConnectionError):
                assert await surplus.is_closed_by_server()
        assert (await first.ask("X-Remote-User: jane"))["user"] == "jane"


async def test_the_last_connections_are_answered_429_and_health_is_shown_on_them(
    server: RunningServer,
) -> None:
    server.http.connections.limits = ConnectionLimits(connections=4, reserve=2)
    proxy = server.context(PROXY)
    async with server.connect(proxy) as first, server.connect(proxy) as second:
        for each in (first, second):
            assert (await each.ask("X-Remote-User: jane"))["user"] == "jane"
            server.seen[-1]["state"]["peer"].is_front_proxy = True  # is not closed, being idle
        async with server.connect() as surplus:
            surplus.writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            head, _, body = (await surplus.reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        assert {b"retry-after: 1", b"connection: close"} <= set(head.split(b"\r\n"))
        status = json.loads(body)
        assert status["reason"] == "TooManyRequests"
        assert "too many connections" in status["message"]
        async with server.connect() as kubelet:
            kubelet.writer.write(b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await kubelet.reader.readline()).startswith(b"HTTP/1.1 200 ")


async def test_idle_connections_are_closed_when_all_take_too_much_memory(server: RunningServer) -> None:
    server.http.connections.limits = ConnectionLimits(kept_bytes=3 * CONNECTION_BYTES)
    jane = server.context(CLIENTS.issue("jane"))
    async with server.connect(jane) as first, server.connect(jane) as second, server.connect(jane) as third:
        for each in (second, first, third):
            await each.ask()
        async with server.connect(jane) as newcomer:
            assert await second.is_closed_by_server()
            assert await first.is_closed_by_server()
            assert (await newcomer.ask())["user"] == "jane"
            assert (await third.ask())["user"] == "jane"


async def test_a_large_head_is_kept_no_longer_than_its_request(server: RunningServer) -> None:
    async with server.connect(server.context(PROXY)) as client:
        answer = await client.ask("X-Remote-User: jane", *[f"X-{n}: {'x' * 9000}" for n in range(10)])
        assert answer["user"] == "jane"
        await until(lambda: not server.seen[-1]["headers"])
        assert (await client.ask("X-Remote-User: jane"))["user"] == "jane"
        assert server.seen[-1]["headers"]


def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    """Full collections are rare, and each would keep what it read until then."""

    async def scenario() -> None:
        async with running_server(tmp_path) as server:
            await ask(server, None)
            gc.collect()
            gc.disable()
            try:
                for _ in range(10):
                    async with server.connect() as client:
                        await client.ask("X-Long: " + "x" * 9000)
                        client.writer.write(b"GET /x HTTP/1.1\r\nX-Unfinished: 1\r\n")
                await until(lambda: not server.http.connections)
                await asyncio.sleep(0)
                kept = [each for each in gc.get_objects() if isinstance(each, TlsConnection)]
                assert len(kept) <= 1
            finally:
                gc.enable()

    uvloop.run(scenario())


async def test_a_large_head_of_a_user_is_read_in_turn(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a few hundred users who send such heads at one moment would have all others wait."""
    turns: list[object] = []
    read_in_turn = server.http.connections.read_in_turn

    def counted(connection: Connection) -> None:
        turns.append(connection)
        read_in_turn(connection)

    monkeypatch.setattr(server.http.connections, "read_in_turn", counted)
    long = f"X-Long: {'x' * 200_000}"
    async with server.connect(server.context(CLIENTS.issue("jane"))) as jane:
        assert (await jane.ask())["user"] == "jane"
        assert turns == []
        assert (await jane.ask(long))["user"] == "jane"
    assert turns
    async with server.connect(server.context(PROXY)) as proxy:
        await proxy.ask("X-Remote-User: joe")
        (peer,) = {id(each["state"]["peer"]): each["state"]["peer"] for each in server.seen[-1:]}.values()
        peer.is_front_proxy = True
        turns.clear()
        assert (await proxy.ask("X-Remote-User: joe", long))["user"] == "joe"
    assert turns == []


async def test_what_follows_a_refused_head_is_neither_read_nor_kept(server: RunningServer) -> None:
    server.http.connections.limits = ConnectionLimits(head_bytes=100_000)
    async with server.connect(server.context(CLIENTS.issue("jane"))) as client:
        client.writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\nX-Big: " + b"a" * 900_000)
        assert (await client.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400 ")
        await until(lambda: not server.http.connections.head_bytes)
        with contextlib.suppress(ConnectionError):
            await client.reader.read()
    await until(lambda: not server.http.connections)
    assert server.seen == []
