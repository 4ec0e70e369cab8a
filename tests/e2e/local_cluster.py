"""The local stand-in, in this process."""

from __future__ import annotations

import contextlib
from pathlib import Path

import yaml

from localcluster.cluster import LocalCluster
from localcluster.machinery.pki import write_pair
from tests.e2e.api import Api
from tests.e2e.exec_faults import FaultyAgent
from tests.e2e.loop_thread import LoopThread
from tests.e2e.pki import KeyPair
from tests.e2e.processes import free_port


class StandInCluster:
    """See Cluster."""

    kind = "local"

    def __init__(self, directory: Path, *, pod_ip: str = "127.0.0.1") -> None:
        self._loop = LoopThread()
        self._exit = contextlib.AsyncExitStack()
        self._cluster = self._loop.call(
            # A port that stays free while the API server starts anew.
            self._exit.enter_async_context(LocalCluster.start(directory, port=free_port(), pod_ip=pod_ip))
        )
        self.agent = FaultyAgent(self._cluster.kubelet)
        self._cluster.apiserver.add_node_agent(self._cluster.kubelet.node_name, self.agent)
        self.url, self.port = self._cluster.url, self._cluster.apiserver.port
        self.ca_file = self._cluster.ca_file
        user = yaml.safe_load(self._cluster.kubeconfig("admin").read_text())["users"][0]["user"]
        self.admin_pair = KeyPair(Path(user["client-certificate"]), Path(user["client-key"]))
        self.admin = Api(self.url, ca_file=self.ca_file, cert=self.admin_pair)
        self._directory = directory

    def issue_client(self, name: str, *groups: str) -> KeyPair:
        pair = self._cluster.apiserver.client_authority.issue_client(name, list(groups))
        return KeyPair(*write_pair(self._directory, f"client-{name}", pair))

    def issue_front_proxy(self, name: str) -> KeyPair:
        pair = self._cluster.apiserver.front_proxy_authority.issue_client(name, [])
        return KeyPair(*write_pair(self._directory, f"front-proxy-{name}", pair))

    def stop_apiserver(self) -> None:
        self._loop.call(self._cluster.apiserver.stop())

    def start_apiserver(self) -> None:
        self._loop.call(self._cluster.apiserver.start())

    def forget_history(self) -> None:
        async def forget() -> None:
            self._cluster.apiserver.compact()

        self._loop.call(forget())

    def check(self) -> None:
        self._loop.check_alive()

    def stop(self) -> None:
        self.admin.close()
        self._loop.call(self._exit.aclose())
        self._loop.stop()
