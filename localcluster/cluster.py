"""The whole local cluster as one object: API server, controllers, kubelet, and kubeconfigs for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from localcluster.apiserver import ApiServer
from localcluster.apiserver.rbac import MASTERS
from localcluster.controllers import Controllers, install_runtimes
from localcluster.kubelet import ADDRESS, Kubelet
from localcluster.machinery.client import ApiClient
from localcluster.machinery.pki import client_context, write_pair
from localcluster.machinery.resources import BY_PLURAL


class LocalCluster:
    """`async with LocalCluster.start(directory) as cluster:`. It writes below that directory only."""

    def __init__(self, directory: Path, apiserver: ApiServer, admin: ApiClient, *, pod_ip: str) -> None:
        self.directory = directory
        self.apiserver = apiserver
        self.admin = admin
        self.kubelet = Kubelet(admin, directory / "pods", pod_ip=pod_ip)
        apiserver.add_node_agent(self.kubelet.node_name, self.kubelet)

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls, directory: Path, *, port: int = 0, pod_ip: str = ADDRESS
    ) -> AsyncIterator[LocalCluster]:
        """A running cluster; at the end its pods are killed and its port is closed. `pod_ip`: see Kubelet."""
        directory = _prepared(directory)
        apiserver = ApiServer(directory / "pki", port=port)
        await apiserver.start()
        try:
            pair = write_pair(
                directory / "pki",
                "admin",
                apiserver.client_authority.issue_client("kubernetes-admin", [MASTERS]),
            )
            context = client_context(apiserver.client_authority.certificate_pem.decode(), *pair)
            async with ApiClient(apiserver.url, context) as admin:
                cluster = cls(directory, apiserver, admin, pod_ip=pod_ip)
                cluster._write_kubeconfig("admin", _files(pair))
                async with cluster.kubelet, Controllers(admin):
                    yield cluster
        finally:
            await apiserver.stop()

    @property
    def url(self) -> str:
        return self.apiserver.url

    @property
    def ca_file(self) -> Path:
        return self.apiserver.ca_file

    async def restart(self, *, keep_state: bool = True) -> None:
        """Restart the API server on its port; without the state, only users' credentials stay."""
        await self.apiserver.restart(keep_state=keep_state)
        if not keep_state:
            await install_runtimes(self.admin)
            await self.kubelet.register()

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of a user added before, or of `admin`."""
        path = self._kubeconfig_path(user)
        if not path.exists():
            raise KeyError(f"no such user: {user}")
        return path

    def add_user(self, name: str, groups: list[str] | None = None) -> Path:
        """A user with a client certificate. What the user may do is up to role bindings."""
        directory = self.directory / "pki"
        pair = write_pair(directory, name, self.apiserver.client_authority.issue_client(name, groups or []))
        return self._write_kubeconfig(name, _files(pair))

    async def add_service_account(self, name: str, namespace: str, *, lifetime_s: int = 86_400) -> Path:
        """A ServiceAccount (its namespace must exist) and a kubeconfig with a token of it."""
        meta = {"name": name, "namespace": namespace}
        await self.admin.create_missing("serviceaccounts", {"metadata": meta})
        body = {"spec": {"expirationSeconds": lifetime_s}}
        answer = await self.admin.request(
            "POST", BY_PLURAL["serviceaccounts"].path(namespace, name, "token"), body
        )
        return self._write_kubeconfig(name, {"token": answer["status"]["token"]}, namespace)

    def _kubeconfig_path(self, user: str) -> Path:
        return self.directory / f"{user}.kubeconfig"

    def _write_kubeconfig(self, user: str, credentials: dict[str, Any], namespace: str = "default") -> Path:
        name = "local"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": name, "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}
            ],
            "users": [{"name": user, "user": credentials}],
            # Named by its user, so that kubectl tells them apart when it reads several files.
            "contexts": [{"name": user, "context": {"cluster": name, "user": user, "namespace": namespace}}],
            "current-context": user,
        }
        path = self._kubeconfig_path(user)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path


def _prepared(directory: Path) -> Path:
    (directory / "pki").mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def _files(pair: tuple[Path, Path]) -> dict[str, str]:
    return {"client-certificate": str(pair[0]), "client-key": str(pair[1])}
