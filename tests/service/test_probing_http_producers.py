"""The http source against the programs that serve progress, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from visibility_api.reports.document import Progress, RetryClass

from .test_probing_http import Pod, refused

REPORTER = """
import sys, time
from trainjob_progress import report
from trainjob_progress.sinks.http import HTTPSink

sink = HTTPSink(0, "127.0.0.1")
print(sink.port, flush=True)
sys.stdin.readline()
with report(total_steps=10, sinks=[sink]) as r:
    for _ in range(4):
        r.step(loss=0.5)
    print("reported", flush=True)
    sys.stdin.readline()
"""
# As Open Data Hub's instrumentation serves it: HTTP/1.0 without a length, Python's own json with its NaN.
OPEN_DATA_HUB = """
import http.server, json, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(STATE).encode("utf-8"))

    def log_message(self, format, *args):
        pass

STATE = {
    "progressPercentage": 45, "estimatedRemainingSeconds": 795, "currentStep": 450, "totalSteps": 1000,
    "currentEpoch": 1.35, "totalEpochs": 3, "trainMetrics": {"loss": 0.2347, "grad_norm": float("nan")},
    "evalMetrics": {"eval_loss": 0.31},
}
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.readline()
"""


@asynccontextmanager
async def process(script: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Pod]]:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert running.stdin is not None
    assert running.stdout is not None
    try:
        yield running, Pod(int(await running.stdout.readline()))
    finally:
        running.stdin.close()
        await running.wait()


async def test_our_reporters_endpoint_is_read_once_it_has_a_report() -> None:
    async with process(REPORTER) as (running, pod):
        assert running.stdin is not None
        assert running.stdout is not None
        outcome = await pod.ask()
        assert (refused(outcome).reason, refused(outcome).retry) == ("NoProgressYet", RetryClass.LATER)
        running.stdin.write(b"\n")
        assert await running.stdout.readline() == b"reported\n"
        async with asyncio.timeout(90):
            while not isinstance(outcome, Progress) or outcome.step != 4:
                outcome = await pod.ask()
    assert outcome.total_steps == 10
    assert dict(outcome.metrics)["loss"] == "0.5"
    assert outcome.timestamp is not None


async def test_open_data_hubs_endpoint_is_read() -> None:
    async with process(OPEN_DATA_HUB) as (_, pod):
        outcome = await pod.ask()
    assert isinstance(outcome, Progress)
    assert outcome.timestamp is None
    assert (outcome.step, outcome.total_steps, outcome.epoch) == (450, 1000, 1.35)
    assert json.loads(json.dumps(dict(outcome.metrics))) == {
        "loss": "0.2347",
        "grad_norm": "nan",
        "eval_loss": "0.31",
    }
