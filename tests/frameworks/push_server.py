"""A cluster with training jobs in it and the visibility server on it, for clients in another environment.

Run by the environment of the server: `python -m tests.frameworks.push_server DIRECTORY JOB…`. Prints one line
of JSON, the variables each job's operator would inject; then answers each JOB on stdin with its document.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import structlog

from tests.e2e.local_cluster import StandInCluster
from tests.e2e.scripts import SILENT
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User, Workspace

ACCOUNTS = "/api/v1/namespaces/{}/serviceaccounts/default/token"
UPSTREAM = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/{}/status"


def start(team: Workspace, name: str, directory: Path, server: VisibilityServer) -> dict[str, str]:
    """A job that says nothing by itself, and the variables for a client that speaks for its rank 0."""
    team.start_job(name, SILENT)
    meta = team.wait_running(name)["metadata"]
    team.wait_document(
        name, lambda status: status["rank0"]["podName"] == meta["name"], what="the server knows its pod"
    )
    path = UPSTREAM.format(team.name, name)
    audience = f"trainer.kubeflow.org{path.removeprefix('/apis/trainer.kubeflow.org')}"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [audience], "boundObjectRef": bound},
    }
    token = directory / f"{name}.token"
    token.touch(mode=0o600)
    token.write_text(team.cluster.admin.create(ACCOUNTS.format(team.name), request)["status"]["token"])
    return {
        "KUBEFLOW_TRAINER_SERVER_URL": server.url + path,
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(server.authority.bundle),
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token),
    }


def main(directory: Path, jobs: list[str]) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is for answers
    cluster = StandInCluster(directory / "cluster")
    try:
        server = VisibilityServer(cluster, directory / "server")
        try:
            users = {
                name: User(name, cluster, cluster.admin_pair, directory / name)
                for name in ("admin", "alice", "bob")
            }
            team = Workspace(cluster, users)
            found = {name: start(team, name, directory, server) for name in jobs}
            print(json.dumps(found), flush=True)
            for line in sys.stdin:
                print(json.dumps(team.document(line.strip())), flush=True)
            team.clean()
        finally:
            server.stop()
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
