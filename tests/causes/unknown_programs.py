"""Programs whose output names no known failure: healthy ones with warnings that look like one, and silent ends.

`python -m tests.causes.unknown_programs PYTHON [NAME…]` runs each, as train.py, and writes the end of what it prints to
`unknown/`, which the unit tests read. PYTHON has the frameworks of `make test-frameworks`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
UNKNOWN = Path(__file__).with_name("unknown")
TIMEOUT_S = 400
LINES = 60

LOOP = """
import time
def train(steps, say=None):
    for step in range(1, steps + 1):
        print(f"step {step}/{steps} loss: {1 / step:.4f}", flush=True)
        if say and step == steps // 2:
            say()
"""
RANKS = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
SPAWN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
EXAMPLES = (
    *("accelerate", "anything", "catboost", "ignite", "jax", "keras", "lightgbm", "lightning", "paddle"),
    *("pytorch", "sklearn", "transformers", "xgboost"),
)
# Arguments of Python before train.py, and that program; or a shell's.
PROGRAMS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    # Ends without a word of why
    "exit-3": ((), LOOP + "train(9)\nraise SystemExit(3)"),
    "exit-at-once": ((), "import os; os._exit(7)"),
    "exit-with-a-sentence": ((), LOOP + "train(5)\nraise SystemExit('validation score too low, stopping')"),
    "exit-of-a-thread": ((), "import threading, sys\nthreading.Thread(target=lambda: sys.exit(2)).start()\nsys.exit(4)"),
    "exit-after-an-error-line": (
        (), "import logging, sys\nlogging.error('quality gate: 3 of 5 checks failed')\nsys.exit(1)"
    ),
    "exit-on-sigterm": (
        (), "import os, signal, sys\nsignal.signal(15, lambda *_: sys.exit(143))\nos.kill(os.getpid(), 15)"
    ),
    "exit-of-a-child": ((), "import subprocess, sys\nsys.exit(subprocess.call(['sh', '-c', 'echo eval done; exit 5']))"),
    "unittest-skips": (
        (), "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.skipTest('no data')\nunittest.main()"
    ),
    "shell-trace": (("sh",), "set -x\nfor each in a b; do echo $each; done\nexit 5"),
    "shell-test": (("sh",), "echo starting; test -n \"\" || { echo 'nothing to do'; exit 6; }"),
    "make-stops": (("sh",), "printf 'all:\\n\\t@echo building\\n\\t@exit 3\\n' > Makefile; make"),
    "awk-ends": (("sh",), "seq 20 | awk '{print \"epoch\", $1; if ($1 == 12) exit 9}'"),
    # Goes on after what looks like a failure
    "handled-error": (
        (), LOOP + "import traceback\ntry:\n    open('cache.bin')\nexcept OSError:\n    traceback.print_exc()\ntrain(90)"
    ),
    "logged-exception": (
        (), LOOP + "import logging\ndef say():\n    try: 1 / 0\n    except ZeroDivisionError: logging.exception('skipped')\n"
        "train(40, say)",
    ),
    "refused-and-tried-again": (
        (), LOOP + "import logging\nlogging.basicConfig()\nfor i in range(3): logging.warning("
        "'connection to tracker:80 refused ([Errno 111] Connection refused), retry %d', i)\ntrain(9)",
    ),
    "thread-raises": (
        (), LOOP + "import threading\nt = threading.Thread(target=lambda: {}['x'])\nt.start(); t.join()\ntrain(90)"
    ),
    "error-ignored-in-del": (
        (), LOOP + "class A:\n    def __del__(self): raise ValueError('late')\nA()\ntrain(90)"
    ),
    "advice-about-memory": (
        (), LOOP + "print('Tip: on CUDA out of memory lower --batch-size; on No space left on device set TMPDIR')\ntrain(5)"
    ),
    "config-with-frightening-words": (
        (), LOOP + "print({'on_error': 'raise', 'nccl_timeout': 600, 'oom_retry': True, 'killed_ok': 1})\ntrain(5)"
    ),
    "asyncio-slow-callback": (
        ("-X", "dev"), "import asyncio, time\nasync def main():\n    time.sleep(0.2)\nasyncio.run(main())\nprint('done')"
    ),
    "unclosed-files": (("-X", "dev"), "open(__file__)\nprint('epoch 1 done')"),
    "imports-told": (("-v",), "print('epoch 1')"),
    "faulthandler-of-a-slow-step": (
        (), LOOP + "import faulthandler, time\nfaulthandler.dump_traceback_later(0.2)\ntime.sleep(0.5)\n"
        "faulthandler.cancel_dump_traceback_later()\ntrain(90)",
    ),
    "pip-install": (("-m", "pip", "install", "--no-index", "--dry-run", "numpy"), ""),
    # Warnings of libraries
    "numpy-warnings": (
        (), "import numpy as np\nprint(np.float32(1e38) * 10, np.log(np.array([0.0, -1.0])), np.array([1.0]) / 0)"
    ),
    "sklearn-does-not-converge": (
        (), "from sklearn.linear_model import LogisticRegression\nfrom sklearn.datasets import load_digits\n"
        "x, y = load_digits(return_X_y=True)\nprint(LogisticRegression(max_iter=3).fit(x, y).score(x, y))",
    ),
    "torch-without-a-driver": (
        (), "import torch\nprint(torch.cuda.is_available())\nwith torch.autocast('cuda'): pass\n"
        "torch.amp.GradScaler('cuda')\nfor i in range(3): print('step', i)",
    ),
    "torch-scheduler-before-optimizer": (
        (), "import torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters(), lr=1.0)\n"
        "s = torch.optim.lr_scheduler.StepLR(o, 1)\ns.step(); o.step()\nprint('epoch 1')",
    ),
    "torch-loader-with-many-workers": (
        (), "import torch\nfrom torch.utils.data import DataLoader\nif __name__ == '__main__':\n"
        "    for x in DataLoader(range(8), num_workers=64, pin_memory=True): print(x)\n    print('done')",
    ),
    "torch-anomaly-found-nothing": (
        (), "import torch\nwith torch.autograd.detect_anomaly():\n    x = torch.ones(2, requires_grad=True)\n"
        "    (x * 2).sum().backward()\nprint('loss', float(x.sum()))",
    ),
    "gloo-two-ranks": (SPAWN, RANKS + "x = torch.ones(2)\nfor i in range(3):\n    dist.all_reduce(x)\n    print(rank, x)"),
    "gloo-without-goodbye": (SPAWN, RANKS + "print('rank', rank)\ndist.barrier()\nos._exit(0)"),
    "spawned-processes": (
        (), "import torch.multiprocessing as mp\ndef go(rank): print('rank', rank)\n"
        "if __name__ == '__main__': mp.spawn(go, nprocs=2)",
    ),
    "tokenizers-after-a-fork": (
        (), "import os\nfrom tokenizers import Tokenizer, models\nt = Tokenizer(models.WordLevel({'a': 0}, unk_token='a'))\n"
        "t.encode_batch(['a'] * 100)\nif os.fork() == 0:\n    t.encode_batch(['a'] * 100); os._exit(0)\nos.wait()\nprint('done')",
    ),
    "usage-that-was-asked-for": (
        (), "import sys\nfrom transformers import HfArgumentParser, TrainingArguments\nsys.argv = ['train.py', '--help']\n"
        "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()",
    ),
    "datasets-progress": (
        (), "from datasets import Dataset\nd = Dataset.from_dict({'x': list(range(100))})\n"
        "print(d.map(lambda r: {'y': r['x'] * 2}, num_proc=2))",
    ),
    "jax-without-a-gpu": ((), "import jax, jax.numpy as jnp\nprint(jax.devices(), jnp.ones(3) / 0)"),
    "jax-debugs-nothing": (
        (), "import jax\njax.config.update('jax_debug_nans', True)\njax.config.update('jax_log_compiles', True)\n"
        "print(jax.jit(lambda x: x + 1)(1.0))",
    ),
    "xgboost-unknown-parameter": (
        (), "import numpy as np, xgboost as xgb\nd = xgb.DMatrix(np.random.rand(50, 3), np.random.rand(50))\n"
        "xgb.train({'tree_method': 'hist', 'verbosity': 2, 'unknown_one': 1}, d, 5, evals=[(d, 'train')])",
    ),
    "lightgbm-finds-no-split": (
        (), "import numpy as np, lightgbm as lgb\nlgb.train({'min_data_in_leaf': 500}, lgb.Dataset(np.random.rand(90, 3),"
        " np.random.rand(90)), 5)",
    ),
    "lightning-fast-dev-run": (
        (), "import torch, lightning as L\nfrom torch.utils.data import DataLoader\nclass M(L.LightningModule):\n"
        "    def __init__(self): super().__init__(); self.l = torch.nn.Linear(1, 1)\n"
        "    def training_step(self, b, i): return self.l(b).sum()\n"
        "    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)\n"
        "L.Trainer(fast_dev_run=2, accelerator='cpu').fit(M(), DataLoader(torch.ones(8, 1)))",
    ),
    "lightning-interrupted-kindly": (
        (), "import torch, lightning as L\nfrom torch.utils.data import DataLoader\nclass M(L.LightningModule):\n"
        "    def __init__(self): super().__init__(); self.l = torch.nn.Linear(1, 1)\n"
        "    def training_step(self, b, i):\n        self.trainer.should_stop = i > 3\n        return self.l(b).sum()\n"
        "    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)\n"
        "L.Trainer(max_epochs=3, min_epochs=2, accelerator='cpu', logger=False).fit(M(), DataLoader(torch.ones(8, 1)))",
    ),
    "keras-nan-is-a-value": (
        (), "import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport keras, numpy as np\nm = keras.Sequential([keras.layers.Dense(1)])\n"
        "m.compile('sgd', 'mse')\nm.fit(np.full((8, 2), np.inf), np.ones(8), epochs=2, verbose=2)",
    ),
    "rich-table": (
        (), "from rich.console import Console\nfrom rich.table import Table\nt = Table('metric', 'value')\n"
        "t.add_row('errors', '0'); t.add_row('failed', '0')\nConsole().print(t)",
    ),
    "tqdm-bars": (
        (), "import time\nfrom tqdm import tqdm\nfor e in range(2):\n    for _ in tqdm(range(30), desc=f'epoch {e}', mininterval=0):"
        " time.sleep(0.01)",
    ),
}  # fmt: skip


def run(name: str, python: str, directory: Path) -> str:
    """All that it prints."""
    environ = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "TRAINJOB_PROGRESS_FILE": str(directory / "progress.json"),
        "HF_HUB_OFFLINE": "1",
    }
    if name.startswith("example-"):
        path = ROOT / "examples" / f"train_{name.removeprefix('example-')}.py"
        command = [python, str(path)]
        if name == "example-anything":
            command = [
                python,
                "-m",
                "trainjob_progress.run",
                "--",
                "python3",
                "-c",
                "print('epoch 1/2\\nepoch 2/2')",
            ]
    else:
        launcher, source = PROGRAMS[name]
        (directory / "train.py").write_text(source)
        command = [python, *launcher, *(["train.py"] if source else [])]
        if launcher == ("sh",):
            command = ["sh", "train.py"]
    done = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S, check=False, text=True, errors="replace", env=environ,
    )  # fmt: skip
    return done.stdout


def main() -> None:
    """Record all, or those that are named."""
    python, wanted = sys.argv[1], sys.argv[2:] or [*PROGRAMS, *(f"example-{each}" for each in EXAMPLES)]
    UNKNOWN.mkdir(exist_ok=True)
    for name in wanted:
        with tempfile.TemporaryDirectory() as directory:
            try:
                printed = (
                    run(name, python, Path(directory)).replace(f"{directory}/", "").replace(f"{ROOT}/", "")
                )
            except subprocess.TimeoutExpired:
                print(name, "takes too long", flush=True)
                continue
            printed = re.sub(r"/[\w./-]*?/(?=lib/python3|bin/)", "/usr/", printed)
        lines = [line[:300] for line in printed.splitlines()[-LINES:]]
        (UNKNOWN / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()
