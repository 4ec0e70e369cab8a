"""One user's HTTP client at the server itself or at kube-apiserver, with streams for watches.

Queries are strings and integers; they are `Any` because a dictionary passed on as `**query` could hold a name
that is a parameter of another type.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.processes import PATIENCE_S
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User

FRONTS = ("direct", "aggregated")
READ_TIMEOUT_S = PATIENCE_S

# As kube-apiserver resolves the users of the harness.
_GROUPS = {"admin": ("system:masters", "system:authenticated")}


class Client:
    """Sends requests of one user. `headers` are sent with every one."""

    def __init__(
        self, url: str, context: ssl.SSLContext, headers: list[tuple[str, str]] | None = None
    ) -> None:
        timeout = httpx.Timeout(READ_TIMEOUT_S)
        self.http = httpx.Client(
            base_url=url, verify=context, headers=headers, timeout=timeout, trust_env=False
        )
        del self.http.headers["user-agent"]

    def send(
        self,
        path: str,
        *,
        method: str = "GET",
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        **query: Any,
    ) -> httpx.Response:
        """The answer, whatever it is. `accept` None sends none at all."""
        return self.http.request(
            method, path, params=query or None, headers=_headers(accept, headers), content=content
        )

    def get(self, path: str, *, accept: str | None = None, **query: Any) -> Object:
        """The JSON of a 200."""
        answer = self.send(path, accept=accept, **query)
        assert answer.status_code == 200, (answer.status_code, answer.text[:300])
        found: Object = answer.json()
        return found

    @contextlib.contextmanager
    def watch(self, path: str, *, accept: str | None = None, **query: Any) -> Iterator[EventReader]:
        """A watch whose headers have come. It is closed at the end."""
        parameters = {"watch": "true", **query}
        with self.http.stream("GET", path, params=parameters, headers=_headers(accept, None)) as answer:
            yield EventReader(answer)


class EventReader:
    """The events of one stream, one by one; each is waited for with a deadline."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def next(self) -> Object:
        """Raises AssertionError when the stream has ended, or nothing comes in time."""
        try:
            line = next(self._lines)
        except StopIteration:
            raise AssertionError("the stream has ended") from None
        except httpx.ReadTimeout:
            raise AssertionError(f"no event within {READ_TIMEOUT_S} s") from None
        event: Object = msgspec.json.decode(line)
        assert set(event) == {"type", "object"}, event
        return event

    def take(self, count: int) -> list[Object]:
        return [self.next() for _ in range(count)]

    def until_bookmark(self) -> tuple[list[Object], Object]:
        """The events before the next BOOKMARK, and its object."""
        events: list[Object] = []
        while (event := self.next())["type"] != "BOOKMARK":
            events.append(event)
        return events, event["object"]

    def rest(self) -> list[Object]:
        """Everything until the stream's proper end."""
        return [msgspec.json.decode(line) for line in self._lines]


class Front:
    """The users of the harness at one address."""

    def __init__(self, name: str, clients: Mapping[str, Client]) -> None:
        self.name = name
        self._clients = clients

    def __getitem__(self, user: str) -> Client:
        return self._clients[user]

    @property
    def admin(self) -> Client:
        return self._clients["admin"]

    @property
    def alice(self) -> Client:
        """May view the test's namespace."""
        return self._clients["alice"]

    @property
    def bob(self) -> Client:
        """May do nothing."""
        return self._clients["bob"]

    def close(self) -> None:
        for client in self._clients.values():
            client.http.close()


def open_front(name: str, cluster: Cluster, server: VisibilityServer, users: Mapping[str, User]) -> Front:
    """`name` is one of FRONTS."""
    if name == "aggregated":
        return Front(
            name,
            {
                key: Client(cluster.url, client_context(cluster.ca_file, (user.pair.cert, user.pair.key)))
                for key, user in users.items()
            },
        )
    pair = cluster.issue_front_proxy("front-proxy-client")
    context = client_context(server.authority.bundle, (pair.cert, pair.key))
    return Front(name, {key: Client(server.url, context, _remote(key, user)) for key, user in users.items()})


def refusal(client: Client, path: str, code: int, **query: Any) -> Object:
    """The Status of an answer that has that code."""
    answer = client.send(path, **query)
    assert answer.status_code == code, (answer.status_code, answer.text[:300])
    status: Object = answer.json()
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
    return status


def client_context(ca_file: Path, cert: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca_file))
    if cert is not None:
        context.load_cert_chain(*cert)
    return context


def _remote(key: str, user: User) -> list[tuple[str, str]]:
    groups = _GROUPS.get(key, ("system:authenticated",))
    return [("X-Remote-User", user.name), *(("X-Remote-Group", group) for group in groups)]


def _headers(accept: str | None, more: Mapping[str, str] | None) -> dict[str, str]:
    # httpx sends `Accept: */*` by itself, which means the same as none (R7).
    sent = {} if accept is None else {"Accept": accept}
    return sent | dict(more or {})
