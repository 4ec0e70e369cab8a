"""Serving TLS: certificate, key and client CAs that change while connections are open.

A new connection uses the current context; open ones keep theirs, and their client certificates are verified
again for each request (`auth.certificates`). Python cannot request a client certificate without verifying it
in the handshake, as Go servers do. So a certificate of an unknown CA, or an expired one, fails the
connection. A Go server would answer 401, or try the bearer token (decision 0003). While no client CA is
known, no certificate can be requested. Those connections are closed as soon as a CA is known.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509

from visibility_api.auth.certificates import MAX_CHAIN, Peer
from visibility_api.auth.errors import TrustUnusable
from visibility_api.kube.pem import NO_PASSPHRASE


class Pair(NamedTuple):
    """A certificate chain and its key, PEM."""

    certificate: bytes
    key: bytes


class ServingTls:
    """The context built from the serving certificate and the client CAs.

    `settle_s`: a renewed certificate is known at once, as `pairs` says, and served so much later: by then
    every replica has read it, and other replicas are recognised by either.
    """

    def __init__(
        self, pair: Pair, *, settle_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises TrustUnusable for what is not a certificate and its key."""
        self._settle_s = settle_s
        self._clock = clock
        self._ca_pem = ""
        self._pair = pair
        self._context = self._make_context(pair)
        self._coming: tuple[float, Pair] | None = None  # when it is served, by `clock`
        self._former: tuple[float, Pair] | None = None  # until when it is known

    @property
    def context(self) -> ssl.SSLContext:
        """Of new connections."""
        if self._coming is not None and self._coming[0] <= self._clock():
            _, coming = self._coming
            self._serve(coming, self._make_context(coming))
        return self._context

    @property
    def has_client_ca(self) -> bool:
        """Certificates are requested from new connections."""
        return bool(self._ca_pem)

    @property
    def pairs(self) -> list[Pair]:
        """What new connections get; then what they will get soon, or have got until lately."""
        if self._coming is not None:
            _ = self.context
        if self._former is not None and self._former[0] <= self._clock():
            self._former = None
        return [self._pair, *(known[1] for known in (self._coming, self._former) if known is not None)]

    def trust(self, ca_pem: str) -> None:
        """Request a certificate of one of these CAs from new connections; "": request none.

        Raises TrustUnusable and then changes nothing.
        """
        if ca_pem == self._ca_pem:
            return
        before, self._ca_pem = self._ca_pem, ca_pem
        try:
            self._context = self._make_context(self._pair)
        except TrustUnusable:
            self._ca_pem = before
            raise

    def renew(self, pair: Pair) -> bool:
        """Serve this one from now on, or as soon as other replicas know it; whether it is another one.

        Raises TrustUnusable and keeps the old.
        """
        if pair == (self._pair if self._coming is None else self._coming[1]):
            return False
        context = self._make_context(pair)
        if self._settle_s and expiry(self._pair) > datetime.now(UTC) + timedelta(seconds=self._settle_s):
            self._coming = self._clock() + self._settle_s, pair
        else:
            self._serve(pair, context)
        return True

    def _serve(self, pair: Pair, context: ssl.SSLContext) -> None:
        if self._settle_s:
            self._former = self._clock() + self._settle_s, self._pair
        self._pair, self._context, self._coming = pair, context, None

    def _make_context(self, pair: Pair) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session lacks the intermediates of its first handshake. A renegotiation could bring
        # another certificate than the one that was read at first.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        # The client's order of ciphers: Go's clients and browsers prefer AES-128, a sixth cheaper than the
        # AES-256 that OpenSSL prefers. All ciphers that Python enables by default are strong.
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        try:
            with _as_file(pair.certificate + b"\n" + pair.key) as name:
                context.load_cert_chain(name, password=NO_PASSPHRASE)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise TrustUnusable(f"the serving certificate cannot be used: {error}") from error
        try:
            if self._ca_pem:
                context.load_verify_locations(cadata=self._ca_pem)
                context.verify_mode = ssl.CERT_OPTIONAL
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: an intermediate may be trusted
        except (OSError, ValueError) as error:
            raise TrustUnusable(f"the client CAs cannot be used: {error}") from error
        return context


def expiry(pair: Pair) -> datetime:
    """When the certificate ends. Raises ValueError."""
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A name of a file with this content, for OpenSSL, which reads nothing else. On Linux no disk has it."""
    if sys.platform == "linux":
        with open(os.memfd_create("certificate"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def peer_of(tls: ssl.SSLObject | None) -> Peer:
    """The client's certificates after the handshake; to be called once per connection."""
    leaf = tls.getpeercert(binary_form=True) if tls is not None else None
    if tls is None or leaf is None:
        return Peer()
    return Peer(chain=(leaf, *[der for der in _sent_chain(tls) if der != leaf][: MAX_CHAIN - 1]))


def _sent_chain(tls: ssl.SSLObject) -> list[bytes]:
    """All certificates that the client sent, DER.

    [] where Python cannot say: then only certificates issued directly by a trusted CA can be verified.
    """
    public = getattr(tls, "get_unverified_chain", None)  # Python 3.13
    if public is not None:
        return list(public())
    private = getattr(getattr(tls, "_sslobj", None), "get_unverified_chain", None)  # 3.10 to 3.12
    if private is None:
        return []
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in private() or ()]
