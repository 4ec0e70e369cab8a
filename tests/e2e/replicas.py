"""Servers with one certificate, each told the addresses of all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.processes import free_port
from tests.e2e.visibility_server import VisibilityServer


class Replicas:
    """Four at most, one after the other. `flags`: of each; DIRECTORY stands for its own one."""

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        *,
        components: Sequence[str],
        flags: Sequence[str] = (),
        is_registered: bool = True,
    ) -> None:
        self._cluster = cluster
        self._directory = directory
        self._components = components
        self._flags = flags
        self._is_registered = is_registered
        self._ports = [free_port() for _ in range(4)]
        self._peers = [f"--peers=127.0.0.1:{port}" for port in self._ports]
        self._running: list[VisibilityServer] = []

    def start(self, *flags: str) -> VisibilityServer:
        """One more, with these flags besides; it is the one behind the aggregator then, if they are
        registered."""
        port = self._ports.pop(0)
        directory = self._directory / f"replica-{port}"
        found = VisibilityServer(
            self._cluster,
            directory,
            components=self._components,
            beside=self._running[-1] if self._running else None,
            flags=[
                *(flag.replace("DIRECTORY", str(directory)) for flag in self._flags),
                *self._peers,
                *flags,
            ],
            port=port,
            is_registered=self._is_registered,
        )
        self._running.append(found)
        return found

    def stop_oldest(self) -> None:
        self._stop(self._running[0])

    def stop_at(self, address: str) -> None:
        """The one with this host and port."""
        self._stop(next(each for each in self._running if each.url.endswith(f"//{address}")))

    def _stop(self, replica: VisibilityServer) -> None:
        self._running.remove(replica)
        assert replica.stop() == 0, replica.log_text()[-2000:]

    def stop(self) -> None:
        while self._running:
            self._running.pop().stop()
