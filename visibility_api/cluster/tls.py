"""TLS towards kube-apiserver: one context a client, and sessions that are resumed.

Every exec is a connection of its own, and most of its cost is the handshake: for us the check of the
certificate chain, for kube-apiserver a signature. A resumed session (RFC 8446 2.2) leaves both out. Early
data (0-RTT) is never sent: Python's ssl cannot.
"""

from __future__ import annotations

import ssl
import time

from kubernetes_asyncio.client import Configuration

# The server's certificate is checked at full handshakes only, so one must come every so often.
MAX_SESSION_AGE_S = 600.0
# Behind one address may be several kube-apiservers, and none takes the tickets of another: taking a ticket
# from each that refuses ours would cost more than it saves.
MIN_SESSION_AGE_S = 10.0


class _Connection(ssl.SSLObject):
    def getpeercert(self, binary_form: bool = False) -> None:
        """Nothing: asyncio and uvloop have every certificate taken apart, and nobody here looks at it."""


class ResumingContext(ssl.SSLContext):
    """A client's context whose new connections resume the session kept last, for the same host name.

    A server that does not know the session any more makes a full handshake instead. Trust and client
    certificate belong to the context, and OpenSSL binds sessions to it: other credentials, other sessions.
    """

    sslobject_class = _Connection
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
        """What a connection begins with: ours in `records.py`, and those of asyncio and uvloop."""
        host = server_hostname.decode() if isinstance(server_hostname, bytes) else server_hostname
        if session is None and host == self._host and self._age_s() < MAX_SESSION_AGE_S:
            session = self._session
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def keep_session(self, connection: ssl.SSLObject) -> None:
        """Resume the session of `connection` from now on; to be called after data was read from it.

        Not earlier: TLS 1.3 servers send tickets after the handshake. Reading a session out is not cheap
        (before 3.14 Python copies it, with the certificate), so it is done after full handshakes only.
        """
        if connection.session_reused or self._age_s() < MIN_SESSION_AGE_S:
            return
        session = connection.session
        if session is not None and session.has_ticket:
            self._session, self._host, self._kept_at = session, connection.server_hostname, time.monotonic()

    def _age_s(self) -> float:
        return time.monotonic() - self._kept_at if self._session else float("inf")


def client_context(configuration: Configuration) -> ResumingContext:
    """Verifies chain, validity and host as Go's clients do. Raises OSError, ssl.SSLError for files of no use.

    Not VERIFY_X509_STRICT, which Python 3.13 made its default: CAs of clusters that every other component
    trusts lack extensions that it asks for (key usage, authority key identifier).
    """
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if configuration.ssl_ca_cert:
        context.load_verify_locations(configuration.ssl_ca_cert)
    else:
        context.load_default_certs()
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
