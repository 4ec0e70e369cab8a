"""Serving certificates that this server makes: private keys, names, renewal."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.certificates import Authority
from visibility_api.auth.errors import TrustUnusable
from visibility_api.serving.certificate import provide_certificate, write_serving_certificate
from visibility_api.serving.tls import ServingTls


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
    ServingTls(certificate_file=certificate_file, key_file=key_file)


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


def test_pair_to_install_is_vouched_for_by_its_ca(tmp_path: Path) -> None:
    files = write_serving_certificate(tmp_path, names=["api.ns.svc"], days=10)
    assert sorted(file.name for file in files) == ["ca.crt", "tls.crt", "tls.key"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    ca, leaf = (x509.load_pem_x509_certificate((tmp_path / f).read_bytes()) for f in ("ca.crt", "tls.crt"))
    store = x509.verification.Store([ca])
    verifier = (
        x509.verification.PolicyBuilder().store(store).build_server_verifier(x509.DNSName("api.ns.svc"))
    )
    assert verifier.verify(leaf, []) == [leaf, ca]
    assert abs(leaf.not_valid_after_utc - datetime.now(UTC) - timedelta(days=10)) < timedelta(minutes=1)
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600
    ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))


def test_a_ca_in_use_is_replaced_only_on_request_and_stays_trusted(tmp_path: Path) -> None:
    write_serving_certificate(tmp_path, names=["api.ns.svc"], days=10)
    held = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TrustUnusable, match=r"ca\.crt is there already.*--renew"):
        write_serving_certificate(tmp_path, names=["api.ns.svc"], days=10)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == held
    for _ in range(2):
        former = x509.load_pem_x509_certificates((tmp_path / "ca.crt").read_bytes())[0]
        write_serving_certificate(tmp_path, names=["api.ns.svc"], days=10, renew=True)
        renewed, kept = x509.load_pem_x509_certificates((tmp_path / "ca.crt").read_bytes())
        assert kept == former != renewed


def test_a_ca_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("junk")
    with pytest.raises(TrustUnusable, match=r"ca\.crt cannot be read"):
        write_serving_certificate(tmp_path, names=["api.ns.svc"], days=10, renew=True)


def test_files_that_hold_no_pair_are_unusable(tmp_path: Path) -> None:
    certificate_file, key_file = provide_certificate(tmp_path, [])
    other = provide_certificate(tmp_path / "other", [])[1]
    for pair in ((certificate_file, other), (tmp_path / "absent", key_file), (key_file, certificate_file)):
        with pytest.raises(TrustUnusable):
            ServingTls(certificate_file=pair[0], key_file=pair[1])
    tls = ServingTls(certificate_file=certificate_file, key_file=key_file)
    before = tls.context
    for _ in range(2):  # it was not taken for the new value the first time
        with pytest.raises(TrustUnusable):
            tls.trust("junk")
    assert tls.context is before
    assert not tls.reload_files()


def test_the_served_certificate_is_given_without_its_issuers_and_follows_the_files(
    tmp_path: Path,
) -> None:
    region = Authority("root").intermediate("region")
    first, second = region.issue("server", usages=[]), region.issue("server", usages=[])
    certificate_file, key_file = first.write(tmp_path, "server")
    tls = ServingTls(certificate_file=certificate_file, key_file=key_file)
    assert tls.certificate == first.chain[0]
    second.write(tmp_path, "server")
    assert tls.certificate == first.chain[0]  # which is still what is served
    assert tls.reload_files()
    assert tls.certificate == second.chain[0]
