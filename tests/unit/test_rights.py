"""A replica whose rights are missing while another one serves: a rollout is to stop at it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from visibility_api.kube.errors import Unreachable
from visibility_api.readiness import RightsFirst
from visibility_api.replication.role import UNFIT_S, Others, Role
from visibility_api.rights import Right, Rights, needed_by
from visibility_api.settings import Settings
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore

PODS, LOGS = (
    Right("list", "/api/v1", "pods", "base"),
    Right("get", "/api/v1", "pods", "source-logs", subresource="log"),
)


class Cluster:
    """Grants these verbs, and notes what was asked."""

    def __init__(self, *granted: str) -> None:
        self.granted = set(granted)
        self.is_down = False
        self.asked: list[dict[str, str]] = []

    async def post(self, path: str, body: bytes) -> bytes:
        if self.is_down:
            raise Unreachable("connection refused")
        assert path.endswith("/selfsubjectaccessreviews")
        wanted = json.loads(body)["spec"]["resourceAttributes"]
        self.asked.append(wanted)
        key = f"{wanted['verb']} {wanted['namespace']}".strip()
        return json.dumps({"status": {"allowed": key in self.granted}}).encode()


async def once(rights: Rights) -> None:
    """Until it was asked for all of them."""
    running = asyncio.create_task(rights.run())
    while not rights.is_known:  # noqa: ASYNC110 - it says so to nobody
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def role_of(*, owns: bool = False, is_alone: bool = False, follows: bool = True) -> Any:
    return SimpleNamespace(
        term=object() if owns else None,
        others=None if is_alone else object(),
        owner=object() if follows and not owns else None,
    )


@pytest.mark.parametrize(
    ("granted", "role", "is_ready"),
    [
        (("list", "get"), role_of(), True),
        (("list",), role_of(), False),
        (("list",), role_of(owns=True), True),
        (("list",), role_of(is_alone=True), True),
        (("list",), role_of(follows=False), True),  # nobody serves better
    ],
)
async def test_a_follower_that_lacks_a_right_is_not_ready(
    granted: Sequence[str], role: Any, is_ready: bool
) -> None:
    rights = Rights(Cluster(*granted), [PODS, LOGS], ())
    first = RightsFirst(role, rights)
    await once(rights)
    failure = first.failure()
    assert (failure is None) is is_ready
    if failure is not None:
        assert failure == "the service account may not get pods/log: apply the rights from deploy/source-logs"


async def test_it_is_not_ready_before_they_are_reviewed_and_ready_when_nobody_can_review_them() -> None:
    cluster = Cluster()
    cluster.is_down = True
    rights = Rights(cluster, [PODS], ())
    first = RightsFirst(role_of(), rights)
    assert first.failure() is not None
    await once(rights)
    assert first.failure() is None


async def test_what_was_ready_once_stays_ready() -> None:
    cluster, role = Cluster(), role_of(owns=True)
    rights = Rights(cluster, [PODS], ())
    first = RightsFirst(role, rights)
    await once(rights)
    assert first.failure() is None
    role.term, role.owner = None, object()
    assert first.failure() is None


async def test_a_right_in_one_of_the_namespaces_is_enough() -> None:
    cluster = Cluster("list b")
    rights = Rights(cluster, [PODS], ("a", "b", "c"))
    await once(rights)
    assert rights.missing is None
    assert [each["namespace"] for each in cluster.asked] == ["a", "b"]


def test_what_an_operator_may_leave_out_is_not_waited_for() -> None:
    settings = Settings(sources=("status", "exec", "logs", "push"), peers=("peers.ns.svc",), events=True)
    found = {str(right) for right in needed_by(settings)}
    assert {"list pods", "watch trainjobs", "get pods/log", "get jobs", "create events"} <= found
    assert {"create tokenreviews", "patch leases in trainjob-visibility"} <= found
    assert not {"create pods/exec", "list rayjobs", "patch trainjobs/status"} & found


def test_a_replica_that_lacks_a_right_leaves_the_jobs_to_one_that_has_it() -> None:
    jobs = JobLog(MemoryStore(base_revision=1))
    jobs.is_complete = True
    follower = SimpleNamespace(
        lost_at=time.monotonic(), has_searched=True, others_have_log=False, owner=None, fault=None
    )
    others = cast(Others, SimpleNamespace(follower=follower))
    fit = [False]
    role: Role[Any] = Role(jobs, lambda _may: cast(Any, None), others=lambda _: others, is_fit=lambda: fit[0])
    assert not role._may_own(cast(Any, follower))
    follower.lost_at -= UNFIT_S  # nobody else has come
    assert role._may_own(cast(Any, follower))
    follower.lost_at = time.monotonic()
    fit[0] = True
    assert role._may_own(cast(Any, follower))
