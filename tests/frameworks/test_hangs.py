"""A torchrun that does not get on: each rank's file says where it is, or that it cannot.

Of five ranks, each in another way; and of eight, one of which dies while torchrun does not look. And of one
that gets on slowly no hang is told.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.trainings import slow_phases
from tests.reporting import wait_until
from tests.slow_volume import mounted
from visibility_api.diagnosis import evidence
from visibility_api.diagnosis.claims import PodState
from visibility_api.diagnosis.judging import diagnose
from visibility_api.diagnosis.programs import SHELL
from visibility_api.diagnosis.reading import RankState, read_pod

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0  # what issue 30 asks for
AT = 20

TRAINING = f"""
import ctypes, os, signal, threading
import torch, torch.distributed as dist
from trainjob_progress import current, track

dist.init_process_group("gloo")
rank = dist.get_rank()

class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(10**6):
            if (rank, number) == (1, {AT}):
                read_from_storage()
            yield number

def read_from_storage():
    threading.Event().wait()

def hold_the_lock():
    ctypes.PyDLL(None).sleep(600)

for number in track(torch.utils.data.DataLoader(Batches(), batch_size=None)):
    if (rank, number) == (2, {AT}):
        hold_the_lock()
    if (rank, number) == (3, {AT}):
        os.kill(os.getpid(), signal.SIGSTOP)
    if (rank, number) == (4, {AT}):
        break  # it has less data than the others
    dist.all_reduce(torch.ones(64))
if rank == 4:
    current().finish()
    threading.Event().wait()
"""


DIES = 5
DYING = f"""
import os, signal
import torch, torch.distributed as dist
from trainjob_progress import track

dist.init_process_group("gloo")
for number in track(range(10**6)):
    if (dist.get_rank(), number) == ({DIES}, {AT}):
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(64))
"""


@contextlib.contextmanager
def torchrun(
    tmp_path: Path, training: str, ranks: int, *options: str, within: Sequence[str] = ()
) -> Iterator[Path]:
    """The path of the progress file, while it runs. `within`: a command that runs others."""
    path = tmp_path / "progress.json"
    (tmp_path / "train.py").write_text(training)
    environ = {
        **os.environ,
        "TRAINJOB_PROGRESS_FILE": str(path),
        "PYTHONPATH": str(ROOT / "reporter"),
        "OMP_NUM_THREADS": "1",
    }
    program = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    command = [*within, *program, *options, "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, start_new_session=True) as launcher:
        try:
            yield path
        finally:
            for rank in range(ranks):  # each in a session of its own
                with contextlib.suppress(ProcessLookupError):
                    if said := read(path, rank):
                        os.kill(said["pid"], signal.SIGKILL)
            os.killpg(launcher.pid, signal.SIGKILL)


def read(path: Path, rank: int) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(Path(f"{path}.rank-{rank}").read_bytes())
    except FileNotFoundError:
        return {}
    return said


def look(path: Path) -> list[RankState]:
    """As the server reads them."""
    return read_pod(
        subprocess.run(("sh", "-c", SHELL, "sh", str(path)), capture_output=True, check=True).stdout
    )


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Of the progress file of a training that hangs."""
    with torchrun(tmp_path, TRAINING, 5) as path:
        yield path


def test_a_hang_is_told_by_the_files_of_the_ranks(path: Path) -> None:
    trace = Path(f"{path}.rank-2.trace")
    began_s = time.monotonic()
    wait_until(lambda: "stack" in read(path, 0) and "stack" in read(path, 1), TIMEOUT_S)
    wait_until(lambda: trace.stat().st_size and "ended" in read(path, 4), TIMEOUT_S)
    waiting, loading, stopped = (read(path, rank) for rank in (0, 1, 3))
    assert (waiting["step"], loading["step"], loading["section"]) == (AT, AT, "dataLoading")
    assert any(":all_reduce:" in frame for frame in waiting["stack"]["frames"])
    assert any(frame.startswith("train.py:read_from_storage:") for frame in loading["stack"]["frames"])
    main = trace.read_text().split("\n\n")[-1].splitlines()
    assert main[1].endswith(" in hold_the_lock")
    assert read(path, 2)["time"] < waiting["stack"]["time"]  # neither can write any more
    assert stopped["time"] < waiting["stack"]["time"]
    assert Path(f"/proc/{stopped['pid']}/stat").read_text().rpartition(") ")[2][0] == "T"
    assert Path(f"{path}.rank-3.trace").read_text() == ""
    assert read(path, 4)["step"] == AT + 1  # the round that was left counts
    assert time.monotonic() - began_s < TIMEOUT_S
    found = {each.rank: each for each in look(path)}
    states = {rank: each.state or each.place.where for rank, each in found.items()}
    assert states == {0: "all_reduce", 1: "the data loader", 2: "held", 3: "stopped", 4: "over"}
    assert found[2].frames[0].startswith("train.py:hold_the_lock:")


def test_the_rank_that_died_is_named_and_none_that_its_death_has_ended(tmp_path: Path) -> None:
    """Its peers fail by themselves; torchrun, which looks each ten minutes, keeps the pod."""
    with torchrun(tmp_path, DYING, 8, "--monitor-interval=600") as path:
        others = set(range(8)) - {DIES}
        wait_until(lambda: all("ended" in read(path, rank) for rank in others), TIMEOUT_S)
        report = json.loads(path.read_bytes())
        assert (report["state"], report["step"]) == ("failed", AT)
        wait_until(lambda: {each.state for each in look(path)} == {"ended", "over"}, TIMEOUT_S)
        pod = PodState(name="bert-node-0", node_name="gpu-1", index=0, ranks=tuple(look(path)))
        found = diagnose([pod], datetime.now(UTC))
        assert (found.reason, found.cell) == ("ProcessEnded", f"ProcessEnded (rank {DIES})")
        assert found.message == f"Rank {DIES} (gpu-1) has ended; 7 other ranks were read."


READINGS = 3  # of each phase, while rank 0 has waited long enough
OWN_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def test_a_rank_that_gets_on_slowly_is_told_to_hang_in_none_of_its_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads, decoding, evaluation, compilation, slow volumes; and at last one that hangs. See `SCALE`."""
    if subprocess.run((*OWN_NETWORK, "true"), check=False, capture_output=True).returncode:
        pytest.skip("a network of its own may not be made here")
    long_s = evidence.STILL_S / slow_phases.SCALE
    monkeypatch.setattr(evidence, "STILL_S", long_s)
    files = {name: tmp_path / name.lower() for name in ("PHASE", "DONE", "SLOW_PIPE")}
    os.mkfifo(files["SLOW_PIPE"])
    for name in ("PHASE", "DONE"):
        files[name].write_text("")
    for name, file in files.items():
        monkeypatch.setenv(name, str(file))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    told, waited = set[str](), Counter[str]()

    def is_told() -> bool:
        name = files["PHASE"].read_text()
        ranks = look(path)
        found = diagnose([PodState(name="bert-node-0", index=0, ranks=tuple(ranks))], datetime.now(UTC))
        told.update([name] if found.is_hang else [])
        waits = [each for each in ranks if each.place.where == "all_reduce" and not each.is_busy]
        waited[name] += any((each.for_s or 0) >= long_s for each in waits)
        if waited[name] == READINGS and name != "hang":
            files["DONE"].write_text(name)
        return "hang" in told

    with mounted(tmp_path / "volume", 0.2) as volume:
        monkeypatch.setenv("SLOW_VOLUME", str(volume))
        training = Path(slow_phases.__file__).read_text()
        with torchrun(tmp_path, training, 2, within=OWN_NETWORK) as path:
            wait_until(is_told, 4 * TIMEOUT_S)
    assert told == {"hang"}
    assert {name for name in waited if waited[name]} == {each.__name__ for each in slow_phases.PHASES}
