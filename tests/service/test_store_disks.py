"""The data directory when its process is killed, and on a disk that is full or read-only: by real means."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from visibility_api.store.state_file import ASIDE, Bounds, StateFile

_PRELUDE = """
import asyncio, os, subprocess, sys
from collections import Counter
from pathlib import Path
from visibility_api.store.state_file import Bounds
from visibility_api.store.state_writer import Rhythm, StateWriter
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import SavedJob

directory, first = Path(sys.argv[1]), int(sys.argv[2])
JOBS = [JobRef(resource="trainjobs", namespace="ns", name=f"job-{n}", uid=f"u-{n}") for n in range(20)]
states, counted = dict.fromkeys(JOBS, first), Counter()

def made():
    bounds = Bounds(max_bytes=2**24, max_age_s=3600.0)
    return StateWriter(directory, bounds, rhythm=Rhythm(write_s=0.005, retry_s=0.01))

writer = made()

def snapshot(job):
    size = 2000 if states[job] == 1 else 20_000
    return SavedJob(ref=job, format=1, state=(b"%d" % states[job]).ljust(size))

def change(number):
    for job in JOBS:
        states[job] = number
        writer.changed(job)

def count(outcome, jobs):
    counted[outcome] += jobs
    if outcome == "Written" and jobs:
        on_written()

async def until(is_so):
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.005)

async def running(work):
    await writer.load()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run(snapshot, lambda: JOBS, count=count))
        await work()
        task.cancel()
"""

# Changes all the time; says which change has been written.
_CHANGING = f"""{_PRELUDE}
on_written = (written := asyncio.Event()).set

async def work():
    number = first
    while True:
        number += 1
        change(number)
        await written.wait()
        written.clear()
        print(number, flush=True)

asyncio.run(running(work))
"""


def states(directory: Path) -> set[int]:
    file = StateFile(directory, Bounds(max_bytes=2**24, max_age_s=3600.0))
    try:
        return {int(each.state) for each in file.load()}
    finally:
        file.close()


def test_a_kill_at_any_moment_loses_nothing_that_was_written_and_damages_nothing(tmp_path: Path) -> None:
    last = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", _CHANGING, str(tmp_path), str(last)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            for _ in range(random.randrange(1, 60)):
                last = int(child.stdout.readline())
            child.kill()
            last = max([last, *(int(line) for line in child.stdout)])
        (found,) = states(tmp_path)  # of all jobs alike: a batch is written whole
        assert found >= last
        last = found
    assert not list(tmp_path.glob(f"{ASIDE}*"))


_DISKS = f"""{_PRELUDE}
def on_written():
    pass

def fill():
    filler = os.open(directory / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(filler, bytes(1024))
    except OSError:
        os.close(filler)

async def work():
    change(1)
    await until(lambda: counted["Written"] >= len(JOBS))
    fill()
    change(2)
    await until(lambda: writer.fault is not None)
    assert writer.fault == "the disk is full", writer.fault
    (directory / "filler").unlink()
    await until(lambda: writer.fault is None)

async def work_again():
    assert writer.fault == "Read-only file system", writer.fault
    change(3)
    subprocess.run(["mount", "-o", "remount,rw", directory], check=True)
    await until(lambda: writer.fault is None)

async def main():
    global writer
    await running(work)
    subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
    writer = made()
    await running(work_again)
    assert {{int(each.state) for each in (await made().load())[0]}} == {{3}}

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", directory], check=True)
asyncio.run(main())
"""
_APART = ("unshare", "--user", "--map-root-user", "--mount")


def test_on_a_disk_that_is_full_or_read_only_state_is_kept_in_memory_until_it_is_not(tmp_path: Path) -> None:
    may = ["sh", "-c", 'mount -t tmpfs none "$0"', str(tmp_path)]
    if shutil.which(_APART[0]) is None or subprocess.run([*_APART, *may], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    ended = subprocess.run(
        [*_APART, sys.executable, "-c", _DISKS, str(tmp_path), "0"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
