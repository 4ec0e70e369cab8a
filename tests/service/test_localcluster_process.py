"""`python -m localcluster` as a user starts and stops it."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from pathlib import Path

import yaml

from localcluster.machinery.client import ApiClient
from localcluster.machinery.pki import client_context
from tests.service.waiting import DEADLINE_S


async def test_it_prints_its_kubeconfig_and_takes_its_pods_along_when_it_ends(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "localcluster", "--dir", str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (line := (await process.stdout.readline()).decode()).startswith("export KUBECONFIG="):
                assert line, "it ended early"
            kubeconfig = Path(line.strip().partition("=")[2])
            pod_pid = await running_pod(kubeconfig, tmp_path / "pid")
        assert is_running(pod_pid)
        assert kubeconfigs(tmp_path) == ["admin", "alice", "bob", "visibility-api"]
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            rest, _ = await process.communicate()
        assert process.returncode == 0
        assert b"Traceback" not in rest
        async with asyncio.timeout(DEADLINE_S):
            while is_running(pod_pid):  # noqa: ASYNC110 - it was killed; who inherits it buries it in a while
                await asyncio.sleep(0.02)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def credentials(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    assert kubeconfig.stat().st_mode & 0o077 == 0
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = Path(cluster["certificate-authority"]).read_text()
    return cluster["server"], client_context(ca, Path(user["client-certificate"]), Path(user["client-key"]))


def read_pid(pid_file: Path) -> int | None:
    return int(pid_file.read_text() or 0) or None if pid_file.exists() else None


def is_running(pid: int) -> bool:
    """A zombie does not: nobody may be there to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kubeconfigs(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.kubeconfig"))


async def running_pod(kubeconfig: Path, pid_file: Path) -> int:
    script = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    spec = {"containers": [{"name": "c", "image": "i", "command": ["python", "-c", script]}]}
    async with ApiClient(*credentials(kubeconfig)) as admin:
        await admin.create("pods", {"metadata": {"name": "p", "namespace": "team-a"}, "spec": spec})
        while (pid := read_pid(pid_file)) is None:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    return pid
