"""TLS as it is served: certificate, key and client CAs that change while connections are open.

Every new connection gets the context of that moment; open ones keep theirs, and their certificates are
judged anew per request (`certificates`). What Python cannot do (A2, A3): ask for a certificate without
verifying it in the handshake. So a certificate of a CA that is in none of our pools, or one that has
expired, fails the connection, where a Go server would answer 401 or go on to the bearer token. And while no
CA is known nothing may be asked for, so those connections are ended when the first one comes.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Protocol

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from visibility_api.auth.certificates import MAX_CHAIN, Peer
from visibility_api.auth.errors import TrustUnusable

log = structlog.get_logger("visibility.tls")

FILES_INTERVAL_S = 30.0  # between two looks at the files; at least every minute is asked for (P5)


class Connection(Protocol):
    """What can be ended in order: what is under way is still answered."""

    def shutdown(self) -> None: ...


class ServingContext(ssl.SSLContext):
    """The context to hand to a server: hands each connection on to the one that is current."""

    current: ssl.SSLContext
    unasked: set[Connection]  # open connections that were not asked for a certificate

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Where asyncio and uvloop alike begin a connection."""
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def admit(self, connection: Connection, tls: ssl.SSLObject) -> None:
        """Keep count of a new connection that has no certificate because none was asked for."""
        if tls.context.verify_mode != ssl.CERT_NONE:
            return
        if self.current.verify_mode == ssl.CERT_NONE:
            self.unasked.add(connection)
        else:
            connection.shutdown()  # the CAs came during its handshake


class ServingTls:
    """The serving certificate's files and the client CAs, and the context they make together."""

    def __init__(self, *, certificate_file: Path, key_file: Path) -> None:
        """Raises TrustUnusable when the files hold no pair."""
        self._files = (certificate_file, key_file)
        self._ca_pem = ""
        self._loaded = self._read_files()
        self.context = ServingContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.unasked = set()
        self.context.current = self._make_context()

    @property
    def certificate(self) -> bytes:
        """The one that new connections are shown, DER, without what it was signed by. Raises ValueError."""
        return x509.load_pem_x509_certificate(self._loaded[0]).public_bytes(Encoding.DER)

    def trust(self, ca_pem: str) -> None:
        """Ask new connections for a certificate of one of these CAs; "" = ask for none.

        Raises TrustUnusable, and changes nothing then.
        """
        if ca_pem == self._ca_pem:
            return
        before, self._ca_pem = self._ca_pem, ca_pem
        try:
            self.context.current = self._make_context()
        except TrustUnusable:
            self._ca_pem = before
            raise
        if ca_pem:
            for connection in tuple(self.context.unasked):
                connection.shutdown()
            self.context.unasked.clear()

    def reload_files(self) -> bool:
        """Take over files that have changed; True if they had. Raises TrustUnusable, the old pair stays."""
        found = self._read_files()
        if found == self._loaded:
            return False
        self.context.current = self._make_context()
        self._loaded = found
        return True

    async def follow_files(self, *, interval_s: float = FILES_INTERVAL_S) -> None:
        """Reload the files whenever they change, for ever. A pair that is half written is tried again."""
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
        # A resumed session does not carry the intermediates that its first handshake did, and a renegotiated
        # one could bring another certificate than the one we have looked at.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        # The client's choice of cipher: Go's clients and browsers begin with AES-128, cheaper by a sixth than
        # the AES-256 that OpenSSL would put first. What Python leaves on offer is all strong.
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        try:
            context.load_cert_chain(*self._files)
            if self._ca_pem:
                context.load_verify_locations(cadata=self._ca_pem)
                context.verify_mode = ssl.CERT_OPTIONAL
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a pool may hold an intermediate (Go)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise TrustUnusable(
                f"cannot serve with {self._files[0]}, {self._files[1]} and the client CAs: {error}"
            ) from error
        return context


def peer_of(tls: ssl.SSLObject | None) -> Peer:
    """Who is at the other end of a connection whose handshake is done; call it once a connection."""
    leaf = tls.getpeercert(binary_form=True) if tls is not None else None
    if tls is None or leaf is None:
        return Peer()
    return Peer(chain=(leaf, *[der for der in _sent_chain(tls) if der != leaf][: MAX_CHAIN - 1]))


def _sent_chain(tls: ssl.SSLObject) -> list[bytes]:
    """All certificates the peer sent, DER; [] where Python does not tell: then only those issued by a CA
    of the pool itself can be verified."""
    public = getattr(tls, "get_unverified_chain", None)  # Python 3.13
    if public is not None:
        return list(public())
    private = getattr(getattr(tls, "_sslobj", None), "get_unverified_chain", None)  # 3.10 to 3.12
    if private is None:
        return []
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in private() or ()]
