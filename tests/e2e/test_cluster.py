"""The harness itself: without these, a failure elsewhere could be the cluster's."""

from __future__ import annotations

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster, ExecPath
from tests.e2e.exec_faults import Fault
from tests.e2e.processes import wait_until
from tests.e2e.scripts import SILENT
from tests.e2e.workspace import Workspace

_TALKING = f"print('hello', flush=True); {SILENT}"


@pytest.fixture(scope="module")
def pod(bare: Workspace) -> Object:
    bare.start_job("one", _TALKING)
    return bare.wait_running("one")


def test_logs_reach_the_user(bare: Workspace, pod: Object) -> None:
    def said() -> str:
        return bare.admin.kubectl("logs", "-n", bare.name, pod["metadata"]["name"]).stdout

    assert wait_until(said, what="the process has said something") == "hello\n"


def test_exec_brings_back_both_streams_and_the_exit_code(
    bare: Workspace, pod: Object, exec_path: ExecPath
) -> None:
    command = ("sh", "-c", "echo out; echo err >&2; exit 3")
    answer = bare.admin.kubectl("exec", "-n", bare.name, pod["metadata"]["name"], "--", *command)
    assert (answer.returncode, answer.stdout) == (3, "out\n")
    assert answer.stderr.startswith("err\n")


def test_exec_carries_large_output_whole(bare: Workspace, pod: Object, exec_path: ExecPath) -> None:
    command = ("head", "-c", "3000000", "/dev/zero")
    argv = ("exec", "-n", bare.name, pod["metadata"]["name"], "--", "sh", "-c", " ".join(command))
    assert len(bare.admin.kubectl(*argv).stdout) == 3_000_000


def test_exec_that_breaks_off_gives_half_of_the_output(
    cluster: Cluster, bare: Workspace, pod: Object, exec_path: ExecPath
) -> None:
    with cluster.agent.inject(bare.name, Fault.DROPS):
        answer = bare.admin.kubectl("exec", "-n", bare.name, pod["metadata"]["name"], "--", "seq", "1000")
    assert answer.stdout.startswith("1\n2\n")
    assert len(answer.stdout) < len("".join(f"{n}\n" for n in range(1, 1001)))
    if cluster.kind == "real" and exec_path is ExecPath.TRANSLATED:
        # What the server under test is up against: translated, a cut connection looks like success.
        assert answer.returncode == 0
