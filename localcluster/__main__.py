"""`python -m localcluster --dir DIR [--port N]`: a cluster until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

import structlog

from localcluster.cluster import LocalCluster
from localcluster.machinery.metadata import Object

TEAM = "team-a"
SERVER_NAMESPACE, SERVER_ACCOUNT = "trainjob-visibility", "visibility-api"


async def run(directory: Path, port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with LocalCluster.start(directory, port=port) as cluster:
        await add_people(cluster)
        print(f"API server: {cluster.url}")
        print(f"export KUBECONFIG={cluster.kubeconfig('admin')}", flush=True)
        await stopped.wait()


async def add_people(cluster: LocalCluster) -> None:
    """alice edits namespace team-a, bob has no rights, and the visibility server has its service account."""
    for namespace in (TEAM, SERVER_NAMESPACE):
        await cluster.admin.create_missing("namespaces", {"metadata": {"name": namespace}})
    cluster.add_user("alice")
    cluster.add_user("bob")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
    binding: Object = {"metadata": {"name": "alice-edits", "namespace": TEAM}}
    await cluster.admin.create_missing("rolebindings", binding | {"roleRef": role, "subjects": [subject]})
    await cluster.add_service_account(SERVER_ACCOUNT, SERVER_NAMESPACE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="localcluster", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="where kubeconfigs, certificates and pods go")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 chooses a free one")
    arguments = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(arguments.dir, arguments.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
