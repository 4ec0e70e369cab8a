"""A life of each kind of job that is not a TrainJob, with its objects as its controllers write them.

JobSets and Jobs have controllers here, of the others the test makes what their operators would make. Pods are
processes that train. The CRDs are those of crds.yaml, or with --crds the operators' own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import pytest

from tests.configmap import ConfigMapDirectory
from tests.e2e import crds
from tests.e2e.cluster import Cluster
from tests.e2e.life import STRICT, Life
from tests.e2e.manifests import COMPONENTS, ROOT
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.scripts import ENDING, PRINTING_TOO, REPORTING
from tests.e2e.test_push import PUSHING, Pusher
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import Workspace
from tests.kinds import DESCRIBED, SAMPLES, Sample
from visibility_api.pushing.paths import OWN_JOB

# With the stand-in, which has no CRD's schema: one kind of each way to own pods. The others differ in what
# `tests/unit/test_kinds.py` shows of each.
OF_THE_STAND_IN = ("jobsets", "jobs", "pytorchjobs", "pods", DESCRIBED.resource)
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture(scope="module")
def server(
    cluster: Cluster, server: VisibilityServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VisibilityServer]:
    """A server of its own with every source, which the aggregator forwards to as long as this module runs."""
    kinds = ConfigMapDirectory(tmp_path_factory.mktemp("kinds"))
    kinds.write("kinds.yaml", (ROOT / "deploy/components/kinds/kinds.yaml").read_text())
    found = VisibilityServer(
        cluster,
        tmp_path_factory.mktemp("server-of-kinds"),
        components=(*COMPONENTS, "source-logs", "kinds"),
        flags=["--kinds", str(kinds.path)],
    )
    found.kinds = kinds
    yield found
    exit_code = found.stop()
    server.register()
    assert exit_code == 0, found.log_text()[-2000:]


@pytest.fixture(scope="module")
def operators(
    cluster: Cluster, server: VisibilityServer, definitions: crds.Definitions
) -> Iterator[dict[str, list[str]]]:
    """Their CRDs, which come while the server runs: versions by name."""
    made = definitions.of_operators()
    for crd in made:
        cluster.admin.create(crds.PATH, crd)
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
    yield {crd["metadata"]["name"]: list(crds.versions(crd)) for crd in made}
    for crd in made:
        cluster.admin.raw("DELETE", f"{crds.PATH}/{crd['metadata']['name']}")  # one has gone in a test


@pytest.fixture(scope="module")
def pusher(server: VisibilityServer, shared: Workspace, operators: None) -> Pusher:
    return Pusher(server, shared, "")


def skip_unserved(sample: Sample, operators: dict[str, list[str]]) -> None:
    """Some operators serve other versions of a CRD than others."""
    group, version = sample.api.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[::2]
    if version not in operators.get(f"{sample.plural}.{group}", [version]):
        pytest.skip(f"the CRD does not have {version}")


@pytest.mark.parametrize("sample", [*SAMPLES, DESCRIBED], ids=lambda sample: sample.id)
def test_a_life(
    cluster: Cluster, shared: Workspace, pusher: Pusher, operators: dict[str, list[str]], sample: Sample
) -> None:
    if cluster.kind == "local" and sample.resource not in OF_THE_STAND_IN:
        pytest.skip("make e2e runs the life of every kind, through a real kube-apiserver")
    skip_unserved(sample, operators)
    life = Life(shared, sample, PRINTING_TOO)
    life.create(**sample.suspension)
    life.annotate(source="exec")
    try:
        if sample.kind != "Pod":  # which runs at once
            life.wait_phase("Suspended" if sample.suspension else "Pending")
        if sample.suspension:
            spec = {key: {"suspend": False} if key == "runPolicy" else False for key in sample.suspension}
            life.admin.patch(f"{life.jobs}/{sample.name}", {"spec": spec})
        life.make_parts()
        if not sample.is_controlled:
            life.set_state("Running")
        document = life.wait_reporting("exec")
        assert document["kind"] == f"{sample.served_kind}Progress"
        assert document["metadata"]["labels"]["team"] == "nlp"
        status = document["status"]
        assert status["phase"] == "Running"
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
        if sample.kind != "Pod":  # which nothing makes anew
            life.restart()
            assert life.wait_reporting("exec", attempts=2)["status"]["phase"] == "Running"
        life.annotate(source="logs")
        life.wait_reporting("logs", attempts=1 if sample.kind == "Pod" else 2)
        assert "loss: 0.5" in life.admin.get(f"{life.path}/log-tail")["lines"][-1]

        life.annotate(source="push")
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


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
@pytest.mark.parametrize(
    "sample", [each for each in SAMPLES if each.is_controlled], ids=lambda sample: sample.id
)
def test_an_end_by_the_controllers(
    shared: Workspace, operators: object, sample: Sample, code: int, phase: str
) -> None:
    life = Life(shared, sample, ENDING.format(code=code))
    life.create()
    try:
        life.wait_phase(phase)
    finally:
        life.end()


@pytest.mark.parametrize(
    "sample",
    [each for each in SAMPLES if each.resource in ("jobsets", "jobs", "pytorchjobs", "mpijobs", "rayjobs")],
    ids=lambda sample: sample.id,
)
def test_report_pushes_without_knowing_its_kind(
    shared: Workspace, pusher: Pusher, operators: dict[str, list[str]], sample: Sample
) -> None:
    """examples/push/pytorchjob.yaml, in a pod of another kind: variables, token and CA as a kubelet puts
    them there."""
    skip_unserved(sample, operators)
    life = Life(shared, sample, PUSHING, pusher.example())
    life.create()
    try:
        life.make_parts()
        if not sample.is_controlled:
            life.set_state("Running")
        status = life.wait_reporting("push")["status"]
        assert {"name": "loss", "value": "0.25"} in status["metrics"]
    finally:
        life.end()


def test_a_job_inside_an_appwrapper_is_listed_once_while_it_is_there(
    shared: Workspace, operators: object
) -> None:
    """As the AppWrapper controller makes it (internal/controller/appwrapper/resource_management.go)."""
    (inner,) = (each for each in SAMPLES if each.resource == "pytorchjobs")
    label = {"workload.codeflare.dev/appwrapper": "held"}
    life = Life(shared, dataclasses.replace(inner, labels=label))
    path = f"/apis/workload.codeflare.dev/v1beta2/namespaces/{shared.name}/appwrappers"
    template = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": inner.name}}
    wrapper = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "held"},
        "spec": {"suspend": True, "components": [{"template": template | {"spec": inner.spec}}]},
    }
    made = life.admin.create(path, wrapper, **STRICT)

    def set_phase(phase: str) -> None:
        life.admin.patch(f"{path}/held/status", {"status": {"phase": phase}}, **STRICT)

    def listed() -> list[str]:
        found = life.admin.items(f"{PREFIX}/namespaces/{shared.name}/trainingjobs")
        return [each["metadata"]["name"] for each in found]

    try:
        set_phase("Suspended")  # Kueue holds it back
        assert life.is_gone()
        life.admin.patch(f"{path}/held", {"spec": {"suspend": False}}, **STRICT)
        set_phase("Resuming")
        life.create(made)
        life.make_parts()
        life.set_state("Running")
        set_phase("Running")
        first = life.wait_reporting("exec")
        assert listed() == ["pytorchjobs.bert"]
        assert first["metadata"]["labels"] == {"team": "nlp"} | label
        set_phase("Resetting")  # the controller deletes the job, and makes it anew
        life.end()
        assert listed() == []
        set_phase("Resuming")
        life.create(made)
        life.make_parts()
        set_phase("Running")
        for phase in life.sample.states:
            life.set_state(phase)
            again = life.wait_phase(phase)
        assert again["metadata"]["uid"] != first["metadata"]["uid"]
        set_phase("Succeeded")
        assert listed() == ["pytorchjobs.bert"]
    finally:
        life.end()
        life.admin.delete(f"{path}/held")


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
        wait_until(lambda: says() == "[+]described-kinds ok", what="nothing is wrong any more")
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
        life.admin.delete(f"{crds.PATH}/jaxjobs.kubeflow.org")
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
