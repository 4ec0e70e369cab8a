"""Answers of kube-apiserver that are too long, broken, late or without end (docs/security.md, streams)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from tests.canary import plant
from tests.e2e.api import Object
from tests.e2e.api_proxy import ApiProxy, Fault
from tests.e2e.cluster import Cluster
from tests.e2e.processes import wait_until
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import NOBODY, PREFIX, VisibilityServer
from tests.e2e.workspace import TRAINER, Workspace
from visibility_api.assembly import LEASE

PRINTING_STEPS = """
import itertools, time

for step in itertools.count(1):
    print(f"Step {step}/100000, loss: 0.5", flush=True)
    time.sleep(0.2)
"""
FAULTS = [pytest.param(fault, id=fault.name.lower()) for fault in Fault]


@pytest.fixture(scope="module")
def proxy(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProxy]:
    if cluster.kind == "local":
        pytest.skip("the stand-in has no events.k8s.io")
    found = ApiProxy(cluster, tmp_path_factory.mktemp("api-proxy"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def beyond(
    cluster: Cluster, proxy: ApiProxy, shared: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VisibilityServer]:
    """A server that reaches kube-apiserver through the proxy. It holds a Lease, reads logs, writes Events."""
    found = VisibilityServer(
        cluster,
        tmp_path_factory.mktemp("beyond"),
        components=("events", "source-logs"),
        flags=[NOBODY, "--namespaces", shared.name],
        is_registered=False,
        way=proxy,
    )
    yield found
    assert found.stop() == 0, found.log_text()[-2000:]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("review", "code"), [("tokenreviews", 401), ("subjectaccessreviews", 500)])
def test_a_bad_answer_to_a_review_grants_nothing_and_delays_nobody_else(
    cluster: Cluster,
    proxy: ApiProxy,
    beyond: VisibilityServer,
    shared: Workspace,
    review: str,
    code: int,
    fault: Fault,
) -> None:
    accounts, name = f"/api/v1/namespaces/{shared.name}/serviceaccounts", f"reader-{secrets.token_hex(3)}"
    cluster.admin.create(accounts, {"metadata": {"name": name}})
    token = plant(cluster.admin.create(f"{accounts}/{name}/token", {"spec": {}})["status"]["token"])
    with proxy.answering(review, fault), ThreadPoolExecutor() as pool:
        asked = pool.submit(beyond.get, "/apis", token=token)
        for _ in range(20):  # by a certificate, and without a review
            assert beyond.get(f"{PREFIX}/trainjobs", cert=cluster.admin_pair).elapsed.total_seconds() < 5
        refused = asked.result()
    assert refused.status_code == code
    assert token not in refused.text
    assert beyond.get("/apis", token=token).status_code == 200


@pytest.mark.parametrize("fault", [Fault.BROKEN, Fault.ENDLESS], ids=["broken", "endless"])
@pytest.mark.parametrize("stream", ["list", "watch"])
def test_a_list_or_a_watch_that_is_cut_or_does_not_end_hides_no_job(
    cluster: Cluster,
    proxy: ApiProxy,
    beyond: VisibilityServer,
    shared: Workspace,
    stream: str,
    fault: Fault,
) -> None:
    name = f"{stream}-{fault.name.lower()}"
    jobs = QuietJobs(cluster.admin, shared.name)
    if stream == "list":
        jobs.create(name)
        with proxy.spoiling("/trainjobs?limit=", fault) as is_spoilt:
            beyond.restart()  # with a log in NATS it is ready before it lists
            wait_until(is_spoilt, what="an answer has the fault")
    else:
        with proxy.spoiling("/trainjobs?watch=", fault):
            jobs.create(name)
            wait_until(
                lambda: beyond.get(f"{shared.collection}/{name}", cert=cluster.admin_pair).status_code == 200,
                what="it is known",
            )
    jobs.create(f"{name}-next")
    for each in (name, f"{name}-next"):
        wait_until(
            lambda each=each: (
                beyond.get(f"{shared.collection}/{each}", cert=cluster.admin_pair).status_code == 200
            ),
            what=f"{each} is known",
        )


@pytest.mark.parametrize(
    ("fault", "shown"),
    [(Fault.BROKEN, None), (Fault.LATE, None), (Fault.ENDLESS, ["the end"])],
    ids=["broken", "late", "endless"],
)
def test_a_log_whose_answer_is_bad_is_no_log_or_is_requested_again(
    cluster: Cluster,
    proxy: ApiProxy,
    beyond: VisibilityServer,
    shared: Workspace,
    fault: Fault,
    shown: list[str] | None,
) -> None:
    name = f"told-{fault.name.lower()}"
    script = "import time; print('the end', flush=True); time.sleep(3600)"
    shared.start_job(name, script, annotations={"source": "push"})  # so that no probe reads it

    def tail() -> Object:
        found: Object = beyond.get(f"{shared.collection}/{name}/log-tail", cert=cluster.admin_pair).json()
        return found

    wait_until(lambda: tail().get("lines") == ["the end"], what="the log is shown")
    with proxy.spoiling(f"pods/{name}-node-0-0", fault):
        spoilt = tail()
    assert spoilt.get("lines") == shown
    assert shown or (spoilt["kind"] == "Status" and spoilt["message"])
    assert tail()["lines"] == ["the end"]


@pytest.mark.parametrize(
    "fault", [Fault.BROKEN, Fault.LATE, Fault.ENDLESS], ids=["broken", "late", "endless"]
)
def test_a_probe_of_a_log_whose_answer_is_bad_costs_that_probe_alone(
    cluster: Cluster, proxy: ApiProxy, beyond: VisibilityServer, shared: Workspace, fault: Fault
) -> None:
    name = f"printed-{fault.name.lower()}"
    shared.start_job(name, PRINTING_STEPS, annotations={"source": "logs", "interval": "1s"})

    def step() -> int:
        found = beyond.get(f"{shared.collection}/{name}", cert=cluster.admin_pair).json()
        shown: int = found.get("status", {}).get("steps", {}).get("current", 0)
        return shown

    wait_until(step, what="it is read")
    with proxy.spoiling(f"pods/{name}-node-0-0", fault) as is_spoilt:
        wait_until(is_spoilt, what="an answer has the fault")
    before = step()
    wait_until(lambda: step() > before, what="it is read again")


@pytest.mark.parametrize("fault", FAULTS)
def test_while_the_lease_cannot_be_read_nobody_owns_the_jobs_and_they_are_shown(
    cluster: Cluster, proxy: ApiProxy, beyond: VisibilityServer, shared: Workspace, fault: Fault
) -> None:
    def owns() -> bool:
        return beyond.metrics("visibility_log_owner")[""] == 1.0

    wait_until(owns, what="it holds the Lease")
    with proxy.answering(f"/leases/{LEASE}", fault):
        wait_until(lambda: not owns(), what="the Lease is over")
        assert beyond.get(shared.collection, cert=cluster.admin_pair).status_code == 200
    wait_until(owns, what="it holds the Lease again")


@pytest.mark.parametrize("fault", FAULTS)
def test_an_event_whose_answer_is_bad_is_written_once(
    cluster: Cluster, proxy: ApiProxy, beyond: VisibilityServer, shared: Workspace, fault: Fault
) -> None:
    name = f"ends-{fault.name.lower().replace('_', '-')}"
    QuietJobs(cluster.admin, shared.name).create(name)
    wait_until(
        lambda: beyond.get(f"{shared.collection}/{name}", cert=cluster.admin_pair).status_code == 200,
        what="it is known",
    )
    ended = {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "all is over"}
    ended["lastTransitionTime"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    at = f"{TRAINER}/namespaces/{shared.name}/trainjobs/{name}/status"
    events = f"/apis/events.k8s.io/v1/namespaces/{shared.name}/events"

    def written() -> list[str]:
        return [each["reason"] for each in cluster.admin.items(events) if each["regarding"]["name"] == name]

    def counted() -> float:
        return sum(beyond.metrics("visibility_events_total").values())

    before = counted()
    with proxy.answering("/events", fault):  # those to try out names have a query
        cluster.admin.patch(at, {"status": {"conditions": [ended]}})
        wait_until(written, what="kube-apiserver has it")
        assert beyond.get(f"{shared.collection}/{name}", cert=cluster.admin_pair).status_code == 200
    wait_until(lambda: counted() == before + 1, what="it was tried again")
    assert written() == ["TrainingFinished"]
