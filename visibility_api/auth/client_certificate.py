"""Users by ordinary client certificate (A13): CN is the user, each O a group."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from .certificates import CaPool, Peer, all_text
from .errors import CredentialRejected
from .identity import Identity, authenticated

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
USER_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")  # the Kubernetes project's own arc; since 1.33
MAX_IDENTITIES = 1024


class ClientCertificates:
    """Identifies peers of one CA pool. Raises CredentialRejected when the certificate does not hold."""

    def __init__(self, pool: CaPool) -> None:
        self.pool = pool
        self._identity = lru_cache(MAX_IDENTITIES)(_read_identity)

    def identify(self, peer: Peer) -> Identity | None:
        """The certificate's user; None without a certificate, or for one that names no user."""
        if not peer.chain:
            return None
        verdict = self.pool.verify(peer)
        if verdict.certificate is None:
            raise CredentialRejected(verdict.fault)
        if not verdict.common_name:
            return None
        return self._identity(verdict.certificate, verdict.common_name)


def _read_identity(certificate: x509.Certificate, user: str) -> Identity:
    uids = all_text(certificate, USER_UID)
    if len(uids) > 1 or "" in uids:
        raise CredentialRejected("the client certificate's subject must have one UID, and not an empty one")
    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    return authenticated(
        Identity(
            user=user,
            groups=all_text(certificate, NameOID.ORGANIZATION_NAME),
            uid="".join(uids),
            extra=((CREDENTIAL_ID, (f"X509SHA256={digest}",)),),
        )
    )
