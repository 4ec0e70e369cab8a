"""`python -m tests.fuzz [--seconds N] [TARGET ...]`: libFuzzer through atheris, a process for each target.

It begins with the inputs in `corpus/` and those that earlier runs found, which stay in `.fuzz/` of the
working directory. So does an input that breaks a target: put it into `corpus/` with the mend.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(".fuzz")
ALL = "all"
MAX_INPUT_BYTES = 4096
Target = Callable[[bytes], None]
INSTRUMENTED = ["visibility_api", "trainjob_progress"]


def fuzz_one(name: str, *, seconds: int, runs: int) -> None:
    """Never returns: libFuzzer ends the process, with 0 when nothing broke.

    `runs`: so many inputs, beginning with the corpus alone, and the same ones each time; 0: for `seconds`.
    """
    import atheris  # here: its wheels are for Linux on x86-64 and Python below 3.14

    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        from tests.fuzz.targets import TARGETS
    found = FOUND / (f"{name}-again" if runs else name)
    if runs:
        shutil.rmtree(found, ignore_errors=True)
    found.mkdir(parents=True, exist_ok=True)
    if name == ALL:
        target = _together(list(TARGETS.items()), found)
        seeds = []
    else:
        target, seeds = TARGETS[name], [str(CORPUS / name)]
    atheris.Setup(
        [
            name,
            str(found),
            *seeds,
            *((f"-runs={runs}", "-seed=1") if runs else (f"-max_total_time={seconds}",)),
            f"-max_len={MAX_INPUT_BYTES}",
            f"-artifact_prefix={found}/broke-",
            "-timeout=60",  # seconds for one input, on a machine that stands still now and then
            "-rss_limit_mb=1024",
            "-print_final_stats=0",
        ],
        target,
    )
    atheris.Fuzz()


def _together(targets: list[tuple[str, Target]], found: Path) -> Target:
    """All of them as one: an input's first byte says which reads the rest. Writes the seeds so to `found`."""
    for at, (name, _) in enumerate(targets):
        for seed in (CORPUS / name).iterdir():
            (found / f"{name}-{seed.name}").write_bytes(bytes((at,)) + seed.read_bytes())

    def run(data: bytes) -> None:
        if data and data[0] < len(targets):
            targets[data[0]][1](data[1:])

    return run


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument(
        "--runs", type=int, default=0, help="so many inputs instead, and the same ones each time"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", help=f"by default each; `{ALL}`: all in one process")
    given = parser.parse_args()
    if given.one:
        fuzz_one(given.one, seconds=given.seconds, runs=given.runs)
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("not fuzzed: atheris has no wheel for this Python; the corpus is replayed by `make test`")
        return 0
    names = given.targets or sorted(each.name for each in CORPUS.iterdir())

    def run(name: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        argv = [sys.executable, "-m", "tests.fuzz", "--one", name]
        argv += ["--seconds", str(given.seconds), "--runs", str(given.runs)]
        return name, subprocess.run(
            argv,
            env=os.environ | {"PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    broken = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for name, ended in pool.map(run, names):
            if ended.returncode:
                broken += 1
                print(f"{name}: broke\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}")
            else:
                done = re.findall(r"^Done (\d+) runs", ended.stderr, re.MULTILINE)
                print(f"{name}: {done[-1] if done else '?'} inputs")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
