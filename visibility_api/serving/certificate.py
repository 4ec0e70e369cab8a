"""Makes serving certificates: a self-signed one at start, or one with a CA for the manifests to install."""

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


def provide_certificate(
    directory: Path, hosts: Sequence[str], *, renew_before: timedelta = RENEW_BEFORE
) -> tuple[Path, Path]:
    """The files of a certificate (PEM, mode 0644) and its key (0600) for `hosts`, localhost and 127.0.0.1.

    Writes self-signed ones as apiserver.crt and apiserver.key, the names that Kubernetes' own servers use,
    unless such a pair names all hosts and is valid for longer than `renew_before`. Raises TrustUnusable when
    it cannot.
    """
    certificate_file, key_file = directory / "apiserver.crt", directory / "apiserver.key"
    names = tuple(dict.fromkeys((*hosts, *ALWAYS_NAMED)))
    if not _is_good(certificate_file, key_file, names, renew_before):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(_subject(names[0]), key, key, _subject(names[0]), LIFETIME, hosts=names)
        _write_all({key_file: _key_pem(key), certificate_file: _pem(certificate)})
    return certificate_file, key_file


def write_serving_certificate(
    directory: Path, *, names: Sequence[str], days: int, renew: bool = False
) -> list[Path]:
    """The files of a certificate for `names`, its key and the CA that signed it: tls.crt, tls.key, ca.crt.

    The CA's key is discarded, so the CA can never sign anything else. Files that are there already are
    replaced only with `renew`; the former CA then stays in ca.crt, since replicas serve its certificate for a
    while. Raises TrustUnusable.
    """
    files = {name: directory / name for name in ("ca.crt", "tls.key", "tls.crt")}
    if not renew:
        for path in files.values():
            if path.exists():
                raise TrustUnusable(
                    f"{path} is there already, and may be in use: --renew replaces it, --out names another"
                    " directory"
                )
    earlier = _earlier_ca(files["ca.crt"]) if renew else b""
    lifetime = timedelta(days=days)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    # A different name each time: two CAs with one name in a bundle are hard to tell apart.
    issuer = _subject(f"visibility-api-ca@{datetime.now(UTC):%Y%m%d%H%M%S}")
    ca = _certificate(issuer, ca_key, ca_key, issuer, lifetime)
    certificate = _certificate(_subject(names[0]), key, ca_key, issuer, lifetime, hosts=names)
    _write_all(
        {
            files["ca.crt"]: _pem(ca) + earlier,
            files["tls.key"]: _key_pem(key),
            files["tls.crt"]: _pem(certificate),
        }
    )
    return list(files.values())


def _earlier_ca(ca_file: Path) -> bytes:
    """The newest CA of a former ca.crt, PEM; empty without one that is still valid."""
    try:
        newest, *_ = x509.load_pem_x509_certificates(ca_file.read_bytes())
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:
        raise TrustUnusable(f"{ca_file} cannot be read as certificates: remove it") from error
    return _pem(newest) if newest.not_valid_after_utc > datetime.now(UTC) else b""


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


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    lifetime: timedelta,
    *,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """A serving certificate for `hosts`; without any, a CA."""
    now = datetime.now(UTC)
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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
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
