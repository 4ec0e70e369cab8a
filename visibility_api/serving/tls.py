"""Serving TLS: certificate, key and client CAs that change while connections are open.

A new connection uses the current context; open ones keep theirs, and their client certificates are verified
again for each request (`auth.certificates`). Python cannot request a client certificate without verifying it
in the handshake, as Go servers do. So a certificate of an unknown CA, or an expired one, fails the connection
(decision 0003), where a Go server would answer 401 or try the bearer token. And while no client CA is known,
no certificate can be requested: those connections are closed as soon as a CA is known.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from visibility_api.auth.certificates import MAX_CHAIN, Peer
from visibility_api.auth.errors import TrustUnusable
from visibility_api.kube.pem import NO_PASSPHRASE, describe_pair_fault

log = structlog.get_logger("visibility.tls")

# Between two checks of the files; kube-apiserver checks its own every minute
# (k8s.io/apiserver/pkg/server/dynamiccertificates: FileRefreshDuration).
FILES_INTERVAL_S = 30.0


class ServingTls:
    """The context built from the serving certificate's files and the client CAs."""

    def __init__(self, *, certificate_file: Path, key_file: Path) -> None:
        """Raises TrustUnusable when the files are not a certificate and its key."""
        self._files = (certificate_file, key_file)
        self._ca_pem = ""
        self._loaded = self._read_files()
        self._leaf: bytes | None = None  # of `_loaded`, once somebody asked for it
        self.context = self._make_context()  # of new connections

    @property
    def certificate(self) -> bytes:
        """The leaf that new connections get, DER. Raises ValueError."""
        if self._leaf is None:
            self._leaf = x509.load_pem_x509_certificate(self._loaded[0]).public_bytes(Encoding.DER)
        return self._leaf

    @property
    def has_client_ca(self) -> bool:
        """Certificates are requested from new connections."""
        return bool(self._ca_pem)

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """Certificate chain and key that new connections get, PEM."""
        certificate, key = self._loaded
        return certificate, key

    def trust(self, ca_pem: str) -> None:
        """Request a certificate of one of these CAs from new connections; "": request none.

        Raises TrustUnusable and then changes nothing.
        """
        if ca_pem == self._ca_pem:
            return
        before, self._ca_pem = self._ca_pem, ca_pem
        try:
            self.context = self._make_context()
        except TrustUnusable:
            self._ca_pem = before
            raise

    def reload_files(self) -> bool:
        """Load the files if they have changed; whether they had. Raises TrustUnusable and keeps the old."""
        found = self._read_files()
        if found == self._loaded:
            return False
        self.context = self._make_context()
        self._loaded, self._leaf = found, None
        return True

    async def follow_files(self, *, interval_s: float = FILES_INTERVAL_S) -> None:
        """Reload the files whenever they change. Half-written ones are tried again."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                if self.reload_files():
                    log.info("serving certificate reloaded", file=str(self._files[0]))
            except TrustUnusable as error:
                log.error("serving certificate not reloaded", error=str(error))

    def _read_files(self) -> tuple[bytes, ...]:
        try:
            return tuple(file.read_bytes() for file in self._files)
        except OSError as error:
            raise TrustUnusable(f"cannot read the serving certificate: {error}") from error

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session lacks the intermediates of its first handshake, and a renegotiation could bring
        # another certificate than the one that was read when the connection was made.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        # The client's order of ciphers: Go's clients and browsers prefer AES-128, a sixth cheaper than the
        # AES-256 that OpenSSL prefers. All ciphers that Python enables by default are strong.
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        try:
            context.load_cert_chain(*self._files, password=NO_PASSPHRASE)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            fault = describe_pair_fault(*self._files) or str(error)
            raise TrustUnusable(f"the serving certificate cannot be used: {fault}") from error
        try:
            if self._ca_pem:
                context.load_verify_locations(cadata=self._ca_pem)
                context.verify_mode = ssl.CERT_OPTIONAL
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: an intermediate may be trusted
        except (OSError, ValueError) as error:
            raise TrustUnusable(f"the client CAs cannot be used: {error}") from error
        return context


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
