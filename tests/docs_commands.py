"""Every command of the documentation: it is run as it stands, or it is said where else it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
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
    "docs/archive.md": {"": "tests/e2e/test_job_records.py"},
    "docs/diagnose.md": {"/diagnose": "tests/e2e/test_diagnosis.py"},
    "docs/instrument.md": {"pip install ./reporter": "tests/service/test_packages.py"},
    "docs/architecture.md": {"python -": "docs/architecture.md"},  # its table has what they printed
    "docs/bad-days.md": {"KUBEBUILDER_ASSETS": "docs/bad-days.md", "make chaos": "docs/bad-days.md"},
    "docs/dashboard.md": {"kubectl proxy": "tests/e2e/test_dashboard.py", "make ": ".ci/run"},
    "docs/federation.md": {"": "tests/e2e/test_federation.py"},
    "docs/frameworks/any-command.md": {"trainjob_progress.run": "tests/service/test_reporter_run.py"},
    "docs/history.md": {"curl ": "tests/e2e/test_kubectl.py"},
    "docs/ingress.md": {"": "tests/e2e/test_ingress.py"},
    "docs/kinds.md": {"": "tests/e2e/test_kinds.py"},
    "docs/logs.md": {"log-tail": "tests/e2e/test_only_logs.py"},
    "docs/nats.md": {"kubectl -n": "tests/service/test_replication_nats.py"},
    "docs/prometheus.md": {"": "tests/e2e/test_prometheus.py"},
    "docs/push.md": {"kubectl -n": "tests/service/test_pushing_manifests.py"},
    "docs/python.md": {"pip install": "tests/service/test_packages.py"},
    "docs/recipes.md": {"": "tests/e2e/test_recipes.py"},
    "docs/releasing.md": {"make release": "tests/service/test_release.py"},
    "docs/state.md": {"benchmarks.restarts": "docs/state.md"},
    "docs/start-laptop.md": {"make demo": ".ci/run"},
    "docs/terminal.md": {"": "tests/e2e/test_terminal.py"},
    "docs/trackers.md": {"pip install": "tests/service/test_packages.py", "": "tests/e2e/test_goodput.py"},
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
