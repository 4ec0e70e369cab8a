"""Which kinds kube-apiserver serves: nothing is watched in vain, and a CRD that comes later is found."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any, cast
from unittest import mock

import pytest

from tests.jobs import job_ref
from visibility_api.kinds import ASKED, NEEDED, RESOURCES, is_absent, missing_operator, served
from visibility_api.kinds.batchjob import JOBS
from visibility_api.kinds.operator_kinds import PYTORCH
from visibility_api.kinds.training_operator import PODS
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.models.served import TRAINING_JOBS
from visibility_api.workloads import presence as presence_module
from visibility_api.workloads.collections import JobWatch, is_there
from visibility_api.workloads.kind import WatchedObjects
from visibility_api.workloads.objects import Meta
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
        self.presence = Presence(cast(KubeClient, discovery), ASKED, NEEDED)

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
    found = served(presence)
    assert [each for each in RESOURCES if is_absent(presence, each.plural)] == [
        each for each in RESOURCES if each not in found
    ]
    *kinds, of_all = found
    assert of_all is TRAINING_JOBS
    return [each.plural for each in kinds]


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


async def test_a_kind_that_is_always_served_says_that_its_crd_is_missing() -> None:
    discovery = Discovery()
    async with Running(discovery) as presence:
        await presence.wait()
        assert "trainjobs of trainer.kubeflow.org/v1alpha1" in (missing_operator(presence, "trainjobs") or "")
        assert missing_operator(presence, "jobs") is None
        assert missing_operator(presence, "pytorchjobs") is None
        discovery.plurals["trainer.kubeflow.org/v1alpha1"] = ["trainjobs"]
        async with asyncio.timeout(30):
            while missing_operator(presence, "trainjobs"):  # noqa: ASYNC110 - all in memory
                await asyncio.sleep(0)


async def test_one_404_for_what_was_served_is_asked_again() -> None:
    """By a proxy, for instance: all jobs of these kinds would end."""
    discovery = Discovery()
    discovery.plurals["kubeflow.org/v1"] = ["pytorchjobs"]
    presence = Presence(cast(KubeClient, discovery), ASKED, NEEDED)
    seen: list[bool] = []

    async def ask_again(_period_s: float) -> None:
        seen.append("pytorchjobs" in shown(presence))
        answers = [ApiError(404, "NotFound"), ["pytorchjobs"], *[ApiError(404, "NotFound")] * 2]
        if len(seen) > len(answers):
            raise asyncio.CancelledError
        discovery.plurals["kubeflow.org/v1"] = answers[len(seen) - 1]

    patched = mock.patch.object(presence_module.asyncio, "sleep", ask_again)
    with patched, pytest.raises(asyncio.CancelledError):
        await presence.run()
    assert seen == [True, True, True, True, False]


class Cluster(Discovery):
    """With one object of every collection, and watches in which nothing happens."""

    def __init__(self) -> None:
        super().__init__()
        self.watching = 0

    async def get(self, path: str, **options: object) -> bytes:
        if "query" not in options:
            return await super().get(path, **options)
        item = {"metadata": {"name": "bert", "namespace": "team-a", "uid": "u1", "resourceVersion": "5"}}
        return json.dumps({"metadata": {"resourceVersion": "7"}, "items": [item]}).encode()

    @contextlib.asynccontextmanager
    async def lines(self, _path: str, **_options: object) -> AsyncIterator[AsyncIterator[bytes]]:
        async def nothing() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        self.watching += 1
        try:
            yield nothing()
        finally:
            self.watching -= 1


async def test_when_a_crd_goes_its_jobs_are_listed_as_gone_and_its_watch_stops_until_it_is_back() -> None:
    cluster = Cluster()
    lists: asyncio.Queue[list[str]] = asyncio.Queue()

    async def on_list(found: AsyncIterable[Any]) -> None:
        lists.put_nowait([each.metadata.name async for each in found])

    (objects,) = PYTORCH.own
    watch: JobWatch[Any] = JobWatch(
        cast(KubeClient, cluster),
        objects.path(None),
        kind=objects.type,
        on_list=on_list,
        on_event=lambda _type, _object: None,
    )
    async with asyncio.timeout(30), Running(cluster) as presence:
        watch.objects, watch.presence = objects, presence
        running = asyncio.create_task(watch.run())
        for _ in range(2):
            assert await lists.get() == []
            assert (cluster.watching, watch.is_awaited, watch.health.last_error) == (0, False, "")
            cluster.plurals["kubeflow.org/v1"] = ["pytorchjobs"]
            assert await lists.get() == ["bert"]
            cluster.plurals["kubeflow.org/v1"] = ["tfjobs"]
        assert await lists.get() == []
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_job_is_there_if_kube_apiserver_has_one_of_its_name_and_uid_in_any_version() -> None:
    old, new = (WatchedObjects(api=f"/apis/g/v{n}", plural="things", kind="Thing", type=Meta) for n in (1, 2))
    bodies = {"/apis/g/v2/namespaces/one/things": b'{"metadata":{},"items":[{"metadata":{"uid":"now"}}]}'}

    class Client:
        async def get(self, path: str, *, query: Sequence[tuple[str, str]], **_: object) -> bytes:
            assert query == (("fieldSelector", "metadata.name=a"),)
            if path not in bodies:
                raise ApiError(404, "NotFound")
            return bodies[path]

    async def found(uid: str) -> bool:
        return await is_there(cast(Any, Client()), (old, new), job_ref("a", "one", uid))

    assert await found("now")
    assert not await found("before")
    bodies["/apis/g/v2/namespaces/one/things"] = b'{"metadata":{},"items":null}'
    assert not await found("now")
