"""A real kube-apiserver from $KUBEBUILDER_ASSETS with one pod that has a progress document, until terminated.

The kubelet behind it is the tests' own. Writes access.json (url, CA, token of a service account that may do
all) into --directory, then accepts connections at --ready-port.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
from pathlib import Path

from tests.e2e.api import Api
from tests.e2e.crds import Definitions
from tests.e2e.kube import find_binaries
from tests.e2e.processes import wait_until
from tests.e2e.real_cluster import RealCluster

from .kubernetes import document

WRITE = f"printf %s '{document().decode()}' > $TRAINJOB_PROGRESS_FILE; exec sleep 3600"


def start_pod(api: Api, namespace: str, name: str) -> None:
    (node,) = api.get("/api/v1/nodes")["items"]
    container = {"name": "node", "image": "python", "command": ["sh", "-c", WRITE]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {
        "nodeName": node["metadata"]["name"],
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    api.create(pods, {"metadata": {"name": name}, "spec": spec})
    wait_until(
        lambda: api.get(f"{pods}/{name}")["status"].get("phase") == "Running", what="the pod is running"
    )


def token_of(api: Api, namespace: str) -> str:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "benchmark"}})
    api.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "benchmark"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "benchmark", "namespace": namespace}],
        },
    )
    token: str = api.create(f"{accounts}/benchmark/token", {"spec": {"expirationSeconds": 3600}})["status"][
        "token"
    ]
    return token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--pod", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--ready-port", type=int, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    binaries, missing = find_binaries()
    if missing:
        sys.exit("; ".join(missing))
    cluster = RealCluster(given.directory, binaries, definitions=Definitions())
    try:
        cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": given.namespace}})
        token = token_of(cluster.admin, given.namespace)
        start_pod(cluster.admin, given.namespace, given.pod)
        access = {"url": cluster.url, "ca_file": str(cluster.ca_file), "token": token}
        (given.directory / "access.json").write_text(json.dumps(access))
        with socket.create_server(("127.0.0.1", given.ready_port)):
            signal.pause()
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
