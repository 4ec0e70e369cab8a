"""Which kinds kube-apiserver serves: nothing is watched in vain, and a CRD that comes later is found."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from visibility_api.kinds import NEEDED, OPTIONAL, served
from visibility_api.kinds.batchjob import JOBS
from visibility_api.kinds.training_operator import PODS
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.workloads import presence as presence_module
from visibility_api.workloads.presence import Presence

ALWAYS = ["trainjobs", "jobs"]


class Discovery:
    """What kube-apiserver says of each group and version."""

    def __init__(self, **plurals: list[str]) -> None:
        self.plurals: dict[str, list[str] | Exception] = dict(plurals)
        self.asked = 0

    async def get(self, path: str, **_limits: object) -> bytes:
        self.asked += 1
        found = self.plurals.get(path.removeprefix("/apis/"))
        if found is None:
            raise ApiError(404, "NotFound")
        if isinstance(found, Exception):
            raise found
        return json.dumps({"resources": [{"name": each} for each in found]}).encode()


class Running:
    def __init__(self, discovery: Discovery) -> None:
        self.presence = Presence(cast(KubeClient, discovery), OPTIONAL, NEEDED)

    async def __aenter__(self) -> Presence:
        self._task = asyncio.create_task(self.presence.run())
        return self.presence

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "PERIOD_S", 0.0)


def shown(presence: Presence) -> list[str]:
    return [each.plural for each in served(presence)]


async def test_what_no_crd_defines_is_neither_shown_nor_watched() -> None:
    async with Running(Discovery()) as presence:
        assert not await presence.find(PODS)
        assert await presence.find(JOBS)  # of the API server's own
        assert shown(presence) == ALWAYS


async def test_a_crd_that_comes_later_is_found_and_one_that_goes_is_shown_no_more() -> None:
    discovery = Discovery()
    async with Running(discovery) as presence:
        assert not await presence.find(PODS)
        waiting = asyncio.create_task(presence.until_served(PODS))
        discovery.plurals["kubeflow.org/v1"] = ["pytorchjobs", "pytorchjobs/status"]
        async with asyncio.timeout(30):
            await waiting
        assert shown(presence) == [*ALWAYS, "pytorchjobs"]
        del discovery.plurals["kubeflow.org/v1"]
        async with asyncio.timeout(30):
            while await presence.find(PODS):  # noqa: ASYNC110 - all in memory
                await asyncio.sleep(0)
        assert shown(presence) == ALWAYS


@pytest.mark.parametrize("fault", [ApiError(403, "Forbidden"), Unreachable("gone")])
async def test_what_cannot_be_asked_for_is_watched_so_that_its_own_request_says_why(fault: Any) -> None:
    discovery = Discovery()
    discovery.plurals["kubeflow.org/v1"] = fault
    async with Running(discovery) as presence:
        assert await presence.find(PODS)
        discovery.plurals["kubeflow.org/v1"] = ["tfjobs"]
        async with asyncio.timeout(30):
            while "pytorchjobs" in shown(presence):  # noqa: ASYNC110 - all in memory
                await asyncio.sleep(0)
        discovery.plurals["kubeflow.org/v1"] = fault  # it was known before: that stands
        before = discovery.asked
        while discovery.asked < before + 20:  # noqa: ASYNC110 - all in memory
            await asyncio.sleep(0)
        assert shown(presence) == [*ALWAYS, "tfjobs"]
