"""Pushes with real tokens: bound to pods by TokenRequest, told by TokenReview, owners followed by uid."""

from __future__ import annotations

import contextlib
import copy
import http.client
import itertools
import secrets
import ssl
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import yaml

from tests.canary import plant
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.scripts import SILENT
from tests.e2e.visibility_server import GROUP, NOBODY, PREFIX, VisibilityServer
from tests.e2e.workspace import TRAINER, User, Workspace, condition
from visibility_api.pushing.admission import POD_SEEN_FOR_S
from visibility_api.pushing.paths import OWN_JOB

EXAMPLES = Path(__file__).parents[2] / "examples/push"
ACCOUNT = "trainer"

# Reports by push alone: there is no file to read.
PUSHING = """
import os, time
from trainjob_progress import report
from trainjob_progress.sinks.push import find_push_sink

with report(total_steps=100_000, sinks=[find_push_sink(os.environ)]) as r:
    while True:
        r.step(loss=0.25)
        time.sleep(0.05)
"""


class Pusher:
    """Somebody who posts to the server itself, past the aggregator, as training pods do."""

    def __init__(self, server: VisibilityServer, team: Workspace, runtime: str) -> None:
        self.server, self.team, self.runtime = server, team, runtime
        self._accounts = f"/api/v1/namespaces/{team.name}/serviceaccounts"
        self._admin = team.cluster.admin
        self._admin.create(self._accounts, {"metadata": {"name": ACCOUNT}})
        ca = {"ca.crt": server.authority.bundle.read_text()}
        path = f"/api/v1/namespaces/{team.name}/configmaps"
        self._admin.create(path, {"metadata": {"name": "visibility-api-ca"}, "data": ca})
        self._context = ssl.create_default_context(cafile=str(server.authority.bundle))

    def at(self, server: VisibilityServer) -> Pusher:
        """The same at another server."""
        other = copy.copy(self)
        other.server = server
        other._context = ssl.create_default_context(cafile=str(server.authority.bundle))
        return other

    def path(self, job: str, *, is_upstream: bool = False) -> str:
        prefix = "/apis/trainer.kubeflow.org/v1alpha1" if is_upstream else PREFIX
        return f"{prefix}/namespaces/{self.team.name}/trainjobs/{job}/status"

    def token(self, pod: Object | None, *audiences: str) -> str:
        """As the kubelet asks for one; `pod` None: bound to nothing."""
        spec: Object = {"audiences": list(audiences)} if audiences else {}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
            }  # fmt: skip
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return plant(self._admin.create(f"{self._accounts}/{ACCOUNT}/token", body)["status"]["token"])

    def post(self, path: str, token: str | None, percentage: int = 45) -> httpx.Response:
        body = {
            "trainerStatus": {
                "progressPercentage": percentage,
                "lastUpdatedTime": datetime.now(UTC).isoformat(),  # the newest counts, whoever runs first
                "metrics": [{"name": "loss", "value": "0.5"}],
            }
        }
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        with httpx.Client(verify=self._context, trust_env=False, timeout=PATIENCE_S) as client:
            return client.post(self.server.url + path, json=body, headers=headers)

    def send(self, path: str, token: str, pieces: Iterable[bytes], length: int | None) -> httpx.Response:
        """A body as it is; `length`: what the headers say of it, whether or not it comes. None: in chunks."""
        at = httpx.URL(self.server.url)
        connection = http.client.HTTPSConnection(at.host, at.port, context=self._context, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.putrequest("POST", path)
            connection.putheader("Authorization", f"Bearer {token}")
            framing = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
            connection.putheader(*framing)
            connection.endheaders()
            with contextlib.suppress(OSError):  # the server answers before the end, and reads no more
                for piece in pieces:
                    connection.send(piece if length is not None else b"%x\r\n%s\r\n" % (len(piece), piece))
                if length is None:
                    connection.send(b"0\r\n\r\n")
            answer = connection.getresponse()
            return httpx.Response(answer.status, content=answer.read())

    def start(self, name: str) -> Object:
        """A job that says nothing by itself; returns its pod, once the server knows it."""
        self.team.start_job(name, SILENT, runtime=self.runtime)
        pod = self.team.wait_running(name)
        self.wait_rank0(name, pod)
        return pod

    def example(self) -> Object:
        """The pod of examples/push/pytorchjob.yaml, for this server."""
        spec: Object = yaml.safe_load((EXAMPLES / "pytorchjob.yaml").read_text())["spec"]
        pod: Object = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        _direct(pod, self.server)
        return pod

    def wait_rank0(self, name: str, pod: Object) -> None:
        self.team.wait_document(
            name,
            lambda status: status["rank0"]["podName"] == pod["metadata"]["name"] and status["rank0"],
            what="the server knows the pod",
        )

    def percentage(self, name: str) -> int | None:
        found: int | None = self.team.document(name)["status"].get("progressPercentage")
        return found


def refused(answer: httpx.Response) -> tuple[int, str]:
    status = answer.json()
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", answer.status_code)
    return answer.status_code, status["reason"]


def _direct(pod: Object, server: VisibilityServer) -> None:
    """Have a pod of an example push to this server."""
    for variable in pod["containers"][0]["env"]:
        if variable["name"] == "KUBEFLOW_TRAINER_SERVER_URL":
            variable["value"] = f"{server.url}/{variable['value'].split('/', 3)[3]}"


@pytest.fixture(scope="module")
def runtime(cluster: Cluster, server: VisibilityServer) -> str:
    """examples/push/runtime.yaml, with what differs here: the server's address and the service account."""
    found = yaml.safe_load((EXAMPLES / "runtime.yaml").read_text())
    name = found["metadata"]["name"] = f"torch-pushing-{secrets.token_hex(3)}"
    (job,) = found["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    pod["serviceAccountName"] = ACCOUNT  # kube-apiserver binds a token to a pod of that very account only
    _direct(pod, server)
    cluster.admin.create(f"{TRAINER}/clustertrainingruntimes", found)
    return name


@pytest.fixture(scope="module")
def pusher(server: VisibilityServer, shared: Workspace, runtime: str) -> Pusher:
    return Pusher(server, shared, runtime)


@pytest.fixture(scope="module")
def bert(pusher: Pusher) -> Object:
    return pusher.start("bert")


@pytest.mark.parametrize(
    ("body", "length", "code", "reason"),
    [
        ([b"x" * 2**20], 2**20, 413, "RequestEntityTooLarge"),
        (itertools.repeat(b" " * 4096, 1024), None, 422, "Invalid"),
        ([b'{"trainerStatus": {"secret-of-the-body'], None, 422, "Invalid"),
        ([b"[" * 60_000 + b"\xff"], None, 422, "Invalid"),
        ([b'{"trainerStatus": {'], 1000, 422, "Invalid"),
    ],
    ids=["too long", "endless", "broken", "deeply nested and broken", "late"],
)
def test_a_bad_body_costs_its_own_push_alone(
    pusher: Pusher, bert: Object, body: Iterable[bytes], length: int | None, code: int, reason: str
) -> None:
    token, path = pusher.token(bert, GROUP), pusher.path("bert")
    answer = pusher.send(path, token, body, length)
    assert refused(answer) == (code, reason)
    assert "secret-of-the-body" not in answer.text
    percentage = (pusher.percentage("bert") or 0) % 90 + 1
    assert pusher.post(path, token, percentage).status_code == 200
    assert pusher.percentage("bert") == percentage


def test_a_pods_own_token_is_taken_for_either_audience_on_either_path(pusher: Pusher, bert: Object) -> None:
    upstream = f"trainer.kubeflow.org/v1alpha1/namespaces/{pusher.team.name}/trainjobs/bert/status"
    for percentage, (audience, is_upstream) in enumerate(itertools.product((upstream, GROUP), (True, False))):
        path = pusher.path("bert", is_upstream=is_upstream)
        answer = pusher.post(path, pusher.token(bert, audience), percentage)
        assert answer.status_code == 200, answer.text
        assert answer.json()["trainerStatus"]["progressPercentage"] == percentage
        status = pusher.team.document("bert")["status"]
        assert (status["progressPercentage"], status["observation"]["source"]) == (percentage, "push")
    assert condition(status, "Reporting")["status"] == "True"


def test_a_token_of_another_jobs_pod_is_refused(pusher: Pusher, bert: Object) -> None:
    other = pusher.start("gpt")
    token = pusher.token(other, GROUP)
    assert refused(pusher.post(pusher.path("bert"), token, 99)) == (403, "Forbidden")
    assert pusher.percentage("bert") != 99
    assert pusher.post(pusher.path("gpt"), token, 98).status_code == 200
    assert pusher.percentage("gpt") == 98


def test_a_token_that_is_bound_to_no_pod_or_for_another_audience_is_refused(
    pusher: Pusher, bert: Object
) -> None:
    for token in (pusher.token(None, GROUP), pusher.token(bert), pusher.token(bert, "trainer.kubeflow.org")):
        for is_upstream in (True, False):
            answer = pusher.post(pusher.path("bert", is_upstream=is_upstream), token)
            assert refused(answer) == (403, "Forbidden")


def test_who_comes_through_the_aggregator_is_nobody_here(pusher: Pusher, bert: Object) -> None:
    """The cluster's admin, as the front proxy names them; and nothing but a token counts."""
    answer = pusher.team.cluster.admin.raw("POST", pusher.path("bert"), body={})
    assert refused(answer) == (403, "Forbidden")
    assert "bearer token" in answer.json()["message"]


def test_a_pod_without_owners_is_refused_whatever_its_labels_say(pusher: Pusher, bert: Object) -> None:
    """What anybody who may create pods in the namespace can make."""
    meta = bert["metadata"]
    forged = {
        "metadata": {"name": "bert-node-0-0-zzzzz", "labels": meta["labels"]},
        "spec": {"serviceAccountName": ACCOUNT, "containers": bert["spec"]["containers"]},
    }
    # Never scheduled: the node's own agent would run it.
    forged["spec"]["schedulingGates"] = [{"name": "tests/never"}]
    forged["spec"]["containers"] = [{"name": "node", "image": "x"}]
    pods = f"/api/v1/namespaces/{pusher.team.name}/pods"
    pod = pusher.team.cluster.admin.create(pods, forged)
    try:
        token = pusher.token(pod, GROUP)
        assert refused(pusher.post(pusher.path("bert"), token, 97)) == (403, "Forbidden")
    finally:
        pusher.team.cluster.admin.delete(f"{pods}/bert-node-0-0-zzzzz", gracePeriodSeconds=0)
    assert pusher.percentage("bert") != 97


def test_the_token_of_a_pod_that_is_no_more_changes_nothing(pusher: Pusher) -> None:
    first = pusher.start("restarted")
    known, unused = pusher.token(first, GROUP), pusher.token(first, GROUP)
    path = pusher.path("restarted")
    assert pusher.post(path, known, 30).status_code == 200
    pods = f"/api/v1/namespaces/{pusher.team.name}/pods"
    pusher.team.cluster.admin.delete(f"{pods}/{first['metadata']['name']}", gracePeriodSeconds=0)

    def successor() -> Object | None:
        running = [pod for pod in pusher.team.pods("restarted") if pod["status"].get("phase") == "Running"]
        return next((p for p in running if p["metadata"]["uid"] != first["metadata"]["uid"]), None)

    second = wait_until(successor, what="another pod runs")
    assert second is not None
    pusher.wait_rank0("restarted", second)
    assert pusher.post(path, pusher.token(second, GROUP), 5).status_code == 200
    assert refused(pusher.post(path, unused, 90)) == (403, "Forbidden")
    pusher.post(path, known, 91)  # believed for a while yet; but the pod speaks for no current attempt
    assert pusher.percentage("restarted") == 5


def test_a_pod_that_hangs_in_its_deletion_reports_no_longer_than_its_token_is_valid(
    request: pytest.FixtureRequest, pusher: Pusher
) -> None:
    """kube-apiserver accepts it until 60 s after the grace period; here the answer may be 10 s old.

    Until then a push counts unless its container has ended, which the kubelet may report before or after it.
    """
    if request.config.getoption("--cluster") != "real":
        pytest.skip("the stand-in's tokens do not end with their pods")
    pod = pusher.start("hanging")
    admin, token, path = pusher.team.cluster.admin, pusher.token(pod, GROUP), pusher.path("hanging")
    pod_path = f"/api/v1/namespaces/{pusher.team.name}/pods/{pod['metadata']['name']}"
    admin.patch(pod_path, {"metadata": {"finalizers": ["tests.example.com/hang"]}})
    try:
        assert pusher.post(path, token, 29).status_code == 200
        admin.delete(pod_path, gracePeriodSeconds=0)
        pusher.post(path, token, 30)

        def is_over() -> bool:
            body = {"spec": {"token": token, "audiences": [GROUP]}}
            review = admin.create("/apis/authentication.k8s.io/v1/tokenreviews", body)
            return not review["status"].get("authenticated", False)

        wait_until(is_over, what="kube-apiserver accepts the token no longer")
        pusher.post(path, token, 31)
        over_at = time.monotonic()
        wait_until(lambda: time.monotonic() > over_at + POD_SEEN_FOR_S, what="what was seen is too old")
        last = pusher.post(path, token, 32)
        assert refused(last) == (403, "Forbidden"), last.text
        assert pusher.percentage("hanging") != 32
    finally:
        admin.patch(pod_path, {"metadata": {"finalizers": None}})


def test_jobs_of_a_runtime_push_by_themselves(pusher: Pusher, users: dict[str, User]) -> None:
    """examples/push/runtime.yaml: variables, token and CA as the kubelet puts them there."""
    team = pusher.team
    team.start_job("pushing", PUSHING, runtime=pusher.runtime)
    document = team.wait_reporting("pushing")
    assert document["status"]["observation"]["source"] == "push"
    assert {"name": "loss", "value": "0.25"} in document["status"]["metrics"]
    metrics = users["admin"].api.raw("GET", "/healthz")  # the API server is still well
    assert metrics.status_code == 200


def test_a_push_to_a_follower_is_shown_by_the_owner_and_outlives_it(
    cluster: Cluster, server: VisibilityServer, pusher: Pusher, bert: Object, tmp_path: Path
) -> None:
    token = pusher.token(bert, GROUP)
    with contextlib.ExitStack() as ending:
        ending.callback(server.register)
        owner = VisibilityServer(cluster, tmp_path / "owner", flags=[NOBODY])
        until_owner_stops = ending.enter_context(contextlib.ExitStack())
        until_owner_stops.callback(owner.stop)
        # Readers are sent to it now.
        follower = VisibilityServer(cluster, tmp_path / "follower", beside=owner)
        ending.callback(follower.stop)
        pusher.wait_rank0("bert", bert)
        assert pusher.percentage("bert") is None
        answer = pusher.at(follower).post(OWN_JOB, token, 55)
        assert undated(answer) == undated(pusher.at(owner).post(pusher.path("bert"), token, 55))
        assert pusher.percentage("bert") == 55
        owner.register()
        assert pusher.percentage("bert") == 55
        refused = pusher.at(follower).post(pusher.path("bert"), "nobody's", 60)
        assert refused.json() == pusher.at(owner).post(pusher.path("bert"), "nobody's", 60).json()
        assert refused.status_code == 403
        follower.register()
        until_owner_stops.pop_all()
        assert owner.stop() == 0, owner.log_text()[-2000:]
        assert pusher.percentage("bert") == 55
        assert pusher.team.document("bert")["status"]["observation"]["source"] == "push"
        assert pusher.at(follower).post(pusher.path("bert"), token, 56).status_code == 200
        assert pusher.percentage("bert") == 56
        assert token not in owner.log_text() + follower.log_text()


def undated(answer: httpx.Response) -> Object:
    """The answer to a push, without the time at which the push was taken."""
    assert answer.status_code == 200, answer.text
    found: Object = answer.json()
    assert found["trainerStatus"].pop("lastUpdatedTime")
    return found
