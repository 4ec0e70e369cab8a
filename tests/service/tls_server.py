"""The seam under test in its real place: uvicorn, TLS, `TlsConnection`; its application says who came."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.certificates import Authority, client_context
from tests.reviews import FakeApi
from visibility_api.auth.authenticator import RequestAuthenticator
from visibility_api.auth.errors import AuthError
from visibility_api.auth.request_header_config import ConfigMap, RequestHeaderConfig
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import PATH, TokenReviewer
from visibility_api.certificates.files import CertificateFiles
from visibility_api.serving.http_server import HttpServer
from visibility_api.serving.tls import ServingTls

SERVING = Authority("serving")
DEADLINE_S = 90.0
NAMES = {
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-allowed-names": '["front-proxy-client"]',
}


def config_map(**data: str) -> ConfigMap:
    """The ConfigMap with these keys beside the usual names; underscores stand for dashes."""
    found = ConfigMap(data={**NAMES, **{key.replace("_", "-"): value for key, value in data.items()}})
    found.metadata.name = "extension-apiserver-authentication"
    return found


@dataclass(slots=True, kw_only=True)
class RunningServer:
    """`seen` are the scopes of all requests, in order; `then` is called in the turn that made an answer."""

    port: int
    tls: ServingTls
    files: CertificateFiles
    config: RequestHeaderConfig
    directory: Path
    http: HttpServer
    seen: list[dict[str, Any]] = field(default_factory=list)
    then: Callable[[], None] = lambda: None

    @contextlib.asynccontextmanager
    async def connect(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
        """A connection that shows the certificate of `context`, none when it is left out."""
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context or client_context(SERVING.pem)
            )
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await writer.wait_closed()

    def context(self, certificate: Any, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        return client_context(
            SERVING.pem, certificate.write(self.directory, f"client-{id(certificate)}"), version=version
        )


class Client:
    """One connection, spoken to in raw HTTP/1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, *headers: str) -> dict[str, Any]:
        """One request with these header lines; what the application made of it."""
        self.writer.write("\r\n".join(("GET /x HTTP/1.1", "Host: h", *headers, "", "")).encode("latin-1"))
        return (await self.answers(1))[0]

    async def answers(self, count: int) -> Sequence[dict[str, Any]]:
        found = []
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(count):
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                body = await self.reader.readexactly(length)
                found.append(json.loads(body) if body.startswith(b"{") else {"text": body.decode()})
                found[-1]["closes"] = "connection: close" in head
        return found

    async def is_closed_by_server(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read(1) == b""


@contextlib.asynccontextmanager
async def running_server(
    directory: Path,
    config: RequestHeaderConfig | None = None,
) -> AsyncIterator[RunningServer]:
    pair = SERVING.issue("server", usages=[], hosts=["127.0.0.1"]).write(directory, "server")
    files = CertificateFiles(*pair)
    tls = ServingTls(files.read())
    config = config or RequestHeaderConfig(on_change=lambda trust: tls.trust(trust.ca_pem))
    tokens = TokenReviewer(ReviewClient(FakeApi(status={}), PATH))
    authenticator = RequestAuthenticator(lambda: config.trust, tokens)
    seen: list[dict[str, Any]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        try:
            identity = await authenticator.authenticate(scope)
            answer: dict[str, Any] = {"user": identity.user, "groups": identity.groups, "uid": identity.uid}
            answer["extra"] = {key: list(values) for key, values in identity.extra}
        except AuthError as error:
            answer = {"error": type(error).__name__}
        body = json.dumps(answer).encode()
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})
        running.then()

    async with serving(application, tls) as (http, port):
        running = RunningServer(
            port=port, tls=tls, files=files, config=config, directory=directory, http=http, seen=seen
        )
        yield running


@contextlib.asynccontextmanager
async def serving(application: Any, tls: ServingTls) -> AsyncIterator[tuple[HttpServer, int]]:
    """Serve an application as the server does; the port."""
    http = HttpServer(application, tls)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(http.serve([listener]))
            await until(lambda: http.started)
            try:
                yield http, port
            finally:
                http.should_exit = http.force_exit = True
                await ending


@contextlib.asynccontextmanager
async def serving_app(application: Any, certificate: Path, key: Path) -> AsyncIterator[int]:
    tls = ServingTls(CertificateFiles(certificate, key).read())
    async with serving(application, tls) as (_, port):
        yield port


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what nobody announces."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)
