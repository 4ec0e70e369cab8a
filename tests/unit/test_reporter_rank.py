"""Which process of a distributed run may write."""

from __future__ import annotations

import json
import multiprocessing
import sys
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import pytest

from trainjob_progress.rank import find_rank, is_helper_process


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "OMPI_COMM_WORLD_RANK": "1"}, 3),
        ({"LOCAL_RANK": "0"}, None),
        ({"PET_NODE_RANK": "0", "LOCAL_RANK": "0"}, 0),
        ({"PET_NODE_RANK": "0", "LOCAL_RANK": "2"}, 2),
        ({"PET_NODE_RANK": "0"}, 0),
        ({"PET_NODE_RANK": "1", "LOCAL_RANK": "0"}, 1),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"PMIX_RANK": "2"}, 2),
        ({"PMI_RANK": "2"}, 2),
        ({"JAX_PROCESS_ID": "2"}, 2),
        ({"SLURM_PROCID": "2"}, 2),
        ({"SUBMITIT_LOCAL_GLOBALID": "3"}, 3),
        ({"DMLC_TASK_ID": "2"}, 2),
        ({"PADDLE_TRAINER_ID": "2"}, 2),
        ({"JOB_COMPLETION_INDEX": "2"}, 2),
        ({"RANK": "not a number", "SLURM_PROCID": "1"}, 1),
        ({"RANK": ""}, None),
        ({"RANK": "-1"}, None),
    ],
)
def test_rank_comes_from_the_launchers_variables(environ: dict[str, str], rank: int | None) -> None:
    assert find_rank(environ) == rank


@pytest.mark.parametrize(
    ("task", "cluster", "leads"),
    [
        (("chief", 0), {"chief": ["a"], "worker": ["b"]}, True),
        (("worker", 0), {"chief": ["a"], "worker": ["b"]}, False),
        (("worker", 0), {"worker": ["a", "b"]}, True),
        (("worker", 1), {"worker": ["a", "b"]}, False),
        (("ps", 0), {"worker": ["a"], "ps": ["b"]}, False),
        (("evaluator", 0), {"worker": ["a"]}, False),
    ],
)
def test_chief_or_worker_0_leads_a_tensorflow_cluster(
    task: tuple[str, int], cluster: dict[str, Any], leads: bool
) -> None:
    config = json.dumps({"task": {"type": task[0], "index": task[1]}, "cluster": cluster})
    assert (find_rank({"TF_CONFIG": config}) == 0) is leads


@pytest.mark.parametrize("config", ["", "{", "[]", "{}", '{"task":{"type":"worker","index":"x"}}'])
def test_a_broken_tf_config_is_no_rank(config: str) -> None:
    assert find_rank({"TF_CONFIG": config}) is None


class FakeDistributed(ModuleType):
    rank = 5

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.rank >= 0

    def get_rank(self) -> int:
        return self.rank


def test_an_initialised_process_group_knows_better_than_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", FakeDistributed("torch.distributed"))
    assert find_rank({"RANK": "0"}) == 5


def test_a_process_group_that_is_not_initialised_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = FakeDistributed("torch.distributed")
    module.rank = -1
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    assert find_rank({"RANK": "1"}) == 1


def test_a_library_that_breaks_when_asked_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", ModuleType("half imported"))
    assert find_rank({"RANK": "1"}) == 1


def _send_verdict(pipe: Connection) -> None:
    pipe.send(is_helper_process())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_children_of_multiprocessing_are_helpers(method: str) -> None:
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_send_verdict, args=(theirs,))  # type: ignore[attr-defined]
    child.start()
    assert ours.poll(60)
    assert ours.recv() is True
    child.join(60)
    assert is_helper_process() is False
