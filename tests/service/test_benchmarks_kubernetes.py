"""The stand-in of the benchmarks answers as kube-apiserver does where a wrong answer is a wrong figure."""

from __future__ import annotations

from typing import Any, cast

import pytest
from aiohttp.test_utils import TestServer
from kubernetes_asyncio.client import Configuration

from benchmarks.kubernetes import Changes, application, job_set, train_job
from tests.jobs import job_ref
from visibility_api.kinds import BUILT_IN
from visibility_api.kube.client import KubeClient
from visibility_api.workloads.collections import is_there


@pytest.mark.parametrize(("resource", "made"), [("trainjobs", train_job), ("jobsets", job_set)])
async def test_it_says_of_each_job_whether_it_exists(resource: str, made: Any) -> None:
    """It knew of none, and replicas passed over thousands of jobs that they had not seen in the log."""
    meta = made(7)["metadata"]
    own = BUILT_IN.by_resource[resource].own
    async with (
        TestServer(cast(Any, application(8, Changes(0.0)))) as server,
        KubeClient(Configuration(host=f"http://127.0.0.1:{server.port}")) as client,
    ):

        async def exists(name: str, namespace: str, uid: str) -> bool:
            return await is_there(client, own, job_ref(name, namespace, uid=uid, resource=resource))

        assert await exists(meta["name"], meta["namespace"], meta["uid"])
        assert not await exists(meta["name"], meta["namespace"], "another")
        assert not await exists(meta["name"], "team-00", meta["uid"])
        assert not await exists("job-00008", "team-08", made(8)["metadata"]["uid"])
