"""What a pod is asked of its ranks: both programs on real processes, and what is said where none can run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import astuple, replace

from visibility_api.diagnosis.claims import PodState
from visibility_api.diagnosis.programs import PYTHON, SHELL
from visibility_api.diagnosis.reading import RankState, read_pod
from visibility_api.diagnosis.result import Diagnosis
from visibility_api.kube.errors import ApiError
from visibility_api.workloads import rank_states
from visibility_api.workloads.rank_states import RankStates

from .fake_apiserver import Handler, fake_apiserver
from .test_kube_execute import exit_status, saying, serving

POD = PodState(name="bert-node-0", container_name="node", index=0)
PROGRAMS = {"sh": ("sh", "-c", SHELL, "sh"), "python3": (sys.executable, "-c", PYTHON)}


NAMED = "open('/proc/self/comm', 'w').write('a\\nb) c\\n'); print(flush=True); import time; time.sleep(600)"


@pytest.fixture
def stopped() -> Iterator[int]:
    """A process whose name has more than one line."""
    with subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        yield process.pid
        process.kill()


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_files_of_ranks_and_states_of_processes_are_printed(
    program: tuple[str, ...], tmp_path: Path, stopped: int
) -> None:
    path = tmp_path / "it's $HOME *.json"  # nothing of a path is interpreted
    dump = 'Thread 0x1 (most recent call first):\n  File "/srv/train.py", line 7 in f\n'
    for rank, pid in enumerate((os.getpid(), stopped, 2**22 + 1, os.getpid())):
        file = {
            "rank": rank,
            "pid": pid,
            "time": "2026-01-23T10:30:00Z",
            "step": 41,
            "host": os.uname().nodename,
        }
        Path(f"{path}.rank-{rank}").write_text(json.dumps(file))
    for rank, later_s in ((0, -60), (3, 60)):  # the first is of a process that has gone
        Path(f"{path}.rank-{rank}.trace").write_text("x" * 5000 + dump)
        at_s = os.stat(f"{path}.rank-{rank}").st_mtime + later_s
        os.utime(f"{path}.rank-{rank}.trace", (at_s, at_s))
    Path(f"{path}.rank-1.trace").touch()
    Path(f"{path}.rank-0.77.tmp").write_text("{")
    os.mkfifo(f"{path}.rank-9")
    printed = subprocess.run([*program, str(path)], capture_output=True, check=True, timeout=60)
    assert printed.stderr == b""
    found = {each.rank: each for each in read_pod(printed.stdout)}
    assert {rank: each.state for rank, each in found.items()} == {0: "", 1: "stopped", 2: "ended", 3: "held"}
    assert found[3].frames == ("train.py:f:7",)
    assert found[0].step == 41


async def diagnosed(handler: Handler, *pods: PodState, within_s: float = 60.0) -> Diagnosis:
    async with fake_apiserver(handler) as client:
        return await RankStates(client).diagnose(
            "team-a", pods or (POD,), "/tmp/p.json", within_s=within_s, is_requested=False
        )


def missing(program: str) -> dict[str, Any]:
    message = f'exec: "{program}": executable file not found in $PATH: unknown'
    return {"status": "Failure", "reason": "InternalError", "message": message, "code": 500}


FILE = json.dumps({"rank": 0, "pid": 7, "time": "2026-01-23T10:30:00Z"})
PRINTED = f"@now 1769164200 x86_64\n@rank 0\n{FILE}\n@proc 7 1 S 9 202 - python3\n@cpu 7 S 9\n@end\n".encode()


async def test_without_a_shell_python_is_tried() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        has = request.query.getall("command")[0] == "python3"
        return await (saying((1, PRINTED)) if has else saying(status=missing("sh")))(request)

    made = await diagnosed(handler)
    assert (made.read, made.unread) == (1, 0)


async def refuse(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden"}, status=403)


async def wait_for_ever(ws: web.WebSocketResponse) -> None:
    await ws.receive()


hang = serving(wait_for_ever)


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        pytest.param(saying(status=missing("x")), "its image has neither sh nor python3", id="no program"),
        pytest.param(saying(status=exit_status(127)), "its image has neither sh nor python3", id="not found"),
        pytest.param(saying(status=exit_status(2)), "its sh or python3 failed", id="it fails"),
        pytest.param(saying(status=None), "its node gave no answer", id="cut"),
        pytest.param(saying((1, b"x" * 600_000)), "it printed too much", id="too much"),
        pytest.param(hang, "it did not answer in time", id="too late"),
    ],
)
async def test_why_nothing_was_read_is_said(handler: Handler, why: str) -> None:
    made = await diagnosed(handler, within_s=0.3 if handler is hang else 60.0)
    assert (made.reason, made.message) == ("NotReadable", f"No rank could be read: {why}.")


def many(number: int) -> list[PodState]:
    return [PodState(name=f"bert-{n}", container_name="node") for n in range(number)]


async def test_after_a_refusal_no_further_pod_is_asked() -> None:
    asked = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return await refuse(request)

    with pytest.raises(ApiError, match="403"):
        await diagnosed(handler, *many(100))
    assert asked <= 32


async def test_a_pod_that_alone_is_forbidden_hides_no_other_one() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        is_forbidden = request.path.endswith("/bert-0/exec")
        return await (refuse(request) if is_forbidden else saying((1, PRINTED))(request))

    made = await diagnosed(handler, *many(3))
    assert (made.read, made.unread) == (2, 1)


def write_works(path: Path) -> None:
    now = datetime.now(UTC).isoformat()
    for rank, more in enumerate(
        (
            {"workSeconds": 0.9, "stepSeconds": 1, "bestWorkSeconds": 0.4, "slowest": "DataLoading"},
            {"workSeconds": 0.4, "slowest": "<b>", "bestWorkSeconds": "x"},
            {"workSeconds": 0.4, "time": "2026-01-23T10:30:00Z"},  # of a process that has gone
            {"workSeconds": 0.4, "ended": now},
            {"workSeconds": -1},
            {},
        )
    ):
        file = {"rank": rank, "pid": 7, "time": now, "host": os.uname().nodename, **more}
        Path(f"{path}.rank-{rank}").write_text(json.dumps(file))


@pytest.mark.parametrize("program", PROGRAMS)
async def test_files_say_how_each_rank_works_and_nothing_else_runs_in_its_pod(
    program: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    write_works(path)
    printed: list[bytes] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        argv = request.query.getall("command")
        if argv[0] != program:
            return await saying(status=missing("sh"))(request)
        argv[0] = PROGRAMS[program][0]
        printed.append(await asyncio.to_thread(subprocess.check_output, argv, timeout=60))
        return await saying((1, printed[0]))(request)

    pod = replace(POD, node_name="gpu-7")
    async with fake_apiserver(handler) as client:
        found = await RankStates(client).read_work("team-a", [pod], str(path), within_s=60, apart_s=0)
    assert b"@proc" not in printed[0]
    assert [astuple(row) for row in found.rows] == [
        (0, "bert-node-0", None, 0.9, "gpu-7", 1.0, 0.4, "DataLoading"),
        (1, "bert-node-0", None, 0.4, "gpu-7", None, None, ""),
    ]


async def test_what_is_found_is_of_before_the_first_pod_was_asked() -> None:
    asked_at: list[datetime] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked_at.append(datetime.now(UTC))
        return await saying((1, PRINTED))(request)

    assert (await diagnosed(handler)).at <= asked_at[0]


async def test_no_more_than_32_pods_are_asked_at_one_time() -> None:
    running, most = 0, 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await saying((1, PRINTED))(request)
        finally:
            running -= 1

    made = await diagnosed(handler, *many(100))
    assert made.read == 100
    assert most <= 32


async def test_a_job_keeps_no_more_ranks_while_it_is_read_than_are_judged_and_each_pod_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[PodState] = []

    def judge(pods: Sequence[PodState], at: datetime, *, is_requested: bool) -> Diagnosis:
        kept.extend(pods)
        return Diagnosis(at=at, reason="NotKnown", message="None.", is_requested=is_requested)

    async def handler(request: web.Request) -> web.StreamResponse:
        number = 64 if request.path.endswith("/bert-0/exec") else 1
        files = b"".join(b'@rank %d\n{"rank": %d, "pid": 7}\n' % (n, n) for n in range(number))
        return await saying((1, b"@now 1769164200 x86_64\n" + files + b"@end\n"))(request)

    monkeypatch.setattr(rank_states, "diagnose", judge)
    monkeypatch.setattr(rank_states, "MAX_STATES", 80)
    await diagnosed(handler, *many(10))
    assert [len(pod.ranks) for pod in kept] == [8] + [1] * 9
    assert [pod.unread for pod in kept] == ["it has more ranks than are read"] + [""] * 9


async def test_an_unforeseen_error_of_one_pod_is_no_other_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(output: bytes) -> list[RankState]:
        if b"bad" in output:
            raise AssertionError
        return read_pod(output)

    async def handler(request: web.Request) -> web.StreamResponse:
        return await saying((1, b"bad" if request.path.endswith("/bert-1/exec") else PRINTED))(request)

    monkeypatch.setattr(rank_states, "read_pod", read)
    made = await diagnosed(handler, *many(3))
    assert (made.read, made.unread) == (2, 1)


async def test_a_pod_that_does_not_run_is_not_asked() -> None:
    made = await diagnosed(hang, PodState(name="bert-node-0", not_running="Pending"))
    assert made.reason == "PodNotRunning"
