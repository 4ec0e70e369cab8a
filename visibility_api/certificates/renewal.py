"""When the CAs and the serving certificate that replicas make themselves are renewed. No I/O, no clock.

A CA is published long before it signs anything: a job trusts the CAs that it found when it began.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from visibility_api.serving.tls import Pair

from .making import PrivateKey, key_pem, make_ca, make_serving_certificate, pem

LIVES_OF_A_CA = 20  # of serving certificates: five years, with the default of 90 days
_PUBLISHED_LIVES = 2  # before it signs: half a year
MAX_CAS = 4
CA, CA_KEYS, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"  # the names of a TLS Secret
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that is trusted; it signs if its key is known."""

    certificate: x509.Certificate
    key: PrivateKey | None

    @property
    def ends(self) -> datetime:
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Kept:
    """What all replicas have in common. `authorities`: the oldest first."""

    authorities: tuple[Authority, ...] = ()
    pair: Pair | None = None

    @property
    def bundle(self) -> bytes:
        """The CAs that clients are to trust, PEM."""
        return b"".join(pem(each.certificate) for each in self.authorities)

    def encode(self) -> dict[str, bytes]:
        """By name, as in a Secret of the type kubernetes.io/tls."""
        keys = b"".join(key_pem(each.key) for each in self.authorities if each.key is not None)
        certificate, key = self.pair or (b"", b"")
        return {CA: self.bundle, CA_KEYS: keys, CERTIFICATE: certificate, KEY: key}


def decode(data: Mapping[str, bytes]) -> Kept:
    """What can be used of a Secret's data."""
    keys = {_public(key): key for key in _keys(data.get(CA_KEYS, b""))}
    authorities = [Authority(each, keys.get(_public(each))) for each in read_certificates(data.get(CA, b""))]
    leaf, key = read_certificates(data.get(CERTIFICATE, b"")), _keys(data.get(KEY, b""))
    fits = bool(leaf) and bool(key) and _public(leaf[0]) == _public(key[0])
    pair = Pair(data[CERTIFICATE], data[KEY]) if fits else None
    return Kept(tuple(sorted(authorities, key=lambda each: each.ends)), pair)


def renew(kept: Kept, names: Sequence[str], lifetime: timedelta, now: datetime) -> tuple[Kept, Pair]:
    """What to keep, and the certificate for `names` in it. The same object unless it, or a CA, is
    made anew.

    `lifetime`: of a serving certificate. It is renewed when a third of it is left.
    """
    authorities = [each for each in kept.authorities if each.ends > now]
    if not any(each.key and each.ends > now + (_PUBLISHED_LIVES + 1) * lifetime for each in authorities):
        authorities.append(Authority(*make_ca(LIVES_OF_A_CA * lifetime, now)))
    found = replace(kept, authorities=tuple(authorities[-MAX_CAS:]))
    pair = _good_pair(found, names, until=now + lifetime / 3)
    if pair is None:
        lasting = (each for each in found.authorities if each.ends > now + lifetime)
        ca, ca_key = next((each.certificate, each.key) for each in lasting if each.key is not None)
        leaf, key = make_serving_certificate(names, ca, ca_key, lifetime, now)
        pair = Pair(pem(leaf), key_pem(key))
        found = replace(found, pair=pair)
    return kept if found == kept else found, pair


def _good_pair(kept: Kept, names: Sequence[str], *, until: datetime) -> Pair | None:
    """The one that is there, if it is for these names, one of the CAs has signed it, and it lasts so long."""
    if kept.pair is None:
        return None
    leaf = x509.load_pem_x509_certificate(kept.pair.certificate)
    try:
        held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    is_good = (
        leaf.not_valid_after_utc > until
        and set(names) <= set(held.get_values_for_type(x509.DNSName))
        and any(is_signed(leaf, each.certificate) for each in kept.authorities)
    )
    return kept.pair if is_good else None


def is_signed(leaf: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether this CA has signed it."""
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def read_certificates(content: bytes) -> list[x509.Certificate]:
    """Those of a PEM file; none of what is no such file."""
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        return []


def _keys(content: bytes) -> list[PrivateKey]:
    found = []
    for block in _BLOCK.finditer(content):
        try:
            key = serialization.load_pem_private_key(block[0], password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if isinstance(key, ec.EllipticCurvePrivateKey):
            found.append(key)
    return found


def _public(of: x509.Certificate | PrivateKey) -> bytes:
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return of.public_key().public_bytes(encoding, form)
