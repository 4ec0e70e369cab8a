"""How many watches the server has under way: what tells a test that a client's watch has begun."""

from __future__ import annotations

import re

from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User

_COUNT = re.compile(r"^apiserver_longrunning_requests\{[^}]*\} (\d+)", re.MULTILINE)


class OpenWatches:
    """For a test that is the server's only user; waits until the watches of those before it are gone."""

    def __init__(self, server: VisibilityServer, admin: User) -> None:
        self._server = server
        self._cert = admin.pair
        wait_until(lambda: self._count() == 0, what="no watch is left over", poll_s=0.02)

    def wait_for(self, number: int = 1) -> None:
        """Until so many are under way."""
        wait_until(lambda: self._count() >= number, what=f"{number} watches are under way", poll_s=0.02)

    def _count(self) -> int:
        answer = self._server.get("/metrics", cert=self._cert)
        assert answer.status_code == 200, answer.text
        found = _COUNT.search(answer.text)
        assert found is not None, "no such metric"
        return int(found[1])
