"""`python -m benchmarks.terminal`: the first line of 5,000 jobs, beside kubectl's own list.

Both are started by kubectl and asked through a real aggregator, in turns: the plugin as this environment has
it, and as krew installs it. `--beside DIR`: also with the packages of another checkout's reporter/. Needs
$KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from release.plugin import pack_plugin
from tests.e2e.api import write_kubeconfig
from tests.e2e.kube import find_binaries
from tests.e2e.manifests import SERVICE_NAME

from .control_plane import control_plane
from .processes import free_port
from .scene import ONE, certificates, serving, until_all_probed

JOBS = 5000
ROUNDS = 16


async def show(jobs: int, beside: str) -> None:
    binaries, missing = find_binaries()
    if missing:
        print(f"not measured: {'; '.join(missing)}")
        return
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        with control_plane(directory, binaries) as plane:
            token = plane.prepare()
            plane.create_jobs(jobs)
            cert, key, ca = certificates(directory, SERVICE_NAME)
            tls = ("--cert", str(cert), "--key", str(key))
            port = free_port()
            async with serving(directory, tls, plane.kubeconfig(), port, "--sources=status") as ours:
                await until_all_probed(ours, ca, jobs, token=token)
                plane.register_ours(port, ca)
                plane.wait_available(ONE)
                config = write_kubeconfig(
                    directory / "user",
                    url=f"https://127.0.0.1:{plane.server.port}",
                    ca_file=plane.ca_file,
                    token=token,
                )
                await asyncio.to_thread(
                    _in_turns,
                    shutil.which("kubectl", path=f"{os.environ['KUBEBUILDER_ASSETS']}:{os.environ['PATH']}")
                    or "kubectl",
                    str(config),
                    _install(directory),
                    beside,
                )


def _install(directory: Path) -> str:
    """As krew does. Where the plugin is."""
    archive, _ = pack_plugin(Path(__file__).parents[1], directory, "")
    with tarfile.open(archive) as packed:
        packed.extractall(directory / "krew", filter="data")
    return str(directory / "krew")


def _in_turns(kubectl: str, kubeconfig: str, krew: str, beside: str) -> None:
    scripts = str(Path(sys.executable).parent)
    cases = {
        "kubectl get tjp -A": ({}, ["get", "tjp", "-A"]),
        "kubectl trainjob-progress -A -k tjp": ({}, ["trainjob-progress", "-A", "-k", "tjp"]),
        "kubectl get tjs -A": ({}, ["get", "tjs", "-A"]),
        "kubectl trainjob-progress -A": ({}, ["trainjob-progress", "-A"]),
        "the same, by krew": ({"PATH": f"{krew}:{scripts}"}, ["trainjob-progress", "-A"]),
    }
    if beside:
        cases["the other, -A"] = ({"PYTHONPATH": beside}, ["trainjob-progress", "-A"])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for turn in range(ROUNDS + 1):
        for name, (variables, words) in cases.items():
            env = {"KUBECONFIG": kubeconfig, "PATH": scripts, **variables}
            taken = _time([kubectl, *words], env)
            if turn:  # the first is for caches
                found[name].append(taken)
    for name, all_taken in found.items():
        first, all_ = (1000 * statistics.median(each) for each in zip(*all_taken, strict=True))
        print(f"{name:<40} first line {first:.0f} ms   all {all_:.0f} ms", flush=True)


def _time(argv: list[str], variables: dict[str, str]) -> tuple[float, float]:
    """Seconds to the first byte, and to the end."""
    env = {**os.environ, **variables, "PATH": f"{variables['PATH']}:{os.environ['PATH']}"}
    began = time.monotonic()
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read1(1)
        first = time.monotonic() - began
        process.stdout.read()
    assert process.returncode == 0
    return first, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.terminal", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--beside", default="", metavar="DIR")
    given = parser.parse_args()
    asyncio.run(show(given.jobs, given.beside))
    return 0


if __name__ == "__main__":
    sys.exit(main())
