"""The whole process, as a kubelet sees it: how it starts, refuses to, answers, and ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.service.server_process import DEADLINE_S, GROUP, ControlPlane, serving, started
from visibility_api.auth.request_header_config import NAME
from visibility_api.server import StartFailed, _serve
from visibility_api.settings import read_settings


@pytest.fixture
async def plane() -> ControlPlane:
    return ControlPlane()


async def test_it_ends_in_order_when_told_to(plane: ControlPlane, tmp_path: Path) -> None:
    """P10: /readyz fails while everything is still served, watches end cleanly, exit code 0."""
    async with (
        plane.serving(tmp_path) as config,
        serving(tmp_path, "--kubeconfig", config, "--shutdown-delay-duration=5s") as process,
    ):
        await process.until("/readyz", lambda answer: answer.status_code == 200)
        assert process.client is not None
        path = f"{GROUP}/trainjobs?watch=true&timeoutSeconds=300"
        async with process.client.stream("GET", path) as watch:
            assert watch.status_code == 200
            process.send(signal.SIGTERM)
            process.send(signal.SIGTERM)  # a second one changes nothing
            await process.read_until("shutting down")
            failing = await process.get("/readyz?verbose")
            assert failing.status_code == 500
            assert "[-]shutdown failed" in failing.text
            assert (await process.get("/livez")).status_code == 200
            assert (await process.get(f"{GROUP}/trainjobs")).status_code == 200
            async with asyncio.timeout(DEADLINE_S):
                assert await watch.aread() == b""  # the end of the body is told, not cut
        with pytest.raises(httpx.TransportError):  # its client must not begin the next one here, in vain
            await process.get(path)
        assert await process.ended() == 0
    assert '"event": "stopped"' in process.text
    assert "Traceback" not in process.text


async def test_it_shows_its_settings_and_never_a_token(plane: ControlPlane, tmp_path: Path) -> None:
    async with (
        plane.serving(tmp_path) as config,
        serving(
            tmp_path, "--kubeconfig", config, "--probe-interval=30s", "-v=4", "--shutdown-delay-duration=0s"
        ) as process,
    ):
        await process.until("/readyz", lambda answer: answer.status_code == 200)
        shown = next(line for line in process.lines if line["event"] == "settings")
        assert (shown["probe_interval"], shown["kubeconfig"]) == ("30s", str(config))
        process.send(signal.SIGINT)
        await process.ended()
        assert "s3cr3t" not in process.text


async def test_it_starts_while_kube_apiserver_is_away_and_is_ready_when_that_comes(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.is_away = True
    async with (
        plane.serving(tmp_path) as config,
        serving(tmp_path, "--kubeconfig", config, "--shutdown-delay-duration=0s") as process,
    ):
        assert (await process.get("/livez")).status_code == 200
        plane.is_away = False
        answer = await process.until(f"{GROUP}/trainjobs", lambda answer: answer.status_code == 200)
        assert answer.json()["items"] == []
        await process.until("/readyz", lambda answer: answer.status_code == 200)


async def test_a_cluster_without_the_trainjob_crd_has_no_jobs(plane: ControlPlane, tmp_path: Path) -> None:
    plane.status["/apis/trainer.kubeflow.org/v1alpha1/trainjobs"] = 404
    plane.status["/apis/jobset.x-k8s.io/v1alpha2/jobsets"] = 404
    async with plane.serving(tmp_path) as config, serving(tmp_path, "--kubeconfig", config) as process:
        answer = await process.until(f"{GROUP}/trainjobs", lambda answer: answer.status_code == 200)
        assert answer.json()["items"] == []


async def test_without_the_right_to_read_trainjobs_it_is_ready_and_tells_nobody_there_are_none(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.status["/apis/trainer.kubeflow.org/v1alpha1/trainjobs"] = 403
    async with plane.serving(tmp_path) as config, serving(tmp_path, "--kubeconfig", config) as process:
        await process.until("/readyz", lambda answer: answer.status_code == 200)
        assert (await process.get(f"{GROUP}/trainjobs")).status_code == 503
        told = (await process.get("/readyz?verbose")).text
        assert (
            "[+]informer-sync ok (lists are answered 503, not listed: /apis/trainer.kubeflow.org/v1alpha1/"
            in told
        )


async def test_it_is_ready_while_nats_is_away_and_tells_nobody_there_are_no_jobs(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Discovery is served: an aggregated API that is not ready blocks deleting namespaces."""
    flags = ("--store=nats://127.0.0.1:1", "--lease-namespace=default")
    async with (
        plane.serving(tmp_path) as config,
        serving(tmp_path, "--kubeconfig", config, *flags) as process,
    ):
        await process.until("/readyz", lambda answer: answer.status_code == 200)
        assert (await process.get(f"{GROUP}/trainjobs")).status_code == 503
        told = (await process.get("/readyz?verbose")).text
        assert "[+]informer-sync ok (no replica owns the jobs: NATS: " in told


async def test_a_clock_that_differs_from_kube_apiservers_is_told(plane: ControlPlane, tmp_path: Path) -> None:
    plane.behind_s = 7200
    async with plane.serving(tmp_path) as config, serving(tmp_path, "--kubeconfig", config) as process:
        note = "[+]clock ok (it is 120 minutes ahead of kube-apiserver's, so ages are wrong: "
        await process.until("/readyz?verbose", lambda answer: note in answer.text)


async def test_a_right_that_is_missing_in_one_namespace_hides_no_other(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.status["/api/v1/namespaces/team-b/pods"] = 403
    async with (
        plane.serving(tmp_path) as config,
        serving(tmp_path, "--kubeconfig", config, "--namespaces=team-a,team-b") as process,
    ):
        jobs = GROUP + "/namespaces/{}/trainjobs"
        await process.until(jobs.format("team-a"), lambda answer: answer.status_code == 200)
        await process.until("/readyz", lambda answer: answer.status_code == 200)
        assert (await process.get(jobs.format("team-b"))).status_code == 503
        assert (await process.get(f"{GROUP}/trainjobs")).status_code == 503
        assert (await process.get(jobs.format("elsewhere"))).json()["items"] == []


async def test_a_port_in_use_is_reported_in_one_line(plane: ControlPlane, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with plane.serving(tmp_path) as config:
            arguments = ("--kubeconfig", config, "--cert-dir", tmp_path, f"--secure-port={port}")
            async with started(*arguments) as process:
                assert await process.ended() == 1
    assert process.text.endswith(f"serve: cannot listen on 127.0.0.1 port {port}: Address already in use\n")
    assert "Traceback" not in process.text


async def refused(*arguments: str | Path) -> str:
    """Why it does not start; in this process, which is quicker."""
    given = ["--secure-port=0", "--bind-address=127.0.0.1", *map(str, arguments)]
    with pytest.raises(StartFailed) as found:
        await _serve(read_settings(given))
    return str(found.value)


@pytest.fixture
async def _own_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", lambda *_: None)


@pytest.mark.usefixtures("_own_signals")
async def test_without_the_right_to_read_the_front_proxys_ca_it_says_what_to_bind(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.status[f"/api/v1/namespaces/kube-system/configmaps/{NAME}"] = 403
    async with plane.serving(tmp_path) as config:
        why = await refused("--kubeconfig", config, "--cert-dir", tmp_path)
    assert "bind the Role extension-apiserver-authentication-reader" in why


@pytest.mark.usefixtures("_own_signals")
async def test_files_that_hold_no_key_pair_are_named(plane: ControlPlane, tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("s3cr3t")
    async with plane.serving(tmp_path) as config:
        files = (f"--tls-cert-file={tmp_path}/tls.crt", f"--tls-private-key-file={tmp_path}/tls.key")
        why = await refused("--kubeconfig", config, *files)
    assert f"{tmp_path}/tls.crt is not in PEM format" in why
    assert "s3cr3t" not in why


@pytest.mark.usefixtures("_own_signals")
async def test_outside_a_cluster_it_says_what_to_give() -> None:
    assert "outside a cluster, set --kubeconfig" in await refused()
