"""A throwaway PKI for tests: CAs of any kind, and certificates as a cluster's own tools make them."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
ANY = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
DAY = timedelta(days=1)

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
Extension = tuple[x509.ExtensionType, bool]  # with its criticality


def key_usage(*, key_cert_sign: bool) -> Extension:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    ), True


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One certificate, its key, and the intermediates that lead up to (not including) the root."""

    certificate: x509.Certificate
    key: Key
    intermediates: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    @property
    def chain(self) -> tuple[bytes, ...]:
        """DER, the certificate itself first: what a TLS client sends."""
        return tuple(
            each.public_bytes(serialization.Encoding.DER) for each in (self.certificate, *self.intermediates)
        )

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Files of the chain and of the key, PEM."""
        chain, key = directory / f"{name}.crt", directory / f"{name}.key"
        chain.write_text("".join(map(_pem, (self.certificate, *self.intermediates))))
        key.touch(mode=0o600)
        key.write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return chain, key


class Authority:
    """A CA; made by `Authority(…)`, or by another one's `intermediate`."""

    def __init__(
        self,
        name: str,
        *,
        key: Key | None = None,
        issuer: Authority | None = None,
        path_length: int | None = None,
        extensions: Sequence[Extension] | None = None,  # None: what strict clients want to see
        not_after: datetime | None = None,
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.subject = _name([(NameOID.COMMON_NAME, name)])
        self._above: tuple[x509.Certificate, ...] = (*issuer._above, issuer.certificate) if issuer else ()
        self.certificate: x509.Certificate = _sign(
            self.subject,
            self.key,
            issuer or self,
            [
                (x509.BasicConstraints(ca=True, path_length=path_length), True),
                *([key_usage(key_cert_sign=True)] if extensions is None else extensions),
            ],
            not_after=not_after,
        )

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    def intermediate(
        self, name: str, *, extensions: Sequence[Extension] | None = None, not_after: datetime | None = None
    ) -> Authority:
        return Authority(name, issuer=self, extensions=extensions, not_after=not_after)

    def issue(
        self,
        common_name: str | None,
        *organizations: str,
        usages: Sequence[x509.ObjectIdentifier] = (CLIENT,),
        hosts: Sequence[str] = (),
        attributes: Sequence[tuple[x509.ObjectIdentifier, str]] = (),
        extensions: Sequence[Extension] = (),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        key: Key | None = None,
    ) -> Certificate:
        """A leaf; like kubeadm's without a subject alternative name unless `hosts` are given."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        names = [(NameOID.ORGANIZATION_NAME, group) for group in organizations]
        if common_name is not None:
            names.append((NameOID.COMMON_NAME, common_name))
        chosen: list[Extension] = [(x509.BasicConstraints(ca=False, path_length=None), True), *extensions]
        if usages:
            chosen.append((x509.ExtendedKeyUsage(usages), False))
        if hosts:
            chosen.append((x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False))
        certificate = _sign(
            _name([*names, *attributes]), key, self, chosen, not_before=not_before, not_after=not_after
        )
        above = (self.certificate, *reversed(self._above))[:-1] if self._above else ()
        return Certificate(certificate=certificate, key=key, intermediates=above)


def client_context(
    server_ca: str, certificate: tuple[Path, Path] | None = None, *, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """TLS of a client that trusts `server_ca` (PEM) and shows the certificate in the files, if any."""
    context = ssl.create_default_context(cadata=server_ca)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def now() -> datetime:
    return datetime.now(UTC)


def _sign(
    subject: x509.Name,
    key: Key,
    issuer: Authority,
    extensions: Sequence[Extension],
    *,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before or now() - 2 * DAY)
        .not_valid_after(not_after or now() + DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False
        )
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, is_critical)
    return builder.sign(issuer.key, hashes.SHA256())


def _name(attributes: Sequence[tuple[x509.ObjectIdentifier, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
