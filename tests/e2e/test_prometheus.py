"""A real Prometheus scrapes two replicas through TLS, by our manifests; panels and rules are tried.

A collector is pushed the same by OTLP.
"""

from __future__ import annotations

import gzip
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from monitoring.panels import DASHBOARDS
from tests.canary import plant
from tests.docs_commands import COMMANDS
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import NAMESPACE, ROOT
from tests.e2e.processes import Daemon, free_port, wait_until
from tests.e2e.replicas import Replicas
from tests.e2e.scripts import LOADING
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import Workspace

COMPONENTS = ROOT / "deploy/components"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
JOB, PODS, GPUS = "bert", 2, 4
TRAINING = LOADING.replace('{"step": step,', '{"step": step, "totalSteps": 10000, "metrics": {"loss": 0.5},')
EMPTY = {"Pushes by outcome", "Objects that could not be read", "Written to the cluster"}


@pytest.fixture
def dcgm() -> Iterator[tuple[int, list[str], list[str]]]:
    """Stands for dcgm-exporter and for a collector: the port, the lines of one, what the other was pushed."""
    lines: list[str] = []
    pushed: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(lines).encode())

        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            pushed.append(f"{self.path} {body.decode()}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, lines, pushed
    server.shutdown()
    thread.join()
    server.server_close()


class Prometheus:
    """As the operator would configure it from our ServiceMonitors and PrometheusRules."""

    def __init__(self, directory: Path, targets: list[str], *, token: str, ca_file: Path, dcgm: int) -> None:
        directory.mkdir()
        (directory / "token").write_text(token)
        monitors = [
            COMPONENTS / each / "servicemonitor.yaml" for each in ("service-monitor", "job-monitoring")
        ]
        found = [
            self._scrape(yaml.safe_load(path.read_text()), targets, directory, ca_file) for path in monitors
        ]
        exporter = {"job_name": "dcgm", "honor_labels": True}
        rules = [COMPONENTS / each / "rules.yaml" for each in ("alerts", "job-monitoring")]
        for number, path in enumerate(rules):
            spec = yaml.safe_load(path.read_text())["spec"]
            (directory / f"rules-{number}.yaml").write_text(yaml.safe_dump(spec))
        config = {
            # A scrape may take no longer than the interval, and does on a busy machine.
            "global": {"scrape_interval": "3s", "evaluation_interval": "1s"},
            "rule_files": ["rules-*.yaml"],
            "scrape_configs": [*found, exporter | {"static_configs": [{"targets": [f"127.0.0.1:{dcgm}"]}]}],
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        port = free_port()
        self._api = f"http://127.0.0.1:{port}/api/v1/"
        self.daemon = Daemon(
            "prometheus",
            [
                str(shutil.which("prometheus")),
                f"--config.file={directory}/prometheus.yaml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            log=directory / "prometheus.log",
        )

    @staticmethod
    def _scrape(monitor: Any, targets: list[str], directory: Path, ca_file: Path) -> dict[str, Any]:
        (endpoint,) = monitor["spec"]["endpoints"]
        added = {
            "namespace": NAMESPACE,
            "pod": "visibility-api-1",
            "container": "c",
            "service": "s",
            "endpoint": "e",
        }
        return {
            "job_name": monitor["metadata"]["name"],
            "metrics_path": endpoint.get("path", "/metrics"),
            "scheme": endpoint["scheme"],
            "honor_labels": endpoint.get("honorLabels", False),
            "relabel_configs": endpoint.get("relabelings", []),
            "authorization": {"credentials_file": str(directory / "token")},
            "tls_config": {"ca_file": str(ca_file), "server_name": endpoint["tlsConfig"]["serverName"]},
            "static_configs": [{"targets": targets, "labels": added}],
        }

    def get(self, path: str, **query: str) -> Any:
        answer = httpx.get(self._api + path, params=query, trust_env=False)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float:
        """Of the one series that there is; else it fails."""
        found = self.query(expression)
        assert len(found) == 1, found
        return float(found[0]["value"][1])

    def instances(self) -> list[str]:
        """Of the replicas that show jobs."""
        return [each["metric"]["instance"] for each in self.query("trainjob_info")]

    def errors(self) -> dict[tuple[str, str], str]:
        """Of targets, by job and instance, why the last scrape failed; "" where it did not."""
        targets = self.get("targets")["activeTargets"]
        return {(each["labels"]["job"], each["labels"]["instance"]): each["lastError"] for each in targets}


@pytest.fixture
def token(cluster: Cluster, workspace: Workspace) -> str:
    """Of a Prometheus that may get /metrics, as one usually may."""
    admin, account = (
        cluster.admin,
        {"kind": "ServiceAccount", "name": "prometheus", "namespace": workspace.name},
    )
    path, name = f"/api/v1/namespaces/{workspace.name}/serviceaccounts", f"{workspace.name}-prometheus"
    admin.create(path, {"metadata": {"name": "prometheus"}})
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [account]}
    admin.create(f"{RBAC}/clusterrolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return plant(admin.create(f"{path}/prometheus/token", request)["status"]["token"])


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus here")
def test_prometheus_scrapes_the_owner_and_every_panel_and_rule_has_data(
    cluster: Cluster,
    server: VisibilityServer,
    workspace: Workspace,
    token: str,
    tmp_path: Path,
    dcgm: tuple[int, list[str], list[str]],
) -> None:
    annotations = {"at-risk-after": "1h"}  # so that one of the panel's conditions is known at once
    annotations["opentelemetry.io/traceparent"] = f"00-{TRACE}-00f067aa0ba902b7-01"
    workspace.start_job(JOB, TRAINING, nodes=PODS, accelerators=GPUS, annotations=annotations)
    components, flags = ["source-exec", "job-metrics"], ["--namespaces", workspace.name]
    flags += [f"--otlp-endpoint=http://127.0.0.1:{dcgm[0]}", "--otlp-interval=10s"]
    replicas = Replicas(cluster, tmp_path / "r", components=components, flags=flags)
    try:
        running = [replicas.start(), replicas.start()]
        workspace.wait_reporting(JOB)
        prometheus = Prometheus(
            tmp_path / "prometheus",
            [each.url.removeprefix("https://") for each in running],
            token=token,
            ca_file=running[0].authority.bundle,
            dcgm=dcgm[0],
        )
        prometheus.daemon.start()
        try:
            _look(prometheus, workspace, dcgm[1])
            name = f'"kubeflow.job.name","value":{{"stringValue":"{JOB}"}}'
            wait_until(lambda: any(name in each and TRACE in each for each in dcgm[2]), what="pushed by OTLP")
            assert {each.split()[0] for each in dcgm[2]} == {"/v1/metrics"}
            (owner,) = wait_until(lambda: _alone(prometheus, than=""), what="one replica has them")
            replicas.stop_at(owner)  # which a busy machine may have made any of them
            wait_until(lambda: _alone(prometheus, than=owner), what="the next owner has them")
        finally:
            assert prometheus.daemon.stop() == 0
    finally:
        replicas.stop()
        server.register()


def _alone(prometheus: Prometheus, *, than: str) -> list[str]:
    """The one other replica that shows jobs: for some scrapes the last samples of both are there."""
    found = prometheus.instances()
    assert len(found) == 1, (found, prometheus.errors())
    assert than not in found, prometheus.errors()
    return found


def _look(prometheus: Prometheus, workspace: Workspace, dcgm: list[str]) -> None:
    def refused() -> bool:
        jobs = [error for (job, _), error in prometheus.errors().items() if job == "visibility-api-jobs"]
        assert all("403" in error for error in jobs)
        return len(jobs) == 2

    wait_until(refused, what="who may get /metrics may not get /metrics/jobs")
    (command,) = [each.text for each in COMMANDS if each.page == "docs/prometheus.md"]
    command = command.replace("monitoring:prometheus-k8s", f"{workspace.name}:prometheus")
    arguments = command.replace("trainjob-job-metrics", f"{workspace.name}-job-metrics").split()[1:]
    done = workspace.admin.kubectl(*arguments)
    assert done.returncode == 0, done.stderr
    for pod in (each["metadata"]["name"] for each in workspace.pods(JOB)):
        of_pod = f'namespace="{workspace.name}",pod="{pod}"'
        dcgm += [f'DCGM_FI_DEV_GPU_UTIL{{{of_pod},gpu="{gpu}"}} 90\n' for gpu in range(GPUS)]
    wait_until(lambda: not any(prometheus.errors().values()), what="everything is scraped")
    series = f'namespace="{workspace.name}",kind="TrainJob",trainjob="{JOB}"'
    wait_until(
        lambda: (
            len(prometheus.query(f"trainjob_pod_info{{{series}}}")) == PODS
            and prometheus.value("sum(trainjob:goodput:ratio1h)") > 0
        ),
        what="all pods are known and the rules have recorded",
    )
    # The owner alone has them, under the job's namespace and no pod of the server's.
    (info,) = prometheus.query(f"trainjob_info{{{series}}}")
    assert not {"pod", "container", "service", "endpoint"} & info["metric"].keys()
    assert prometheus.value(f"trainjob_planned_steps{{{series}}}") == 10000
    assert prometheus.value(f"trainjob:accelerators:running{{{series}}}") == PODS * GPUS
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule["name"] for rule in rules if rule.get("state") == "firing"]
    page = (ROOT / "docs/prometheus.md").read_text()
    recipe = next(
        part for part in page.split("\n\n") if part.startswith("    avg by (namespace, kind, trainjob)")
    )
    assert prometheus.value(recipe) == 90
    # A rate and an end come after some reports.
    wait_until(lambda: _empty_panels(prometheus, workspace.name) == EMPTY, what="panels have data", poll_s=1)


def _empty_panels(prometheus: Prometheus, namespace: str) -> set[str]:
    """Titles of the panels of which a query has no data now; each says when that is so."""
    values = {
        "namespace": namespace,
        "kind": "TrainJob",
        "trainjob": JOB,
        "instance": ".*",
        "__rate_interval": "30s",
    }
    found = set()
    for made in DASHBOARDS:
        path = COMPONENTS / f"grafana/{made.uid}.json"
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in values.items():
                    expression = expression.replace(f"${name}", value)
                assert "$" not in expression
                if not prometheus.query(expression):
                    assert "Empty when" in panel["description"], (panel["title"], expression)
                    found.add(panel["title"])
    return found
