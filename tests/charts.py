"""The chart in deploy/, and the values that mean the same as a choice of components."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/chart"
NAMESPACE = "trainjob-visibility"
_KINDS = list(yaml.safe_load_all((ROOT / "deploy/components/kinds/kinds.yaml").read_text()))
_ONLY_STATUS = {"sources": {"exec": "off", "push": False}}
_ARCHIVE = {"archive": {"location": "s3://training-archive/jobs"}}
_MORE = {
    "sources": {"exec": "everywhere", "http": True, "logs": True, "push": True},
    "kinds": _KINDS,
    "writeBack": True,
    "events": True,
    "nodeFaults": True,
    **_ARCHIVE,
    "trustedProxy": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": True,
    "prometheusRule": True,
    "jobMetrics": 5000,
    "grafanaDashboards": True,
}
# By name: components of deploy/, and values of the chart.
FLAVOURS: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]]] = {
    "default": (("exec-by-namespace", "source-push"), {}),
    "status-only": ((), _ONLY_STATUS),
    "exec": (("source-exec",), {"sources": {"exec": "everywhere", "push": False}}),
    "http": (("source-http",), {"sources": {"exec": "off", "push": False, "http": True}}),
    "logs": (("source-logs",), {"sources": {"exec": "off", "push": False, "logs": True}}),
    "cert-manager": (("cert-manager",), {**_ONLY_STATUS, "certificate": {"from": "cert-manager"}}),
    "existing-secret": (("existing-secret",), {**_ONLY_STATUS, "certificate": {"from": "secret"}}),
    "data-volume": (("data-volume",), {**_ONLY_STATUS, "data": {"volume": "claim"}, "replicas": 1}),
    "kinds": (("kinds",), {**_ONLY_STATUS, "kinds": _KINDS}),
    "node-faults": (("node-faults",), {**_ONLY_STATUS, "nodeFaults": True}),
    "writing": (("write-back", "events"), {**_ONLY_STATUS, "writeBack": True, "events": True}),
    "archive": (("archive",), {**_ONLY_STATUS, **_ARCHIVE}),
    "upstreams": (
        ("upstreams",),
        {**_ONLY_STATUS, "upstreams": {"secret": "visibility-api-upstreams"}},
    ),
    "nats": (
        ("nats",),
        {**_ONLY_STATUS, "store": {"servers": ["nats://nats.nats:4222"], "secret": "visibility-api-nats"}},
    ),
    "nats-servers": (("nats-servers",), {**_ONLY_STATUS, "store": {"run": {"enabled": True}}}),
    "trusted-proxy": (("trusted-proxy",), {**_ONLY_STATUS, "trustedProxy": {"enabled": True}}),
    "everything": (
        (
            *("source-exec", "source-http", "source-logs", "source-push", "kinds", "write-back", "archive"),
            *("events", "node-faults", "trusted-proxy", "network-policy", "service-monitor", "alerts"),
            *("job-metrics", "job-monitoring", "grafana"),
        ),
        _MORE,
    ),
}
# What kustomize has no component for.
CHART_ONLY: Final[Mapping[str, Any]] = {
    **_MORE,
    "image": {
        "repository": "r.example/t",
        "tag": "1",
        "digest": "sha256:" + "a" * 64,
        "pullPolicy": "Always",
    },
    "imagePullSecrets": [{"name": "pull"}],
    "replicas": 3,
    "size": "large",
    "spread": "DoNotSchedule",
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "namespaces": ["team-a", "team-b"],
    "ingress": {
        "enabled": True,
        "host": "training.example.com",
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
        "tlsSecret": "training-tls",
    },
    "networkPolicy": {
        "enabled": True,
        "egress": [{"to": [{"namespaceSelector": {}}]}, {"ports": [{"protocol": "TCP", "port": 6443}]}],
    },
    "store": {"run": {"enabled": True, "image": "r.example/nats", "size": "1Ti", "storageClassName": "fast"}},
    "extraFlags": ["--probe-interval=30s"],
}


def find_helm() -> str:
    found = os.environ.get("HELM") or shutil.which("helm")
    if not found:
        pytest.skip("no helm here: neither $HELM nor on the PATH")
    return found


def template(
    directory: Path, values: Mapping[str, Any], *, chart: Path = CHART, namespace: str = NAMESPACE
) -> str:
    """The chart's objects as YAML."""
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    told = subprocess.run(
        [find_helm(), "template", NAMESPACE, str(chart), "-n", namespace, "-f", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout
