"""A real kube-apiserver and its etcd, on loopback, with a throwaway PKI.

Knows how to start, stop and restart them. Does not know what the tests do with them. No other part of a
control plane runs: no controller-manager, no scheduler, so nothing binds pods to nodes, collects garbage or
fills the aggregated ClusterRoles (see rbac.py).
"""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from tests.e2e.pki import ControlPlanePki
from tests.e2e.processes import Daemon, free_port, wait_until

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"  # envtest's convention


def find_binaries() -> tuple[dict[str, Path], list[str]]:
    """The binaries found through KUBEBUILDER_ASSETS, and sentences about what is missing."""
    directory = os.environ.get(ASSETS_VARIABLE)
    if not directory:
        return {}, [f"{ASSETS_VARIABLE} is not set"]
    found, missing = {}, []
    for name in ("etcd", "kube-apiserver"):
        path = Path(directory) / name
        if os.access(path, os.X_OK):
            found[name] = path
        else:
            missing.append(f"no executable {name} in ${ASSETS_VARIABLE}")
    return found, missing


class KubeApiserver:
    """kube-apiserver on a port that stays the same over restarts, and the etcd that holds its state."""

    def __init__(self, directory: Path, binaries: dict[str, Path]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.pki = ControlPlanePki(directory / "pki")
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        etcd_client, etcd_peer = free_port(), free_port()
        self.etcd_url = f"http://127.0.0.1:{etcd_client}"
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(directory)}  # no proxy variables
        self._etcd = Daemon(
            "etcd",
            _etcd_argv(binaries["etcd"], directory, self.etcd_url, f"http://127.0.0.1:{etcd_peer}"),
            log=directory / "etcd.log",
            env=env,
        )
        self._argv = _apiserver_argv(
            binaries["kube-apiserver"], directory, self.pki, self.port, self.etcd_url
        )
        self._apiserver = Daemon("kube-apiserver", self._argv, log=directory / "kube-apiserver.log", env=env)
        admin = self.pki.clients.issue_client("kubernetes-admin", "system:masters")
        self.admin_tls = ssl.create_default_context(cafile=str(self.pki.serving.bundle))
        self.admin_tls.load_cert_chain(*admin)
        self.admin = admin

    @property
    def pid(self) -> int:
        """Of kube-apiserver."""
        return self._apiserver.pid

    def start(self) -> None:
        self._etcd.start()
        self._apiserver.start()
        self.wait_ready()

    def stop(self) -> None:
        """End both. State stays on disk; SIGKILL after a while: nothing here is worth a long drain."""
        self._apiserver.stop(grace_s=3)
        self._etcd.stop(grace_s=3)

    def restart(self) -> None:
        """kube-apiserver ends and comes back, same port, same etcd; returns when it is ready."""
        self.stop_apiserver()
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        self._apiserver.stop(grace_s=1)

    def start_apiserver(self) -> None:
        self._apiserver.start()
        self.wait_ready()

    def restart_without(self, prefix: str) -> None:
        """As `restart`, without the flags that begin so."""
        self.stop_apiserver()
        self._apiserver.argv = [each for each in self._argv if not each.startswith(prefix)]
        self.start_apiserver()
        self._apiserver.argv = list(self._argv)

    def check_alive(self) -> None:
        """Raise RuntimeError, with the end of its log, when one of the processes has ended."""
        self._etcd.check_alive()
        self._apiserver.check_alive()

    def wait_ready(self) -> None:
        """Poll /readyz. Raises RuntimeError at once when a process has ended, DeadlineExceeded at the end."""

        def ready() -> bool:
            self.check_alive()
            with urllib.request.urlopen(f"{self.url}/readyz", context=self.admin_tls, timeout=15) as answer:
                return bool(answer.status == 200)

        wait_until(ready, what="kube-apiserver is ready", poll_s=0.1)


def _etcd_argv(binary: Path, directory: Path, client_url: str, peer_url: str) -> list[str]:
    return [
        str(binary),
        "--name=e2e",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=e2e={peer_url}",
    ]


def _apiserver_argv(
    binary: Path, directory: Path, pki: ControlPlanePki, port: int, etcd_url: str
) -> list[str]:
    serving = pki.serving.issue_server("kube-apiserver", "127.0.0.1", "localhost", "kubernetes.default.svc")
    kubelet_client = pki.clients.issue_client("kube-apiserver-kubelet-client", "system:masters")
    front_proxy = pki.front_proxy.issue_client("front-proxy-client")
    flags = {
        "etcd-servers": etcd_url,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": directory,
        "tls-cert-file": serving.cert,
        "tls-private-key-file": serving.key,
        "authorization-mode": "RBAC",
        "client-ca-file": pki.clients.bundle,
        # The aggregator: how it proves itself to us, and what we are told to check (A4, A11).
        "proxy-client-cert-file": front_proxy.cert,
        "proxy-client-key-file": front_proxy.key,
        "requestheader-client-ca-file": pki.front_proxy.bundle,
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-uid-headers": "X-Remote-Uid",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        # ExternalName services are followed only without endpoint routing (P6).
        "enable-aggregator-routing": "false",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pki.service_account_pub,
        "service-account-signing-key-file": pki.service_account_key,
        "service-cluster-ip-range": "10.0.0.0/24",
        "kubelet-certificate-authority": pki.serving.bundle,
        "kubelet-client-certificate": kubelet_client.cert,
        "kubelet-client-key": kubelet_client.key,
        "kubelet-preferred-address-types": "InternalIP",
        # Nobody creates the default ServiceAccount or its CA ConfigMap that this plugin mounts.
        "disable-admission-plugins": "ServiceAccount",
        # A stopping server drains for this long; tests restart it.
        "shutdown-delay-duration": "0s",
        "profiling": "false",
        "v": 1,
    }
    return [str(binary), *(f"--{flag}={value}" for flag, value in flags.items())]
