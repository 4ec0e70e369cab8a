"""What `python -m trainjob_progress.run` costs a command that prints without a pause, beside a bare pipe, and
beside a second pipe with `cat` between: whoever reads the output on its way has that one as well. Also beside
the least that a process between two pipes costs, one that only calls `splice`; and beside a wrapped `true`.

    python -m benchmarks.wrapper [--megabytes 300] [--rounds 5]

They take turns; of each the least of the rounds counts. CPU is that of the command, of the wrapper and of
who reads the output. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRINT = """
import os, sys
line = sys.argv[1].encode().decode("unicode_escape").encode()
block, left = line * (250_000 // len(line)), int(sys.argv[2])
if sys.argv[3] == "print":
    line = line.decode().rstrip("\\n")
    for _ in range(left // len(line)):
        print(line)
    left = 0
while left > 0:
    left -= os.write(1, block)
"""
SPLICE = """
import os, sys
source, inlet = os.pipe()
os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, inlet, 1)])
os.close(inlet)
while os.splice(source, 1, 1 << 20): pass
os.wait()
"""
LINES = {
    "print": "step 1234/10000 | loss: 0.5234 | lr 3e-4\\n",
    "prose": "the quick brown fox jumps over the lazy dog\\n",
    "steps": "step 1234/10000 | loss: 0.5234 | lr 3e-4\\n",
    "bar": "\\r 12%|#2        | 1234/10000 [00:10<01:15, 115.00it/s, loss=0.52]",
    "json": '{"level": "info", "step": 1234, "loss": 0.5234, "message": "train"}\\n',
    "long": f"{'x' * 10_000}\\n",
    "binary": "\\x00\\x1b\\x7f\\x80" * 20,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, symlinks=True)  # without the development environment's import hook
        measure_all(f"{directory}/bin/python", options, results)
    print(json.dumps(results, indent=2, default=str))
    return 0


def measure_all(python: str, options: argparse.Namespace, results: dict[str, dict[str, float]]) -> None:
    """Each kind of output, in turns."""
    for name, line in LINES.items():
        size = options.megabytes * 1_000_000 // (10 if name == "print" else 1)  # it takes that much longer
        command = [python, "-S", "-c", PRINT, line, str(size), name]
        kinds = {
            "bare": command,
            "cat": ["sh", "-c", '"$@" | cat', "sh", *command],
            "splice": [python, "-S", "-c", SPLICE, *command],
            "start": [python, "-m", "trainjob_progress.run", "--", "true"],
            "wrapped": [python, "-m", "trainjob_progress.run", "--", *command],
        }
        least: dict[str, float] = {}
        for _ in range(options.rounds):
            for kind, words in kinds.items():
                for what, seconds in measure(words).items():
                    least[f"{kind}_{what}"] = min(least.get(f"{kind}_{what}", 1e9), seconds)
        results[name] = {what: round(seconds, 3) for what, seconds in least.items()}
        for what in ("wall", "cpu"):
            for other in ("bare", "cat", "splice"):
                ratio = least[f"wrapped_{what}_s"] / least[f"{other}_{what}_s"]
                results[name][f"ratio_{what}_{other}"] = round(ratio, 2)


def measure(words: list[str]) -> dict[str, float]:
    """Seconds until all that the command prints is read."""
    with tempfile.TemporaryDirectory() as directory:
        environ = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPATH": str(ROOT / "reporter"),
            "TRAINJOB_PROGRESS_FILE": f"{directory}/progress.json",
        }
        buffer = bytearray(65536)
        began_s, began_cpu_s = time.monotonic(), cpu_s()
        with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while os.readv(process.stdout.fileno(), [buffer]):
                pass
        return {"wall_s": time.monotonic() - began_s, "cpu_s": cpu_s() - began_cpu_s}


def cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    sys.exit(main())
