"""The server under test: a subprocess with just the rights of its manifests, behind the aggregator."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import httpx

from tests.canary import assert_untold, plant
from tests.configmap import ConfigMapDirectory
from tests.e2e.api import Object, write_kubeconfig
from tests.e2e.api_proxy import ApiProxy
from tests.e2e.cluster import Cluster
from tests.e2e.loop_thread import LoopThread
from tests.e2e.manifests import (
    APISERVICE_PATH,
    COMPONENTS,
    NAMESPACE,
    SERVICE_ACCOUNT,
    SERVICE_NAME,
    allow_lease,
    apply_rights,
    register,
    server_flags,
)
from tests.e2e.pki import Authority, KeyPair
from tests.e2e.processes import PATIENCE_S, Daemon, free_port, wait_until
from tests.e2e.tcp_proxy import TcpProxy

GROUP = "visibility.trainer.kubeflow.org"
PREFIX = f"/apis/{GROUP}/v1alpha1"
PROBE_INTERVAL_S = 1.0
INGRESS, USER_HEADER, GROUP_HEADER = "ingress-gateway", "kubeflow-userid", "kubeflow-groups"
NOBODY = "--peers=127.0.0.1:1"  # of a replica whose address others are told, and which is told of none
END_WAIT_S = 20.0  # a server that waits for peers that have gone silent takes 30 s, which is too long (P10)


class VisibilityServer:
    """Installed and started on `cluster`, which it reaches through a proxy that tests can break.

    The latest one that was made or registered is the one behind the aggregator; `is_registered` False: not
    this one. `components`: of deploy/components; their rights are not taken back. `probe_interval_s` None:
    the default of the flag. `beside`: another replica, which has the same certificate, and whose address
    this one is told. `program`: Python's arguments before the server's; `flags`: more of the server's. `way`:
    to kube-apiserver, in place of a proxy of its own.

    With --store=nats of the suite it is three replicas that share the jobs by a log in NATS, unless a test
    starts replicas itself. The aggregator and pods reach them in turn, as by a Service. `get` and `document`
    are those of the first one, metrics the sum of all."""

    kinds: ConfigMapDirectory  # of --kinds, where that is given
    stores: ClassVar[Sequence[str]] = ()  # URLs of NATS, with --store=nats of the suite
    _groups = 0  # of replicas that have a log there

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        *,
        components: Sequence[str] = COMPONENTS,
        probe_interval_s: float | None = PROBE_INTERVAL_S,
        beside: VisibilityServer | None = None,
        program: Sequence[str] = ("-m", "visibility_api"),
        flags: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        port: int | None = None,
        is_registered: bool = True,
        way: ApiProxy | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._cluster = cluster
        self._components = components
        self._probe_interval_s = probe_interval_s
        self._directory = directory
        self.port = port or free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._beside = beside
        self.log_name = beside.log_name if beside else ""
        is_alone = beside is None and not any(each.startswith("--peers") for each in flags)
        self._is_shared = bool(self.stores) and is_alone  # among three replicas
        ports = [self.port, free_port(), free_port()] if self._is_shared else [self.port]
        self._program, self._flags = program, flags
        self.authority: Authority = beside.authority if beside else Authority(directory, "visibility")
        self._serving: KeyPair = (
            beside._serving
            if beside
            else self.authority.issue_server("visibility-api", SERVICE_NAME, "127.0.0.1", "localhost")
        )
        # A platform's ingress: on, so that every test of a forged header meets a server that trusts one.
        self._ingress = Authority(directory, "ingress")
        self._proxy = TcpProxy(cluster.port)
        self._loop = LoopThread()
        self._loop.call(self._proxy.start())
        # The stand-in has no priority and fairness, which only kube-apiserver itself applies (P16).
        skipped = {"FlowSchema", "PriorityLevelConfiguration"} if cluster.kind == "local" else set()
        apply_rights(cluster.admin, components, skipped_kinds=frozenset(skipped))
        self._lease_namespace = NAMESPACE
        if self.stores and not self.log_name:
            VisibilityServer._groups += 1
            self.log_name = f"log-{VisibilityServer._groups}"
            if self._is_shared:  # other servers run beside it, with logs of their own
                self._lease_namespace = f"{NAMESPACE}-{VisibilityServer._groups}"
                allow_lease(cluster.admin, self._lease_namespace)
        url = f"https://127.0.0.1:{self._proxy.port}"
        kubeconfig = service_account_kubeconfig(
            cluster, directory, url=way.url if way else url, ca_file=way.ca_file if way else None
        )
        self._daemons = [
            Daemon(
                "visibility-api",
                self._argv(kubeconfig, port),
                log=directory / f"visibility-api{f'-{number}' if number else ''}.log",
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory), **environment},
            )
            for number, port in enumerate(ports)
        ]
        self.ports = ports  # of each replica
        self._daemon = self._daemons[0]
        self._front = TcpProxy(*ports) if self._is_shared else None  # as a Service is
        if self._front is not None:
            self._loop.call(self._front.start())
            self.url = f"https://127.0.0.1:{self._front.port}"
        for each in self._daemons:
            each.start()
        try:
            self.wait_ready()
            if is_registered:
                self.register()
        except BaseException:  # the caller has nothing to stop, and the process would keep the Lease
            self.stop()
            raise

    def register(self) -> None:
        """Let the aggregator forward to this server, whichever was there before."""
        port = self._front.port if self._front is not None else self.port
        register(self._cluster.admin, port=port, ca_bundle=self.authority.bundle.read_bytes())
        self.wait_available()

    def stop(self) -> int:
        """Ask the server to end, and wait for it; returns its exit code, negative for a signal.

        Fails if a secret is in its log or its metrics.
        """
        pair = self._cluster.admin_pair
        for port in self.ports:
            with contextlib.suppress(httpx.TransportError):  # some tests have ended it
                assert_untold(self.get("/metrics", cert=pair, port=port).text, where="metrics")
        exit_codes = [each.stop(grace_s=END_WAIT_S) for each in self._daemons]
        assert_untold(self.log_text(), where="the server's log")
        for proxy in filter(None, (self._proxy, self._front)):
            self._loop.call(proxy.stop())
        self._loop.stop()
        return next((each for each in exit_codes if each), 0)

    def restart(self) -> None:
        """The process ends in order and a new one takes its place, on the same port; replicas in turn."""
        for each in self._daemons:
            assert each.stop(grace_s=END_WAIT_S) == 0, f"not in order: {each.log_tail()}"
            each.start()
            self.wait_ready()

    def kill(self) -> None:
        """The process dies at once, and a new one takes its place, on the same port; of replicas one."""
        self._daemon.kill()
        self._daemon.start()
        self.wait_ready()

    @contextlib.contextmanager
    def out_of_reach(self) -> Iterator[None]:
        """The API server cannot be reached from the server, while everybody else can."""
        self._loop.call(self._proxy.refuse())
        try:
            yield
        finally:
            self._loop.call(self._proxy.allow())

    @property
    def pid(self) -> int:
        return self._daemon.pid

    def check_alive(self) -> None:
        for each in self._daemons:
            each.check_alive()

    def wait_ready(self) -> None:
        def ready() -> bool:
            self.check_alive()
            return all(self.get("/readyz", port=port).status_code == 200 for port in self.ports)

        wait_until(ready, what="the server's /readyz is ok")

    def wait_available(self) -> None:
        """Until the aggregator has found the server available and taken over its discovery and OpenAPI.

        It asks every 30 to 60 s, and at once when the APIService changes.
        """
        for known, what in (
            (self._is_available, "the APIService is Available"),
            (self._is_forwarded_to, "the aggregator forwards to this server"),
            (self._is_discovered, "the cluster's discovery knows the resource"),
            (self._is_described, "the cluster's OpenAPI knows the group"),
        ):
            wait_until(known, what=what)

    def _is_available(self) -> bool:
        self.check_alive()
        conditions = self._cluster.admin.get(APISERVICE_PATH).get("status", {}).get("conditions", [])
        verdict = next((each for each in conditions if each["type"] == "Available"), None)
        assert verdict is not None
        assert verdict["status"] == "True", verdict
        return True

    def _is_forwarded_to(self) -> bool:
        """By the collection's version: no two processes count alike, and it only grows."""
        pair, path = self._cluster.admin_pair, f"{PREFIX}/trainjobs"

        def here() -> Object:
            answer = self.get(path, cert=pair)
            assert answer.status_code == 200, answer.text
            found: Object = answer.json()
            return found

        looks = here(), self._cluster.admin.get(path), here()
        before, there, after = (int(look["metadata"]["resourceVersion"]) for look in looks)
        return before <= there <= after

    def _is_discovered(self) -> bool:
        headers = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
        answer = self._cluster.admin.raw("GET", "/apis", headers=headers)
        assert answer.status_code == 200, answer.text
        groups = answer.json()["items"]
        versions = [
            version for group in groups if group["metadata"]["name"] == GROUP for version in group["versions"]
        ]
        return any(each.get("resources") and each["freshness"] == "Current" for each in versions)

    def _is_described(self) -> bool:
        return PREFIX.strip("/") in self._cluster.admin.get("/openapi/v3")["paths"]

    def get(
        self,
        path: str,
        *,
        cert: tuple[Path, Path] | None = None,
        token: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
        port: int | None = None,
    ) -> httpx.Response:
        """Ask the server itself, past the aggregator; `port`: this very replica."""
        if port is None and path == "/metrics" and len(self.ports) > 1:
            answers = [
                self.get(path, cert=cert, token=token, headers=headers, port=each) for each in self.ports
            ]
            if bad := [each for each in answers if each.status_code != 200]:
                return bad[0]
            text = total_of([each.text for each in answers])
            return httpx.Response(200, headers=answers[0].headers, text=text)
        context = ssl.create_default_context(cafile=str(self.authority.bundle))
        if cert is not None:
            context.load_cert_chain(*cert)
        sent = list(headers)
        if token is not None:
            sent.append(("Authorization", f"Bearer {token}"))
        with httpx.Client(verify=context, trust_env=False, timeout=PATIENCE_S) as client:
            return client.get(f"https://127.0.0.1:{port or self.port}{path}", headers=sent)

    def issue_ingress(self, name: str = INGRESS) -> tuple[Path, Path]:
        """A client certificate of the trusted proxy's CA: files of certificate and key."""
        return self._ingress.issue_client(name)

    def forget_peak_memory(self) -> int:
        """Let the peak begin at what the process has now, and return that (proc_pid_clear_refs(5))."""
        for each in self._daemons:
            Path(f"/proc/{each.pid}/clear_refs").write_text("5")
        return self.peak_memory_bytes()

    def peak_memory_bytes(self) -> int:
        """The most memory the process has had at one time (VmHWM); of replicas the sum."""
        statuses = "".join(Path(f"/proc/{each.pid}/status").read_text() for each in self._daemons)
        found = re.findall(r"^VmHWM:\s+(\d+) kB$", statuses, re.MULTILINE)
        assert len(found) == len(self._daemons)
        return sum(map(int, found)) * 1024

    def metrics(self, name: str) -> dict[str, float]:
        """The value of each sample of that metric, by its labels as they are written."""
        pair = self._cluster.admin_pair
        answer = self.get("/metrics", cert=pair)
        assert answer.status_code == 200, answer.text
        found = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", answer.text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def document(self, namespace: str, name: str) -> Object:
        """Of a TrainJob, as this very server shows it to an administrator."""
        pair = self._cluster.admin_pair
        path = f"{PREFIX}/namespaces/{namespace}/trainjobs/{name}"
        answer = self.get(path, cert=pair)
        assert answer.status_code == 200, answer.text
        found: Object = answer.json()
        return found

    def log_text(self) -> str:
        """Of all replicas."""
        return "".join(each.log.read_text(errors="replace") for each in self._daemons)

    def _argv(self, kubeconfig: Path, port: int) -> list[str]:
        peers = [f"--peers=127.0.0.1:{self._beside.port}"] if self._beside else []
        return [
            *(sys.executable, *self._program, "serve"),
            *("--kubeconfig", str(kubeconfig)),
            *("--authentication-kubeconfig", str(kubeconfig)),
            *("--authorization-kubeconfig", str(kubeconfig)),
            *("--bind-address", "127.0.0.1"),
            *("--secure-port", str(port)),
            *("--tls-cert-file", str(self._serving.cert)),
            *("--tls-private-key-file", str(self._serving.key)),
            *self._pace_flags(),
            *("--shutdown-delay-duration", "0s"),
            *peers,
            *("--trusted-proxy-client-ca-file", str(self._ingress.bundle)),
            *("--trusted-proxy-allowed-names", INGRESS),
            *("--trusted-proxy-user-header", USER_HEADER),
            *("--trusted-proxy-group-header", GROUP_HEADER),
            *server_flags(self._components),
            *self._store_flags(),
            *self._flags,
            *("-v", "4"),
        ]

    def _store_flags(self) -> list[str]:
        """With --store=nats of the suite: a log for each group of replicas."""
        if not self.stores:
            return []
        stores = (f"--store={url}" for url in self.stores)
        return [*stores, f"--store-name={self.log_name}", f"--lease-namespace={self._lease_namespace}"]

    def _pace_flags(self) -> list[str]:
        if self._probe_interval_s is None:
            return []
        interval = f"{self._probe_interval_s:g}s"
        return ["--probe-interval", interval, "--probe-timeout", interval]


def total_of(metrics: Sequence[str]) -> str:
    """Metrics of replicas, each sample the sum of theirs. What describes them comes first."""
    lines = [line for text in metrics for line in text.splitlines() if line]
    found: dict[str, float] = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = found.get(name, 0.0) + float(value)
    described = dict.fromkeys(line for line in lines if line.startswith("#"))
    return "".join(
        f"{line}\n" for line in (*described, *(f"{name} {value}" for name, value in found.items()))
    )


def service_account_kubeconfig(
    cluster: Cluster, directory: Path, *, url: str | None = None, ca_file: Path | None = None
) -> Path:
    """With a token of the server's account, for the cluster or the way to it at `url`."""
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return write_kubeconfig(
        directory / "server.kubeconfig",
        url=url or cluster.url,
        ca_file=ca_file or cluster.ca_file,
        token=plant(cluster.admin.create(f"{account}/token", request)["status"]["token"]),
    )
