"""What a stack is doing, in our own words: a table of names of code, from collectives down to locks.

Frames are `module:function:line`, innermost first. The innermost that the table has counts: what a loader or
a collective calls is a part of it. Python's own modules count only where no library is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Where a rank waits for others; where it may; where others wait for it.
COLLECTIVE, PERHAPS, WORK, UNKNOWN = "collective", "perhaps", "work", "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is."""

    kind: str
    reason: str  # CamelCase, of a rank that others wait for
    where: str  # after the word "in"


NOWHERE = Place(UNKNOWN, "NotKnown", "a place that is not known")
OWN_CODE = Place(WORK, "InOwnCode", "the program's own code")
_A_COLLECTIVE = "a collective"
LOADER = Place(WORK, "InDataLoader", "the data loader")
_SAVING = Place(WORK, "InCheckpoint", "the code of a checkpoint")
_COMPILING = Place(WORK, "Compiling", "compilation")
_NETWORK = Place(WORK, "WaitsForNetwork", "a request over the network")
_LOCAL = Place(WORK, "WaitsForLocal", "a wait for another thread or process")
_SLEEP = Place(WORK, "Sleeps", "a sleep")
_BACKWARD = Place(PERHAPS, "InBackward", "the backward pass")
_DEVICE = Place(PERHAPS, "WaitsForDevice", "a wait for the accelerator")
_RENDEZVOUS = Place(COLLECTIVE, "InRendezvous", "the rendezvous")

_ANY = r".*"
# Of distributed libraries: what waits for other ranks. The first group is shown.
_COLLECTIVES = (
    r"_*(all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|monitored_barrier|barrier|gather|scatter"
    r"|reduce|i?send|i?recv|sync_global_devices|process_allgather)(?:_\w{0,60})?"
    r"|batch_isend_irecv|_?wait\w*|_?synchronize|_?sync_\w+|unshard|post_\w+"
)
# Modules, an ending of their functions' names, the place; None: the collective that the function names. The
# first row that fits counts.
_LIBRARIES: tuple[tuple[tuple[str, ...], str, Place | None], ...] = (
    (
        ("torch.distributed.distributed_c10d", "torch.distributed.rendezvous", "torch.distributed.elastic"),
        r"init_process_group|_store_based_barrier|_new_process_group_helper|next_rendezvous|rendezvous",
        _RENDEZVOUS,
    ),
    (("jax._src.distributed",), r"initialize", _RENDEZVOUS),
    (("torch.distributed.checkpoint",), _ANY, _SAVING),
    (
        (
            "torch.distributed.distributed_c10d", "torch.distributed._functional_collectives",
            "torch.distributed.nn", "torch.distributed.fsdp", "torch.nn.parallel.distributed", "horovod",
            "mpi4py", "paddle.distributed", "deepspeed.comm", "jax.experimental.multihost_utils",
            "tensorflow.python.ops.collective_ops", "megatron.core.tensor_parallel",
        ),
        _COLLECTIVES,
        None,
    ),
    (("torch.autograd", "torch._tensor"), r"_engine_run_backward|backward|grad", _BACKWARD),
    (("torch.cuda",), r"synchronize|wait|query", _DEVICE),
    (("jax._src",), r"block_until_ready|_value|__array__", _DEVICE),
    (
        (
            "torch.utils.data", "torchdata", "datasets", "webdataset", "grain", "streaming",
            "tensorflow.python.data", "tensorflow_datasets", "ray.data", "petastorm", "nvidia.dali",
        ),
        _ANY,
        LOADER,
    ),
    (
        (
            "torch.serialization", "safetensors", "orbax", "flax.training.checkpoints",
            "tensorflow.python.checkpoint", "tensorflow.python.training.saver",
        ),
        _ANY,
        _SAVING,
    ),
    (
        (
            "torch._dynamo", "torch._inductor", "triton.compiler", "triton.runtime", "jax._src.compiler",
            "jax._src.compilation_cache",
        ),
        _ANY,
        _COMPILING,
    ),
    (
        (
            "huggingface_hub", "urllib3", "requests", "httpx", "aiohttp", "botocore", "fsspec", "s3fs",
            "gcsfs", "grpc",
        ),
        _ANY,
        _NETWORK,
    ),
)  # fmt: skip
_OF_PYTHON: tuple[tuple[tuple[str, ...], str, Place | None], ...] = (
    (("urllib", "http", "ssl", "socket"), _ANY, _NETWORK),
    (("time",), r"sleep", _SLEEP),
    (("queue", "threading", "multiprocessing", "concurrent", "subprocess", "selectors"), _ANY, _LOCAL),
)
_OF_ONE_FILE = ("time", "queue", "threading", "socket", "ssl", "subprocess", "selectors")
# A collective of the program's own, in what Python itself waits for.
_OWN_COLLECTIVE = re.compile(r"_*(all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|barrier)")
_TABLES = tuple(
    tuple((modules, re.compile(function), place) for modules, function, place in table)
    for table in (_LIBRARIES, _OF_PYTHON)
)


def place_of(frames: Sequence[str], section: str = "") -> Place:
    """What this stack is doing. `section`: the one that the rank marks."""
    place = _place_of(frames)
    is_plain = place in (OWN_CODE, _SLEEP, _LOCAL)
    return LOADER if is_plain and section == "dataLoading" else place


def _place_of(frames: Sequence[str]) -> Place:
    if not frames:
        return NOWHERE
    for table in _TABLES:
        for frame in frames:
            module, qualified, *_ = frame.split(":")
            if module.endswith(".py"):  # a file of the program, whatever its name
                continue
            function = qualified.rpartition(".")[2]
            for modules, pattern, place in table:
                if any(_is_of(module, each) for each in modules):
                    named = pattern.fullmatch(function)
                    if named is None:
                        continue
                    if table is _TABLES[-1] and place is not _SLEEP:
                        return _own_collective(frames) or place or NOWHERE
                    return place or Place(COLLECTIVE, "InCollective", named[1] or _A_COLLECTIVE)
    return OWN_CODE


def _own_collective(frames: Sequence[str]) -> Place | None:
    functions = [name for frame in frames for name in frame.split(":")[1].split(".")]
    named = next(filter(None, map(_OWN_COLLECTIVE.fullmatch, functions)), None)
    return None if named is None else Place(COLLECTIVE, "InCollective", named[1])


def _is_of(module: str, library: str) -> bool:
    """A library's code is in its modules: `datasets` alone is a file of the program with that name."""
    is_package = "." not in library and library not in _OF_ONE_FILE
    return module.startswith(f"{library}.") or (module == library and not is_package)
