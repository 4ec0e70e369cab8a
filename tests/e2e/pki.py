"""A throwaway PKI laid out as a control plane has it: one CA for each kind of trust.

The CAs are separate on purpose: the server under test must tell a certificate of the front proxy's CA from
one of the ordinary client CA (A4), and a merged pool would hide that.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """Files of one certificate and its private key, PEM."""

    cert: Path
    key: Path


class Authority:
    """One CA: its bundle on disk, and certificates issued next to it."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"throwaway {name} CA")])
        certificate = (
            self._builder(self._subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(key_cert_sign=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = directory / f"{name}-ca.crt"
        self.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue_client(self, common_name: str, *groups: str) -> KeyPair:
        """A certificate for a user (CN) in some groups (each O); see A13."""
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        names.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        return self._issue(common_name, names, ExtendedKeyUsageOID.CLIENT_AUTH, hosts=())

    def issue_server(self, common_name: str, *hosts: str) -> KeyPair:
        """A serving certificate whose SANs are `hosts` (names or addresses)."""
        names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        return self._issue(common_name, names, ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def _issue(
        self,
        file_name: str,
        names: list[x509.NameAttribute[str]],
        usage: x509.ObjectIdentifier,
        hosts: tuple[str, ...],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(x509.Name(names), key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(key_cert_sign=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if hosts:  # Go refuses a critical empty SAN, so a client certificate has none
            sans = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(sans, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        stem = f"{self._name}-{file_name.replace(':', '_').replace('/', '_')}"
        pair = KeyPair(cert=self._directory / f"{stem}.crt", key=self._directory / f"{stem}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_private_key(key, pair.key)
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        issuer_key = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
        )


class ControlPlanePki:
    """Everything kube-apiserver wants to be given, in `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.clients = Authority(directory, "client")  # users, and kube-apiserver towards kubelets
        self.front_proxy = Authority(directory, "front-proxy")  # the aggregator towards us
        self.serving = Authority(directory, "serving")  # kube-apiserver and kubelet, as servers
        self.service_account_key = directory / "service-account.key"
        self.service_account_pub = directory / "service-account.pub"
        key = ec.generate_private_key(ec.SECP256R1())
        write_private_key(key, self.service_account_key)
        self.service_account_pub.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )


def server_context(pair: KeyPair, *, clients: Authority) -> ssl.SSLContext:
    """TLS for a server that refuses whoever has no certificate of `clients`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clients.bundle))
    context.load_cert_chain(pair.cert, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def write_private_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def _key_usage(*, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
