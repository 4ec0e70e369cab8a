"""Every command that stands in the documentation: it runs here, or it is said where else it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.scripts import ENDING
from tests.e2e.workspace import Workspace

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / "docs").glob("**/*.md"), *(ROOT / name for name in ("README.md", "reporter/README.md"))]
)
PROGRAMS = r"kubectl|make|python3?|pip|helm|curl|git|docker|visibility-api|openssl"
READS = re.compile(r"kubectl (?:get|describe|wait|events|annotate) ")
# What is not run as it stands: a part of the command, and what shows it.
ELSEWHERE = {
    "README.md": {
        "docker build": "docs/releasing.md",
        "kubectl apply -k deploy/mine": "tests/e2e/test_removal.py",
        "kubectl wait apiservice": "tests/e2e/test_certificates.py",
        "kubectl create rolebinding visibility-exec": "tests/e2e/test_rights.py",
        "pip install ./reporter": "tests/service/test_packages.py",
        "python -m trainjob_progress.run": "tests/service/test_reporter_run.py",
        "make ": ".ci/run",
    },
    "reporter/README.md": {"pip install ./reporter": "tests/service/test_packages.py"},
    "docs/instrument.md": {"pip install ./reporter": "tests/service/test_packages.py"},
    "docs/architecture.md": {"python -": "docs/architecture.md"},  # its table has what they printed
    "docs/bad-days.md": {"KUBEBUILDER_ASSETS": "docs/bad-days.md", "make chaos": "docs/bad-days.md"},
    "docs/dashboard.md": {"kubectl proxy": "tests/e2e/test_dashboard.py", "make ": ".ci/run"},
    "docs/frameworks/any-command.md": {"trainjob_progress.run": "tests/service/test_reporter_run.py"},
    "docs/history.md": {"curl ": "tests/e2e/test_kubectl.py"},
    "docs/ingress.md": {"": "tests/e2e/test_ingress.py"},
    "docs/kinds.md": {"": "tests/e2e/test_kinds.py"},
    "docs/logs.md": {"log-tail": "tests/e2e/test_only_logs.py"},
    "docs/push.md": {"kubectl -n": "tests/service/test_pushing_manifests.py"},
    "docs/python.md": {"pip install": "tests/service/test_packages.py"},
    "docs/recipes.md": {"": "tests/e2e/test_recipes.py"},
    "docs/releasing.md": {"make release": "tests/service/test_release.py"},
    "docs/state.md": {"benchmarks.restarts": "docs/state.md"},
    "docs/start-laptop.md": {"make demo": ".ci/run"},
    "docs/troubleshooting.md": {"kubectl delete apiservice": "tests/e2e/test_removal.py"},
}
NEEDS_A_CLUSTER = "a real cluster"  # these words, on the page


class Command(NamedTuple):
    page: str
    text: str

    def elsewhere(self) -> str | None:
        found = (where for part, where in ELSEWHERE.get(self.page, {}).items() if part in self.text)
        return next(found, None)


def _commands() -> Iterator[Command]:
    for path in PAGES:
        page, is_fenced = str(path.relative_to(ROOT)), False
        if page.startswith("docs/decisions/"):
            continue
        text = path.read_text().replace("\\\n", " ")
        if NEEDS_A_CLUSTER in re.sub(r"\s+", " ", text[:600]):
            continue
        for line in text.splitlines():
            is_fenced ^= line.startswith("```")
            found = re.match(rf"(?:    )?(?:\$ )?((?:[A-Z_]+=\S+ )?(?:{PROGRAMS}) .*)", line)
            if found is not None and (is_fenced or line.startswith("    ")):
                yield Command(page, re.sub(r"\s+# .*", "", found[1]).strip())


COMMANDS = list(dict.fromkeys(_commands()))
HERE = [each for each in COMMANDS if READS.match(each.text) and each.elsewhere() is None]


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in HERE], ids=str)
def test_a_command_that_does_not_run_here_runs_elsewhere(command: Command) -> None:
    where = command.elsewhere()
    assert where is not None, f"{command}: run it here, or say where it is run"
    assert (ROOT / where).exists()


def test_the_commands_that_read_do_so_as_they_stand(workspace: Workspace) -> None:
    """By an administrator, since some read all namespaces. `-w` is left out: it has no end."""
    assert len(HERE) > 25
    jobs = sorted(
        {name for each in HERE for name in re.findall(r"\b(?:tjp|trainjobs?)[ /](\w+) ", each.text)}
    )
    assert jobs == ["NAME", "bert", "diverges"]
    for name in ("bert", "diverges"):
        workspace.start_job(name, ENDING.format(code=0))
    for name in ("bert", "diverges"):
        workspace.wait_condition(name, "Complete", "True")
    for command in HERE:
        text = re.sub(r"team-a|\bNS\b", workspace.name, command.text).replace("NAME", "bert")
        if " -n " not in text and " -A" not in text and "--raw" not in text and "apiservice" not in text:
            text += f" -n {workspace.name}"
        words = [each for each in shlex.split(text)[1:] if each != "-w"]
        told = workspace.admin.kubectl(*words)
        assert told.returncode == 0, (command, told.stderr)
