"""A real kube-apiserver and etcd. The kubelet and the controllers of training jobs are the local ones."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

from localcluster.controllers import Controllers
from localcluster.kubelet import Kubelet
from localcluster.machinery.client import ApiClient
from tests.e2e.api import Api, Object
from tests.e2e.crds import PATH, Definitions
from tests.e2e.exec_faults import FaultyAgent
from tests.e2e.kube import KubeApiserver
from tests.e2e.kubelet_server import KubeletServer
from tests.e2e.loop_thread import LoopThread
from tests.e2e.pki import KeyPair, server_context
from tests.e2e.processes import free_port, wait_until


class RealCluster:
    """See Cluster."""

    kind = "real"

    def __init__(
        self,
        directory: Path,
        binaries: dict[str, Path],
        *,
        definitions: Definitions,
        pod_ip: str = "127.0.0.1",
    ) -> None:
        self._crds = definitions.core()
        self._directory = directory
        self._kube = KubeApiserver(directory / "control-plane", binaries)
        self._pki = self._kube.pki
        self.front_proxy = self._pki.front_proxy
        self.url, self.port = self._kube.url, self._kube.port
        self.ca_file = self._pki.serving.bundle
        self.admin_pair = self._kube.admin
        self.admin = Api(self.url, ca_file=self.ca_file, cert=self.admin_pair)
        self._loop = LoopThread()
        self._exit = contextlib.AsyncExitStack()
        self._kube.start()
        self._install_crds()
        self._loop.call(self._start_node(pod_ip))

    def issue_client(self, name: str, *groups: str) -> KeyPair:
        return self._pki.clients.issue_client(name, *groups)

    def issue_front_proxy(self, name: str) -> KeyPair:
        return self._pki.front_proxy.issue_client(name)

    def stop_apiserver(self) -> None:
        self._kube.stop_apiserver()

    def start_apiserver(self) -> None:
        self._kube.start_apiserver()
        self._wait_for_crds()

    def restart_without(self, prefix: str) -> None:
        """kube-apiserver starts anew, without the flags that begin so; `""`: with all of them."""
        self._kube.restart_without(prefix) if prefix else self._kube.restart()
        self._wait_for_crds()

    def forget_history(self) -> None:
        """A restarted watch cache begins at etcd's newest revision; one write makes that a later one."""
        self.admin.create(
            "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "a-later-revision-"}}
        )
        self._kube.restart()
        self._wait_for_crds()

    def check(self) -> None:
        self._loop.check_alive()
        self._kube.check_alive()

    def stop(self) -> None:
        self._loop.call(self._exit.aclose())
        self._loop.stop()
        self.admin.close()
        self._kube.stop()

    def _install_crds(self) -> None:
        for crd in self._crds:
            self.admin.create(PATH, crd)
        self._wait_for_crds()

    def _wait_for_crds(self) -> None:
        for crd in self._crds:
            wait_until(
                functools.partial(self._is_served, crd["spec"]),
                what=f"CRD {crd['metadata']['name']} is served",
            )

    def _is_served(self, spec: Object) -> bool:
        """By a list that works: a CRD is Established some time before its handler is ready."""
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        return self.admin.raw("GET", path).status_code == 200

    async def _start_node(self, pod_ip: str) -> None:
        tls = self._kube.admin_tls
        client = await self._exit.enter_async_context(ApiClient(self.url, tls))
        port = free_port()  # the node says it before its server can be built
        kubelet = Kubelet(client, self._directory / "pods", port=port, pod_ip=pod_ip)
        self.agent = FaultyAgent(kubelet)
        server = KubeletServer(self.agent)
        certificate = self._pki.serving.issue_server("kubelet", "127.0.0.1")
        await server.start(server_context(certificate, clients=self._pki.clients.bundle), port)
        self._exit.push_async_callback(server.stop)
        await self._exit.enter_async_context(kubelet)
        await self._exit.enter_async_context(Controllers(client))
