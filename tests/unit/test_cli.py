"""The command line says what it cannot use, and why, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from visibility_api.cli import main


@pytest.mark.parametrize("days", ["0", "-3", "36501"])
def test_a_lifetime_no_certificate_can_have_is_refused(
    days: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["certificate", "--out", str(tmp_path / "tls"), "--days", days])
    assert ended.value.code == 2
    assert f"--days {days}: give a whole number from 1 to 36500" in capsys.readouterr().err
    assert not (tmp_path / "tls").exists()


def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "tls"
    taken.write_text("a file")
    assert main(["certificate", "--out", str(taken)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("visibility-api certificate: cannot write a serving certificate: ")
    assert said.count("\n") == 1


def test_an_unknown_command_is_named_and_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sevre"]) == 2
    said = capsys.readouterr().err
    assert 'there is no command "sevre"' in said
    assert "certificate" in said


@pytest.mark.parametrize("flag", ["--service", "--namespace"])
@pytest.mark.parametrize("name", ["", "Visibility_API", "a.b", "ü", "x" * 64])
def test_a_name_no_service_can_have_is_refused(
    flag: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["certificate", "--out", str(tmp_path / "tls"), flag, name])
    assert ended.value.code == 2
    assert f"give the name of a {flag[2:]}" in capsys.readouterr().err


def test_the_certificate_names_the_service_as_the_aggregator_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P4: SERVICE.NAMESPACE.svc, under a CA that the same run made."""
    arguments = ["--service", "progress", "--namespace", "ml", "--days", "30"]
    assert main(["certificate", "--out", str(tmp_path), *arguments]) == 0
    files = ("ca.crt", "tls.crt", "tls.key")
    assert sorted(capsys.readouterr().out.split()) == [str(tmp_path / name) for name in files]
    ca, leaf = (x509.load_pem_x509_certificate((tmp_path / n).read_bytes()) for n in files[:2])
    leaf.verify_directly_issued_by(ca)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName)[0] == "progress.ml.svc"
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 30
    assert (tmp_path / "tls.key").stat().st_mode & 0o077 == 0


def test_openapi_documents_that_cannot_be_written_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "openapi"
    taken.write_text("a file")
    assert main(["openapi", "--out", str(taken)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("visibility-api openapi: cannot write: ")
    assert said.count("\n") == 1
