"""`trainjob_client`, our own: what it gives, and that its watch neither loses nor doubles a change."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.scripts import REPORTING
from tests.e2e.tcp_proxy import TcpProxy
from tests.e2e.workspace import Workspace
from trainjob_client import (
    AsyncClient,
    Client,
    Connection,
    ForbiddenError,
    JobEndedError,
    JobEvent,
    NotFoundError,
    kubeconfig,
    requests,
    watching,
)


@pytest.fixture
def client(workspace: Workspace) -> Iterator[Client]:
    with Client(workspace.name, workspace.alice.kubeconfig) as found:
        yield found


def test_one_job_is_read_in_every_way(workspace: Workspace, client: Client) -> None:
    workspace.start_job("bert", REPORTING)
    workspace.wait_reporting("bert")
    job = client.get_job("bert")
    assert (job.name, job.namespace, job.workload, job.phase) == (
        "bert",
        workspace.name,
        "TrainJob",
        "Running",
    )
    assert job.metric("loss") == 0.5
    assert [each.name for each in client.list_jobs("tjp")] == ["bert"]
    assert [(each.name, each.workload) for each in client.list_jobs()] == [("bert", "TrainJob")]
    history = wait_until(
        lambda: next(iter([h for h in [client.get_job_history("bert", metrics="loss")] if h.series]), None),
        what="the history has a point",
    )
    columns = history.columns()
    assert {len(each) for each in columns.values()} == {len(columns["time"])}
    assert set(columns["metric"]) == {"loss"}
    reached = client.wait_for_job_status("bert", lambda job: (job.status.steps.current or 0) > 1, 60, 0.1)
    assert reached.metadata.uid == job.metadata.uid
    with pytest.raises(TimeoutError):
        client.wait_for_job_status("bert", "Failed", timeout=0.2, polling_interval=0.1)


def test_what_is_refused_says_why(workspace: Workspace, client: Client, own_jobs: QuietJobs) -> None:
    own_jobs.create("gone")
    own_jobs.wait_served("gone")
    own_jobs.end("gone", condition="Failed")
    own_jobs.wait_phase("gone", "Failed")
    with pytest.raises(JobEndedError, match="gone has ended: Failed"):
        client.wait_for_job_status("gone", polling_interval=0.1)
    with pytest.raises(NotFoundError, match='"nobody" not found'):
        client.get_job("nobody")
    with pytest.raises(ForbiddenError, match="cannot list"):
        client.list_jobs("TrainJob", all_namespaces=True)
    with pytest.raises(ValueError, match="serves no 'Nothing'"):
        client.list_jobs("Nothing")


def _through(workspace: Workspace, port: int) -> Connection:
    """Alice's connection, past a relay."""
    own = kubeconfig.load(workspace.alice.kubeconfig)
    return Connection(
        dataclasses.replace(own, cluster={**own.cluster, "server": f"https://127.0.0.1:{port}"})
    )


def test_the_name_in_the_servers_certificate_may_be_another(workspace: Workspace) -> None:
    own = kubeconfig.load(workspace.alice.kubeconfig)
    for name, is_right in (("kubernetes.default.svc", True), ("example.com", False)):
        other = dataclasses.replace(own, cluster={**own.cluster, "tls-server-name": name})
        with Client(workspace.name, connection=Connection(other)) as client:
            if is_right:
                assert client.list_jobs() == []
            else:
                answer = client._session.send(requests.Call(requests.PREFIX))
                assert "certificate verify failed" in str(answer)


class Connect(socketserver.ThreadingTCPServer):
    """A proxy that knows CONNECT alone, and leads every name to one port of this machine."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.target, self.asked = port, list[str]()


class _Tunnel(socketserver.StreamRequestHandler):
    server: Connect

    def handle(self) -> None:
        self.server.asked.append(self.rfile.readline().decode().strip())
        while self.rfile.readline().strip():
            pass
        with socket.create_connection(("127.0.0.1", self.server.target)) as other:
            self.connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(other, self.connection), daemon=True)
            back.start()
            _pump(self.connection, other)
            back.join()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


async def test_a_proxy_and_a_login_plugin_of_kubectl_lead_to_the_api(
    workspace: Workspace, own_jobs: QuietJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a company's proxy with OIDC: HTTPS_PROXY, and `kubectl oidc-login get-token`."""
    own_jobs.create("bert")
    own_jobs.wait_served("bert")
    accounts = f"/api/v1/namespaces/{workspace.name}/serviceaccounts"
    workspace.cluster.admin.create(accounts, {"metadata": {"name": "reader"}})
    token = workspace.cluster.admin.create(f"{accounts}/reader/token", {"spec": {}})["status"]["token"]
    workspace.cluster.admin.create(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{workspace.name}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": workspace.name}],
        },
    )
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}
    login = tmp_path / "bin/kubectl-oidc_login"
    login.parent.mkdir()
    login.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/calls\ncat <<'E'\n{json.dumps(answer)}\nE\n")
    login.chmod(0o755)
    kubectl = workspace.alice.kubectl_argv()[0]
    monkeypatch.setenv("PATH", f"{login.parent}:{os.environ['PATH']}")
    plugin = {
        "apiVersion": version, "command": kubectl, "interactiveMode": "IfAvailable",
        "args": ["oidc-login", "get-token", "--oidc-issuer-url=https://example"],
    }  # fmt: skip
    own = kubeconfig.load(workspace.alice.kubeconfig)
    with Connect(workspace.cluster.port) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy.server_address[1]}")
        cluster = {**own.cluster, "server": "https://kubernetes.default.svc:6443"}
        behind = dataclasses.replace(own, cluster=cluster, user={"exec": plugin})
        with Client(workspace.name, connection=Connection(behind)) as client:
            assert [each.name for each in client.list_jobs()] == ["bert"]
            assert next(iter(client.watch_jobs())).job.name == "bert"
        other = AsyncClient(workspace.name, connection=Connection(behind))
        assert [each.name for each in await other.list_jobs()] == ["bert"]
        await other.close()
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": {"exec": plugin}}],
            "contexts": [
                {"name": "c", "context": {"cluster": "c", "user": "c", "namespace": workspace.name}}
            ],
        }
        (tmp_path / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
        for program in (("get", "tjp", "--no-headers"), ("trainjob-progress", "--no-headers")):
            ran = await asyncio.to_thread(
                subprocess.run,
                [kubectl, *program],
                env={**workspace.alice.kubectl_env(), **_environment(tmp_path / "config")},
                capture_output=True,
                text=True,
                check=False,
            )
            assert (ran.returncode, ran.stdout.split()[:1]) == (0, ["bert"]), ran
        proxy.shutdown()
    assert set(proxy.asked) == {"CONNECT kubernetes.default.svc:6443 HTTP/1.1"}
    assert set((tmp_path / "calls").read_text().splitlines()) == {
        "get-token --oidc-issuer-url=https://example"
    }


def _environment(config: Path) -> dict[str, str]:
    """kubectl finds its plugins beside this Python."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"KUBECONFIG": str(config), "PATH": path, "HTTPS_PROXY": os.environ["HTTPS_PROXY"]}


@contextlib.asynccontextmanager
async def _relay(port: int) -> AsyncIterator[TcpProxy]:
    found = TcpProxy(port)
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


@contextlib.asynccontextmanager
async def _collect(client: AsyncClient, resource: str | None) -> AsyncIterator[list[JobEvent]]:
    events: list[JobEvent] = []

    async def follow() -> None:
        async for event in client.watch_jobs(resource):
            events.append(event)  # noqa: PERF401

    task = asyncio.create_task(follow())
    try:
        yield events
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("kind", "cuts"), [("TrainJob", 150), (None, 50)], ids=["one kind", "all kinds"])
async def test_a_watch_that_is_cut_at_random_tells_each_change_once(
    workspace: Workspace, own_jobs: QuietJobs, monkeypatch: pytest.MonkeyPatch, kind: str | None, cuts: int
) -> None:
    monkeypatch.setattr(requests, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(watching, "_EMPTY_PAUSE_S", 0.0)
    chance = random.Random(32)
    over = asyncio.Event()

    async def change() -> None:
        """Until it is told to end: jobs come, change and go."""
        there: set[str] = set()
        number = 0
        while not over.is_set():
            number += 1
            name = f"job-{chance.randrange(6)}"
            if name not in there:
                await asyncio.to_thread(own_jobs.create, name)
                there.add(name)
            elif chance.random() < 0.3:
                await asyncio.to_thread(own_jobs.delete, name)
                there.remove(name)
            else:
                await asyncio.to_thread(own_jobs.label, name, number=str(number))

    async def both_have(name: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not all(name in [each.job.name for each in found[-1:]] for found in (seen, truth)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    own_jobs.create("the-first")
    own_jobs.wait_served("the-first")
    async with (
        _relay(workspace.cluster.port) as relay,
        AsyncClient(workspace.name, connection=_through(workspace, relay.port)) as own,
        AsyncClient(workspace.name, workspace.alice.kubeconfig) as other,
        _collect(own, kind) as seen,
        _collect(other, kind) as truth,
    ):
        await both_have("the-first")
        changes = asyncio.create_task(change())
        for _ in range(cuts):
            await asyncio.sleep(chance.expovariate(1 / 0.02))
            await relay.cut()
        over.set()
        await changes
        # Until they are served, changes of jobs that different replicas own are in no order (docs/nats.md).
        await asyncio.to_thread(own_jobs.wait_settled)
        await asyncio.to_thread(own_jobs.create, "the-last")
        await both_have("the-last")
    assert _told(seen) == _told(truth)
    assert len(seen) > cuts / 50


def _told(events: list[JobEvent]) -> list[tuple[str, str, str]]:
    return [(each.type, each.job.name, each.job.metadata.resource_version or "") for each in events]
