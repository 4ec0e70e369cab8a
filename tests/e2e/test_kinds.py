"""A life of each kind of job that is not a TrainJob, with its objects as its controllers write them.

The CRDs are minimal ones; JobSets and Jobs have controllers here, of the others the test makes what their
operators would make. Pods are processes that train.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import ROOT
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.scripts import REPORTING
from tests.e2e.test_push import PUSHING, Pusher
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import User, Workspace
from tests.kinds import DESCRIBED, SAMPLES, Sample, crds
from visibility_api.pushing.paths import OWN_JOB

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NODE = "/api/v1/nodes"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Life:
    """One job from its creation to its deletion."""

    def __init__(
        self, team: Workspace, sample: Sample, script: str = REPORTING, example: Object | None = None
    ) -> None:
        """`example`: a pod whose volumes and variables this one has too."""
        self.team, self.sample = team, sample
        self.volumes = {} if example is None else {"volumes": example["volumes"]}
        (given,) = ({},) if example is None else example["containers"]
        self.container = {"command": ["python", "-c", script]} | {
            key: given[key] for key in ("env", "volumeMounts") if key in given
        }
        self.admin = team.cluster.admin
        self.jobs = f"{sample.api}/namespaces/{team.name}/{sample.plural}"
        self.path = f"{PREFIX}/namespaces/{team.name}/{sample.resource}/{sample.name}"
        self.parts: list[str] = []

    def create(self, **spec: object) -> None:
        meta = {"name": self.sample.name, "labels": {"team": "nlp"} | dict(self.sample.labels)}
        self.job = self.admin.create(
            self.jobs,
            {
                "apiVersion": self.sample.api.removeprefix("/apis/").removeprefix("/api/"),
                "kind": self.sample.kind,
                "metadata": meta,
                "spec": self._trained(self.sample.spec) | spec,
            },
        )

    def make_parts(self) -> None:
        """What the job's controllers make."""
        if self.sample.is_controlled:
            return
        owner = self.job
        for part in self.sample.parts:
            path = f"{part.api}/namespaces/{self.team.name}/{part.plural}"
            owner = self._make(path, part.api, part.kind, part.name, owner, part.labels, part.spec)
        self.make_pod(owner)

    def make_pod(self, owner: Object) -> None:
        (node,) = self.admin.items(_NODE)
        labels = dict(self.sample.pod_labels)
        container = {"name": self.sample.container, "image": "python:3"} | self.container
        spec = {
            "nodeName": node["metadata"]["name"],
            "restartPolicy": "Never",
            "serviceAccountName": "trainer",
            "containers": [container],
        } | self.volumes
        path = f"/api/v1/namespaces/{self.team.name}/pods"
        self._make(path, "/api/v1", "Pod", self.sample.pod, owner, labels, spec)

    def _make(
        self, path: str, api: str, kind: str, name: str, owner: Object, labels: object, spec: object
    ) -> Object:
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        version = api.removeprefix("/apis/").removeprefix("/api/")
        meta = {"name": name, "labels": labels, "ownerReferences": [reference]}
        body = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
        made = self.admin.create(path, body) | {"apiVersion": version, "kind": kind}
        self.parts.append(f"{path}/{name}")
        return made

    def _trained(self, spec: Object) -> Object:
        """With pods that train where controllers here make them; none of the cluster's nodes has a GPU."""
        made: Object = json.loads(json.dumps(spec))
        policy = "Always" if self.sample.kind == "StatefulSet" else "Never"

        def fill(place: object) -> None:
            if isinstance(place, dict):
                if "containers" in place:
                    place |= {"restartPolicy": policy, "serviceAccountName": "trainer"} | self.volumes
                    for container in place["containers"]:
                        container.pop("resources", None)
                        container |= self.container
                for each in place.values():
                    fill(each)
            elif isinstance(place, list):
                for each in place:
                    fill(each)

        fill(made)
        return made

    def end(self) -> None:
        for part in reversed(self.parts):
            self.admin.delete(part, gracePeriodSeconds=0, propagationPolicy="Background")
        self.delete()
        wait_until(self.is_gone, what=f"{self.sample.id} is gone")

    def set_state(self, phase: str) -> None:
        self.admin.patch(f"{self.jobs}/{self.sample.name}/status", {"status": self.sample.states[phase]})

    def wait_phase(self, phase: str) -> Object:
        def shown() -> Object:
            found = self.admin.get(f"{self.path}/progress")
            assert found["status"]["phase"] == phase, found["status"]
            return found

        return wait_until(shown, what=f"{self.sample.id} is {phase}")

    def wait_reporting(self) -> Object:
        def shown() -> Object:
            found = self.admin.get(self.path)
            assert found["status"]["steps"]["current"] > 0, found["status"]
            return found

        return wait_until(shown, what=f"{self.sample.id} reports")

    def pod(self) -> Object:
        name = self.admin.get(self.path)["status"]["rank0"]["podName"]
        return self.admin.get(f"/api/v1/namespaces/{self.team.name}/pods/{name}")

    def delete(self) -> None:
        self.admin.delete(f"{self.jobs}/{self.sample.name}", propagationPolicy="Background")

    def is_gone(self) -> bool:
        return self.admin.raw("GET", self.path).status_code == 404


@pytest.fixture(scope="module")
def operators(cluster: Cluster, server: VisibilityServer) -> Iterator[None]:
    """Their CRDs, which come while the server runs."""
    made = crds()
    for crd in made:
        cluster.admin.create(_CRDS, crd)
    served = {each.resource for each in (*SAMPLES, DESCRIBED)}
    if cluster.kind == "local":
        server.restart()  # its discovery does not know CRDs

    def is_discovered() -> bool:
        """By the aggregator, which asks every minute. kubectl reads its document."""
        found = cluster.admin.raw("GET", "/apis", headers={"Accept": _AGGREGATED}).json()["items"]
        ours = [each for each in found if each["metadata"]["name"] == GROUP]
        versions = [version for group in ours for version in group["versions"]]
        return served <= {each["resource"] for version in versions for each in version["resources"]}

    wait_until(is_discovered, what="every kind is discovered", timeout_s=2 * PATIENCE_S)
    yield
    for crd in made:
        cluster.admin.raw("DELETE", f"{_CRDS}/{crd['metadata']['name']}")  # one has gone in a test


@pytest.fixture(scope="module")
def pusher(server: VisibilityServer, shared: Workspace, operators: None) -> Pusher:
    return Pusher(server, shared, "")


@pytest.mark.parametrize("sample", [*SAMPLES, DESCRIBED], ids=lambda sample: sample.id)
def test_a_life(shared: Workspace, pusher: Pusher, users: dict[str, User], sample: Sample) -> None:
    life = Life(shared, sample)
    life.create(**sample.suspension)
    try:
        if sample.kind != "Pod":  # which runs at once
            life.wait_phase("Suspended" if sample.suspension else "Pending")
        if sample.suspension:
            spec = {key: {"suspend": False} if key == "runPolicy" else False for key in sample.suspension}
            life.admin.patch(f"{life.jobs}/{sample.name}", {"spec": spec})
        life.make_parts()
        if not sample.is_controlled:
            life.set_state("Running")
        document = life.wait_reporting()
        assert document["kind"] == f"{sample.served_kind}Progress"
        assert document["metadata"]["labels"]["team"] == "nlp"
        status = document["status"]
        assert (status["phase"], status["observation"]["source"]) == ("Running", "exec")
        assert status["rank0"]["containerName"] == sample.container
        assert sample.group in [each["name"] for each in status["replicas"]]

        get = functools.partial(shared.alice.kubectl, "get", sample.short_name, "-n", shared.name)
        assert get().stdout.split()[:8] == ["NAME", "PHASE", "PROGRESS", "STEP", "LOSS", "ETA", "SEEN", "AGE"]
        if sample.column is not None:
            wide = get("-o", "wide").stdout
            assert [each in wide for each in sample.column] == [True, True], wide
        category = shared.alice.kubectl("get", "training", "-n", shared.name, "-o", "name").stdout.split()
        assert f"{sample.served_kind.lower()}progress.{GROUP}/bert" in category
        assert get("bert", "-o", "jsonpath={.kind}").stdout == f"{sample.served_kind}Progress"
        assert shared.bob.kubectl("get", sample.short_name, "-n", shared.name).returncode != 0
        # kubectl takes `pods.GROUP` for a field of a pod.
        name = sample.short_name if sample.kind == "Pod" else f"{sample.resource}.{GROUP}"
        explained = shared.alice.kubectl("explain", f"{name}.status.phase")
        assert f"KIND:       {sample.served_kind}Progress" in explained.stdout, explained.stderr
        if sample.kind in ("Pod", "StatefulSet"):  # whose names stay those of the cluster's own resources
            found = shared.alice.kubectl("get", sample.plural, "-n", shared.name)
            assert "PROGRESS" not in found.stdout
            assert GROUP not in found.stderr
        history = life.admin.get(f"{life.path}/history")
        assert history["kind"] == f"{sample.served_kind}ProgressHistory"
        assert history["series"][0]["metric"] == "loss"
        assert life.admin.raw("GET", f"{life.path}/log-tail").status_code == 403  # the source is off here

        pod = life.pod()
        path = f"{life.path}/status"
        answer = pusher.post(path, pusher.token(pod, GROUP), 45)
        assert answer.status_code == 200, answer.text
        assert answer.json()["trainerStatus"]["progressPercentage"] == 45
        other = pusher.post(path.replace("/bert/", "/gpt/"), pusher.token(pod, GROUP))
        assert other.status_code == 404
        assert pusher.post(OWN_JOB, pusher.token(pod, GROUP), 46).status_code == 200
        assert life.admin.get(life.path)["status"]["progressPercentage"] == 46
        with life.admin.watch(f"{PREFIX}/namespaces/{shared.name}/{sample.resource}") as events:
            event = next(events)
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "bert")

        if not sample.is_controlled:
            for phase in sample.states:
                life.set_state(phase)
                ended = life.wait_phase(phase)
                assert ended["status"]["steps"]["current"] > 0  # what it had reported stays
    finally:
        life.end()


@pytest.mark.parametrize(
    "sample",
    [each for each in SAMPLES if each.resource in ("jobsets", "jobs", "pytorchjobs", "mpijobs", "rayjobs")],
    ids=lambda sample: sample.id,
)
def test_report_pushes_without_knowing_its_kind(shared: Workspace, pusher: Pusher, sample: Sample) -> None:
    """examples/push/pytorchjob.yaml, in a pod of another kind: variables, token and CA as a kubelet puts
    them there."""
    life = Life(shared, sample, PUSHING, pusher.example())
    life.create()
    try:
        life.make_parts()
        if not sample.is_controlled:
            life.set_state("Running")
        status = life.wait_reporting()["status"]
        assert status["observation"]["source"] == "push"
        assert {"name": "loss", "value": "0.25"} in status["metrics"]
    finally:
        life.end()


def test_a_described_kind_follows_its_file(
    cluster: Cluster, server: VisibilityServer, shared: Workspace, operators: None
) -> None:
    """Broken it stays, removed it goes, and it comes back, while the others go on."""
    text = (ROOT / "deploy/components/kinds/kinds.yaml").read_text()
    path = f"{PREFIX}/namespaces/{shared.name}/{DESCRIBED.resource}"
    life = Life(shared, DESCRIBED)
    life.create()

    def lists(status: int) -> None:
        def answers() -> bool:
            assert cluster.admin.raw("GET", f"{PREFIX}/trainjobs").status_code == 200
            return cluster.admin.raw("GET", path).status_code == status

        wait_until(answers, what=f"slurmjobs answer {status}", timeout_s=2 * PATIENCE_S)

    def says() -> str:
        checks = server.get("/readyz?verbose").text.splitlines()
        return next(line for line in checks if "described-kinds" in line)

    try:
        life.wait_phase("Pending")
        server.kinds.write("kinds.yaml", text.replace("object.status.state == 'HELD'", "object.status ="))
        wait_until(lambda: "SlurmJob: phase: is no CEL expression" in says(), what="the fault is named")
        assert "SlurmJob: phase: is no CEL expression" in server.log_text()
        life.wait_phase("Pending")
        with cluster.admin.watch(path) as events:
            assert next(events)["object"]["metadata"]["name"] == "bert"
            server.kinds.write("kinds.yaml", None)
            assert not [each for each in events if each["type"] != "DELETED"]  # and it ends
        lists(404)
        assert says() == "[+]described-kinds ok"
        server.kinds.write("kinds.yaml", text)
        lists(200)
        life.wait_phase("Pending")
    finally:
        server.kinds.write("kinds.yaml", text)
        life.delete()
    lists(200)


def test_when_a_crd_goes_its_watches_end_and_the_rest_goes_on(
    cluster: Cluster, server: VisibilityServer, shared: Workspace, operators: None
) -> None:
    """As kube-apiserver ends watches of the CRD's own objects: DELETED events, no error, then 404."""
    if cluster.kind == "local":
        pytest.skip("the stand-in's discovery keeps a CRD until it is restarted")
    sample = next(each for each in SAMPLES if each.resource == "jaxjobs")
    life = Life(shared, sample)
    life.create()
    life.wait_phase("Pending")
    path = f"{PREFIX}/namespaces/{shared.name}"
    with (
        life.admin.watch(f"{path}/{sample.resource}") as events,
        life.admin.watch(f"{path}/trainingjobs") as of_all,
    ):
        assert next(events)["type"] == "ADDED"
        life.admin.delete(f"{_CRDS}/jaxjobs.kubeflow.org")
        assert [(each["type"], each["object"]["metadata"]["name"]) for each in events][-1] == (
            "DELETED",
            "bert",
        )
        while (event := next(of_all))["type"] != "DELETED":
            pass
        assert event["object"]["metadata"]["name"] == "jaxjobs.bert"
        refused = life.admin.raw("GET", f"{path}/{sample.resource}")
        assert (refused.status_code, refused.json()["reason"]) == (404, "NotFound")
        assert "the server could not find the requested resource" in refused.json()["message"]
        found = life.admin.get(PREFIX)["resources"]
        assert sample.resource not in {each["name"] for each in found}
        shared.start_job("gpt", REPORTING)
        while (event := next(of_all))["object"]["metadata"]["name"] != "trainjobs.gpt":
            pass
