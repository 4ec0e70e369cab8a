"""Users by ordinary client certificate: CN is the user, each O a group.

As in `k8s.io/apiserver/pkg/authentication/request/x509/x509.go`.
"""

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
    """Identifies peers of one CA pool. Raises CredentialRejected when the certificate is not valid."""

    def __init__(self, pool: CaPool) -> None:
        self.pool = pool
        self._identity = lru_cache(MAX_IDENTITIES)(_read_identity)

    def identify(self, peer: Peer) -> Identity | None:
        """The certificate's user; None without a certificate, or for a certificate without a CN."""
        if not peer.chain:
            return None
        verified = self.pool.verify(peer)
        if verified.certificate is None:
            raise CredentialRejected(verified.fault)
        if not verified.common_name:
            return None
        return self._identity(verified.certificate, verified.common_name)


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
