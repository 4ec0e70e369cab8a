"""How replicas recognise each other: all of them serve one certificate, and so have its key.

Whoever is asked proves it in the TLS handshake. Whoever asks proves it with a value that can be derived only
from the key. It is sent only to a server that has presented the certificate, which could derive it as well.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

PROOF = b"x-visibility-peer"  # the header
_PURPOSE = b"visibility.trainer.kubeflow.org peer, version 1"  # a value for another purpose is another one


def certificate_fingerprint(der: bytes) -> aiohttp.Fingerprint:
    """For aiohttp to compare a server's certificate with, before it sends the request."""
    return aiohttp.Fingerprint(hashlib.sha256(der).digest())


def derive_proof(certificate_pem: bytes, key_pem: bytes) -> str:
    """The proof of having this certificate's key, as hexadecimal digits. Raises ValueError, TypeError."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    secret = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    certificate = x509.load_pem_x509_certificate(certificate_pem).public_bytes(Encoding.DER)
    derived = HKDF(
        algorithm=hashes.SHA256(), length=32, salt=hashlib.sha256(certificate).digest(), info=_PURPOSE
    ).derive(secret)
    return derived.hex()


def is_proof(headers: Sequence[tuple[bytes, bytes]], expected: Callable[[], str]) -> bool:
    """Whether a request is of a replica of this server, in a time that does not depend on where the proofs
    differ. `expected` is called only for one that has a proof."""
    given = next((value for name, value in headers if name == PROOF), b"")
    return bool(given) and hmac.compare_digest(given, expected().encode())
