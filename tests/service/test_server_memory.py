"""What a server knows outlives its process: in its data directory, and in other replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.server_process import GROUP, ControlPlane, Process, serving

TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
REPORTED = "2026-01-02T03:04:05Z"


def trainjob(name: str, uid: str, percentage: int | None = None) -> dict[str, Any]:
    """A TrainJob with this percentage in its status, the only place where it was ever reported."""
    status = {"progressPercentage": percentage, "lastUpdatedTime": REPORTED}
    return {
        "metadata": {"name": name, "namespace": "team-a", "uid": uid, "resourceVersion": "1"},
        "spec": {"runtimeRef": {"name": "torch"}},
        "status": {"trainerStatus": status} if percentage is not None else {},
    }


@pytest.fixture
async def plane() -> ControlPlane:
    plane = ControlPlane()
    plane.items[TRAINJOBS] = [trainjob("bert", "uid-1", 45), trainjob("gpt", "uid-2", 30)]
    return plane


async def shown(process: Process) -> dict[str, Any]:
    """The status of each job, once the server is ready: not later, and nothing is asked before."""
    await process.until("/readyz", lambda answer: answer.status_code == 200)
    answer = await process.get(f"{GROUP}/trainjobs")
    assert answer.status_code == 200, answer.text
    return {each["metadata"]["name"]: each["status"] for each in answer.json()["items"]}


def samples(answer: httpx.Response) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def test_a_data_directory_that_cannot_be_used_is_said_and_harms_nothing(
    plane: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    async with (
        plane.serving(tmp_path) as config,
        serving(tmp_path, "--kubeconfig", config, "--data-dir", tmp_path / "data") as process,
    ):
        assert (await shown(process))["bert"]["progressPercentage"] == 45
        assert (
            "[+]data-dir ok (state is kept in memory only: File exists)"
            in (await process.get("/readyz?verbose")).text
        )
        assert samples(await process.get("/metrics"))["visibility_data_dir_degraded"] == 1
        failed = next(line for line in process.lines if line["event"].startswith("data directory cannot"))
        assert (failed["reason"], failed["directory"]) == ("File exists", str(tmp_path / "data"))
