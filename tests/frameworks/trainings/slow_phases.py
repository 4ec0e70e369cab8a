"""A healthy training of two ranks: rank 1 does one thing after the other, and rank 0 waits. At last it hangs.

Each goes on until `DONE`, a file, has its name; `PHASE` says in which it is. `SLOW_VOLUME` is a file that is
read slowly, `SLOW_PIPE` a FIFO. Times of the reporter are a twentieth of the real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist

from trainjob_progress import heartbeat, idleness, track

SCALE = 20.0
GOES_ON = """
import os, sys, time
def goes_on():
    with open(os.environ["DONE"]) as file:
        return file.read() != sys.argv[1]
"""
CLIENT = f"""{GOES_ON}
import urllib.request
answer = urllib.request.urlopen(sys.argv[2])
while goes_on():
    answer.read(4096)
"""
BURN = f"""{GOES_ON}
while goes_on():
    sum(range(100_000))
"""
DRAIN = f"""{GOES_ON}
file = os.open(os.environ["SLOW_PIPE"], 0)
while os.read(file, 4096):
    time.sleep(0.1 * goes_on())
"""
SERVER = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    client.recv(4096)
    try:
        client.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
        while True:
            client.sendall(b"x" * 5120)
            time.sleep(0.25)
    except OSError:
        pass
"""


def goes_on(name: str) -> bool:
    return Path(os.environ["DONE"]).read_text() != name


def run(script: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", script, *arguments], check=True)


def download(url: str) -> None:
    answer = urllib.request.urlopen(url)
    while goes_on("download"):
        answer.read(4096)


def download_by_a_child(url: str) -> None:
    run(CLIENT, "download_by_a_child", url)


def decode_by_a_child(_: str) -> None:
    run(BURN, "decode_by_a_child")


def evaluate(_: str) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
    while goes_on("evaluate"):
        model(torch.ones(64, 256))


def compile_much(_: str) -> None:
    size = 2
    while goes_on("compile_much"):
        torch.compile(lambda x, size=size: torch.sin(x).cumsum(0) * size)(torch.ones(size))
        torch._dynamo.reset()
        size += 1


def save_to_a_slow_volume(_: str) -> None:
    with Path(os.environ["SLOW_PIPE"]).open("wb") as file:
        torch.save(torch.ones(1 << 20), file)


def write_to_a_slow_volume(_: str) -> None:
    with Path(os.environ["SLOW_PIPE"]).open("wb") as file:
        file.write(bytes(1 << 22))


def read_from_a_slow_volume(_: str) -> None:
    file = os.open(os.environ["SLOW_VOLUME"], 0)
    while goes_on("read_from_a_slow_volume"):
        os.read(file, 1 << 20)


def hang(_: str) -> None:
    threading.Event().wait()


PHASES = (
    download, download_by_a_child, decode_by_a_child, evaluate, compile_much, save_to_a_slow_volume,
    write_to_a_slow_volume, read_from_a_slow_volume, hang,
)  # fmt: skip


def hurry() -> None:
    heartbeat.INTERVAL_S /= SCALE
    heartbeat.QUIET_S /= SCALE
    heartbeat.STACK_INTERVAL_S /= SCALE
    heartbeat.IDLE_INTERVAL_S /= SCALE
    # Each phase is as the first.
    heartbeat.Rhythm.is_explained = lambda _, wait_s: wait_s < heartbeat.QUIET_S  # type: ignore[method-assign]
    idleness._FILES = ("fuse",)


def main() -> None:
    hurry()
    dist.init_process_group("gloo")
    is_slow, url = dist.get_rank() == 1, [""]
    if not is_slow:  # what serves rank 1 is none of its own
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = [f"http://127.0.0.1:{int(server.stdout.readline())}"]
    dist.broadcast_object_list(url)
    for phase in track(PHASES):
        drain = None
        if not is_slow and phase in (save_to_a_slow_volume, write_to_a_slow_volume):
            drain = subprocess.Popen([sys.executable, "-c", DRAIN, phase.__name__])
        dist.all_reduce(torch.ones(64))
        if is_slow:
            Path(os.environ["PHASE"]).write_text(phase.__name__)
            phase(url[0])
        dist.all_reduce(torch.ones(64))
        if drain is not None:
            drain.wait()


if __name__ == "__main__":
    main()
