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
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from .certificates import CaPool, Peer
from .errors import CredentialRejected
from .identity import Headers, Identity, authenticated

MAX_CACHED = 1024  # identities; many requests come from few users
MAX_CACHED_BYTES = 16 * 1024  # of the headers of one identity
_MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeaders:
    """The names of the front proxy's headers, in lower case, from ConfigMap
    extension-apiserver-authentication."""

    user: tuple[bytes, ...] = ()
    group: tuple[bytes, ...] = ()
    # Empty unless the ConfigMap names it: kube-apiserver before 1.33 passes on a client's own X-Remote-Uid.
    uid: tuple[bytes, ...] = ()
    extra_prefixes: tuple[bytes, ...] = ()


class VerifiedProxy:
    """A peer whose certificate has the right CA and an allowed name."""

    def __init__(self, pool: CaPool, allowed_names: Sequence[str] | None, *, called: str) -> None:
        """`allowed_names`: exact common names; None = every certificate of the pool is accepted."""
        self.pool = pool
        self._allowed_names = None if allowed_names is None else frozenset(allowed_names)
        self._called = called  # in a rejection

    def verify(self, peer: Peer) -> None:
        """Raises CredentialRejected when the certificate is not the proxy's."""
        verified = self.pool.verify(peer)
        if verified.certificate is None:
            raise CredentialRejected(verified.fault)
        if self._allowed_names is not None and verified.common_name not in self._allowed_names:
            raise CredentialRejected(
                f"the client certificate's common name is not an allowed {self._called}'s"
            )


class FrontProxy:
    """Identifies users by the headers of a verified front proxy."""

    def __init__(self, pool: CaPool, headers: ProxyHeaders, allowed_names: Sequence[str]) -> None:
        """Without `allowed_names` every certificate of the pool is accepted, as the ConfigMap means it."""
        self.pool = pool
        self._proxy = VerifiedProxy(pool, allowed_names or None, called="front proxy")
        self._headers = headers
        # Longer names match as well; `_decode` leaves them out.
        self._relevant = headers.user + headers.group + headers.uid + headers.extra_prefixes
        self._cached = lru_cache(MAX_CACHED)(self._decode)

    def identify(self, peer: Peer, headers: Headers) -> Identity | None:
        """The user that the headers name; None when they name none, or the peer has no certificate.

        Raises CredentialRejected when the certificate is not the front proxy's.
        """
        if not peer.chain:
            return None
        self._proxy.verify(peer)
        relevant = tuple([header for header in headers if header[0].startswith(self._relevant)])
        if sum([len(name) + len(value) for name, value in relevant]) <= MAX_CACHED_BYTES:
            return self._cached(relevant)
        return self._decode(relevant)

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
