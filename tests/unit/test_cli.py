"""The command line says what it cannot use, and why, without a traceback."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from visibility_api.cli import main


def test_an_unknown_command_is_named_and_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sevre"]) == 2
    said = capsys.readouterr().err
    assert 'there is no command "sevre"' in said
    assert "openapi" in said


def test_wrong_flags_are_all_told_and_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(["serve", "--probe-interval=soon", "--sources=etcd"]) == 2
    finally:
        gc.enable()
    said = capsys.readouterr().err
    assert '--probe-interval "soon"' in said
    assert '--sources "etcd"' in said


def test_openapi_documents_that_cannot_be_written_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "openapi"
    taken.write_text("a file")
    assert main(["openapi", "--out", str(taken)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("visibility-api openapi: cannot write: ")
    assert said.count("\n") == 1
