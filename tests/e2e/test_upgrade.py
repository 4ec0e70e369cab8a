"""A rollout stops at a pod whose rights are missing, and goes on when they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import without
from tests.e2e.processes import wait_until
from tests.e2e.renewal_drill import Installation
from tests.e2e.visibility_server import VisibilityServer

LIFETIME_S = 7 * 86400.0


@pytest.fixture
def installation(cluster: Cluster, server: VisibilityServer, tmp_path: Path) -> Iterator[Installation]:
    if cluster.kind != "real":
        pytest.skip("the stand-in has no Secrets")
    found = Installation(cluster, tmp_path, lifetime_s=LIFETIME_S)
    try:
        yield found
    finally:
        found.stop()


def readiness(port: int) -> httpx.Response:
    with httpx.Client(verify=False, trust_env=False) as client:
        return client.get(f"https://127.0.0.1:{port}/readyz?verbose")


def test_a_pod_whose_rights_are_missing_is_not_ready_beside_one_that_serves(
    cluster: Cluster, installation: Installation
) -> None:
    (old, new), (old_port, new_port) = installation.replicas, installation.ports
    old.start()
    wait_until(lambda: readiness(old_port).status_code == 200, what="the former pod is ready")
    with without(cluster.admin, "source-push"):
        new.start()
        wait_until(lambda: "[-]rights failed" in readiness(new_port).text, what="a right is missing")
        assert "[+]owner-followed ok" in readiness(new_port).text
        missing = "may not get pods; get jobs; get jobsets: apply the rights from"
        wait_until(lambda: missing in new.log.read_text(), what="the log says which")
        assert readiness(old_port).status_code == 200
    wait_until(lambda: readiness(new_port).status_code == 200, what="the new pod is ready")
