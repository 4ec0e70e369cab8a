"""Throwaway certificate authorities and the certificates they sign."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=30)
_CLOCK_SKEW = timedelta(minutes=5)


class Authority:
    """One certificate authority. `certificate_pem` is public; the key never leaves this object."""

    def __init__(self, common_name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate_pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue_server(self, names: list[str], addresses: list[str]) -> tuple[bytes, bytes]:
        """Certificate and key, PEM, for a server reached under these DNS names and IP addresses."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._issue(names[0], [], ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def issue_client(self, common_name: str, organizations: list[str]) -> tuple[bytes, bytes]:
        """Certificate and key, PEM, for a user (CN) with groups (O)."""
        return self._issue(common_name, organizations, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(
        self,
        common_name: str,
        organizations: list[str],
        usage: x509.ObjectIdentifier,
        alternatives: list[x509.GeneralName],
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        subject += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
        builder = (
            _builder(x509.Name(subject), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.public_bytes(serialization.Encoding.PEM), key_pem


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def write_pair(directory: Path, name: str, pair: tuple[bytes, bytes]) -> tuple[Path, Path]:
    """NAME.crt and NAME.key; the key readable by its owner alone."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(pair[0])
    key.touch(mode=0o600)
    key.write_bytes(pair[1])
    return certificate, key


def client_context(ca_pem: str, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Verifies the server against that CA alone, and sends the client certificate if there is one."""
    context = ssl.create_default_context(cadata=ca_pem)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
