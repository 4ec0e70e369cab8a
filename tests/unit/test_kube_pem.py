"""A certificate or key that cannot be used is refused in words that name the file and what is wrong."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kubernetes_asyncio.client import Configuration

from visibility_api.auth.errors import TrustUnusable
from visibility_api.certificates.files import CertificateFiles
from visibility_api.certificates.making import provide_certificate
from visibility_api.kube.pem import describe_pair_fault
from visibility_api.kube.tls import client_context
from visibility_api.serving.tls import ServingTls

Change = Callable[[Path, Path], object]
_KEY = b"-----BEGIN PRIVATE KEY-----\nMC4CAQ==\n-----END PRIVATE KEY-----\n"
_PARAMETERS = "-----BEGIN DH PARAMETERS-----\nMAA=\n-----END DH PARAMETERS-----\n"


def _encrypt(key: Path) -> None:
    held = load_pem_private_key(key.read_bytes(), password=None)
    key.write_bytes(
        held.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    )


def _replace_key(key: Path) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _exchange(certificate: Path, key: Path) -> None:
    certificate.rename(certificate.with_suffix(".was"))
    key.rename(certificate)
    certificate.with_suffix(".was").rename(key)


FAULTS: dict[str, tuple[Change, str]] = {
    "no certificate": (lambda certificate, _: certificate.unlink(), r"No such file or directory: '.*\.crt'"),
    "empty certificate": (lambda certificate, _: certificate.write_text(" \n"), r"\.crt is empty$"),
    "certificate is text": (
        lambda certificate, _: certificate.write_text("junk"),
        r"\.crt is not in PEM format",
    ),
    "certificate is DER": (
        lambda certificate, _: certificate.write_bytes(ssl.PEM_cert_to_DER_cert(certificate.read_text())),
        r"\.crt is not in PEM format",
    ),
    "certificate cut short": (
        lambda certificate, _: certificate.write_bytes(certificate.read_bytes()[:300]),
        r"\.crt holds a certificate that is damaged or cut short$",
    ),
    "certificate damaged": (
        lambda certificate, _: certificate.write_text(re.sub("MII", "AAA", certificate.read_text(), count=1)),
        r"\.crt holds a certificate that is damaged or cut short$",
    ),
    "certificate is a key": (
        lambda certificate, key: certificate.write_bytes(key.read_bytes()),
        r"\.crt holds a private key, not a certificate$",
    ),
    "certificate is something else": (
        lambda certificate, _: certificate.write_text(_PARAMETERS),
        r"\.crt holds something else, not a certificate$",
    ),
    "exchanged": (_exchange, r"\.crt holds a private key, not a certificate$"),
    "no key": (lambda _, key: key.unlink(), r"No such file or directory: '.*\.key'"),
    "empty key": (lambda _, key: key.write_text(""), r"\.key is empty$"),
    "key is text": (lambda _, key: key.write_text("junk"), r"\.key is not in PEM format"),
    "key is a certificate": (
        lambda certificate, key: key.write_bytes(certificate.read_bytes()),
        r"\.key holds a certificate, not a private key$",
    ),
    "key damaged": (lambda _, key: key.write_bytes(_KEY), r"\.key holds a private key that is damaged"),
    "key cut short": (
        lambda _, key: key.write_bytes(key.read_bytes()[:80]),
        r"\.key holds a private key that is damaged, cut short",
    ),
    "key encrypted": (lambda _, key: _encrypt(key), r"\.key is encrypted with a passphrase"),
    "key of another": (
        lambda _, key: _replace_key(key),
        r"the key in \S+\.key does not belong to the certificate in \S+\.crt$",
    ),
}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return provide_certificate(tmp_path, [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pair_that_cannot_be_served_with_is_refused_in_words(fault: str, pair: tuple[Path, Path]) -> None:
    change, words = FAULTS[fault]
    change(*pair)
    with pytest.raises(TrustUnusable, match=words):
        ServingTls(CertificateFiles(pair[0], pair[1]).read())


@pytest.mark.parametrize("fault", [name for name in FAULTS if not name.startswith("no ")])
def test_so_is_a_client_certificate_of_the_kubeconfig(fault: str, pair: tuple[Path, Path]) -> None:
    change, words = FAULTS[fault]
    change(*pair)
    configuration = Configuration()
    configuration.cert_file, configuration.key_file = str(pair[0]), str(pair[1])
    with pytest.raises(OSError, match=words):
        client_context(configuration)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", r"ca\.crt is empty$"),
        ("junk", r"ca\.crt is not in PEM format"),
        (_KEY.decode(), r"ca\.crt holds a private key, not a certificate$"),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            r"ca\.crt holds a certificate that is",
        ),
    ],
)
def test_so_is_the_ca_of_the_kubeconfig(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(content)
    configuration = Configuration()
    configuration.ssl_ca_cert = str(file)
    with pytest.raises(OSError, match=words):
        client_context(configuration)


def test_a_good_pair_has_no_fault_with_its_issuers_behind_it_or_text_before(pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    certificate.write_text("subject: whoever\n" + certificate.read_text() * 2)
    assert describe_pair_fault(certificate, key) is None
    ServingTls(CertificateFiles(certificate, key).read())
