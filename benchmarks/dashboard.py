"""`python -m benchmarks.dashboard`: how soon the page is of use in a browser, and how smooth it stays.

A headless Chromium on the same machine as the server, with an empty cache; each job has a history, and jobs
change all the time. What is measured is the browser's: the first contentful paint, the frame after the first
rows, the first curve beside a row, the longest task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from . import kubernetes
from .processes import cpu_s
from .scene import API, scene

_DASHBOARD = Path(__file__).parents[1] / "dashboard"
_CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


async def main(jobs: int, changes_per_s: float, earlier: int, seconds: int, rounds: int) -> int:
    if not (_DASHBOARD / "node_modules" / "playwright-core").is_dir() or not Path(_CHROMIUM).exists():
        print(f"no Chromium at {_CHROMIUM}, or no playwright-core: npm ci in {_DASHBOARD}", file=sys.stderr)
        return 1
    async with scene(jobs, changes_per_s=changes_per_s, earlier=earlier) as at:
        url = f"https://127.0.0.1:{at.ours.port}{API}/dashboard"
        for _ in range(rounds):
            used_s = cpu_s(at.ours.pid)
            browser = await asyncio.create_subprocess_exec(
                "node", "browser/measure.mjs", _CHROMIUM, url, kubernetes.TOKEN, str(jobs), str(seconds),
                cwd=_DASHBOARD, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            output, _ = await browser.communicate()
            if browser.returncode:
                return browser.returncode
            load = os.getloadavg()[0]
            seen = {
                **json.loads(output),
                "serverCpuS": round(cpu_s(at.ours.pid) - used_s, 2),
                "load": round(load, 1),
            }
            print(f"{jobs} jobs, {changes_per_s:g} change a second: {json.dumps(seen)}", flush=True)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--changes-per-s", type=float, default=200)
    parser.add_argument(
        "--earlier", type=int, default=100, help="values of each metric that a job's history has"
    )
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.jobs, given.changes_per_s, given.earlier, given.seconds, given.rounds)))
