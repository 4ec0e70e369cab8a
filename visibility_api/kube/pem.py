"""Why a certificate and its key cannot be used, in words: OpenSSL's own do not name the file or the fault."""

from __future__ import annotations

import re
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# For `load_cert_chain`: without any, OpenSSL asks for one at the terminal, and waits.
NO_PASSPHRASE = ""

_BEGIN = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----")
_CERTIFICATES = frozenset((b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"))


def describe_pair_fault(certificate_file: Path, key_file: Path) -> str | None:
    """The first fault of the files, with the name of the file; None if there is none.

    Their content is never quoted.
    """
    try:
        certificate, key = certificate_file.read_bytes(), key_file.read_bytes()
    except OSError as error:
        return str(error)
    certificates = [block for block in _BEGIN.findall(certificate) if block in _CERTIFICATES]
    if fault := _form_fault(
        certificate_file, certificate, has_wanted=bool(certificates), wanted="a certificate"
    ):
        return fault
    try:
        leaf, *_ = x509.load_pem_x509_certificates(certificate)
    except ValueError:
        return f"{certificate_file} holds a certificate that is damaged or cut short"
    keys = [block for block in _BEGIN.findall(key) if block.endswith(b"PRIVATE KEY")]
    if fault := _form_fault(key_file, key, has_wanted=bool(keys), wanted="a private key"):
        return fault
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except TypeError:
        return f"{key_file} is encrypted with a passphrase: store the key without one"
    except (ValueError, UnsupportedAlgorithm):
        return f"{key_file} holds a private key that is damaged, cut short or of an unknown kind"
    if _public(private.public_key()) != _public(leaf.public_key()):
        return f"the key in {key_file} does not belong to the certificate in {certificate_file}"
    return None


def describe_bundle_fault(file: Path) -> str | None:
    """The first fault of a file of CA certificates; None if there is none."""
    try:
        content = file.read_bytes()
    except OSError as error:
        return str(error)
    has_wanted = any(block in _CERTIFICATES for block in _BEGIN.findall(content))
    if fault := _form_fault(file, content, has_wanted=has_wanted, wanted="a certificate"):
        return fault
    try:
        x509.load_pem_x509_certificates(content)
    except ValueError:
        return f"{file} holds a certificate that is damaged or cut short"
    return None


def _form_fault(file: Path, content: bytes, *, has_wanted: bool, wanted: str) -> str | None:
    if has_wanted:
        return None
    if not content.strip():
        return f"{file} is empty"
    found = _BEGIN.findall(content)
    if not found:
        return f"{file} is not in PEM format: it has no line -----BEGIN …-----"
    kind = "a certificate" if found[0] in _CERTIFICATES else "a private key"
    if not found[0].endswith(b"PRIVATE KEY") and found[0] not in _CERTIFICATES:
        kind = "something else"
    return f"{file} holds {kind}, not {wanted}"


def _public(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]  # every kind of public key has it
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
