"""The http source, with pods that have an address of their own: what runs in there is in http_pods.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pod_network import inside, why_impossible

HERE = Path(__file__).parent
TIMEOUT_S = 580

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(TIMEOUT_S + 20)]


def test_what_a_pod_serves_is_read_and_nobody_elses_port_is_asked(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    run_inside("http_pods.py", tmp_path, pytestconfig)


def run_inside(name: str, directory: Path, config: pytest.Config) -> None:
    """Run the tests of a file that pytest does not collect by itself; none may be left out."""
    if why_not := why_impossible():
        pytest.skip(why_not)
    argv = [
        *(sys.executable, "-m", "pytest", "-q", str(HERE / name)),
        *("--cluster", config.getoption("--cluster")),
        *("--basetemp", str(directory / "inside")),
        *("-p", "no:cacheprovider"),  # it would forget what failed outside
        *("-p", "no:xdist"),  # this is one worker's test
    ]
    answer = subprocess.run(
        inside(argv), cwd=HERE.parents[1], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert answer.returncode == 0, answer.stdout[-10_000:] + answer.stderr[-2000:]
    summary = answer.stdout.splitlines()[-1]
    assert re.match(r"\d+ passed in ", summary), answer.stdout
