"""Users by the word of the front proxy, kube-apiserver's aggregator (A4 to A11).

Its headers count for nothing until its certificate has been verified against its own CA, on this very
request. Headers are never removed here: nothing behind authentication looks at them (A10).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from .certificates import CaPool, Peer
from .errors import CredentialRejected
from .header_names import HeaderNames
from .identity import Identity, authenticated

MAX_KEPT = 1024  # identities; many requests come from few users
MAX_KEPT_BYTES = 16 * 1024  # of the headers of one; a thousand of them at most
_MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeaders:
    """How the front proxy names what it says. Lower case; extension-apiserver-authentication has them."""

    user: tuple[bytes, ...] = ()
    group: tuple[bytes, ...] = ()
    uid: tuple[bytes, ...] = ()  # () = the UID is not read: an old proxy would pass a client's own on (A8)
    extra_prefixes: tuple[bytes, ...] = ()


class FrontProxy:
    """Believes the headers of a peer that one CA pool vouches for under an allowed name."""

    def __init__(self, pool: CaPool, headers: ProxyHeaders, allowed_names: Sequence[str]) -> None:
        """`allowed_names`: exact common names; none = every certificate of the pool is the proxy's."""
        self.pool = pool
        self._allowed_names = frozenset(allowed_names)
        self._headers = headers
        # Also longer names than those: the reading leaves them out.
        self._matters = HeaderNames(headers.user + headers.group + headers.uid + headers.extra_prefixes)
        self._known: dict[Headers, Identity] = {}

    def identify(self, peer: Peer, headers: Headers) -> Identity | None:
        """The user the proxy speaks for; None when nobody is named, or the peer has no certificate.

        Raises CredentialRejected when the certificate is not the front proxy's.
        """
        if not peer.chain:
            return None
        verdict = self.pool.verify(peer)
        if verdict.certificate is None:
            raise CredentialRejected(verdict.fault)
        if self._allowed_names and verdict.common_name not in self._allowed_names:
            raise CredentialRejected("the client certificate's common name is not an allowed front proxy's")
        matters = self._matters
        marked = tuple([header for header in headers if matters[header[0]]])
        return self._known.get(marked) or self._read_identity(marked)

    def _read_identity(self, headers: Headers) -> Identity | None:
        """The user, remembered unless that would take much memory."""
        identity = self._decode(headers)
        if identity is not None and sum(len(name) + len(value) for name, value in headers) <= MAX_KEPT_BYTES:
            if len(self._known) >= MAX_KEPT:
                self._known.clear()  # simpler than the oldest, and reading them all again costs milliseconds
            self._known[headers] = identity
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
    """The non-empty values of one header. Never split: a group may have a comma in it (A7)."""
    return [_text(value) for key, value in headers if key == name and value]


def _read_extra(headers: Headers, prefixes: Sequence[bytes]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    extra: dict[str, list[str]] = {}
    for prefix in prefixes:
        for name, value in headers:
            if name.startswith(prefix):
                extra.setdefault(_extra_key(name[len(prefix) :]), []).append(_text(value))
    return tuple(sorted((key, tuple(values)) for key, values in extra.items()))


def _extra_key(name: bytes) -> str:
    """A9: percent-decoded after lower-casing, `+` stays; a malformed escape leaves the whole key as it is."""
    return _text(name if _MALFORMED_ESCAPE.search(name) else unquote_to_bytes(name))


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # Go would let replacement characters stand for it, and two users could become one.
        raise CredentialRejected("a header of the front proxy is not UTF-8") from None
