"""Serving certificates: self-signed ones in files, and their change while they are served."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.certificates import Authority, now
from visibility_api.auth.errors import TrustUnusable
from visibility_api.certificates.files import CertificateFiles
from visibility_api.certificates.making import provide_certificate
from visibility_api.serving.tls import Pair, ServingTls


def names(file: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in held}


def test_pair_is_made_with_all_names_and_a_private_key(tmp_path: Path) -> None:
    certificate_file, key_file = provide_certificate(tmp_path / "a" / "b", ["api.svc", "::1", "localhost"])
    assert names(certificate_file) == {"api.svc", "::1", "localhost", "127.0.0.1"}
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in sorted(certificate_file.parent.iterdir())] == [
        "apiserver.crt",
        "apiserver.key",
    ]
    ServingTls(CertificateFiles(certificate_file, key_file).read())


def test_good_pair_is_used_again(tmp_path: Path) -> None:
    first = provide_certificate(tmp_path, ["a"])[0].read_bytes()
    assert provide_certificate(tmp_path, ["a"])[0].read_bytes() == first


def test_a_pair_that_cannot_be_used_is_replaced(tmp_path: Path) -> None:
    """Another name, another key, a key others may read, not long to live."""
    certificate_file, key_file = provide_certificate(tmp_path, ["a"])
    held = certificate_file.read_bytes()

    def is_renewed(hosts: list[str], **options: Any) -> bool:
        nonlocal held
        before, held = held, provide_certificate(tmp_path, hosts, **options)[0].read_bytes()
        return held != before

    assert is_renewed(["b"])
    key_file.chmod(0o644)
    assert is_renewed(["b"])
    key_file.write_bytes(provide_certificate(tmp_path / "other", ["b"])[1].read_bytes())
    assert is_renewed(["b"])
    certificate_file.write_text("junk")
    assert is_renewed(["b"])
    assert not is_renewed(["b"])
    assert is_renewed(["b"], renew_before=timedelta(days=400))


def test_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrustUnusable, match="file"):
        provide_certificate(tmp_path / "file", [])


def test_files_that_hold_no_pair_are_unusable(tmp_path: Path) -> None:
    certificate_file, key_file = provide_certificate(tmp_path, [])
    other = provide_certificate(tmp_path / "other", [])[1]
    for pair in ((certificate_file, other), (tmp_path / "absent", key_file), (key_file, certificate_file)):
        with pytest.raises(TrustUnusable):
            ServingTls(CertificateFiles(pair[0], pair[1]).read())
    tls = ServingTls(CertificateFiles(certificate_file, key_file).read())
    before = tls.context
    for _ in range(2):  # it was not taken for the new value the first time
        with pytest.raises(TrustUnusable):
            tls.trust("junk")
    assert tls.context is before


def pair_of(authority: Authority, lasts: timedelta = timedelta(days=1)) -> Pair:
    certificate = authority.issue("server", usages=[], not_after=now() + lasts)
    key = certificate.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(certificate.pem.encode(), key)


def test_a_renewed_certificate_is_known_before_it_is_served_and_the_former_after() -> None:
    """Replicas change it one after the other, and recognise each other by it."""
    clock = [0.0]
    first, second, third = (pair_of(Authority("serving")) for _ in range(3))
    tls = ServingTls(first, settle_s=60, clock=lambda: clock[0])
    context = tls.context
    assert tls.renew(second)
    assert not tls.renew(second)
    assert (tls.pairs, tls.context) == ([first, second], context)
    clock[0] = 60
    assert tls.context is not context
    assert tls.pairs == [second, first]
    clock[0] = 100
    assert tls.renew(third)
    assert tls.pairs == [second, third, first]
    clock[0] = 120
    assert tls.pairs == [second, third]
    clock[0] = 160
    assert tls.pairs == [third, second]


def test_a_certificate_that_ends_before_others_know_the_next_is_replaced_at_once() -> None:
    first, second = pair_of(Authority("serving"), timedelta(seconds=30)), pair_of(Authority("serving"))
    tls = ServingTls(first, settle_s=60)
    assert tls.renew(second)
    assert tls.pairs == [second, first]


def test_what_is_no_pair_is_not_served() -> None:
    first, second = (pair_of(Authority("serving")) for _ in range(2))
    tls = ServingTls(first, settle_s=60)
    with pytest.raises(TrustUnusable):
        tls.renew(Pair(second.certificate, first.key))
    assert tls.pairs == [first]
