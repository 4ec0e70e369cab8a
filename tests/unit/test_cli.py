"""The command line says what it cannot use, and why, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

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
