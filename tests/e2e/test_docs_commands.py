"""The commands of the documentation that read, as they stand there."""

from __future__ import annotations

import re
import shlex

from tests.docs_commands import HERE
from tests.e2e.scripts import ENDING
from tests.e2e.workspace import Workspace


def test_the_commands_that_read_do_so_as_they_stand(workspace: Workspace) -> None:
    """By an administrator, since some read all namespaces. `-w` is left out: it has no end."""
    assert len(HERE) > 25
    jobs = sorted(
        {name for each in HERE for name in re.findall(r"\b(?:tjp|trainjobs?)[ /](\w+) ", each.text)}
    )
    assert jobs == ["NAME", "bert", "diverges", "hangs", "loads"]
    for name in jobs[1:]:
        workspace.start_job(name, ENDING.format(code=0))
    for name in jobs[1:]:
        workspace.wait_condition(name, "Complete", "True")
    for command in HERE:
        text = re.sub(r"team-a|\bNS\b", workspace.name, command.text).replace("NAME", "bert")
        if " -n " not in text and " -A" not in text and "--raw" not in text and "apiservice" not in text:
            text += f" -n {workspace.name}"
        words = [each for each in shlex.split(text)[1:] if each != "-w"]
        told = workspace.admin.kubectl(*words)
        assert told.returncode == 0, (command, told.stderr)
