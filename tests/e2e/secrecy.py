"""What nobody may find anywhere: bytes of a secret that a path or a port was pointed at."""

from __future__ import annotations

from tests.e2e.scripts import SECRET
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import Workspace


def assert_untold(team: Workspace, *servers: VisibilityServer) -> None:
    """No secret is in what users see of the namespace, nor in what operators see of the servers."""
    seen = {}
    for how in (["get", "-o", "json"], ["get", "-o", "yaml"], ["get", "-o", "wide"], ["describe"]):
        answer = team.admin.kubectl(how[0], "tjp", "-n", team.name, *how[1:])
        assert answer.returncode == 0, answer.stderr
        seen[" ".join(how)] = answer.stdout
    pair = team.admin.pair
    for server in servers:
        metrics = server.get("/metrics", cert=(pair.cert, pair.key))
        assert metrics.status_code == 200
        seen[f"metrics of {server.port}"] = metrics.text
        seen[f"log of {server.port}"] = server.log_text()
    for where, text in seen.items():
        assert text, where
        assert SECRET not in text, where
