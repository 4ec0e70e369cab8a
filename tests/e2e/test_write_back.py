"""`--write-back` end to end, with just the rights of deploy/components/write-back beside the ordinary ones.

A second server writes, for the jobs of one namespace only, so that no other test's jobs are touched.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from localcluster.demo.installation import component_flags, manifest_files
from tests.canary import assert_untold, plant
from tests.e2e.api import Object, write_kubeconfig
from tests.e2e.cluster import Cluster
from tests.e2e.exec_faults import Fault
from tests.e2e.manifests import NAMESPACE, ROOT, SERVICE_ACCOUNT, path_of, without
from tests.e2e.pki import Authority
from tests.e2e.processes import PATIENCE_S, Daemon, free_port, wait_until
from tests.e2e.scripts import REPORTING, SHORT, SILENT
from tests.e2e.visibility_server import END_WAIT_S, PREFIX, VisibilityServer
from tests.e2e.workspace import TRAINER, Workspace, condition
from tests.jobs import reported
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.writeback.status_client import FIELD_MANAGER
from visibility_api.writeback.writer import WriteBack

COMPONENT = "write-back"
# One report, by hand, and then nothing but life.
ONCE = """
import datetime, json, os, time

path = os.environ["TRAINJOB_PROGRESS_FILE"]
with open(path + ".new", "w") as file:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    json.dump({"step": 40, "totalSteps": 100, "timestamp": now, "metrics": {"loss": 0.5}}, file)
os.rename(path + ".new", path)
time.sleep(3600)
"""


class Replicas:
    """What replicas have in common: a certificate, and their addresses."""

    def __init__(self, directory: Path, number: int) -> None:
        self.authority = Authority(directory, "writing")
        self.serving = self.authority.issue_server("visibility-api", "127.0.0.1")
        self.ports = [free_port() for _ in range(number)]


class WritingServer:
    """A server that serves and writes the jobs of one namespace, outside the aggregator."""

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        namespace: str,
        *,
        component: str = COMPONENT,
        port: int | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        """`replicas`: which this is one of, at `port`."""
        self.replicas = replicas
        directory.mkdir(exist_ok=True)
        kubeconfig = service_account_kubeconfig(cluster, directory)
        port = port or free_port()
        authority = replicas.authority if replicas else Authority(directory, "writing")
        serving = replicas.serving if replicas else authority.issue_server("visibility-api", "127.0.0.1")
        peers = [f"--peers=127.0.0.1:{each}" for each in replicas.ports] if replicas else []
        self._daemon = Daemon(
            "visibility-api",
            [
                *(sys.executable, "-m", "visibility_api", "serve"),
                *("--kubeconfig", str(kubeconfig)),
                *("--bind-address", "127.0.0.1", "--secure-port", str(port)),
                *("--tls-cert-file", str(serving.cert), "--tls-private-key-file", str(serving.key)),
                *("--probe-interval", "1s", "--probe-timeout", "1s", "--shutdown-delay-duration", "0s"),
                *("--sources=exec,status", "--namespaces", namespace),
                *peers,
                *component_flags(ROOT, [component]),
            ],
            log=directory / "writing.log",
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory)},
        )
        self._http = httpx.Client(
            base_url=f"https://127.0.0.1:{port}",
            verify=_trusting(authority, cluster),
            trust_env=False,
            timeout=PATIENCE_S,
        )
        self._daemon.start()
        wait_until(lambda: self._http.get("/readyz").status_code == 200, what="the writing server is ready")

    def stop(self) -> None:
        assert_untold(self._metrics(), where="metrics")
        self._http.close()
        assert self._daemon.stop(grace_s=END_WAIT_S) == 0, self.log_text()[-2000:]
        assert_untold(self.log_text(), where="the server's log")

    def document(self, namespace: str, name: str) -> Object:
        answer = self._http.get(f"{PREFIX}/namespaces/{namespace}/trainjobs/{name}")
        assert answer.status_code == 200, answer.text
        found: Object = answer.json()
        return found

    def outcomes(self) -> dict[str, int]:
        """How many attempts came to which word."""
        found = re.findall(
            r'^visibility_write_backs_total\{outcome="(\w+)"\} (\S+)$', self._metrics(), re.MULTILINE
        )
        return {outcome: int(float(count)) for outcome, count in found}

    def looks(self) -> float:
        return sum(self._looks().values())

    def looks_in_vain(self) -> float:
        return sum(count for outcome, count in self._looks().items() if outcome != "Reported")

    def _looks(self) -> dict[str, float]:
        """How many came to which word."""
        found = re.findall(
            r'^visibility_probes_total\{outcome="(\w+)",source="exec"\} (\S+)$', self._metrics(), re.MULTILINE
        )
        return {outcome: float(count) for outcome, count in found}

    def log_text(self) -> str:
        return self._daemon.log.read_text(errors="replace")

    def _metrics(self) -> str:
        answer = self._http.get("/metrics")
        assert answer.status_code == 200, answer.text
        return answer.text


def service_account_kubeconfig(cluster: Cluster, directory: Path) -> Path:
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return write_kubeconfig(
        directory / "kubeconfig",
        url=cluster.url,
        ca_file=cluster.ca_file,
        token=plant(cluster.admin.create(f"{account}/token", request)["status"]["token"]),
    )


def _trusting(authority: Authority, cluster: Cluster) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.bundle))
    context.load_cert_chain(cluster.admin_pair.cert, cluster.admin_pair.key)
    return context


@pytest.fixture
def rights(cluster: Cluster) -> Iterator[list[Object]]:
    """The objects of the component, applied."""
    found = [
        thing
        for file in manifest_files(ROOT, [COMPONENT])
        if file.parent.name == COMPONENT
        for thing in yaml.safe_load_all(file.read_text())
    ]
    for thing in found:
        cluster.admin.apply(path_of(thing), thing)
    yield found
    for thing in found:
        if cluster.admin.raw("GET", path_of(thing)).status_code == 200:
            cluster.admin.delete(path_of(thing))


@pytest.fixture
def writer(
    cluster: Cluster, rights: list[Object], workspace: Workspace, tmp_path: Path
) -> Iterator[WritingServer]:
    found = WritingServer(cluster, tmp_path, workspace.name)
    yield found
    found.stop()


def job_of(workspace: Workspace, name: str) -> Object:
    return workspace.cluster.admin.get(f"{TRAINER}/namespaces/{workspace.name}/trainjobs/{name}")


def wait_written(workspace: Workspace, name: str, *, percent: int | None = None) -> Object:
    """The trainerStatus, once it is there and at that percentage."""

    def look() -> Object:
        found: Object = job_of(workspace, name)["status"]["trainerStatus"]
        assert percent is None or found["progressPercentage"] == percent, found
        return found

    return wait_until(look, what=f"the status of {name} says {percent or 'something'}")


def apply_as_kubeflow(workspace: Workspace, name: str, percent: int) -> None:
    """What Kubeflow Trainer's status server does with a push."""
    workspace.cluster.admin.apply(
        f"{TRAINER}/namespaces/{workspace.name}/trainjobs/{name}/status",
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name},
            "status": {
                "trainerStatus": {
                    "progressPercentage": percent,
                    "lastUpdatedTime": "2026-01-23T10:30:45.123456Z",
                }
            },
        },
        field_manager="trainer-status",
    )


def test_the_numbers_appear_in_the_status_and_the_end_follows_at_once(
    writer: WritingServer, workspace: Workspace
) -> None:
    workspace.start_job("short", SHORT)
    status = wait_written(workspace, "short", percent=100)
    assert {"name": "current_step", "value": "5"} in status["metrics"]
    assert {"name": "total_steps", "value": "5"} in status["metrics"]
    assert status["estimatedRemainingSeconds"] == 0
    document = writer.document(workspace.name, "short")["status"]
    assert status["lastUpdatedTime"][:19] == document["lastUpdatedTime"][:19]


def test_our_own_words_come_back_without_waking_anybody(writer: WritingServer, workspace: Workspace) -> None:
    workspace.start_job("once", ONCE)
    wait_written(workspace, "once", percent=40)

    def is_told_of_the_pod() -> bool:
        """Afterwards the job's controller has nothing more to write, either."""
        (count,) = job_of(workspace, "once")["status"]["jobsStatus"]
        (replicas,) = writer.document(workspace.name, "once")["status"]["replicas"]
        return bool(count["ready"] == replicas["ready"] == 1)

    def other_news(document: Object) -> tuple[str | None, str]:
        """What may change without our words: a look in vain, of a machine that stands still, and an age."""
        status = document["status"]
        return status["observation"].get("reason"), condition(status, "Fresh")["status"]

    wait_until(is_told_of_the_pod, what="all know that the pod is ready")
    while True:
        in_vain, looks = writer.looks_in_vain(), writer.looks()
        job, document = job_of(workspace, "once"), writer.document(workspace.name, "once")
        wait_until(lambda looks=looks: writer.looks() >= looks + 3, what="three looks more")  # type: ignore[misc]
        job_now, now = job_of(workspace, "once"), writer.document(workspace.name, "once")
        if other_news(document) == other_news(now) and writer.looks_in_vain() == in_vain:
            break
    assert job_now["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]
    assert now["metadata"]["resourceVersion"] == document["metadata"]["resourceVersion"]
    assert now["status"]["observation"]["source"] == "exec"
    assert writer.outcomes() == {"Written": 1}


def test_a_server_that_starts_anew_writes_nothing_that_stands_there(
    cluster: Cluster, rights: list[Object], workspace: Workspace, tmp_path: Path
) -> None:
    (first_home := tmp_path / "first").mkdir()
    (second_home := tmp_path / "second").mkdir()
    first = WritingServer(cluster, first_home, workspace.name)
    workspace.start_job("once", ONCE)
    written = wait_written(workspace, "once", percent=40)
    first.stop()
    second = WritingServer(cluster, second_home, workspace.name)

    def has_asked() -> bool:
        status = second.document(workspace.name, "once")["status"]
        return bool(status["observation"]["source"] == "exec" and second.looks() >= 2)

    wait_until(has_asked, what="the new server has asked rank 0")
    assert second.outcomes() == {}
    assert job_of(workspace, "once")["status"]["trainerStatus"] == written
    second.stop()


def test_only_the_fields_of_the_summary_are_ours(
    cluster: Cluster, writer: WritingServer, workspace: Workspace
) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in keeps no managedFields")
    workspace.start_job("once", ONCE)
    wait_written(workspace, "once")
    managers = {
        entry["manager"]: entry
        for entry in job_of(workspace, "once")["metadata"]["managedFields"]
        if entry["operation"] == "Apply"
    }
    assert managers[FIELD_MANAGER]["subresource"] == "status"
    assert managers[FIELD_MANAGER]["fieldsV1"].keys() == {"f:status"}
    assert managers[FIELD_MANAGER]["fieldsV1"]["f:status"].keys() == {"f:trainerStatus"}


def test_what_kubeflow_trainer_owns_is_left_to_it(
    cluster: Cluster, writer: WritingServer, workspace: Workspace
) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in knows no field ownership: an apply is a merge")
    with cluster.agent.inject(workspace.name, Fault.HANGS):  # or our own write could come first
        workspace.start_job("pushed", REPORTING)
        apply_as_kubeflow(workspace, "pushed", 77)
    wait_until(lambda: writer.outcomes().get("OwnedByOther"), what="our write is refused")
    status = job_of(workspace, "pushed")["status"]["trainerStatus"]
    assert status == {"progressPercentage": 77, "lastUpdatedTime": "2026-01-23T10:30:45.123456Z"}
    assert writer.outcomes() == {"OwnedByOther": 1}


def test_a_missing_right_is_said_once_and_stops_nothing_else(
    cluster: Cluster, rights: list[Object], writer: WritingServer, workspace: Workspace
) -> None:
    with without(cluster.admin, COMPONENT):
        for name in ("one", "two", "three"):
            workspace.start_job(name, ONCE)
        wait_until(lambda: writer.outcomes().get("Forbidden"), what="a write is refused")
        for name in ("one", "two", "three"):
            wait_until(
                lambda name=name: (  # type: ignore[misc]  # mypy cannot infer a lambda with a default
                    writer.document(workspace.name, name)["status"]["progressPercentage"] == 40
                ),
                what=f"{name} is served",
            )
        assert writer.log_text().count("patch on trainjobs/status in apiGroup trainer.kubeflow.org") == 1
        assert "trainerStatus" not in job_of(workspace, "one").get("status", {})


def test_the_numbers_of_a_deleted_job_do_not_stay_with_one_that_took_its_name(
    cluster: Cluster, server: VisibilityServer, rights: list[Object], workspace: Workspace, tmp_path: Path
) -> None:
    """kube-apiserver takes a write to status whatever uid it names, so this is found out afterwards."""
    if cluster.kind == "local":
        pytest.skip("the stand-in knows no field ownership: nothing can be taken away")
    workspace.start_job("bert", SILENT)
    former = JobRef(resource="trainjobs", namespace=workspace.name, name="bert", uid="of-a-deleted-job")

    async def write() -> str:
        outcomes: asyncio.Queue[str] = asyncio.Queue()
        kubeconfig = service_account_kubeconfig(cluster, tmp_path)
        async with await KubeClient.connect(kubeconfig) as client:
            write_back = WriteBack(client, count=outcomes.put_nowait)
            write_back.changed(reported(120, of=former))
            writing = asyncio.create_task(write_back.run())
            async with asyncio.timeout(PATIENCE_S):
                outcome = await outcomes.get()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            return outcome

    assert asyncio.run(write()) == "Recreated"
    assert "trainerStatus" not in job_of(workspace, "bert").get("status", {})
