"""The dashboard's page and its assets: read once at start, kept in memory with their compressed form.

Nothing of a request becomes a path of a file: an asset is a key of a dictionary.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from fastapi import Request
from starlette.responses import Response

from visibility_api.errors.status import UnknownRoute
from visibility_api.kubeapi.collection import is_unmodified
from visibility_api.kubeapi.compression import accepts_gzip

from .documents import whole

FOLDER = "dashboard"  # in this package: index.html and assets/, as `make dashboard` builds them

# No inline script or style, no other host: what a job calls itself can at most be shown.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address names namespaces and filters
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/vnd.microsoft.icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
# HTML passes kube-apiserver through a rewriter of links, which leaves relative ones alone but fails a HEAD
# whose response says gzip (apimachinery/pkg/util/proxy/transport.go). The page is small anyway.
_IS_SENT_AS_IT_IS = frozenset((".html", ".png", ".woff2"))
_IS_HASHED = re.compile(r"-[A-Za-z0-9_-]{8,}\.")  # a name that changes with the content, as Vite makes it
_CHECK_EACH_TIME = "no-cache, private"
# Private: a client without the right to load it must not get it from a shared cache.
_NEVER_CHANGES = "private, max-age=31536000, immutable"
_ASSET_REFERENCE = re.compile(rb"(?<=[\"'])(?:\./)?assets/")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    content: bytes
    media_type: str
    etag: str
    cache_control: str
    compressed: bytes | None  # None: no smaller than `content`


class Page:
    """The page and its assets as responses."""

    def __init__(self, index: bytes, assets: Mapping[str, bytes]) -> None:
        """`assets` by file name. Raises ValueError for a file of an unknown type."""
        self._assets = {name: _make_file(name, content) for name, content in assets.items()}
        # Their addresses are relative, since the page may be behind any prefix, such as a proxy's. What they
        # are relative to depends on the last slash; a redirect would not pass kube-apiserver.
        self._index = _make_file("index.html", _ASSET_REFERENCE.sub(b"./dashboard/", index))
        self._index_of_folder = _make_file("index.html", _ASSET_REFERENCE.sub(b"./", index))

    def index(self, request: Request) -> Response:
        """The page itself."""
        sent: str = request.scope["request_info"].attributes.path
        return _respond(self._index_of_folder if sent.endswith("/") else self._index, request)

    def asset(self, name: str, request: Request) -> Response:
        """One of its assets. Raises UnknownRoute."""
        found = self._assets.get(name)
        if found is None:
            raise UnknownRoute
        return _respond(found, request)


def read_page() -> Page | None:
    """The page that was built into this package; None when there is none."""
    folder = files("visibility_api").joinpath(FOLDER)
    index = folder.joinpath("index.html")
    if not index.is_file():
        return None
    assets = folder.joinpath("assets")
    found = [each for each in assets.iterdir() if each.is_file()] if assets.is_dir() else []
    return Page(index.read_bytes(), {each.name: each.read_bytes() for each in found})


def _make_file(name: str, content: bytes) -> _File:
    suffix = "." + name.rpartition(".")[2]
    if suffix not in _TYPES:
        raise ValueError(f"the dashboard's file {name} has an unknown type")
    compressed = None if suffix in _IS_SENT_AS_IT_IS else gzip.compress(content, mtime=0)
    return _File(
        content=content,
        media_type=_TYPES[suffix],
        etag=hashlib.sha256(content).hexdigest(),
        cache_control=_NEVER_CHANGES if _IS_HASHED.search(name) else _CHECK_EACH_TIME,
        compressed=compressed if compressed is not None and len(compressed) < len(content) else None,
    )


def _respond(file: _File, request: Request) -> Response:
    """The file, compressed if the client accepts that; 304 when the client has this form of it."""
    is_compressed = file.compressed is not None and accepts_gzip(request.scope["headers"])
    etag = f'"{file.etag}-gzip"' if is_compressed else f'"{file.etag}"'
    headers = {**_HEADERS, "Cache-Control": file.cache_control, "ETag": etag}
    if file.compressed is not None:
        headers["Vary"] = "Accept-Encoding"
    if is_unmodified(request.scope["headers"], etag.encode()):
        return whole(b"", file.media_type, status=304, headers=headers)
    if file.compressed is None or not is_compressed:
        return whole(file.content, file.media_type, headers=headers)
    return whole(file.compressed, file.media_type, headers={**headers, "Content-Encoding": "gzip"})
