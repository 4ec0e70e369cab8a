"""Replicas that make and renew their own certificate, with what deploy/base has for it."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import APISERVICE_PATH, NAMESPACE, SERVICE_NAME
from tests.e2e.processes import wait_until
from tests.e2e.real_cluster import RealCluster
from tests.e2e.renewal_drill import Installation, drill
from tests.e2e.visibility_server import VisibilityServer

LIFETIME_S, RENEWALS, WATCHES = 30, 3, 50
REQUESTS_A_SECOND = 200  # at most; as many as the machine answers


@pytest.fixture
def installation(cluster: Cluster, server: VisibilityServer, tmp_path: Path) -> Iterator[Installation]:
    if cluster.kind != "real":
        pytest.skip("the stand-in has no Secrets; the replicas' part is tested without it")
    found = Installation(cluster, tmp_path, lifetime_s=LIFETIME_S)
    try:
        yield found
    finally:
        found.stop()
        server.register()


def test_no_request_and_no_watch_is_lost_while_certificates_are_renewed(
    cluster: Cluster, installation: Installation
) -> None:
    """Certificates of half a minute; the front proxy of kube-apiserver gets another CA as well."""
    assert isinstance(cluster, RealCluster)
    installation.start()
    drilled = drill(
        cluster,
        installation,
        cluster.front_proxy,
        seconds=RENEWALS * LIFETIME_S * 2 / 3 + 5,
        renewals=RENEWALS,
        per_s=REQUESTS_A_SECOND,
        watches=WATCHES,
    )
    told = asyncio.run(drilled)
    assert told.lost == {}
    assert told.sent > 5 * LIFETIME_S  # on a busy machine too
    for each in installation.replicas:
        each.check_alive()
    logs = [each.log.read_text() for each in installation.replicas]
    assert all(log.count("serving certificate renewed") >= RENEWALS for log in logs), logs
    assert all("owner of the log lost" not in log for log in logs)


def test_the_name_of_the_service_is_in_the_certificate_and_its_ca_is_published_for_jobs(
    cluster: Cluster, installation: Installation
) -> None:
    installation.start()
    published = cluster.admin.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/visibility-api-ca")["data"]
    bundle = base64.b64decode(cluster.admin.get(APISERVICE_PATH)["spec"]["caBundle"])
    assert published["ca.crt"].encode() == bundle
    context = ssl.create_default_context(cadata=published["ca.crt"])

    def trusted(port: int) -> bool:
        try:
            plain = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            return False  # the API is available with the first of them
        with plain, context.wrap_socket(plain, server_hostname=SERVICE_NAME):
            return True

    for port in installation.ports:
        wait_until(partial(trusted, port), what="the replica listens")
