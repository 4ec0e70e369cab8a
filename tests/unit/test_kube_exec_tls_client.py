"""TLS without a network: bytes of a real server that are cut anywhere, incomplete, or made up."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from kubernetes_asyncio.client import Configuration

from tests.certificates import SERVER, Authority
from visibility_api.kube.exec.tls_client import TlsClient
from visibility_api.kube.tls import ResumingContext, client_context

SERVING = Authority("serving")
NAME = b"kube-apiserver.example"
KUBE_APISERVER = SERVING.issue("kube-apiserver", usages=[SERVER], hosts=[NAME.decode()])
RECORD_BYTES = 16 * 1024


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*KUBE_APISERVER.write(tmp_path_factory.mktemp("pki"), "server"))
    return context


def trusting(authority: Authority = SERVING) -> ResumingContext:
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    return context


class Server:
    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.connection = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def handshake(self, data: bytes) -> None:
        self._incoming.write(data)
        with suppress(ssl.SSLWantReadError):
            self.connection.do_handshake()

    def to_send(self) -> bytes:
        return self._outgoing.read()

    def say(self, *texts: bytes) -> bytes:
        for text in texts:
            self.connection.write(text)
        return self._outgoing.read()

    def part(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self.connection.unwrap()
        return self._outgoing.read()


def acquaint(client: TlsClient, server: Server, sizes: Iterator[int]) -> None:
    """Through the handshake, the server's bytes in pieces of these sizes. Its tickets are yet to be sent."""
    client.handshake(b"")
    while not client.is_open:
        server.handshake(client.to_send())
        said = server.to_send()
        assert said
        for piece in pieces(said, sizes):
            client.handshake(piece)
    server.handshake(client.to_send())


def pieces(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    while data:
        size = next(sizes)
        yield data[:size]
        data = data[size:]


def whole() -> Iterator[int]:
    while True:
        yield 1_000_000


def acquainted(serving: ssl.SSLContext, context: ResumingContext | None = None) -> tuple[TlsClient, Server]:
    client, server = TlsClient(context or trusting(), NAME), Server(serving)
    acquaint(client, server, whole())
    return client, server


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@given(
    sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=10), texts=st.lists(st.binary(max_size=40_000))
)
def test_what_the_server_sends_arrives_complete_however_it_is_cut(
    serving: ssl.SSLContext, version: ssl.TLSVersion, sizes: list[int], texts: list[bytes]
) -> None:
    context = trusting()
    context.maximum_version = version
    client, server = TlsClient(context, NAME), Server(serving)
    turns = (size for _ in iter(int, 1) for size in sizes)
    acquaint(client, server, turns)
    assert client.connection.version() == version.name.replace("_", ".")
    said = server.say(*texts) + server.part()
    found = b""
    for piece in pieces(said, turns):
        heard = client.decrypt(piece)
        assert len(heard) <= len(piece) + RECORD_BYTES
        found += heard
    assert found == b"".join(texts)
    assert client.is_closed
    assert client.fault is None


def test_the_end_of_the_handshake_and_the_request_are_sent_as_one(serving: ssl.SSLContext) -> None:
    client, server = TlsClient(trusting(), NAME), Server(serving)
    client.handshake(b"")
    server.handshake(client.to_send())
    client.handshake(server.to_send())
    assert client.is_open
    client.encrypt(b"GET")
    server.handshake(client.to_send())
    assert server.connection.read(100) == b"GET"
    assert client.to_send() == b""


def test_tickets_are_read_with_what_follows_them(serving: ssl.SSLContext) -> None:
    context = trusting()
    client, server = acquainted(serving, context)
    assert client.decrypt(server.say(b"hello")) == b"hello"
    context.keep_session(client.connection)
    again, server = acquainted(serving, context)
    assert again.connection.session_reused
    assert again.decrypt(server.say(b"hello")) == b"hello"


@given(st.binary(min_size=1, max_size=2000))
def test_whatever_comes_instead_of_a_handshake_opens_nothing(data: bytes) -> None:
    client = TlsClient(trusting(), NAME)
    client.handshake(b"")
    with suppress(ssl.SSLError):
        client.handshake(data)
    assert not client.is_open


@given(broken=st.binary(min_size=1, max_size=2000))
def test_what_came_before_an_invalid_record_is_valid(serving: ssl.SSLContext, broken: bytes) -> None:
    client, server = acquainted(serving)
    said = server.say(b"hello")
    found = client.decrypt(said + broken + said)  # a record that comes twice is refused as well
    found += client.decrypt(bytes(2 * RECORD_BYTES))  # whatever length the made-up bytes give
    assert found == b"hello"
    assert client.is_closed
    assert isinstance(client.fault, ssl.SSLError)


def test_a_server_that_nobody_vouches_for_is_refused(serving: ssl.SSLContext) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        acquainted(serving, trusting(Authority("other")))


def test_a_ca_is_trusted_without_the_extensions_that_pythons_default_asks_for(tmp_path: Path) -> None:
    """As by Go: that of many a cluster has no key usage, and every other component gets along with it."""
    plain = Authority("kubernetes", extensions=())
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf = plain.issue("kube-apiserver", usages=[SERVER], hosts=[NAME.decode()])
    shown.load_cert_chain(*leaf.write(tmp_path, "server"))
    configuration = Configuration()
    configuration.ssl_ca_cert = str(tmp_path / "ca.crt")
    (tmp_path / "ca.crt").write_text(plain.pem)
    acquainted(shown, client_context(configuration))


def test_a_server_of_another_name_is_refused(serving: ssl.SSLContext) -> None:
    client, server = TlsClient(trusting(), b"other.example"), Server(serving)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        acquaint(client, server, whole())
