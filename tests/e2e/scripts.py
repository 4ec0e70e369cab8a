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

# Ends well after a few steps; its last word is step 5 of 5, however slow the machine is.
SHORT = """
import time
from trainjob_progress import report, reporter

reporter.FLUSH_TIMEOUT_S = 60
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

# Writes its file all the time and pushes now and then; each says something that the other does not.
TWO_VOICED = f"""{_WAIT}
path, url = os.environ["TRAINJOB_PROGRESS_FILE"], os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
    headers = {{"Authorization": "Bearer " + file.read()}}

def push(status):
    body = json.dumps({{"trainerStatus": status}}).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(url, body, headers), context=context).close()
    except OSError as error:  # the server knows the pod a little later, or is slow: the next one will do
        print(error, flush=True)

for step in range(1, 1000):
    metrics = {{"loss": 1 / step}}
    document = {{"step": step, "totalSteps": 1000, "epoch": step / 10, "message": f"step {{step}}"}}
    write(path, json.dumps({{**document, "timestamp": now(), "metrics": metrics}}))
    if step % 20 >= 10:
        metrics = [{{"name": "accuracy", "value": str(step / 1000)}}]
        push({{"metrics": metrics, "estimatedRemainingSeconds": 2000 - step, "lastUpdatedTime": now()}})
    time.sleep(0.2)
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

ARGO = f"""{_WAIT}
write(os.environ["ARGO_PROGRESS_FILE"], "37/100")
time.sleep(3600)
"""

KUBEFLOW_FILE = f"""{_WAIT}
metrics = [{{"name": "loss", "value": "0.5"}}]
status = {{"progressPercentage": 42, "metrics": metrics, "lastUpdatedTime": now()}}
write(os.environ["KUBEFLOW_TRAINER_STATUS_FILE"], json.dumps({{"trainerStatus": status}}))
time.sleep(3600)
"""

# What a path or a port could be pointed at. The log holds it as well, as such programs do.
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


# Answers everybody on the port PORT with a secret, and notes that it was asked.
TELLING = f"""{_WAIT}
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        write("asked", "")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{SECRET}-port")

server = HTTPServer((os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])), Handler)
write("listening", "")
server.serve_forever()
"""

# As Open Data Hub's instrumentation serves it: HTTP/1.0 without a length. Its older versions send NaN, its
# newer ones answer at /metrics only; this does both.
OPEN_DATA_HUB = f"""{_WAIT}
from http.server import BaseHTTPRequestHandler, HTTPServer

state = {{
    "progressPercentage": 45, "estimatedRemainingSeconds": 795, "currentStep": 450, "totalSteps": 1000,
    "currentEpoch": 1.35, "totalEpochs": 3, "trainMetrics": {{"loss": 0.2347, "grad_norm": float("nan")}},
    "evalMetrics": {{"eval_loss": 0.31}},
}}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.split("?", 1)[0] != "/metrics":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(state).encode("utf-8"))

HTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
"""

# Sends whoever asks to TARGET.
REDIRECTING = f"""{_WAIT}
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302)
        self.send_header("Location", os.environ["TARGET"])
        self.end_headers()

HTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
"""
