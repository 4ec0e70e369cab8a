"""TLS to kube-apiserver: one context per client, and resumed sessions.

Every exec is a connection of its own, and most of its cost is the handshake: here the verification of the
certificate chain, in kube-apiserver a signature. A resumed session (RFC 8446, section 2.2) needs neither.
Early data (0-RTT) is never sent: Python's ssl module cannot.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from kubernetes_asyncio.client import Configuration

from visibility_api.kube.pem import NO_PASSPHRASE, describe_bundle_fault, describe_pair_fault

# The server's certificate is verified in full handshakes only, so there must be one from time to time.
MAX_SESSION_AGE_S = 600.0


class ResumingContext(ssl.SSLContext):
    """A client's context whose new connections resume the session kept last, for the same host name.

    A server that no longer knows the session makes a full handshake instead. CAs and client certificate
    belong to the context, and OpenSSL binds sessions to it: new credentials never use an old session.
    """

    max_age_s = MAX_SESSION_AGE_S
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
        if session is None and host == self._host and time.monotonic() - self._kept_at < self.max_age_s:
            session = self._session
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def keep_session(self, connection: ssl.SSLObject | None) -> None:
        """Resume the session of `connection` from now on; to be called after data was read from it.

        Not earlier: TLS 1.3 servers send tickets after the handshake. A session that was resumed is not kept
        again: it must end, so that the certificate is verified.
        """
        if connection is None or connection.session_reused:
            return
        session = connection.session
        if session is not None and session.has_ticket:
            self._session, self._host, self._kept_at = session, connection.server_hostname, time.monotonic()


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
