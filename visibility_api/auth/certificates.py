"""Verifies a client's certificate chain against one CA pool, for each request, with a cache per connection.

The rules are those of Go's `x509.Certificate.Verify` with client-auth usage, which every other Kubernetes
server applies: no subject alternative name is required, and a certificate without an extended key usage may
be used for anything. Every certificate of the chain must be valid now. Two rules are stricter here, because
the library has no way to relax them: version 1 certificates and Ed25519 *CAs* are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
)

from visibility_api.flowcontrol.token_bucket import Bucket

from .errors import TrustUnusable

PEER = "peer"  # key in an ASGI scope's state of the connection's Peer
MAX_CHAIN = 10  # certificates a peer may send; OpenSSL and Go allow about as many
MAX_BUNDLE_BYTES = 1024 * 1024  # of a CA bundle; a ConfigMap holds no more
REFUSED_FOR_S = 10.0  # then the chain is verified again: it may not have been valid yet
_FAULT_CHARACTERS = 200

Clock = Callable[[], float]  # seconds since 1970


@dataclass(slots=True, eq=False, kw_only=True)
class Peer:
    """The client of one connection: its certificates, and the cached result of each pool."""

    chain: tuple[bytes, ...] = ()  # DER, the peer's own first; () = no certificate was sent
    verifications: dict[str, Verification] = field(default_factory=dict)  # the last one, by pool name
    is_known: bool = False  # a request of it was authenticated
    is_front_proxy: bool = False  # and came from there
    client: str = ""  # `client_of` whoever sent it, unless it is another replica
    is_replica: bool = False  # another replica, which confirms what it is sent
    unknown: Bucket | None = None  # of the responses to requests whose sender is not known


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Verification:
    """The result of one pool for one peer. `certificate` is None when the chain was refused."""

    pool: CaPool
    valid_until: float  # when a certificate of the chain expires, or the chain is verified again
    certificate: x509.Certificate | None = None
    common_name: str = ""  # "" = none
    fault: str = ""  # for the log


class CaPool:
    """The CAs of one kind of client. Immutable: a rotation makes a new pool, against which the next request
    of each open connection is verified.
    """

    def __init__(self, pem: str, *, name: str, clock: Clock = time.time) -> None:
        """`name` is the pool's key in `Peer.verifications`. Raises TrustUnusable."""
        if len(pem) > MAX_BUNDLE_BYTES:
            raise TrustUnusable(f"{name} CA bundle is larger than {MAX_BUNDLE_BYTES} bytes")
        try:
            authorities = x509.load_pem_x509_certificates(pem.encode())
            self._store = Store(authorities)
        except (ValueError, x509.InvalidVersion) as error:
            raise TrustUnusable(f"{name} CA bundle holds no readable certificate") from error
        self.name = name
        self.pem = "".join(ca.public_bytes(Encoding.PEM).decode() for ca in authorities)
        self._clock = clock

    def verify(self, peer: Peer) -> Verification:
        """The result for now; costs a dictionary look-up while nothing has changed."""
        held = peer.verifications.get(self.name)
        if held is not None and held.pool is self and self._clock() < held.valid_until:
            return held
        verification = peer.verifications[self.name] = self._verify_chain(peer.chain)
        return verification

    def _verify_chain(self, chain: tuple[bytes, ...]) -> Verification:
        now = self._clock()
        try:
            leaf, *intermediates = [x509.load_der_x509_certificate(der) for der in chain[:MAX_CHAIN]]
            verifier = (
                PolicyBuilder()
                .store(self._store)
                .time(_to_datetime(now))
                .extension_policies(ca_policy=_ISSUER_POLICY, ee_policy=_CLIENT_POLICY)
                .build_client_verifier()
            )
            verified = verifier.verify(leaf, intermediates).chain
            return Verification(
                pool=self,
                valid_until=min(c.not_valid_after_utc.timestamp() for c in verified),
                certificate=leaf,
                common_name=last_text(leaf, NameOID.COMMON_NAME),
            )
        except Exception as error:  # VerificationError, or any error of the library over hostile bytes
            fault = f"the client certificate is not valid under the {self.name} CA: {error}"
            return Verification(pool=self, valid_until=now + REFUSED_FOR_S, fault=fault[:_FAULT_CHARACTERS])


def all_text(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    """The subject's values of one attribute, in order; values that are not text are left out, as in Go."""
    values = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(oid)]
    return tuple(value for value in values if isinstance(value, str))


def last_text(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    """The value Go takes when a subject names an attribute more than once; "" when it has none."""
    return (all_text(certificate, oid) or ("",))[-1]


def _to_datetime(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)


def _require_client_usage(
    _policy: Policy, _certificate: x509.Certificate, usages: x509.ExtendedKeyUsage | None
) -> None:
    """Go requires this of the leaf, and of every issuer that limits its usages."""
    if usages is None or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages:
        return
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        raise ValueError("the extended key usages lack client authentication")


def _require_ca(_policy: Policy, _certificate: x509.Certificate, constraints: x509.BasicConstraints) -> None:
    if not constraints.ca:
        raise ValueError("the issuer is not a CA")


def _require_signing(_policy: Policy, _certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("the issuer's key may not sign certificates")


# The library's own defaults follow the rules of public web CAs: they require a subject alternative name in a
# leaf and key identifiers in a CA, which cluster certificates do not always have. Signatures, names, path
# length, name constraints and unknown critical extensions are checked by the library in any case.
_CLIENT_POLICY = ExtensionPolicy.permit_all().may_be_present(
    x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _require_client_usage
)
_ISSUER_POLICY = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _require_ca)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _require_signing)
    .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _require_client_usage)
)
