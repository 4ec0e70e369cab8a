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

# The same, and a line in its log for each step.
PRINTING_TOO = """
import itertools, time
from trainjob_progress import report

with report(total_steps=100_000) as r:
    for step in itertools.count(1):
        r.step(loss=0.5)
        print(f"step {step}/100000 loss: 0.5", flush=True)
        time.sleep(0.05)
"""

ENDING = """
from trainjob_progress import report

with report(total_steps=3) as r:
    r.step(loss=0.5)
raise SystemExit({code})
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

# Ends well after a few steps; its last word is step 5 of 5, however slow the machine is.
SHORT = """
import time
from trainjob_progress import report, termination

termination.FLUSH_TIMEOUT_S = 60
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

# Of two nodes: the second one fails, the first notices nothing.
ONE_FAILS = """
import os, sys, time
from trainjob_progress import report

if os.environ["JOB_COMPLETION_INDEX"] == "1":
    time.sleep(1)
    sys.exit(3)
with report(total_steps=100_000) as r:
    while True:
        r.step(loss=0.5)
        time.sleep(0.1)
"""

SILENT = "import time; time.sleep(3600)"

SECRET = "hunter2-do-not-echo"  # stands for what a path could be pointed at

# Makes a progress file that is far too large.
GIGABYTE = """
import os, time

path = os.environ["TRAINJOB_PROGRESS_FILE"]
os.makedirs(os.path.dirname(path), exist_ok=True)
open(path, "w").close()
os.truncate(path, 2**30)
time.sleep(3600)
"""

# The next ones run in a volume that outlives their container, and wait for files in it: a test says when.
_WAIT = """
import datetime, json, os, ssl, sys, time, urllib.request

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.02)

def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()

def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)
"""

# As Hugging Face prints, whose bar never ends its line; from `json` on one document a line.
PRINTING = f"""{_WAIT}
from tqdm import tqdm
from trainjob_progress import report
from trainjob_progress.sinks.log import LogSink

bar = tqdm(total=1000, mininterval=0)
for step in range(1, 401):
    bar.update()
print({{"loss": "0.75", "grad_norm": "1.2", "learning_rate": "4e-05", "epoch": "0.4"}}, flush=True)
wait_for("json")
with report(total_steps=1000, sinks=[LogSink(interval_s=0.2)]) as r:
    r.step(500)
    while True:
        r.step(loss=0.5)
        time.sleep(0.1)
"""

# A line of 3 MB, one that is not UTF-8, a report; then a line without end.
UNRULY = f"""{_WAIT}
import sys

out = sys.stdout.buffer
out.write(b"x" * 3_000_000 + b"\\n\\xff\\xfe broken\\n")
out.write(b"Step 7/1000, loss: 0.5\\n")
out.flush()
wait_for("endless")
while True:
    out.write(b"y" * 1_000_000)
    out.flush()
    time.sleep(0.2)
"""

# Each log line is a JSON object.
LOGGING = """
import logging, time
from trainjob_progress.logging import configure

configure()
for step in range(1, 100_000):
    logging.getLogger("train").info("a step", extra={"step": step, "total_steps": 100_000, "loss": 0.5})
    time.sleep(0.1)
"""

# At `crash` it prints a last word and is gone; the next life is silent until `speak`, and stays at step 20.
CRASHING = f"""{_WAIT}
def say(step, **metrics):
    print({{"step": step, **metrics}}, flush=True)

if not os.path.exists("crash"):
    say(30, loss=0.9, only_then=1)
    wait_for("crash")
    say(80, loss=0.125)
    sys.exit(1)
wait_for("speak")
for step in range(1, 21):
    say(step, loss=0.5)
    time.sleep(0.1)
time.sleep(3600)
"""

# Each reports once: by a file, which is gone at `forget`; by push; on its log, and ends.
FILED_ONCE = f"""{_WAIT}
path = os.environ["TRAINJOB_PROGRESS_FILE"]
write(path, json.dumps({{"step": 40, "totalSteps": 100, "timestamp": now(), "metrics": {{"loss": 0.5}}}}))
wait_for("forget")
os.unlink(path)
write("forgotten", "")
time.sleep(3600)
"""

PUSHED_ONCE = f"""{_WAIT}
url = os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
    headers = {{"Authorization": "Bearer " + file.read()}}
metrics = [{{"name": "loss", "value": "0.5"}}]
status = {{"progressPercentage": 55, "metrics": metrics, "lastUpdatedTime": now()}}
body = json.dumps({{"trainerStatus": status}}).encode()
while True:
    try:
        urllib.request.urlopen(urllib.request.Request(url, body, headers), context=context).close()
        break
    except OSError as error:  # the server does not know the pod yet
        print(error, flush=True)
        time.sleep(0.5)
time.sleep(3600)
"""

PRINTED_ONCE = """
print({"step": 30, "loss": 0.5}, flush=True)
"""

# What a path could be pointed at. The log holds it as well, as such programs do.
SECRET_FILES = {
    "password": f"{SECRET}-password\n",
    "environment": f"STEP=5\nTOKEN={SECRET}-environment\n",
    "credentials": f'{{"auths": {{"registry": {{"auth": "{SECRET}-credentials"}}}}}}',
    "almost": f'{{"timestamp": "2026-01-23T10:30:45Z", "step": "{SECRET}-almost"}}',
}


def keeping(secret: str) -> str:
    """A program that keeps this in the file `secret`."""
    return f"""{_WAIT}
write("secret", {secret!r})
print({secret!r}, "password=" + {secret!r}, flush=True)
time.sleep(3600)
"""


# Of two nodes: the second one misses a file, and the first one its peer.
ONE_MISSES_A_FILE = """
import os, sys, time

time.sleep(2)
if os.environ["JOB_COMPLETION_INDEX"] == "1":
    open("/data/" + {secret!r})
time.sleep(8)  # pods of a busy machine begin seconds apart
raise ConnectionError("Connection closed by peer")
"""

# Serves at its port what no training process would: first `{begin}`, then `{then}` for ever, if there is any.
ANSWERING_BADLY = """
import os, socketserver, time

class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            self.request.recv(65536)
            self.request.sendall({begin!r})
            while then := {then!r}:
                self.request.sendall(then)
                time.sleep(0.05 if len(then) < 100 else 0)
        except OSError:
            pass  # whoever asked has seen enough

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

Server(("", int(os.environ["TRAINJOB_PROGRESS_PORT"])), Answer).serve_forever()
"""

# A step each half second, half of it spent in a loader; one checkpoint, at the first step.
LOADING = """
import datetime, itertools, json, os, time

def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()

path, saved = os.environ["TRAINJOB_PROGRESS_FILE"], {"step": 1, "timestamp": now()}
for step in itertools.count(1):
    found = {"step": step, "timestamp": now(), "timeSpent": {"dataLoading": step / 4}, "checkpoint": saved}
    with open(path + ".new", "w") as file:
        json.dump(found, file)
    os.rename(path + ".new", path)
    time.sleep(0.5)
"""
