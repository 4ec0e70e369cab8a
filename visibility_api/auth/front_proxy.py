"""Users by the headers of the front proxy, which is kube-apiserver's aggregator.

The headers have no effect until the sender's certificate has been verified against the front proxy's own CA,
for this very request: the cluster's ordinary client CA may sign any common name. The headers are not removed
afterwards, because nothing behind authentication reads them. See
`k8s.io/apiserver/pkg/authentication/request/headerrequest/requestheader.go`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from .certificates import CaPool, Peer
from .errors import CredentialRejected
from .identity import Identity, authenticated

MAX_CACHED = 1024  # identities; many requests come from few users
MAX_CACHED_BYTES = 16 * 1024  # of the headers of one identity
MAX_CACHED_NAMES = 512  # of headers; clients send at most some dozens of different ones
MAX_CACHED_NAME_BYTES = 128
_MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeaders:
    """The names of the front proxy's headers, in lower case, from ConfigMap
    extension-apiserver-authentication."""

    user: tuple[bytes, ...] = ()
    group: tuple[bytes, ...] = ()
    # Empty unless the ConfigMap names it: kube-apiserver before 1.33 passes on a client's own X-Remote-Uid.
    uid: tuple[bytes, ...] = ()
    extra_prefixes: tuple[bytes, ...] = ()


class HeaderPrefixes(dict[bytes, bool]):
    """`prefixes[name]`: whether a header's name (in lower case) begins with one of the prefixes.

    A dictionary of the names seen before: a look-up costs half of a comparison, for every header of every
    request.
    """

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        super().__init__()
        self._prefixes = tuple(prefixes)

    def __missing__(self, name: bytes) -> bool:
        is_match = name.startswith(self._prefixes)
        if len(self) < MAX_CACHED_NAMES and len(name) <= MAX_CACHED_NAME_BYTES:
            self[name] = is_match
        return is_match


class FrontProxy:
    """Identifies users by the headers of a peer whose certificate has the right CA and an allowed name."""

    def __init__(self, pool: CaPool, headers: ProxyHeaders, allowed_names: Sequence[str]) -> None:
        """`allowed_names`: exact common names; without any, every certificate of the pool is accepted."""
        self.pool = pool
        self._allowed_names = frozenset(allowed_names)
        self._headers = headers
        # Longer names match as well; `_decode` leaves them out.
        self._relevant = HeaderPrefixes(headers.user + headers.group + headers.uid + headers.extra_prefixes)
        self._cache: dict[Headers, Identity] = {}

    def identify(self, peer: Peer, headers: Headers) -> Identity | None:
        """The user that the headers name; None when they name none, or the peer has no certificate.

        Raises CredentialRejected when the certificate is not the front proxy's.
        """
        if not peer.chain:
            return None
        verified = self.pool.verify(peer)
        if verified.certificate is None:
            raise CredentialRejected(verified.fault)
        if self._allowed_names and verified.common_name not in self._allowed_names:
            raise CredentialRejected("the client certificate's common name is not an allowed front proxy's")
        is_relevant = self._relevant
        relevant = tuple([header for header in headers if is_relevant[header[0]]])
        return self._cache.get(relevant) or self._read_identity(relevant)

    def _read_identity(self, headers: Headers) -> Identity | None:
        """The user, cached unless the headers are large."""
        identity = self._decode(headers)
        if (
            identity is not None
            and sum(len(name) + len(value) for name, value in headers) <= MAX_CACHED_BYTES
        ):
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()  # simpler than dropping the oldest; reading all again takes milliseconds
            self._cache[headers] = identity
        return identity

    def _decode(self, headers: Headers) -> Identity | None:
        names = self._headers
        user = next((value for name in names.user for value in _values(headers, name)), "")
        if not user:
            return None
        return authenticated(
            Identity(
                user=user,
                groups=tuple(value for name in names.group for value in _values(headers, name)),
                uid=next((value for name in names.uid for value in _values(headers, name)), ""),
                extra=_read_extra(headers, names.extra_prefixes),
            )
        )


def _values(headers: Headers, name: bytes) -> list[str]:
    """The non-empty values of one header, one of each line. Never split: a group may contain a comma."""
    return [_text(value) for key, value in headers if key == name and value]


def _read_extra(headers: Headers, prefixes: Sequence[bytes]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    extra: dict[str, list[str]] = {}
    for prefix in prefixes:
        for name, value in headers:
            if name.startswith(prefix):
                extra.setdefault(_extra_key(name[len(prefix) :]), []).append(_text(value))
    return tuple(sorted((key, tuple(values)) for key, values in extra.items()))


def _extra_key(name: bytes) -> str:
    """The lower-case name, percent-decoded; `+` stays. A malformed escape leaves the whole key as it is."""
    return _text(name if _MALFORMED_ESCAPE.search(name) else unquote_to_bytes(name))


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # Go would substitute replacement characters, and two users could become one.
        raise CredentialRejected("a header of the front proxy is not UTF-8") from None
