"""Why a job stands still, by what its pods print: what is read of it, what is grouped, who is named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from visibility_api.diagnosis.claims import MAX_STATES, PodState
from visibility_api.diagnosis.judging import diagnose
from visibility_api.diagnosis.places import place_of
from visibility_api.diagnosis.reading import MAX_FRAMES, MAX_PARTS, MAX_PLAIN, MAX_RANKS, RankState, read_pod
from visibility_api.diagnosis.result import AT_WORK, MAX_GROUPS, MAX_RANGES, MAX_SUSPECTS, as_ranges

NOW = datetime(2026, 1, 23, 10, 30, tzinfo=UTC)
ALL_REDUCE = ("torch.distributed.distributed_c10d:all_reduce:2810", "train:step:30", "train:main:9")
BARRIER = ("torch.distributed.distributed_c10d:barrier:4500", "train:main:12")
LOADER = (
    "data:__getitem__:7",
    "torch.utils.data._utils.fetch:fetch:54",
    "torch.utils.data.dataloader:__next__:700",
    "train:main:20",
)
OWN = ("train:work:12", "train:main:20")
SAVES = ("torch.serialization:save:850", "train:main:26")
BACKWARD = ("torch.autograd.graph:_engine_run_backward:824", "torch._tensor:backward:648", "train:main:31")


def state(
    rank: int | None, frames: Sequence[str] = ALL_REDUCE, step: int | None = 10, **more: Any
) -> RankState:
    """A rank that has been at this place for six minutes."""
    made = {"frames": tuple(frames), "place": place_of(frames), "for_s": 360.0, **more}
    return RankState(rank=rank, step=step, **made)


def pods(*ranks: RankState, **more: Any) -> list[PodState]:
    """A pod for each of these ranks, each on a node of its own."""
    return [
        PodState(name=f"bert-node-{index}", node_name=f"gpu-{index}", index=index, ranks=(rank,), **more)
        for index, rank in enumerate(ranks)
    ]


def but(one: int, frames: Sequence[str] = ALL_REDUCE, *, of: int = 4, **more: Any) -> list[PodState]:
    """All ranks are in all_reduce but for one."""
    return pods(*(state(rank, frames, **more) if rank == one else state(rank) for rank in range(of)))


def of_one_pod(number: int, **more: Any) -> list[PodState]:
    """So many ranks of one pod, all in all_reduce."""
    ranks = tuple(state(rank, is_busy=False, **more) for rank in range(number))
    return [PodState(name="bert-node-0", index=0, ranks=ranks)]


def absent(name: str, why: str) -> PodState:
    return PodState(name=name, node_name="gpu-9", not_running=why)


WAITS = "; 3 ranks wait for it in all_reduce."
OTHERS_WAIT = "; 2 ranks wait for others in all_reduce."
ALL_TWO = "All 2 ranks are in all_reduce for 6 min."
C10D = "torch.distributed.distributed_c10d"


@pytest.mark.parametrize(
    ("found", "reason", "suspects", "message"),
    [
        pytest.param(
            but(37, LOADER, of=64),
            "InDataLoader",
            [37],
            "Rank 37 (gpu-37) is in the data loader for 6 min; 63 ranks wait for it in all_reduce.",
            id="one of 64 in its loader",
        ),
        pytest.param(
            but(2, OWN),
            "InOwnCode",
            [2],
            f"Rank 2 (gpu-2) is in the program's own code for 6 min{WAITS}",
            id="own code",
        ),
        pytest.param(
            but(2, state="stopped"),
            "ProcessStopped",
            [2],
            f"Rank 2 (gpu-2) is stopped by a signal for 6 min{WAITS}",
            id="stopped",
        ),
        pytest.param(
            but(1, (), state="ended"), "ProcessEnded", [1], f"Rank 1 (gpu-1) has ended{WAITS}", id="ended"
        ),
        pytest.param(
            but(1, (), state="over"),
            "RankFinished",
            [1],
            f"Rank 1 (gpu-1) has finished its run{WAITS}",
            id="over",
        ),
        pytest.param(
            but(3, OWN, state="held"),
            "GilHeld",
            [3],
            f"Rank 3 (gpu-3) runs C code that holds the interpreter's lock for 6 min{WAITS}",
            id="holds the lock of the interpreter",
        ),
        pytest.param(
            but(0, LOADER, state="storage"),
            "WaitsForStorage",
            [0],
            f"Rank 0 (gpu-0) waits for storage that does not answer for 6 min{WAITS}",
            id="storage",
        ),
        pytest.param(
            but(2, step=9),
            "Behind",
            [2],
            f"Rank 2 (gpu-2) is behind (step 9, others 10) for 6 min{WAITS}",
            id="a step behind",
        ),
        pytest.param(
            but(1, BARRIER),
            "CollectiveMismatch",
            [1],
            f"Rank 1 (gpu-1) is in barrier for 6 min{WAITS}",
            id="another collective",
        ),
        pytest.param(
            pods(*(state(rank) for rank in range(4))),
            "InCollective",
            [],
            "All 4 ranks are in all_reduce for 6 min.",
            id="all in one collective",
        ),
        pytest.param(
            pods(*(state(rank, LOADER if rank == 1 else BACKWARD) for rank in range(4))),
            "InDataLoader",
            [1],
            "Rank 1 (gpu-1) is in the data loader for 6 min; 3 ranks wait for it in the backward pass.",
            id="gradients are exchanged in the backward pass",
        ),
        pytest.param(
            pods(*(state(rank, LOADER) for rank in range(3))),
            "InDataLoader",
            [],
            "All 3 ranks are in the data loader for 6 min.",
            id="all in their loaders",
        ),
        pytest.param(
            [*pods(state(0), state(1)), absent("bert-node-2", "ImagePullBackOff")],
            "PodNotRunning",
            [None],
            "Pod bert-node-2 (gpu-9) is not running (ImagePullBackOff)" + OTHERS_WAIT,
            id="a pod is not there",
        ),
        pytest.param(
            [*but(1, LOADER), absent("bert-node-4", "Error")],
            "InDataLoader",
            [1, None],
            f"Rank 1 (gpu-1) is in the data loader for 6 min{WAITS}",
            id="a pod is not there, and a rank stands out",
        ),
        pytest.param(
            [*but(1, ()), absent("bert-node-4", "Error")],
            "PodNotRunning",
            [None],
            "Pod bert-node-4 (gpu-9) is not running (Error); 3 ranks wait for others in all_reduce.",
            id="a pod is not there, and of a rank nothing is known",
        ),
        pytest.param(
            [PodState(name="bert-node-2"), *pods(state(0), state(1))],
            "InCollective",
            [],
            "All 2 ranks that were read are in all_reduce for 6 min.",
            id="a pod shows no rank",
        ),
        pytest.param(
            of_one_pod(7, world_size=8),
            "InCollective",
            [],
            "All 7 ranks that were read are in all_reduce for 6 min.",
            id="a rank has written nothing yet",
        ),
        pytest.param(
            of_one_pod(7),
            "InCollective",
            [],
            "All 7 ranks that were read are in all_reduce for 6 min.",
            id="how many ranks there are is not known",
        ),
        pytest.param(
            of_one_pod(8, world_size=8),
            "InCollective",
            [],
            "All 8 ranks are in all_reduce for 6 min.",
            id="all ranks of one pod",
        ),
        pytest.param(
            [*pods(state(0), state(1)), PodState(name="bert-node-2", unread="its node gave no answer")],
            "NotReadable",
            [None],
            "Of bert-node-2 nothing was read: its node gave no answer" + OTHERS_WAIT,
            id="a pod says nothing while all others wait",
        ),
        pytest.param(
            [PodState(name="bert-node-0", unread="its image has neither sh nor python3")],
            "NotReadable",
            [],
            "No rank could be read: its image has neither sh nor python3.",
            id="no shell",
        ),
        pytest.param(
            pods(*(state(rank, (), state="over") if rank > 3 else state(rank) for rank in range(6))),
            "RankFinished",
            [4, 5],
            "Rank 4 (gpu-4), rank 5 (gpu-5) have finished their run; 4 ranks wait for them in all_reduce.",
            id="two are over",
        ),
        pytest.param(
            [PodState(name="bert-launcher"), *pods(state(0), state(1, LOADER))],
            "InDataLoader",
            [1],
            "Rank 1 (gpu-1) is in the data loader for 6 min; 1 rank waits for it in all_reduce.",
            id="a launcher does not train",
        ),
        pytest.param(
            pods(
                *(state(None, (), None, state="stopped" if n == 1 else "", call="a lock") for n in range(3))
            ),
            "ProcessStopped",
            [None],
            "A process of pod bert-node-1 (gpu-1) is stopped by a signal for 6 min; "
            "2 other processes were read.",
            id="without the reporter, by the kernel's word",
        ),
    ],
)
def test_the_rank_that_others_wait_for_is_named(
    found: list[PodState], reason: str, suspects: list[int | None], message: str
) -> None:
    made = diagnose(found, NOW)
    assert (made.reason, made.message) == (reason, message)
    assert [each.rank for each in made.suspects] == suspects
    assert made.hint or reason == "NotReadable"


IDLE: dict[str, Any] = {"is_busy": False}
STUCK: dict[str, Any] = {"is_busy": False, "idle_s": 90.0}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(pods(*(state(rank, **IDLE) for rank in range(4))), True, id="all wait in all_reduce"),
        pytest.param(pods(state(0, **IDLE), state(1, (), state="stopped")), True, id="one is stopped"),
        pytest.param(pods(state(0, BACKWARD, **IDLE), state(1, (), state="ended")), True, id="one has ended"),
        pytest.param(pods(state(0), state(1, state="stopped")), False, id="nothing is known of the CPU"),
        pytest.param(pods(state(0, **IDLE), state(1, is_busy=True)), False, id="one computes"),
        pytest.param(
            pods(state(0, **IDLE), state(1, **IDLE | {"for_s": 60.0})), False, id="not for two minutes"
        ),
        pytest.param(pods(state(0, **IDLE), state(1, LOADER, **IDLE)), False, id="data may still come"),
        pytest.param(
            pods(state(0, **IDLE), state(1, LOADER, **STUCK)), True, id="nothing comes to its loader"
        ),
        pytest.param(
            pods(state(0, **IDLE), state(1, OWN, state="storage", **STUCK)), True, id="a file is not read"
        ),
        pytest.param(
            pods(state(0, **IDLE), state(1, OWN, state="storage", **IDLE)), False, id="a file is read slowly"
        ),
        pytest.param(pods(state(0, **IDLE), state(1, LOADER, **STUCK | {"idle_s": 60})), False, id="not yet"),
        pytest.param(
            pods(state(0, **IDLE), state(1, OWN, state="held", **STUCK)), True, id="the lock is held"
        ),
        pytest.param(pods(state(0, **IDLE), state(1, SAVES, **STUCK)), False, id="a volume may still answer"),
        pytest.param(
            pods(state(0, **IDLE), state(1, OWN, section="evaluation", **STUCK)),
            False,
            id="it marks what it does",
        ),
        pytest.param(
            pods(state(0, **IDLE), *(state(rank, LOADER, **STUCK) for rank in (1, 2))), False, id="most load"
        ),
        pytest.param(pods(state(0, BARRIER, **IDLE), state(1, OWN, **IDLE)), False, id="a long evaluation"),
        pytest.param(pods(state(0, state="stopped"), state(1, state="stopped")), False, id="nobody waits"),
        pytest.param(pods(state(0, **IDLE)), False, id="one rank alone"),
        pytest.param(
            [*pods(state(0, **IDLE), state(1, **IDLE)), absent("bert-node-2", "Pending")],
            False,
            id="one is not there",
        ),
        pytest.param(
            [*pods(state(0, **IDLE), state(1, **IDLE)), PodState(name="bert-node-2")],
            False,
            id="one shows no rank",
        ),
        pytest.param(of_one_pod(7, world_size=8), False, id="one has written nothing yet"),
        pytest.param(of_one_pod(7), False, id="how many there are is not known"),
        pytest.param(of_one_pod(8, world_size=8), True, id="all ranks of one pod"),
    ],
)
def test_it_is_a_hang_where_no_rank_works_and_none_can_go_on(found: list[PodState], expected: bool) -> None:
    assert diagnose(found, NOW).is_hang is expected


def test_groups_are_of_equal_stacks_the_largest_first() -> None:
    made = diagnose(but(37, LOADER, of=64), NOW, is_requested=True)
    assert [(each.count, each.ranks, each.where) for each in made.groups] == [
        (63, "0-36,38-63", "is in all_reduce"),
        (1, "37", "is in the data loader"),
    ]
    assert made.groups[1].frames == LOADER
    assert (made.read, made.others, made.unread, made.is_requested) == (64, 0, 0, True)


def test_the_sentence_and_the_groups_count_the_same() -> None:
    calls = ["its sleep to end", "its sleep to end", "its sleep to end", "a lock", "", "", ""]
    busy = [False, False, False, False, True, False, False]
    without_reporter = [
        state(None, (), None, call=call, is_busy=is_busy, for_s=None)
        for call, is_busy in zip(calls, busy, strict=True)
    ]
    made = diagnose(pods(*without_reporter), NOW)
    assert [(each.count, each.where) for each in made.groups] == [
        (3, "waits for its sleep to end"),
        (2, "sleeps"),
        (1, "waits for a lock"),
        (1, "computes"),
    ]
    assert (
        made.message
        == "3 processes wait for their sleep to end; 2 sleep; 1 waits for a lock; 1 does something else."
    )


def test_no_pod_speaks_for_anothers_rank() -> None:
    liar = PodState(name="bert-node-3", index=3, ranks=(state(0, LOADER), state(3)))
    made = diagnose([*pods(state(0), state(1), state(2)), liar], NOW)
    assert [(each.rank, each.pod_name) for each in made.suspects] == [(None, "bert-node-3")]
    assert "ank 0" not in made.message


def of_nodes(*ranks: Sequence[int], **more: Any) -> list[PodState]:
    """A pod for each of these."""
    return [
        PodState(name=f"bert-node-{index}", index=index, ranks=tuple(state(rank, **more) for rank in found))
        for index, found in enumerate(ranks)
    ]


@pytest.mark.parametrize(
    ("found", "believed"),
    [
        pytest.param(of_nodes(range(8), range(8, 16)), [*range(16)], id="an order"),
        pytest.param(of_nodes(range(8), [1]), [0, *range(2, 8)], id="a liar and an honest pod: neither's"),
        pytest.param(of_nodes([0], [1], [7]), [0, 1], id="a rank that nobody else claims"),
        pytest.param(of_nodes([0], [1], [1, 2]), [0, 1, 2], id="a rank of another pod, and its own"),
        pytest.param(of_nodes([2], [0], [1]), [0, 1, 2], id="no order"),
        pytest.param(of_nodes([2], [0], [1], [1]), [0, 2], id="no order, and a rank of two pods"),
    ],
)
def test_a_rank_counts_where_nothing_speaks_against_it(found: list[PodState], believed: list[int]) -> None:
    (group,) = diagnose(found, NOW).groups
    assert group.ranks == as_ranges(believed)


BEGAN = NOW.timestamp() - 600


@pytest.mark.parametrize(
    ("old", "message"),
    [
        pytest.param({"written": BEGAN - 9, "state": "ended"}, ALL_TWO, id="a rank that is no more"),
        pytest.param({"written": BEGAN - 9, "state": "over"}, ALL_TWO, id="an earlier run"),
        pytest.param({"written": BEGAN - 9, "step": 9}, ALL_TWO, id="its number is another process's now"),
        pytest.param(
            {"written": BEGAN + 9, "state": "ended"},
            "Rank 2 (gpu-0) has ended; 2 ranks wait for it in all_reduce.",
            id="of this run",
        ),
    ],
)
def test_what_was_written_before_this_run_began_counts_for_nothing(old: dict[str, Any], message: str) -> None:
    new = {"began": BEGAN, "written": NOW.timestamp(), "world_size": 2}
    one, other = pods(state(0, **new), state(1, **new))
    one = replace(one, ranks=(*one.ranks, state(2, began=BEGAN - 99, **old)))
    assert diagnose([one, other], NOW).message == message


def test_whatever_pods_claim_a_diagnosis_is_small() -> None:
    found = [
        PodState(
            name=f"bert-node-{pod}",
            index=pod,
            ranks=tuple(state(pod * 128 + n * 2, [f"m{n}:f:{pod}"]) for n in range(MAX_RANKS)),
        )
        for pod in range(160)
    ]
    made = diagnose(found, NOW)
    assert (len(made.groups), len(made.suspects)) == (MAX_GROUPS, 0)
    assert made.read == MAX_STATES == made.others + sum(each.count for each in made.groups)
    assert as_ranges([*range(0, 100, 2)]).count(",") == MAX_RANGES
    blamed = diagnose([*found[:9], *pods(*(state(rank, ()) for rank in range(600)))], NOW)
    assert len(blamed.suspects) <= MAX_SUSPECTS


def test_stacks_add_16_kib_to_a_jobs_state_at_most() -> None:
    frames = [f"{'数' * 99}{n}:{'載' * 100}:1234567" for n in range(MAX_FRAMES)]
    outputs = [printed(file(rank, stack={"frames": [f"m{rank}:f:1", *frames]})) for rank in range(9)]
    found = [
        PodState(name="x" * 63, node_name="y" * 63, index=rank, ranks=tuple(read_pod(output)))
        for rank, output in enumerate(outputs)
    ]
    made = diagnose(found, NOW)
    assert 12_000 < len(msgspec.json.encode(made)) < 16 * 1024


@pytest.mark.parametrize(
    ("frames", "where"),
    [
        (ALL_REDUCE, "all_reduce"),
        ([f"{C10D}:all_gather_into_tensor:3", "torch.distributed.fsdp.x:f:1"], "all_gather"),
        (["horovod.torch.mpi_ops:synchronize:3"], "a collective"),
        (["jax.experimental.multihost_utils:sync_global_devices:3"], "sync_global_devices"),
        ([f"{C10D}:barrier:3", "torch.distributed.checkpoint.x:save:1"], "barrier"),
        (
            ["torch.distributed.checkpoint.filesystem:write_data:3", "train:main:1"],
            "the code of a checkpoint",
        ),
        ([f"{C10D}:init_process_group:1700"], "the rendezvous"),
        (
            ["threading:wait:3", "queue:get:1", "torch.utils.data.dataloader:_try_get_data:9"],
            "the data loader",
        ),
        (["threading:wait:3", "train:main:1"], "a wait for another thread or process"),
        (["socket:recv:3", "train.py:Peers.all_reduce.<locals>.<genexpr>:2"], "all_reduce"),
        (["train.py:all_reduce:2"], "the program's own code"),
        (["socket:readinto:3", "urllib3.connectionpool:urlopen:1"], "a request over the network"),
        (["datasets.arrow_dataset:f:1", "train.py:main:1"], "the data loader"),
        (["datasets:f:1", "train.py:main:1"], "the program's own code"),
        (["requests.py:f:1", "train.py:main:1"], "the program's own code"),
        (["torchvision:f:1", "train.py:Trainer.main:1"], "the program's own code"),
        (["torch._tensor:Tensor.backward:1", "train.py:main:1"], "the backward pass"),
        ((), "a place that is not known"),
    ],
)
def test_a_place_is_what_the_innermost_known_frame_does(frames: Sequence[str], where: str) -> None:
    assert place_of(frames).where == where


def time(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def file(rank: int = 3, pid: int = 77, **more: Any) -> str:
    stack = {"time": time(2), "since": time(360), "frames": list(LOADER)}
    found = {
        "rank": rank,
        "pid": pid,
        "time": time(2),
        "step": 41,
        "stepTime": time(400),
        "stack": stack,
        **more,
    }
    return f"@rank {rank}\n{json.dumps(found)}"


def printed(*parts: str, state: str = "S", ticks: tuple[int, int] = (900, 901), pid: int = 77) -> bytes:
    """What a pod prints of one process."""
    head = [f"@now {NOW.timestamp():.0f} x86_64 bert-node-3", "@self 99"]
    kernel = [
        f"@proc {pid} 1 {state} {ticks[0]} 202 futex_wait_queue python3",
        "@proc 99 0 S 1 61 do_wait sh",
        f"@cpu {pid} {state} {ticks[1]}",
        "@cpu 99 S 1",
        "@end",
    ]
    return "\n".join([*head, *parts, *kernel]).encode()


TRACE = """@trace 3
Timeout (0:00:30)!
Thread 0x00007f11 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait

Thread 0x00007f12 [python3] (most recent call first):
  File "/srv/app/train.py", line 12 in work
  File "/opt/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py", line 700 in __next__
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(
            printed(file()),
            {"state": "", "step": 41, "frames": LOADER, "for_s": 360.0, "is_busy": False, "call": "a lock"},
            id="a stack since when it stands",
        ),
        pytest.param(printed(file(), state="T"), {"state": "stopped", "for_s": 360.0}, id="stopped"),
        pytest.param(printed(file(), state="D"), {"state": "storage"}, id="waits for a disk"),
        pytest.param(printed(file(), state="Z"), {"state": "ended", "frames": ()}, id="a zombie"),
        pytest.param(
            printed(file(), pid=78), {"state": "ended", "for_s": 400.0}, id="its process is not there"
        ),
        pytest.param(printed(file(), ticks=(900, 990)), {"is_busy": True}, id="it computes"),
        pytest.param(
            printed(file(), TRACE),
            {
                "state": "held",
                "idle_s": 2.0,
                "for_s": 400.0,
                "frames": ("train.py:work:12", "torch.utils.data.dataloader:__next__:700"),
            },
            id="CPython's dump of one whose interpreter is held",
        ),
        pytest.param(
            printed(file(accelerators=[7, {"index": 0, "utilizationPercentage": 97}])),
            {"is_busy": True},
            id="its accelerator works",
        ),
        pytest.param(
            printed(file(ended=time(30)), pid=78), {"state": "over", "frames": ()}, id="its run is over"
        ),
        pytest.param(printed(file(), "@trace 3\nno dump"), {"state": ""}, id="no dump"),
        pytest.param(
            printed(file(stack={"frames": ["/etc/passwd:f:1", "a b:c:1", "m:f:1", 7, "x" * 999]})),
            {"frames": ("m:f:1",), "for_s": 400.0},
            id="names of code only",
        ),
        pytest.param(
            printed(file(stack={"frames": ["数据.載入:Läufer.läuft:1"]})),
            {"frames": ("__.__:L_ufer.l_uft:1",)},
            id="in ASCII",
        ),
        pytest.param(
            printed(file(stack={"frames": [*["m:f:1"] * 12, *LOADER]})),
            {"frames": ("m:f:1",) * 8, "place": place_of(LOADER)},
            id="a few",
        ),
        pytest.param(
            printed(file(stack={"frames": LOADER, "since": time(360), "idleSince": time(100)})),
            {"idle_s": 100.0},
            id="nothing comes to it",
        ),
        pytest.param(
            printed(file(section="dataLoading", stack={"frames": ["queue:Queue.get:1", "train.py:load:7"]})),
            {"place": place_of(LOADER)},
            id="a loader of its own",
        ),
        pytest.param(
            printed(file(stack=None, section="evaluation")),
            {"frames": (), "section": "evaluation"},
            id="no stack",
        ),
        pytest.param(
            printed(file(host="bert-node-3", began=time(600), worldSize=8)),
            {"world_size": 8, "began": NOW.timestamp() - 600, "written": NOW.timestamp() - 2},
            id="of which run",
        ),
        pytest.param(printed(file(host="bert-node-4")), {"rank": None}, id="another pod's file"),
        pytest.param(
            printed(),
            {"rank": None, "call": "a lock", "state": ""},
            id="no reporter: the kernel's word",
        ),
    ],
)
def test_what_a_pod_prints_of_a_rank(output: bytes, expected: dict[str, object]) -> None:
    (found,) = read_pod(output)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"@rank 3\n{}\n",
        printed(file(pid=-1), pid=99),
        printed(f"@rank 4\n{file().partition(chr(10))[2]}", pid=99),
        printed("@rank 3\n[" + "[" * 5000, pid=99),
        printed(file(rank=2**31), pid=99),
    ],
    ids=["nothing", "an empty file", "no pid", "a file of another rank", "deep nesting", "a rank too high"],
)
def test_what_cannot_be_read_is_left_out(output: bytes) -> None:
    assert read_pod(output) == []


def test_of_lines_without_end_a_number_is_read() -> None:
    """512 KiB of them took 170 ms."""
    whole = printed(file())
    assert len(read_pod(b"@\n" * 100 + whole)) == 1
    assert read_pod(b"@\n" * MAX_PARTS + whole) == []


_WORDS = st.sampled_from(
    [
        "@now",
        "@self",
        "@rank",
        "@trace",
        "@proc",
        "@cpu",
        "@end",
        "3",
        "77",
        "T",
        "x86_64",
        "-1",
        "9" * 30,
        "٣",
        "python3",
    ]
)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = ("pid", "time", "step", "stepTime", "section", "stack")


@st.composite
def hostile(draw: Callable[..., Any]) -> bytes:
    """Lines that begin as ours do, and files of which any field may be anything."""
    lines = draw(st.lists(st.lists(_WORDS, max_size=8).map(" ".join) | st.text(max_size=60), max_size=12))
    more = draw(st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=4))
    with contextlib.suppress(ValueError):
        lines.insert(draw(st.integers(0, len(lines))), file(**more))
    end: bytes = draw(st.binary(max_size=20))
    return "\n".join(lines).encode("utf-8", "surrogatepass") + end


@given(st.lists(hostile() | st.binary(max_size=200), max_size=3))
def test_hostile_output_makes_a_diagnosis_of_our_own_words(outputs: list[bytes]) -> None:
    found = [
        PodState(name=f"bert-node-{index}", index=index, ranks=tuple(read_pod(output)))
        for index, output in enumerate(outputs)
    ]
    made = diagnose(found, NOW)
    assert made.message.endswith(".")
    assert made.message.isascii()
    assert made.message.isprintable()
    assert len(made.message) < 500
    for each in made.groups:
        assert each.where.isascii()
        assert all(len(frame) < 200 and "/" not in frame and frame.isprintable() for frame in each.frames)
    assert made.read <= len(outputs) * max(MAX_RANKS, MAX_PLAIN)


COMPILES = ("jax._src.compiler:backend_compile:300", "train:main:4")
USES, NOTHING = (
    "uses a CPU or an accelerator in",
    "uses a CPU or an accelerator, nor changes its place",
)
DEVICE = ("torch.cuda:synchronize:1040", "train:main:31")


@pytest.mark.parametrize(
    ("found", "shows", "evidence"),
    [
        (
            but(2, OWN, is_busy=True, for_s=5),
            AT_WORK,
            "Rank 2 uses a CPU or an accelerator in the program's own code.",
        ),
        (but(2, COMPILES, is_busy=True), AT_WORK, f"Rank 2 {USES} compilation."),
        (but(2, SAVES, section="checkpointSave"), AT_WORK, "Rank 2 marks a checkpoint."),
        (pods(state(0, DEVICE, is_busy=True)), "", ""),  # it may wait, by spinning
        (but(2, OWN, is_busy=True), "", ""),
        (but(2, ALL_REDUCE, is_busy=True, for_s=5), "", ""),
        (but(2, OWN, state="held", is_busy=True, for_s=5), "", ""),
        (
            of_one_pod(4, world_size=4),
            "idle",
            "All 4 ranks were read: none uses a CPU or an accelerator, nor changes its place.",
        ),
        (of_one_pod(4, world_size=5), "", ""),
        ([*of_one_pod(3), PodState(name="x", unread="no")], "", ""),
    ],
)
def test_what_ranks_that_make_no_step_show(found: list[PodState], shows: str, evidence: str) -> None:
    made = diagnose(found, NOW)
    assert (made.shows, made.evidence) == (shows, evidence)
