"""The clients that push to Kubeflow Trainer, unchanged, push to a real server of ours."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/bin/python"  # the server's own environment: `make test-frameworks` makes both
JOBS = ("sdk", "hugging-face", "lenient")


class Server:
    """The process of push_server.py."""

    def __init__(self, directory: Path) -> None:
        assert PYTHON.exists(), "there is no .venv; `make test-frameworks` makes one"
        self._log = (directory / "log").open("w+")
        self._process = subprocess.Popen(
            [PYTHON, "-m", "tests.frameworks.push_server", directory, *JOBS],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "HOME": str(directory)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.environ: dict[str, dict[str, str]] = self._read()

    def status(self, job: str) -> dict[str, Any]:
        """What the server shows of the job, read through the API."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{job}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = self._read()["status"]
        return found

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, Path(self._log.name).read_text()
        return json.loads(line)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(60) == 0, Path(self._log.name).read_text()
        finally:
            self._process.kill()
            self._log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"))
    yield found
    found.stop()


def inject(server: Server, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the operator does."""
    for name, value in server.environ[job].items():
        monkeypatch.setenv(name, value)


def metrics(status: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in status["metrics"]}


# --- the Kubeflow SDK


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`kubeflow.trainer`, as if it had just been imported: it keeps its token and its last push."""
    trainer = pytest.importorskip("kubeflow.trainer")
    from kubeflow.trainer.backends.kubernetes import utils

    monkeypatch.setattr(utils, "_cached_token", None)
    monkeypatch.setattr(utils, "_last_update_time", float("-inf"))
    return trainer


def test_the_kubeflow_sdk_reports_here(server: Server, sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(server, "sdk", monkeypatch)
    values = {"loss": 0.2347, "current_step": 450, "total_steps": 1000, "note": "warm"}
    assert sdk.update_trainjob_status(45, 795, values) is True
    status = server.status("sdk")
    assert status["progressPercentage"] == 45
    assert status["estimatedRemainingSeconds"] <= 795
    assert (status["steps"]["current"], status["steps"]["total"]) == (450, 1000)
    assert metrics(status) == {"loss": "0.2347", "note": "warm"}
    assert status["observation"]["source"] == "push"
    # Exactly 200 counts as success for it, and only then does it wait: now it sends nothing.
    assert sdk.update_trainjob_status(46) is False


def test_what_upstream_refuses_of_its_own_sdk_is_taken(
    server: Server, sdk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fractions are clamped by the SDK but not rounded; names and values are of any length."""
    inject(server, "lenient", monkeypatch)
    values = {"a name " * 20: 1.5, "loss": float("nan"), "text": "x" * 500, "empty": ""}
    assert sdk.update_trainjob_status(45.5, 12.5, values) is True
    status = server.status("lenient")
    assert status["progressPercentage"] == 46
    shown = metrics(status)
    assert shown["loss"] == "nan"
    assert max(len(text) for pair in shown.items() for text in pair) == 64
    diverged = next(each for each in status["conditions"] if each["type"] == "Diverged")
    assert diverged["status"] == "True"


def test_the_sdk_is_told_no_with_another_jobs_token(
    server: Server, sdk: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inject(server, "lenient", monkeypatch)
    monkeypatch.setenv(
        "KUBEFLOW_TRAINER_SERVER_TOKEN", server.environ["sdk"]["KUBEFLOW_TRAINER_SERVER_TOKEN"]
    )
    before = server.status("lenient").get("progressPercentage")
    assert sdk.update_trainjob_status(99) is False
    assert "HTTP 403" in caplog.text
    assert server.status("lenient").get("progressPercentage") == before


# --- Hugging Face


def test_hugging_faces_own_callback_reports_here(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    from .test_transformers import make_trainer

    monkeypatch.chdir(tmp_path)
    inject(server, "hugging-face", monkeypatch)
    during: list[dict[str, Any]] = []

    class Slow(transformers.TrainerCallback):  # type: ignore[misc]  # not installed where we check
        """Steps long enough for the callback's own pace of one push in 5 s, and a look after each."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            time.sleep(0.3)
            during.append(server.status("hugging-face"))

    trainer = make_trainer(tmp_path, [Slow])
    # It switches itself on by the variable alone.
    assert "KubeflowCallback" in [type(each).__name__ for each in trainer.callback_handler.callbacks]
    trainer.train()

    total = trainer.state.max_steps
    first, *others, last = during
    if "current" not in first["steps"]:  # it pushes with its first step, when that takes it 5 s
        assert first["progressPercentage"] == 0
    assert first["steps"].get("current", 1) == 1
    assert first["steps"]["total"] == total
    middle = [status["steps"]["current"] for status in others if "current" in status["steps"]]
    assert middle, "no push came between the first and the last"
    assert 0 < middle[-1] < total
    assert "loss" in metrics(last)

    status = server.status("hugging-face")
    assert status["progressPercentage"] == 100
    assert status["steps"]["total"] == total  # the last push leaves steps out; they are kept
    assert "train_loss" in metrics(status)
    assert status["observation"]["source"] == "push"
