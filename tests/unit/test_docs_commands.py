"""Every command of the documentation is run by a test, or needs a real cluster and says so."""

from __future__ import annotations

import pytest

from tests.docs_commands import COMMANDS, HERE, ROOT, Command


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in HERE], ids=str)
def test_a_command_that_does_not_run_here_runs_elsewhere(command: Command) -> None:
    where = command.elsewhere()
    assert where is not None, f"{command}: run it here, or say where it is run"
    assert (ROOT / where).exists()
