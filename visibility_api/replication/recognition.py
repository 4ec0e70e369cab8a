"""How replicas recognise each other: all of them serve one certificate, and so have its key.

Whoever is asked proves it in the TLS handshake. Whoever asks proves it with a value that can be derived only
from the key. It is sent only to a server that has presented the certificate, which could derive it as well.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import NamedTuple

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

PROOF = b"x-visibility-peer"  # the header
_PURPOSE = b"visibility.trainer.kubeflow.org peer, version 1"  # a value for another purpose is another one


class ReplicaKey(NamedTuple):
    """What replicas with one certificate recognise each other by."""

    fingerprint: aiohttp.Fingerprint  # of the certificate that the asked one presents
    proof: str  # of the one that asks, hexadecimal digits


ReplicaKeys = Callable[[], Sequence[ReplicaKey]]
"""Of the certificate that is served; then of one that is served soon, or was until lately: replicas change it
one after the other."""


def derive_replica_key(certificate_pem: bytes, key_pem: bytes) -> ReplicaKey:
    """That of a certificate, the first of its chain, and its key. Raises ValueError, TypeError."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    secret = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    digest = hashlib.sha256(
        x509.load_pem_x509_certificate(certificate_pem).public_bytes(Encoding.DER)
    ).digest()
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=digest, info=_PURPOSE).derive(secret)
    return ReplicaKey(aiohttp.Fingerprint(digest), derived.hex())


def is_proof(headers: Sequence[tuple[bytes, bytes]], keys: ReplicaKeys) -> bool:
    """Whether a request is of a replica of this server, in a time that does not depend on where the proofs
    differ. `keys` is called only for one that has a proof."""
    given = next((value for name, value in headers if name == PROOF), b"")
    return bool(given) and any(hmac.compare_digest(given, key.proof.encode()) for key in keys())
