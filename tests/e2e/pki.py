"""A throwaway PKI laid out as a control plane has it: one CA for each kind of trust, with files.

The CAs are separate on purpose: the server under test must tell a certificate of the front proxy's CA from
one of the ordinary client CA (A4), and a merged pool would hide that.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization

from tests import certificates
from tests.certificates import CLIENT, SERVER


class KeyPair(NamedTuple):
    """Files of one certificate and its private key, PEM."""

    cert: Path
    key: Path


class Authority:
    """One CA: its bundle on disk, and certificates issued next to it."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._authority = certificates.Authority(f"throwaway {name} CA")
        self._successor = self._authority
        self.bundle = directory / f"{name}-ca.crt"
        self._publish(self._authority.pem)

    def publish_successor(self) -> None:
        """Another CA is trusted beside this one."""
        self._successor = certificates.Authority(f"throwaway {self._name} CA, the next")
        self._publish(self._authority.pem + self._successor.pem)

    def succeed(self) -> None:
        """From now on the other one signs."""
        self._authority = self._successor

    def retire(self) -> None:
        """Only the CA that signs is trusted."""
        self._publish(self._authority.pem)

    def _publish(self, bundle: str) -> None:
        new = self.bundle.with_suffix(".new")
        new.write_text(bundle)
        new.replace(self.bundle)

    def issue_client(self, common_name: str, *groups: str) -> KeyPair:
        """A certificate for a user (CN) in some groups (each O); see A13."""
        return self._write(common_name, self._authority.issue(common_name, *groups, usages=(CLIENT,)))

    def issue_server(self, common_name: str, *hosts: str) -> KeyPair:
        """A serving certificate whose SANs are `hosts` (names or addresses)."""
        return self._write(common_name, self._authority.issue(common_name, usages=(SERVER,), hosts=hosts))

    def _write(self, common_name: str, certificate: certificates.Certificate) -> KeyPair:
        stem = f"{self._name}-{common_name.replace(':', '_').replace('/', '_')}"
        return KeyPair(*certificate.write(self._directory, stem))


class ControlPlanePki:
    """Everything kube-apiserver wants to be given, in `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.clients = Authority(directory, "client")  # users, and kube-apiserver towards kubelets
        self.front_proxy = Authority(directory, "front-proxy")  # the aggregator towards us
        self.serving = Authority(directory, "serving")  # kube-apiserver and kubelet, as servers
        signer = certificates.Authority("throwaway service accounts").issue("service-account")
        _, self.service_account_key = signer.write(directory, "service-account")
        self.service_account_pub = directory / "service-account.pub"
        self.service_account_pub.write_bytes(
            signer.key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )


def server_context(pair: KeyPair, *, clients: Path) -> ssl.SSLContext:
    """TLS for a server that refuses whoever has no certificate of a CA in this bundle."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clients))
    context.load_cert_chain(*pair)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
