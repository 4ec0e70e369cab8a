"""Which process of a distributed run this is, by its environment and what it has imported already."""

from __future__ import annotations

import os
import sys

from .termination import let_through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Optional

# The more specific launcher first. Not LOCAL_RANK alone: it is 0 once on every node.
_GLOBAL_RANKS = ("RANK", "PET_NODE_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID")
_LATER_RANKS = (
    "SLURM_PROCID", "SUBMITIT_LOCAL_GLOBALID", "DMLC_TASK_ID", "PADDLE_TRAINER_ID", "JOB_COMPLETION_INDEX",
)  # fmt: skip

_WORLD_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES")


def find_rank(environ: Optional[Mapping[str, str]] = None) -> Optional[int]:
    """This process's global rank; None where nothing says that there are several."""
    environ = os.environ if environ is None else environ
    rank = _from_libraries()
    if rank is not None:
        return rank
    for name in _GLOBAL_RANKS:
        rank = _to_rank(environ.get(name))
        if rank is not None:
            if name == "PET_NODE_RANK" and rank == 0:  # counts nodes, not processes
                return _to_rank(environ.get("LOCAL_RANK")) or 0
            return rank
    rank = _from_tf_config(environ.get("TF_CONFIG"))
    if rank is not None:
        return rank
    for name in _LATER_RANKS:
        rank = _to_rank(environ.get(name))
        if rank is not None:
            return rank
    return None


def find_world_size() -> Optional[int]:
    """How many ranks there are, where the library or the launcher says it."""
    try:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_world_size())
    except Exception as error:  # not ready to answer is no answer
        let_through(error)
    sizes = [_to_rank(os.environ.get(name)) for name in _WORLD_SIZES]
    return next((size for size in sizes if size), None)


def has_no_peers() -> bool:
    """Whether nothing says that there are other ranks."""
    return os.environ.get("WORLD_SIZE") == "1" or find_rank() is None


def is_helper_process() -> bool:
    """Whether this is a child that multiprocessing made, such as a data loader, with its parent's rank.

    A training process started that way (torch.multiprocessing.spawn) counts as one as soon as it has joined
    its process group; before that, nothing tells it from a data loader.
    """
    torch_data = sys.modules.get("torch.utils.data")
    try:
        if torch_data is not None and torch_data.get_worker_info() is not None:
            return True
    except Exception as error:  # a half-imported torch answers anything; the next check decides
        let_through(error)
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is None or multiprocessing.parent_process() is None:
        return False
    return _from_libraries() is None


def _from_libraries() -> Optional[int]:
    try:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception as error:  # not ready to answer is no answer
        let_through(error)
    try:
        jax = sys.modules.get("jax._src.distributed")
        # Not jax.process_index(): it starts the backends, and jax.distributed.initialize() must come first.
        if jax is not None and jax.global_state.client is not None:
            return int(jax.global_state.process_id)
    except Exception as error:  # a private name: when it moves, the environment decides
        let_through(error)
    return None


def _to_rank(text: Optional[str]) -> Optional[int]:
    return int(text) if text is not None and text.strip().isdecimal() else None


def _from_tf_config(text: Optional[str]) -> Optional[int]:
    if not text:
        return None
    try:
        import json

        config = json.loads(text)
        kind, index = str(config["task"]["type"]), int(config["task"]["index"])
        leaders = [name for name in ("chief", "master") if config.get("cluster", {}).get(name)]
    except Exception as error:
        let_through(error)
        return None
    if kind in ("chief", "master"):
        return index
    return index if kind == "worker" and not leaders else index + 1
