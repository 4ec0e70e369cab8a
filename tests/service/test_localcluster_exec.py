"""pods/exec and pods/log of the local cluster at the level of frames, rights and refusals (X1-X12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from localcluster import LocalCluster
from localcluster.apiserver.identity import User
from localcluster.machinery.client import ApiClient
from localcluster.machinery.pki import client_context
from tests.service.waiting import DEADLINE_S, eventually

POD = "/api/v1/namespaces/default/pods/p"
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
Frames = list[tuple[int, bytes]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """With a running pod `p` of one container `c`."""
    async with LocalCluster.start(tmp_path / "cluster") as running:
        script = "import time; print('up', flush=True); time.sleep(600)"
        spec = {"containers": [{"name": "c", "image": "i", "command": ["python", "-c", script]}]}
        await running.admin.create("pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
        await eventually(lambda: _says_up(running))
        yield running


async def _says_up(cluster: LocalCluster) -> bool:
    pod = await cluster.admin.get("pods", "p", "default")
    if pod["status"]["phase"] != "Running":
        return False
    return b"up" in await cluster.kubelet.logs("default", "p", "c")


def exec_path(*argv: str, container: str = "c") -> str:
    query = [
        ("stdout", "true"),
        ("stderr", "true"),
        ("container", container),
        *(("command", each) for each in argv),
    ]
    return f"{POD}/exec?" + "&".join(f"{key}={value}" for key, value in query)


async def run(client: ApiClient, path: str, *protocols: str) -> tuple[str | None, Frames]:
    async with asyncio.timeout(DEADLINE_S):
        async with client.session.ws_connect(client.server + path, protocols=protocols or (V5, V4)) as socket:
            frames = [(message.data[0], message.data[1:]) async for message in socket]
            return socket.protocol, frames


def status_of(frames: Frames) -> dict[str, Any]:
    (last,) = [content for channel, content in frames if channel == 3]
    return dict(json.loads(last))


def output(frames: Frames, channel: int) -> bytes:
    return b"".join(content for number, content in frames if number == channel)


@pytest.mark.parametrize(("offered", "chosen"), [((V5, V4), V5), ((V4,), V4)])
async def test_the_first_frames_are_empty_and_the_last_is_the_status(
    cluster: LocalCluster, offered: tuple[str, ...], chosen: str
) -> None:
    protocol, frames = await run(cluster.admin, exec_path("echo", "hello"), *offered)
    assert protocol == chosen
    assert sorted(frames[:2]) == [(1, b""), (2, b"")]
    assert output(frames, 1) == b"hello\n"
    assert frames[-1][0] == 3
    assert status_of(frames)["status"] == "Success"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (exec_path("echo", container="other"), 400),
        (exec_path(), 400),
        (exec_path("echo").replace("stdout=true&stderr=true&", ""), 400),
        (exec_path("echo").replace("/p/", "/nobody/"), 404),
    ],
)
async def test_a_refusal_comes_before_the_upgrade(cluster: LocalCluster, path: str, code: int) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await run(cluster.admin, path)
    assert refused.value.status == code


async def test_exec_by_get_needs_create_as_well(cluster: LocalCluster) -> None:
    token = cluster.apiserver.authenticator.add_token(User(name="ann"))
    subjects = [{"kind": "User", "name": "ann"}]
    reference = {"kind": "Role", "name": "exec", "apiGroup": "rbac.authorization.k8s.io"}
    meta = {"name": "exec", "namespace": "default"}
    rule = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}
    await cluster.admin.create("roles", {"metadata": meta, "rules": [rule]})
    await cluster.admin.create("rolebindings", {"metadata": meta, "roleRef": reference, "subjects": subjects})
    async with ApiClient(cluster.url, client_context(cluster.ca_file.read_text()), token) as ann:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await run(ann, exec_path("echo", "x"))
        assert refused.value.status == 403
        await cluster.admin.patch(
            "roles", "exec", {"rules": [rule | {"verbs": ["get", "create"]}]}, "default"
        )
        _, frames = await run(ann, exec_path("echo", "x"))
    assert output(frames, 1) == b"x\n"


async def test_a_command_ends_with_its_client(cluster: LocalCluster) -> None:
    async with cluster.admin.session.ws_connect(
        cluster.url + exec_path("sh", "-c", "echo $$; sleep 600").replace(" ", "%20").replace(";", "%3B"),
        protocols=(V5,),
    ) as socket:
        pid = ""
        async with asyncio.timeout(DEADLINE_S):
            while not pid:
                message = await socket.receive_bytes()
                pid = message[1:].decode().strip() if message[0] == 1 else ""

    async def has_ended() -> bool:
        return not _is_running(pid)

    await eventually(has_ended)


def _is_running(pid: str) -> bool:
    return Path("/proc", pid).exists()


async def test_a_followed_log_brings_lines_as_they_are_written(cluster: LocalCluster) -> None:
    script = "import sys, time\nfor line in range(3): print(line, flush=True); time.sleep(0.05)"
    spec = {
        "containers": [{"name": "c", "image": "i", "command": ["python", "-c", script]}],
        "restartPolicy": "Never",
    }
    await cluster.admin.create("pods", {"metadata": {"name": "q", "namespace": "default"}, "spec": spec})
    url = f"{cluster.url}/api/v1/namespaces/default/pods/q/log?follow=true"

    async def has_started() -> bool:
        async with cluster.admin.session.get(url.replace("follow", "x")) as answer:
            return answer.status == 200

    await eventually(has_started)
    async with asyncio.timeout(DEADLINE_S), cluster.admin.session.get(url) as answer:
        assert answer.headers["Content-Type"] == "text/plain"
        assert await answer.read() == b"0\n1\n2\n"
