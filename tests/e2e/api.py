"""A small blocking Kubernetes client for tests: raw dictionaries, and HTTP answers as they came."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import urllib3
import yaml

from tests.e2e.processes import PATIENCE_S

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiFailure(AssertionError):
    """An answer of 400 or above where a test expected success."""

    def __init__(self, method: str, path: str, code: int, content: bytes) -> None:
        super().__init__(f"{method} {path}: {code} {content.decode(errors='replace')[:500]}")
        self.code = code


class Api:
    """One user at one server; any thread may use it. `url` without a trailing slash.

    It sends with urllib3, at half the CPU of httpx: some tests send thousands of requests.
    """

    def __init__(
        self,
        url: str,
        *,
        ca_file: Path,
        cert: tuple[Path, Path] | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        context = ssl.create_default_context(cafile=str(ca_file))
        if cert is not None:
            context.load_cert_chain(*cert)
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        place = urlsplit(url)
        assert place.hostname is not None
        self._http = urllib3.HTTPSConnectionPool(
            place.hostname,
            place.port,
            ssl_context=context,
            headers=sent,
            timeout=PATIENCE_S,
            retries=False,
            maxsize=16,
        )

    def close(self) -> None:
        self._http.close()

    def raw(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        body: Object | None = None,
    ) -> httpx.Response:
        """The answer, whatever it is."""
        with self._send(method, path, headers=headers, body=body) as answer:
            content = answer.data
        return httpx.Response(
            answer.status,
            headers=list(answer.headers.items()),
            content=content,
            request=httpx.Request(method, "https://server/"),
        )

    def get(self, path: str, **query: str) -> Object:
        return self._checked("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[Object]:
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def create(self, path: str, body: Object, **query: str) -> Object:
        return self._checked("POST", path, body=body, query=query)

    @contextlib.contextmanager
    def watch(self, path: str, **query: str) -> Iterator[Iterator[Object]]:
        """The events of a watch whose headers have come. A stream that is cut raises ConnectionError."""
        with self._send("GET", _target(path, {"watch": "1", **query}), is_stream=True) as answer:
            if answer.status >= 400:
                raise ApiFailure("GET", path, answer.status, answer.data)
            yield _lines(answer)

    def patch(self, path: str, body: Object, **query: str) -> Object:
        """A JSON merge patch."""
        return self._checked("PATCH", path, body=body, content_type=MERGE, query=query)

    def apply(self, path: str, body: Object, *, field_manager: str = "e2e") -> Object:
        """A forced server-side apply to the path of one object."""
        query = {"fieldManager": field_manager, "force": "true"}
        return self._checked("PATCH", path, body=body, content_type=APPLY, query=query)

    def delete(self, path: str, **options: Any) -> None:  # fields of DeleteOptions
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None
        self._checked("DELETE", path, body=body)

    def _checked(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Object:
        headers = {"Content-Type": content_type} if body is not None else None
        with self._send(method, _target(path, query or {}), headers=headers, body=body) as answer:
            content = answer.data
        if answer.status >= 400:
            raise ApiFailure(method, path, answer.status, content)
        found: Object = json.loads(content)
        return found

    @contextlib.contextmanager
    def _send(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        body: Object | None = None,
        is_stream: bool = False,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """The answer, for the block; a broken connection is a ConnectionError."""
        sent = urllib3.HTTPHeaderDict({**self._http.headers, "Accept": "*/*"})
        given = urllib3.HTTPHeaderDict(headers or {})
        for name in given:
            sent.discard(name)
        sent.extend(given)
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            if "Content-Type" not in sent:
                sent["Content-Type"] = "application/json"
        try:
            answer = self._http.urlopen(
                method, target, headers=sent, body=content, preload_content=not is_stream
            )
            try:
                yield answer
            finally:
                if is_stream:
                    answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {target}: {error}") from error


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[Object]:
    rest = b""
    for chunk in answer.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def write_kubeconfig(
    path: Path,
    *,
    url: str,
    ca_file: Path,
    cert: tuple[Path, Path] | None = None,
    token: str | None = None,
    namespace: str = "default",
) -> Path:
    """A kubeconfig for one user at one server."""
    user: Object = {}
    if cert is not None:
        user = {"client-certificate": str(cert[0]), "client-key": str(cert[1])}
    if token is not None:
        user["token"] = token
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "user", "namespace": namespace}}],
        "current-context": "e2e",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
