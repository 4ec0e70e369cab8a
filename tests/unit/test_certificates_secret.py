"""Replicas that make, renew and publish one certificate, and what may go wrong with its objects."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.virtual_time import in_virtual_time
from visibility_api.certificates.renewal import CA, decode
from visibility_api.certificates.secret import API_SERVICE, CONFIG_MAP, CertificateSecret
from visibility_api.kube.errors import ApiError, ClusterError, Unreachable
from visibility_api.serving.tls import Pair, ServingTls, expiry

SECRET = "/api/v1/namespaces/ns/secrets/certificate"
CAS = f"/api/v1/namespaces/ns/configmaps/{CONFIG_MAP}"
LIFETIME = timedelta(minutes=40)


class Cluster:
    """The three objects, and refusals of a stale version."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {path: {} for path in (SECRET, CAS, API_SERVICE)}
        self.versions = dict.fromkeys(self.objects, 1)
        self.faults: dict[str, ClusterError] = {}
        self.conflicts = 0

    async def get(self, path: str) -> bytes:
        if (fault := self.faults.get(path)) is not None:
            raise fault
        await asyncio.sleep(0)
        meta = {"resourceVersion": str(self.versions[path])}
        return json.dumps({"metadata": meta, **self.objects[path]}).encode()

    async def patch(self, path: str, body: bytes, *, query: Any, headers: Any) -> bytes:
        if (fault := self.faults.get(path)) is not None:
            raise fault
        await asyncio.sleep(0)
        change = json.loads(body)
        given = change.pop("metadata", {}).get("resourceVersion", "")
        if given and given != str(self.versions[path]):
            self.conflicts += 1
            raise ApiError(409, "Conflict")
        for key, value in change.items():
            self.objects[path].setdefault(key, {}).update(value)
        self.versions[path] += 1
        return b"{}"

    @property
    def published(self) -> bytes:
        bundle = base64.b64decode(self.objects[API_SERVICE]["spec"]["caBundle"])
        assert self.objects[CAS]["data"][CA].encode() == bundle
        return bundle

    @property
    def kept(self) -> dict[str, bytes]:
        return {name: base64.b64decode(each) for name, each in self.objects[SECRET]["data"].items()}


def start() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class Replica:
    def __init__(self, cluster: Cluster) -> None:
        began, loop = start(), asyncio.get_running_loop()
        first = loop.time()

        def now() -> datetime:
            return began + timedelta(seconds=loop.time() - first)

        self.secret = CertificateSecret(
            cluster, namespace="ns", name="certificate", lifetime=LIFETIME, now=now
        )
        self.tls: ServingTls

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        clock = asyncio.get_running_loop().time
        self.tls = ServingTls(await self.secret.load(), settle_s=self.secret.settle_s, clock=clock)
        following = asyncio.ensure_future(self.secret.follow(self.tls))
        try:
            await asyncio.sleep(1)
            yield
        finally:
            following.cancel()

    @property
    def served(self) -> Pair:
        return self.tls.pairs[0]


@in_virtual_time
async def test_replicas_that_begin_together_agree_and_publish_what_they_serve() -> None:
    cluster = Cluster()
    one, other = Replica(cluster), Replica(cluster)
    async with asyncio.TaskGroup() as group:
        loading = [group.create_task(each.secret.load()) for each in (one, other)]
    assert loading[0].result() == loading[1].result()
    assert cluster.conflicts == 1
    async with one.running(), other.running():
        assert one.served == other.served == loading[0].result()
        assert cluster.published == decode(cluster.kept).bundle


@in_virtual_time
async def test_replicas_know_a_renewed_certificate_before_one_of_them_serves_it() -> None:
    cluster = Cluster()
    one, other = Replica(cluster), Replica(cluster)
    async with one.running(), other.running():
        served = {one.served}
        for _ in range(4 * 40 * 60):
            await asyncio.sleep(1)
            assert one.served in other.tls.pairs
            assert other.served in one.tls.pairs
            served |= {one.served}
        assert 5 <= len(served) <= 7
        assert cluster.published == decode(cluster.kept).bundle
        assert one.secret.fault is None


@in_virtual_time
async def test_what_others_take_away_is_put_back() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    async with replica.running():
        served, bundle = replica.served, cluster.published
        for each in cluster.objects.values():
            each.clear()
        await asyncio.sleep(61)
        assert (replica.served, cluster.published) == (served, bundle)
        assert decode(cluster.kept).pair == served


@in_virtual_time
async def test_the_ca_is_published_soon_after_its_objects_are_there_or_the_right_to_them() -> None:
    """As `kubectl apply` makes them: the pod may begin before the APIService is there."""
    cluster = Cluster()
    cluster.faults[API_SERVICE] = ApiError(404, "NotFound", "apiservices not found")
    replica = Replica(cluster)
    async with replica.running():
        await asyncio.sleep(5)
        assert "not found" in (replica.secret.fault or "")
        cluster.faults.clear()
        await asyncio.sleep(11)  # pauses double: the fifth attempt begins after 15 s at most
        assert replica.secret.fault is None
        assert cluster.published == decode(cluster.kept).bundle


@in_virtual_time
async def test_a_certificate_is_renewed_although_the_ca_cannot_be_published_now() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    async with replica.running():
        before = replica.served
        cluster.faults[API_SERVICE] = ApiError(403, "Forbidden", "apiservices is forbidden")
        await asyncio.sleep(LIFETIME.total_seconds())
        assert expiry(replica.served) > expiry(before)
        assert "apiservices is forbidden" in (replica.secret.fault or "")
        cluster.faults.clear()
        await asyncio.sleep(61)
        assert replica.secret.fault is None


@in_virtual_time
async def test_kube_apiserver_is_waited_for_at_the_start_and_a_missing_right_is_not() -> None:
    cluster = Cluster()
    cluster.faults[SECRET] = Unreachable("no connection")
    began = asyncio.get_running_loop().time()
    with pytest.raises(ClusterError, match=r"secrets/certificate: no connection"):
        await Replica(cluster).secret.load()
    assert asyncio.get_running_loop().time() - began > 29
    cluster.faults[SECRET] = ApiError(403, "Forbidden", "secrets is forbidden")
    began = asyncio.get_running_loop().time()
    with pytest.raises(ClusterError, match="secrets is forbidden"):
        await Replica(cluster).secret.load()
    assert asyncio.get_running_loop().time() == began
