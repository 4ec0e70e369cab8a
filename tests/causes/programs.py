"""Programs that die for a known reason, with the class that is right.

`tests/frameworks/test_causes.py` runs each and classifies what it prints. `python -m tests.causes.programs DIR`
writes what it prints to `recorded/`, which the unit tests read: DIR/bin has a Python with the frameworks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded")
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`source` is run as train.py, by `launcher`."""

    cause: str  # the class; "ProgramError" for an exception of no class
    source: str
    says: str = ""  # a part of the sentence
    launcher: tuple[str, ...] = ()  # arguments of Python before train.py
    arguments: tuple[str, ...] = ()
    rank: int | None = None
    needs_root: bool = False


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
GLOO = """
import datetime, os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds={timeout}))
rank, x = dist.get_rank(), torch.ones(4)
dist.all_reduce(x)
"""

PROGRAMS = {
    "import-of-a-module": Program(
        cause="ImportFailed", says="flash_attn is not installed", source="import flash_attn"
    ),
    "import-of-a-name": Program(cause="ImportFailed", source="from torch.nn import FlashAttention4"),
    "import-in-a-library": Program(
        cause="ImportFailed",
        source="from transformers import AutoModelForCausalLM as A, BitsAndBytesConfig as B\n"
        "B(load_in_4bit=True)\nimport bitsandbytes",
    ),
    "data-set-missing": Program(
        cause="FileMissing", says="in train.py:2 in load", source="def load():\n    return open('/data/train.jsonl')\nload()"
    ),
    "data-set-missing-in-datasets": Program(
        cause="FileMissing", source="from datasets import load_from_disk\nload_from_disk('/data/nothing')"
    ),
    "script-missing": Program(cause="FileMissing", source="", launcher=("missing.py",)),
    "permission": Program(
        cause="PermissionDenied",
        needs_root=True,
        source="import os\nos.setuid(65534)\nopen('/etc/shadow').read()",
    ),
    "disk-full": Program(
        cause="DiskFull", source="with open('/dev/full', 'w') as file:\n    file.write('x' * 10_000)\n    file.flush()"
    ),
    "disk-full-by-torch": Program(
        cause="CheckpointNotWritten", source="import torch\ntorch.save(torch.zeros(100_000), '/dev/full')"
    ),
    "shared-memory": Program(
        cause="SharedMemoryFull",
        needs_root=True,
        source="""
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x00020000) == 0, os.strerror(ctypes.get_errno())
assert libc.mount(None, b"/", None, 0x4000 | 0x40000, None) == 0
assert libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=200k") == 0
import torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index): return torch.zeros(3, 224, 224)
for batch in DataLoader(Images(), batch_size=8, num_workers=2):
    pass
""",
    ),
    "loader-worker-killed": Program(
        cause="LoaderWorkerKilled",
        source="""
import os, signal
from torch.utils.data import DataLoader
class Images(list):
    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)
for batch in DataLoader(Images(range(8)), num_workers=2):
    pass
""",
    ),
    "loader-worker-raises": Program(
        cause="ProgramError",
        says="ValueError",
        source="""
from torch.utils.data import DataLoader
class Images(list):
    def __getitem__(self, index):
        raise ValueError("bad record 17")
for batch in DataLoader(Images(range(8)), num_workers=2):
    pass
""",
    ),
    "host-memory-by-numpy": Program(
        cause="HostOutOfMemory", says="more were requested", source="import numpy\nnumpy.zeros((1 << 44,))"
    ),
    "host-memory-by-torch": Program(
        cause="HostOutOfMemory", says="bytes more were requested", source="import torch\ntorch.empty(1 << 46)"
    ),
    "host-memory-by-python": Program(cause="HostOutOfMemory", source="x = bytearray(1 << 46)"),
    "host-memory-by-jax": Program(
        cause="HostOutOfMemory", says="70368744177664 bytes",
        source="import jax.numpy as jnp\nx = jnp.ones((1 << 22, 1 << 22))",
    ),
    "state-of-another-model": Program(
        cause="CheckpointMismatch",
        source="import torch.nn as nn\nnn.Linear(4, 2).load_state_dict(nn.Linear(4, 3).state_dict())",
    ),
    "state-of-another-optimizer": Program(
        cause="CheckpointMismatch",
        source="""
import torch, torch.nn as nn
one, two = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
state = torch.optim.Adam(one.parameters()).state_dict()
torch.optim.Adam(two.parameters()).load_state_dict(state)
""",
    ),
    "checkpoint-cut-off-in-safetensors": Program(
        cause="CheckpointCorrupt",
        source="""
import torch
from safetensors.torch import load_file, save_file
save_file({"w": torch.zeros(10_000)}, "model.safetensors")
whole = open("model.safetensors", "rb").read()
open("model.safetensors", "wb").write(whole[: len(whole) // 2])
load_file("model.safetensors")
""",
    ),
    "pickle-of-nothing": Program(
        cause="CheckpointCorrupt", source="import pickle\nopen('x', 'w')\npickle.load(open('x', 'rb'))"
    ),
    "nan-in-backward": Program(
        cause="NotFinite",
        source="""
import torch
torch.autograd.set_detect_anomaly(True)
x = torch.tensor([-1.0], requires_grad=True)
torch.sqrt(x).sum().backward()
""",
    ),
    "nan-guard": Program(
        cause="NotFinite",
        source="loss = float('nan')\nif loss != loss:\n    raise ValueError(f'Loss is {loss} at step 12, stopping training')",
    ),
    "nan-in-the-data": Program(
        cause="NotFinite",
        source="import numpy\nfrom sklearn.linear_model import LinearRegression\n"
        "LinearRegression().fit(numpy.array([[numpy.nan], [1.0]]), [0, 1])",
    ),
    "open-files": Program(
        cause="TooManyOpenFiles",
        source="import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        "files = [open('/dev/null') for _ in range(64)]",
    ),
    "address-in-use": Program(
        cause="AddressInUse",
        source="""
import socket, torch.distributed as dist
held = socket.create_server(("127.0.0.1", 0))
port = held.getsockname()[1]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
""",
    ),
    "rendezvous": Program(
        cause="RendezvousTimeout",
        source="""
import datetime, socket, torch.distributed as dist
with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=2,
                        timeout=datetime.timedelta(seconds=2))
""",
    ),
    "a-rank-raises": Program(
        cause="ProgramError",
        says="ValueError",
        launcher=TORCHRUN,
        source=GLOO.format(timeout=60)
        + """
if rank == 1:
    raise ValueError("label 12 is out of range")
dist.all_reduce(x)
""",
    ),
    "a-rank-misses-a-file": Program(
        cause="FileMissing",
        launcher=TORCHRUN,
        source=GLOO.format(timeout=60) + "if rank == 1:\n    open('/data/shard-1')\ndist.all_reduce(x)\n",
    ),
    "a-rank-is-killed": Program(
        cause="Killed",
        launcher=TORCHRUN,
        source=GLOO.format(timeout=60)
        + "import signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(x)\n",
    ),
    "a-rank-does-not-come": Program(
        cause="CollectiveTimeout",
        launcher=TORCHRUN,
        source=GLOO.format(timeout=3) + "if rank == 1:\n    time.sleep(60)\ndist.all_reduce(x)\n",
    ),
    "a-rank-ends-early": Program(
        cause="PeerLost",
        launcher=TORCHRUN,
        source=GLOO.format(timeout=60) + "if rank == 1:\n    os._exit(0)\ndist.all_reduce(x)\n",
    ),
    "spawned-rank-raises": Program(
        cause="ProgramError",
        says="KeyError",
        source="""
import torch.multiprocessing as mp
def work(rank):
    raise KeyError("lr")
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
""",
    ),
    "child-of-a-launcher": Program(
        cause="ImportFailed",
        source="import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import deepspeed_of_ours'], check=True)",
    ),
    "hub-offline": Program(
        cause="DownloadFailed",
        source="""
import os
os.environ.update(HF_ENDPOINT="http://127.0.0.1:9", HF_HOME="cache")
from transformers import AutoTokenizer
AutoTokenizer.from_pretrained("gpt2")
""",
    ),
    "url-refused": Program(
        cause="DownloadFailed", source="import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/data.tar')"
    ),
    "host-unknown": Program(
        cause="NameNotFound", source="import socket\nsocket.create_connection(('trainer-node-0-0.trainer.invalid', 29500))"
    ),
    "assertion": Program(
        cause="ProgramError",
        says="AssertionError in train.py:2 in check",
        source="def check(x):\n    assert x > 0, 'must be positive'\ncheck(-1)",
    ),
    "error-within-a-library": Program(
        cause="ProgramError",
        says="in train.py:2 in",
        source="import torch\ntorch.utils.data.DataLoader([1], batch_size=0)",
    ),
    "error-while-another-is-handled": Program(
        cause="FileMissing",
        source="""
try:
    open("/data/config.yaml")
except OSError as error:
    raise RuntimeError("cannot configure the run") from error
""",
    ),
    "shapes": Program(
        cause="ShapeMismatch", source="import torch\ntorch.nn.Linear(8, 2)(torch.zeros(4, 7))"
    ),
    "shapes-of-items": Program(
        cause="ShapeMismatch",
        source="import torch\nnext(iter(torch.utils.data.DataLoader([torch.ones(3), torch.ones(4)], batch_size=2)))",
    ),
    "shapes-in-a-convolution": Program(
        cause="ShapeMismatch", source="import torch\ntorch.nn.Conv2d(3, 4, 3)(torch.ones(1, 1, 8, 8))"
    ),
    "shapes-in-jax": Program(
        cause="ShapeMismatch", source="import jax.numpy as jnp\njnp.zeros((2, 3)) @ jnp.zeros((4, 5))"
    ),
    "shapes-in-keras": Program(
        cause="ProgramError",
        source="import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport keras, numpy\n"
        "model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])\n"
        "model.compile('sgd', 'mse')\nmodel.fit(numpy.zeros((8, 5)), numpy.zeros((8, 2)), verbose=0)",
    ),
    "no-accelerator-in-lightning": Program(
        cause="NoAccelerator", source="import lightning\nlightning.Trainer(accelerator='gpu')"
    ),
    "no-accelerator": Program(cause="NoAccelerator", source="import torch\ntorch.zeros(1).cuda()"),
    "segmentation-fault": Program(
        cause="SegmentationFault", source="import ctypes, faulthandler\nfaulthandler.enable()\nctypes.string_at(0)"
    ),
    "abort": Program(cause="Aborted", source="import faulthandler, os\nfaulthandler.enable()\nos.abort()"),
    "usage": Program(
        cause="UsageError",
        arguments=("--learning-rate=1",),
        source="import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', required=True)\nparser.parse_args()",
    ),
    "usage-of-hugging-face": Program(
        cause="ProgramError",
        says="ValueError",
        arguments=("--output_dir=out", "--learning_rte=1"),
        source="from transformers import HfArgumentParser, TrainingArguments\n"
        "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()",
    ),
    "retried-and-then-another": Program(
        cause="FileMissing",
        source="""
import traceback
for batch_size in (64, 32):
    try:
        if batch_size == 64:
            raise MemoryError("does not fit")
        for step in range(1, 40):
            print(f"step {step}/100 loss: {1 / step:.4f}", flush=True)
        open("/data/checkpoints/last")
    except MemoryError:
        traceback.print_exc()
""",
    ),
    "interrupted": Program(
        cause="Terminated", source="import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(9)"
    ),
}  # fmt: skip


def run(program: Program, python: str, directory: Path) -> str:
    """What it prints until it is dead."""
    (directory / "train.py").write_text(program.source)
    script = [] if program.launcher == ("missing.py",) else ["train.py"]
    done = subprocess.run(
        [python, *program.launcher, *script, *program.arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=False,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode != 0, done.stdout
    return done.stdout


def main() -> None:
    """Record all, or those that are named."""
    python, wanted = sys.argv[1], sys.argv[2:] or list(PROGRAMS)
    RECORDED.mkdir(exist_ok=True)
    for name in wanted:
        with tempfile.TemporaryDirectory() as directory:
            printed = run(PROGRAMS[name], python, Path(directory))
            # Places of the machine that recorded them.
            printed = re.sub(
                r"/[\w./-]*?/(?=lib/python3|bin/)", "/usr/", printed.replace(f"{directory}/", "")
            )
        (RECORDED / f"{name}.txt").write_text("\n".join(printed.splitlines()[-120:]) + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()
