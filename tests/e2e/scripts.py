"""What the pods of test jobs run. Each is the text of a Python program."""

from __future__ import annotations

# Counts steps for as long as it lives.
REPORTING = """
import time
from trainjob_progress import report

with report(total_steps=100_000) as r:
    while True:
        r.step(loss=0.5)
        time.sleep(0.05)
"""

# A document now and then, by hand: each says when it was put in its place.
PULSING = """
import datetime, itertools, json, os, time

path = os.environ["TRAINJOB_PROGRESS_FILE"]
for step in itertools.count(1):
    with open(path + ".new", "w") as file:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        json.dump({"step": step, "timestamp": now, "metrics": {"written_at": time.time()}}, file)
    os.rename(path + ".new", path)
    time.sleep(1.7)
"""

# Ends well after a few steps; its last word is step 5 of 5.
SHORT = """
import time
from trainjob_progress import report

with report(total_steps=5) as r:
    for step in range(5):
        r.step(loss=1 / (step + 1))
        time.sleep(0.1)
"""

# Ends as the kernel's OOM killer would end it, after it has reported for a while.
KILLED = """
import os, signal, time
from trainjob_progress import report

with report(total_steps=100) as r:
    for _ in range(40):
        r.step(loss=0.5)
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
"""

SILENT = "import time; time.sleep(3600)"

_FILE = """
import os, time
from pathlib import Path

path = Path(os.environ["TRAINJOB_PROGRESS_FILE"])
path.parent.mkdir(parents=True, exist_ok=True)
{make}
time.sleep(3600)
"""

SECRET = "hunter2-do-not-echo"  # stands for what a path could be pointed at


def _with_file(make: str) -> str:
    return _FILE.format(make=make)


GARBAGE = _with_file(f'path.write_text("root:{SECRET}:0:0 is not a document {{")')
BINARY = _with_file("path.write_bytes(os.urandom(1000) + bytes([0xFF, 0xFE]))")
LONG_NUMBER = _with_file("path.write_text('{\"step\":' + '1' * 400 + '}')")
GIGABYTE = _with_file("path.touch(); os.truncate(path, 2**30)")
FIFO = _with_file("os.mkfifo(path)")
DIRECTORY = _with_file("path.mkdir()")
