"""The manifests that point training jobs at the push endpoint: each says what the endpoint takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pushing import jwt, pod_claims
from trainjob_progress.sinks.push import find_push_sink
from visibility_api.pushing.paths import AUDIENCE, find_push

ROOT = Path(__file__).parents[2]
Objects = dict[str, Any]
KUBEFLOW = "/var/run/secrets/kubeflow/trainer"  # where the operator mounts its own token and CA


def example(name: str) -> Objects:
    found: Objects = yaml.safe_load((ROOT / "examples/push" / name).read_text())
    return found


def pod_of(jobs: list[Objects], name: str = "node") -> Objects:
    pod: Objects = next(j for j in jobs if j["name"] == name)["template"]["spec"]["template"]["spec"]
    return pod


def patched_pod(train_job: Objects) -> Objects:
    (patch,) = train_job["spec"]["runtimePatches"]
    return pod_of(patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"])


def environment(entries: list[Objects]) -> dict[str, str]:
    """Each says the same in every namespace and job, so that all may have it."""
    return {entry["name"]: entry["value"] for entry in entries}


def check(environ: dict[str, str], pod: Objects, *, brings_token: bool = True) -> None:
    """That a client with these variables, in a pod with these volumes, is one the endpoint takes."""
    scheme, _, rest = environ["KUBEFLOW_TRAINER_SERVER_URL"].partition("://")
    host, _, path = rest.partition("/")
    (service,) = yaml.safe_load_all((ROOT / "deploy/base/service.yaml").read_text())
    assert (scheme, host.split(".")[0]) == ("https", service["metadata"]["name"])
    headers = [(b"authorization", b"Bearer " + jwt(**pod_claims("bert-0")).encode())]
    target = find_push("POST", f"/{path}", headers)
    assert target.namespace == "team-a"

    (volume,) = [v for v in pod["volumes"] if v["name"] == "visibility-push"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "visibility-push"]
    files = {}
    for source in volume.get("projected", {}).get("sources") or [volume]:
        if "serviceAccountToken" in source:
            files[source["serviceAccountToken"]["path"]] = source["serviceAccountToken"]["audience"]
        else:
            assert source["configMap"]["name"] == "visibility-api-ca"
            files["ca.crt"] = ""
    assert environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"] == f"{mount['mountPath']}/ca.crt"
    if brings_token:
        assert environ["KUBEFLOW_TRAINER_SERVER_TOKEN"] == f"{mount['mountPath']}/token"
        assert files == {"token": AUDIENCE, "ca.crt": ""}
    else:
        assert files == {"ca.crt": ""}
    assert AUDIENCE in target.audiences
    assert find_push_sink({"KUBEFLOW_TRAINER_SERVER_TOKEN": f"{KUBEFLOW}/token", **environ}) is not None


def test_a_job_with_the_gate_on_brings_a_url_and_a_ca() -> None:
    job = example("gate-on.yaml")
    environ = environment(job["spec"]["trainer"]["env"])
    check(environ, patched_pod(job), brings_token=False)
    target = find_push("POST", "/" + environ["KUBEFLOW_TRAINER_SERVER_URL"].split("/", 3)[3], ())
    meta = job["metadata"]
    upstream = f"trainer.kubeflow.org/v1alpha1/namespaces/{meta['namespace']}/trainjobs/{meta['name']}/status"
    assert upstream in target.audiences  # the one of the token that the operator mounts


def test_a_job_with_the_gate_off_brings_its_token_too() -> None:
    job = example("gate-off.yaml")
    check(environment(job["spec"]["trainer"]["env"]), patched_pod(job))


@pytest.mark.parametrize("name", ["gate-on.yaml", "gate-off.yaml"])
def test_a_patch_has_no_field_that_trainer_does_not_let_it_have(name: str) -> None:
    """Of PodSpecPatch and ContainerPatch; variables of container `node` are refused there."""
    pod = patched_pod(example(name))
    assert pod.keys() <= {"volumes", "containers"}
    (container,) = pod["containers"]
    assert container.keys() == {"name", "volumeMounts"}


def test_a_runtime_names_no_job() -> None:
    runtime = example("runtime.yaml")
    # Since Trainer 2.2 this has no field, and kubectl refuses one that the API does not know.
    assert runtime["spec"]["mlPolicy"]["torch"] == {}
    pod = pod_of(runtime["spec"]["template"]["spec"]["replicatedJobs"])
    check(environment(pod["containers"][0]["env"]), pod)


def build(directory: Path, *runtimes: Objects) -> dict[str, Objects]:
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if kubectl is None:
        pytest.skip("no kubectl here")
    shutil.copytree(ROOT / "deploy/runtimes", directory / "runtimes")
    (directory / "resources.yaml").write_text(yaml.safe_dump_all(runtimes))
    components = ["runtimes", "runtimes/push"]
    (directory / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["resources.yaml"], "components": components})
    )
    command = [kubectl, "kustomize", str(directory)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return {thing["metadata"]["name"]: thing for thing in yaml.safe_load_all(text)}


def runtime(name: str, *jobs: str) -> Objects:
    container = {"name": "node", "image": "x", "command": ["tune", "run"]}
    volumes = [{"name": "initializer", "emptyDir": {}}]
    if len(jobs) > 1:
        container["volumeMounts"] = [{"name": "initializer", "mountPath": "/workspace"}]  # type: ignore[assignment]
    pod = {"containers": [container], **({"volumes": volumes} if len(jobs) > 1 else {})}
    replicated = [{"name": job, "template": {"spec": {"template": {"spec": pod}}}} for job in jobs]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"replicatedJobs": replicated}}},
    }


def test_the_component_lets_the_jobs_of_trainers_own_runtimes_push(tmp_path: Path) -> None:
    tune = runtime("torchtune-llama3.2-1b", "dataset-initializer", "model-initializer", "node")
    names = ["torch-distributed", "jax-distributed", "xgboost-distributed"]
    found = build(tmp_path, tune, *(runtime(name, "node") for name in names))
    for name in (*names, "torchtune-llama3.2-1b"):
        jobs = found[name]["spec"]["template"]["spec"]["replicatedJobs"]
        pod = pod_of(jobs)
        environ = environment(pod["containers"][0]["env"])
        check(environ, pod)
        assert "TRAINJOB_PROGRESS_FILE" in environ  # of deploy/runtimes, which it adds to
        assert all(
            "env" not in job["template"]["spec"]["template"]["spec"]["containers"][0] for job in jobs[:-1]
        )


def test_another_kind_of_job_needs_the_same() -> None:
    pod = example("pytorchjob.yaml")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    check(environment(pod["containers"][0]["env"]), pod)


def test_all_manifests_say_the_same() -> None:
    pod = pod_of(example("runtime.yaml")["spec"]["template"]["spec"]["replicatedJobs"])
    operations = yaml.safe_load((ROOT / "deploy/runtimes/push/one-job.yaml").read_text())
    values = [each["value"] for each in operations if each["op"] == "add"]
    assert values == [
        *pod["volumes"],
        *pod["containers"][0]["volumeMounts"],
        *pod["containers"][0]["env"],
    ]
