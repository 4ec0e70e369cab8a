"""Records when each step of real trainings ends, for `benchmarks.estimates`: examples/, and trainings/ beside
this file, which compile, evaluate and write checkpoints.

    python -m benchmarks.recording [--seconds S] [TRAINING …]

With the frameworks installed (make test-frameworks). Each training gets so many more epochs, or rounds and
data, that it takes S seconds of CPU time, on one thread; what counts is the CPU time of its process, so that
other programs of the machine change little. The recorded runs are written to tests/vectors/rhythms.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
VECTORS = ROOT / "tests" / "vectors" / "rhythms.json"
SECONDS, SAMPLES, POLL_S = 150.0, 120, 0.05
_MORE_DATA = """
import numpy as _numpy
_often = {times}
x_train = _numpy.repeat(x_train, _often, axis=0)
x_train = x_train + _numpy.random.default_rng(0).normal(0, 1e-3, x_train.shape) * x_train.std(axis=0)
y_train = _numpy.repeat(y_train, _often)
"""
# What makes a training longer: the number in it is multiplied. Of boosting rounds the late ones do less and
# less, so it gets more data as well.
LENGTH = {
    "accelerate": r"EPOCHS = (\d+)",
    "anything": r"STEPS = ([\d_]+)",
    "catboost": r"ITERATIONS = (\d+)",
    "ignite": r"max_epochs=(\d+)",
    "jax": r"EPOCHS, BATCH = (\d+)",
    "keras": r"epochs=(\d+)",
    "lightgbm": r"train,\n    (\d+)",
    "lightning": r"max_epochs=(\d+)",
    "paddle": r"epochs=(\d+)",
    "pytorch": r"EPOCHS = (\d+)",
    "sklearn": r"EPOCHS = (\d+)",
    "torchtune": r"STEPS, LENGTH, BATCH = (\d+)",
    "transformers": r"num_train_epochs=(\d+)",
    "trl": r"num_train_epochs=(\d+)",
    "xgboost": r"ROUNDS = (\d+)",
    **dict.fromkeys(
        (
            "jax_evaluation",
            "keras_validation",
            "lightning_validation",
            "torch_compile",
            "transformers_evaluation",
        ),
        r"^EPOCHS = (\d+)",
    ),
}
BOOSTING = ("catboost", "lightgbm", "xgboost")
NAMES = {
    "jax_evaluation": "JAX, compilations, an evaluation after each 60 steps",
    "keras_validation": "Keras on JAX, compilations, a validation after each 60 steps",
    "lightning_validation": "Lightning, a validation after each 40 steps",
    "torch_compile": "torch.compile, two compilations, a checkpoint after each 50 steps",
    "transformers_evaluation": "Transformers, an evaluation after each 80 steps, a checkpoint after each 60",
    "accelerate": "Accelerate", "anything": "a command that prints", "catboost": "CatBoost",
    "ignite": "Ignite", "jax": "JAX with Flax", "keras": "Keras", "lightgbm": "LightGBM",
    "lightning": "Lightning", "paddle": "PaddlePaddle", "pytorch": "PyTorch", "sklearn": "scikit-learn",
    "torchtune": "torchtune", "transformers": "Transformers", "trl": "TRL", "xgboost": "XGBoost",
}  # fmt: skip
Samples = list[tuple[float, int]]


def record(example: str, seconds: float) -> Samples:
    """[CPU seconds since the run began, step], of a training that takes about `seconds`."""
    place = HERE / "trainings" / f"{example}.py"
    source = (place if place.exists() else ROOT / "examples" / f"train_{example}.py").read_text()
    times, took_s = 1, 0.0
    for _ in range(3):  # start-up comes once, so the first guess is too low
        found = run(example, lengthened(example, source, times))
        took_s = found[-1][0]
        if took_s >= 0.7 * seconds:
            break
        times = max(times + 1, round(times * min(60.0, seconds / max(took_s - found[1][0], 0.05))))
    return thinned(found)


def lengthened(example: str, source: str, times: int) -> str:
    def multiplied(match: re.Match[str]) -> str:
        whole, number = match.group(0), match.group(1)
        factor = min(times, 4) if example in BOOSTING else times
        return whole.replace(number, str(int(number) * factor))

    text, count = re.subn(LENGTH[example], multiplied, source, count=1, flags=re.MULTILINE)
    assert count == 1, example
    if example in BOOSTING:
        split = re.search(r"^x_train, .*$", text, re.MULTILINE)
        assert split is not None
        more = _MORE_DATA.format(times=max(1, times // 4))
        text = text[: split.end()] + more + text[split.end() :]
        text = re.sub(r"\n *lightgbm.early_stopping\(.*", "", text)
    return text


def run(example: str, source: str) -> Samples:
    with _training(example, source) as (process, document):
        found: Samples = []
        began_s = None
        while True:
            is_over = process.poll() is not None
            step = _step(document)
            spent_s = _cpu_s(process.pid) if not is_over else None
            if step is not None and spent_s is not None:
                began_s = spent_s if began_s is None else began_s
                if not found or found[-1][1] != step:
                    found.append((round(spent_s - began_s, 4), step))
            if is_over:
                assert process.returncode == 0, example
                return found
            time.sleep(POLL_S)


def thinned(found: Samples) -> Samples:
    """The first steps, and each so much of the time; the end."""
    least_s, kept = found[-1][0] / SAMPLES, found[:2]
    for sample in found[2:-1]:
        if sample[0] - kept[-1][0] >= least_s:
            kept.append(sample)
    return [*kept, found[-1]]


@contextmanager
def _training(example: str, source: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with tempfile.TemporaryDirectory(prefix="recording-") as name:
        place = Path(name)
        (place / "train.py").write_text(source)
        command = [sys.executable, "train.py"]
        if example == "anything":
            command = [sys.executable, "-m", "trainjob_progress.run", "--", *command]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environ = {
            **os.environ,
            **threads,
            "PYTHONPATH": f"{ROOT / 'reporter'}{os.pathsep}{ROOT / 'examples'}",
            "TRAINJOB_PROGRESS_FILE": str(place / "progress.json"),
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
        }
        process = subprocess.Popen(
            command, cwd=place, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield process, place / "progress.json"
        finally:
            process.kill()
            process.wait()


def _step(document: Path) -> int | None:
    try:
        step = json.loads(document.read_bytes()).get("step")
    except (FileNotFoundError, ValueError):
        return None
    return int(step) if step is not None else None


def _cpu_s(pid: int) -> float | None:
    """Of the process and the one that it runs, all threads."""
    total = 0.0
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (str(pid), *children):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    except OSError:
        return None
    return total / os.sysconf("SC_CLK_TCK")


def _field(key: str, value: object) -> str:
    """A recorded run a line."""
    if isinstance(value, str):
        return f'"{key}": {json.dumps(value)}'
    assert isinstance(value, list)
    lines = [
        json.dumps(each["name"]) + ', "samples": ' + json.dumps(each["samples"], separators=(",", ":"))
        for each in value
    ]
    return f'"{key}": [\n' + ",\n".join(f'{{"name": {line}}}' for line in lines) + "\n]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("examples", nargs="*", default=list(LENGTH))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    for example in given.examples:
        samples = record(example, given.seconds)
        vectors = json.loads(VECTORS.read_text())
        vectors["trainings"] = sorted(
            [
                *(each for each in vectors["trainings"] if each["name"] != NAMES[example]),
                {"name": NAMES[example], "samples": samples},
            ],
            key=lambda each: each["name"].lower(),
        )
        VECTORS.write_text("{\n" + ",\n".join(_field(*each) for each in vectors.items()) + "\n}\n")
        print(f"{NAMES[example][:24]:<24} {samples[-1][0]:7.1f} s of CPU, {samples[-1][1]} steps", flush=True)


if __name__ == "__main__":
    main()
