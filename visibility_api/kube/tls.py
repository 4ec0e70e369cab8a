"""TLS to kube-apiserver: one context per client, and resumed sessions.

Every exec is a connection of its own, and most of its cost is the handshake: here the verification of the
certificate chain, in kube-apiserver a signature. A resumed session (RFC 8446, section 2.2) needs neither.
Early data (0-RTT) is never sent: Python's ssl module cannot.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from kubernetes_asyncio.client import Configuration

from visibility_api.kube.pem import NO_PASSPHRASE, describe_bundle_fault, describe_pair_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAges:
    """How long a TLS session is resumed, in seconds."""

    # The server's certificate is verified in full handshakes only, so there must be one from time to time.
    max_s: float = 600.0
    # One address may stand for several kube-apiservers, and none accepts the tickets of another: to take a
    # new ticket from each that refuses the old one would cost more than it saves.
    min_s: float = 10.0


SESSION_AGES = SessionAges()


class _Connection(ssl.SSLObject):
    def getpeercert(self, binary_form: bool = False) -> None:
        """None: asyncio and uvloop would parse every certificate, and nothing uses the result."""


class ResumingContext(ssl.SSLContext):
    """A client's context whose new connections resume the session kept last, for the same host name.

    A server that no longer knows the session makes a full handshake instead. CAs and client certificate
    belong to the context, and OpenSSL binds sessions to it: new credentials never use an old session.
    """

    sslobject_class = _Connection
    ages = SESSION_AGES
    _session: ssl.SSLSession | None = None
    _host: str | None = None
    _kept_at = 0.0  # monotonic seconds

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Called at the start of each connection: by asyncio and uvloop."""
        host = server_hostname.decode() if isinstance(server_hostname, bytes) else server_hostname
        if session is None and host == self._host and self._age_s() < self.ages.max_s:
            session = self._session
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def keep_session(self, connection: ssl.SSLObject | None) -> None:
        """Resume the session of `connection` from now on; to be called after data was read from it.

        Not earlier: TLS 1.3 servers send tickets after the handshake. Only after full handshakes: reading a
        session is not cheap (before 3.14 Python copies it, with the certificate).
        """
        if connection is None or connection.session_reused or self._age_s() < self.ages.min_s:
            return
        session = connection.session
        if session is not None and session.has_ticket:
            self._session, self._host, self._kept_at = session, connection.server_hostname, time.monotonic()

    def _age_s(self) -> float:
        return time.monotonic() - self._kept_at if self._session else float("inf")


def client_context(configuration: Configuration) -> ResumingContext:
    """A context that verifies chain, validity and host as Go's clients do. Raises OSError, ssl.SSLError.

    Without VERIFY_X509_STRICT, which is the default since Python 3.13: the CAs of many clusters lack
    extensions that it requires (key usage, authority key identifier), and all other components trust them.
    """
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if configuration.ssl_ca_cert:
        try:
            context.load_verify_locations(configuration.ssl_ca_cert)
        except ssl.SSLError as error:
            raise _in_words(error, describe_bundle_fault(Path(configuration.ssl_ca_cert))) from error
    else:
        context.load_default_certs()
    if configuration.cert_file:
        certificate_file, key_file = (
            configuration.cert_file,
            configuration.key_file or configuration.cert_file,
        )
        try:
            context.load_cert_chain(certificate_file, key_file, password=NO_PASSPHRASE)
        except ssl.SSLError as error:
            fault = describe_pair_fault(Path(certificate_file), Path(key_file))
            raise _in_words(error, fault) from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _in_words(error: ssl.SSLError, fault: str | None) -> OSError:
    return error if fault is None else OSError(fault)
