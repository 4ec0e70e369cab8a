"""`--upstreams`: two clusters, as MultiKueue's manager and worker are. Kueue's controllers are not here."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.api import Object, write_kubeconfig
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import start_cluster
from tests.e2e.crds import Definitions
from tests.e2e.loop_thread import LoopThread
from tests.e2e.processes import wait_until
from tests.e2e.scripts import REPORTING
from tests.e2e.tcp_proxy import TcpProxy
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import TRAINER, User, Workspace, condition

READER = "manager"
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "federation.md").read_text()


class Federation(NamedTuple):
    here: Workspace  # of the manager's cluster
    there: Workspace  # of the worker's, a namespace of the same name
    manager: VisibilityServer
    link: tuple[LoopThread, TcpProxy]  # from the manager to the worker's API server

    def status(self, name: str) -> Object:
        """What the manager's server shows of this job."""
        path, pair = f"{self.here.collection}/{name}/progress", self.here.cluster.admin_pair
        answer = self.manager.get(path, cert=pair)
        assert answer.status_code == 200, answer.text
        found: Object = answer.json()["status"]
        return found

    def hand_over(self, name: str) -> None:
        """What Kueue's admission makes of a job in the manager's cluster: others run it."""
        self.here.cluster.admin.create(
            f"{TRAINER}/namespaces/{self.here.name}/trainjobs",
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": name},
                "spec": {
                    "runtimeRef": {"name": "torch-distributed"},
                    "managedBy": "kueue.x-k8s.io/multikueue",
                },
            },
        )


@pytest.fixture(scope="module")
def federation(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    shared: Workspace,
    definitions: Definitions,
    pod_ip: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Federation]:
    directory: Path = tmp_path_factory.mktemp("federation")
    with contextlib.ExitStack() as stack:
        other = start_cluster(request.config, directory / "cluster", definitions, pod_ip)
        stack.callback(other.stop)
        users = {
            name: User(name, other, other.issue_client(name), directory / name) for name in ("alice", "bob")
        }
        users["admin"] = User("kubernetes-admin", other, other.admin_pair, directory / "admin")
        there = Workspace(other, users, name=shared.name)
        worker = VisibilityServer(other, directory / "worker")
        stack.callback(worker.stop)
        stack.callback(there.clean)
        words = re.search(r"kubectl (create clusterrolebinding .+?)\n\s+```", PAGE, re.DOTALL)
        assert words is not None
        bound = users["admin"].kubectl(*shlex.split(words[1].replace("\\\n", " ")))  # as the page says
        assert bound.returncode == 0, bound.stderr
        loop, link = LoopThread(), TcpProxy(other.port)
        stack.callback(loop.stop)
        loop.call(link.start())
        stack.callback(lambda: loop.call(link.stop()))
        (directory / "upstreams").mkdir()
        kubeconfig = write_kubeconfig(
            directory / "upstreams" / "west",
            url=f"https://127.0.0.1:{link.port}",
            ca_file=other.ca_file,
            cert=other.issue_client(READER),
        )
        manager = VisibilityServer(
            cluster,
            directory / "manager",
            flags=["--upstreams", str(kubeconfig.parent), "--namespaces", shared.name],
            is_registered=False,
        )
        stack.callback(manager.stop)
        yield Federation(shared, there, manager, (loop, link))


def test_a_job_that_another_cluster_runs_is_shown_as_it_is_there(federation: Federation) -> None:
    federation.hand_over("bert")

    def waits() -> bool:
        return bool(federation.status("bert")["phaseReason"] == "ManagedElsewhere")

    wait_until(waits, what="the job waits for a worker")
    federation.there.start_job("bert", REPORTING)
    federation.there.wait_reporting("bert")

    def runs() -> Object:
        status = federation.status("bert")
        assert status["phase"] == "Running", status
        assert status["steps"]["current"] > 0, status
        return status

    status = wait_until(runs, what="the manager's server shows the job as it runs")
    assert status is not None
    assert status["steps"]["total"] == 100_000
    assert {each["name"]: each["value"] for each in status["metrics"]} == {"loss": "0.5"}
    assert status["phaseMessage"].endswith("Seen in cluster west.")
    assert condition(status, "Fresh")["status"] == "True"
    assert condition(status, "Reporting")["status"] == "True"
    federation.there.delete_job("bert")
    wait_until(waits, what="the job waits again once the worker's copy is gone")


def test_a_job_of_the_same_name_that_runs_here_is_not_replaced(federation: Federation) -> None:
    federation.here.start_job("own", REPORTING)
    federation.there.start_job("own", "import time; time.sleep(600)")

    def runs() -> bool:
        status = federation.status("own")
        assert "west" not in status.get("phaseMessage", ""), status
        return bool(status["steps"]["current"] > 0)

    wait_until(runs, what="the manager's own job is shown")


def test_why_a_job_failed_there_is_said_here_and_where_its_log_is(federation: Federation) -> None:
    federation.hand_over("fails")
    federation.there.start_job("fails", "import sys; sys.exit(3)")

    def has_failed() -> Object:
        failure: Object = federation.status("fails")["failure"]
        return failure

    failure = wait_until(has_failed, what="the manager's server shows the failure")
    assert failure is not None
    assert failure["exitCode"] == 3
    assert failure["podName"].startswith("fails-")
    assert "exit code 3" in failure["message"]
    path = f"{federation.here.collection}/fails/log-tail"
    answer = federation.manager.get(path, cert=federation.here.cluster.admin_pair)
    assert answer.status_code == 404
    assert answer.json()["message"].startswith("The job runs in cluster west, and its log is there.")


def test_behind_a_cut_link_the_last_report_is_shown_with_its_age(federation: Federation) -> None:
    loop, link = federation.link
    federation.hand_over("cut")
    federation.there.start_job("cut", REPORTING)

    def runs() -> int:
        step: int = federation.status("cut")["steps"]["current"]
        assert step > 0
        return step

    wait_until(runs, what="the job is shown")
    loop.call(link.refuse())
    try:

        def is_told() -> Object:
            status = federation.status("cut")
            fresh = condition(status, "Fresh")
            assert (fresh["status"], fresh["reason"]) == ("False", "NoNewReport"), fresh
            assert "estimatedCompletionTime" not in status
            return status

        status = wait_until(is_told, what="the report is called old", timeout_s=120)
        assert status is not None
        assert status["steps"]["current"] > 0
        verbose = [federation.manager.get("/readyz?verbose", port=each) for each in federation.manager.ports]
        assert any("west: " in each.text for each in verbose)
    finally:
        loop.call(link.allow())
    before = status["steps"]["current"]

    def goes_on() -> bool:
        status = federation.status("cut")
        return status["steps"]["current"] > before and condition(status, "Fresh")["status"] == "True"

    wait_until(goes_on, what="the report is recent again")
