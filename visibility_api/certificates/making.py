"""Makes certificates: a self-signed one in files, a CA, and certificates that it signs."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from visibility_api.auth.errors import TrustUnusable

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
BACKDATED = timedelta(hours=1)  # clients' clocks may be behind
ALWAYS_NAMED = ("localhost", "127.0.0.1")
MAX_COMMON_NAME = 64  # characters, by X.520

PrivateKey = ec.EllipticCurvePrivateKey


def provide_certificate(
    directory: Path, hosts: Sequence[str], *, renew_before: timedelta = RENEW_BEFORE
) -> tuple[Path, Path]:
    """The files of a certificate (PEM, mode 0644) and its key (0600) for `hosts`, localhost and 127.0.0.1.

    A pair that is there stays if it names all hosts and is valid for longer than `renew_before`. Else a
    self-signed one is written. The files are called as those of Kubernetes' own servers: apiserver.crt,
    apiserver.key. Raises TrustUnusable when they cannot be written.
    """
    certificate_file, key_file = directory / "apiserver.crt", directory / "apiserver.key"
    names = tuple(dict.fromkeys((*hosts, *ALWAYS_NAMED)))
    if not _is_good(certificate_file, key_file, names, renew_before):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(
            _subject(names[0]), key, key, _subject(names[0]), LIFETIME, datetime.now(UTC), hosts=names
        )
        _write_all({key_file: key_pem(key), certificate_file: pem(certificate)})
    return certificate_file, key_file


def _is_good(certificate_file: Path, key_file: Path, names: Sequence[str], renew_before: timedelta) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_private = key_file.stat().st_mode & 0o077 == 0
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return (
        is_private
        and key.public_key() == certificate.public_key()
        and certificate.not_valid_after_utc - renew_before > datetime.now(UTC)
        and all(_general_name(name) in held for name in names)
    )


def make_ca(lifetime: timedelta, now: datetime) -> tuple[x509.Certificate, PrivateKey]:
    """A new CA, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: two CAs with one name in a bundle are hard to tell apart.
    name = _subject(f"visibility-api-ca@{now:%Y%m%d%H%M%S}")
    return _certificate(name, key, key, name, lifetime, now), key


def make_serving_certificate(
    hosts: Sequence[str], ca: x509.Certificate, ca_key: PrivateKey, lifetime: timedelta, now: datetime
) -> tuple[x509.Certificate, PrivateKey]:
    """A certificate for `hosts` that this CA has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _certificate(_subject(hosts[0]), key, ca_key, ca.subject, lifetime, now, hosts=hosts), key


def _certificate(
    subject: x509.Name,
    key: PrivateKey,
    issuer_key: PrivateKey,
    issuer: x509.Name,
    lifetime: timedelta,
    now: datetime,
    *,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """A serving certificate for `hosts`; without any, a CA."""
    identifier = x509.SubjectKeyIdentifier.from_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None if hosts else 0), critical=True)
        .add_extension(_key_usage(is_ca=not hosts), critical=True)
    )
    if hosts:
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        ).add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:MAX_COMMON_NAME])])


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_all(files: Mapping[Path, bytes]) -> None:
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, content, mode=0o600 if path.suffix == ".key" else 0o644)
    except OSError as error:
        raise TrustUnusable(f"cannot write a serving certificate: {error}") from error


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace the file atomically; its mode is never wider than `mode`, not even for a moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    temporary.replace(path)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
