"""The component that puts the reporter into Trainer's runtimes, applied by kubectl's own kustomize."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

COMPONENT = Path(__file__).parents[2] / "deploy" / "runtimes"

TRAINER: dict[str, Any] = {"containers": [{"name": "node", "image": "trainer"}]}
TUNE: dict[str, Any] = {
    "containers": [
        {
            "name": "node",
            "image": "torchtune-trainer",
            "command": ["tune", "run", "full_finetune_distributed"],
            "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
        }
    ],
}


def runtime(name: str, **pods: dict[str, Any]) -> dict[str, Any]:
    jobs = [
        {"name": job.replace("_", "-"), "template": {"spec": {"template": {"spec": pod}}}}
        for job, pod in pods.items()
    ]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }


def build(directory: Path, *runtimes: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if kubectl is None:
        pytest.skip("no kubectl here")
    shutil.copytree(COMPONENT, directory / "component")
    (directory / "runtimes.yaml").write_text(yaml.safe_dump_all(runtimes))
    kustomization = {"resources": ["runtimes.yaml"], "components": ["component"]}
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return subprocess.run([kubectl, "kustomize", str(directory)], capture_output=True, text=True, timeout=60)


def trainer_pod(text: str, name: str) -> dict[str, Any]:
    documents = {document["metadata"]["name"]: document for document in yaml.safe_load_all(text)}
    jobs = documents[name]["spec"]["template"]["spec"]["replicatedJobs"]
    return pod_of(next(job for job in jobs if job["name"] == "node"))


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return pod


def patched_pod(name: str) -> dict[str, Any]:
    patch = yaml.safe_load((COMPONENT / name).read_text())
    return pod_of(patch["spec"]["template"]["spec"]["replicatedJobs"][-1])


@pytest.mark.parametrize("name", ["torch-distributed", "jax-distributed", "xgboost-distributed"])
def test_a_runtime_of_one_job_gets_the_reporter_and_its_file(tmp_path: Path, name: str) -> None:
    result = build(tmp_path, runtime(name, node=TRAINER), runtime("own", node=TRAINER))
    assert result.returncode == 0, result.stderr
    pod = trainer_pod(result.stdout, name)
    assert [container["image"] for container in pod["initContainers"]] == ["trainjob-visibility:0.1.0"]
    (node,) = pod["containers"]
    environ = {variable["name"]: variable["value"] for variable in node["env"]}
    (mount,) = node["volumeMounts"]
    assert environ["TRAINJOB_PROGRESS_FILE"].startswith(mount["mountPath"] + "/")
    assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]
    assert trainer_pod(result.stdout, "own") == TRAINER  # what is not named is left alone


def test_torchtunes_recipes_report_by_configuration_alone(tmp_path: Path) -> None:
    tune = runtime("torchtune-llama3.2-1b", dataset_initializer=TRAINER, model_initializer=TRAINER, node=TUNE)
    result = build(tmp_path, tune)
    assert result.returncode == 0, result.stderr
    pod = trainer_pod(result.stdout, "torchtune-llama3.2-1b")
    (node,) = pod["containers"]
    key, _, component = node["command"][-1].partition("=")
    assert (node["command"][:3], key) == (TUNE["containers"][0]["command"], "metric_logger._component_")
    module, _, attribute = component.rpartition(".")
    assert hasattr(__import__(module, fromlist=[attribute]), attribute)
    assert {mount["name"] for mount in node["volumeMounts"]} == {"initializer", "trainjob-progress"}
    jobs = yaml.safe_load(result.stdout)["spec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["dataset-initializer", "model-initializer", "node"]
    assert [pod_of(job) for job in jobs[:2]] == [TRAINER, TRAINER]


@pytest.mark.parametrize("name", ["torch-distributed", "torchtune-qwen2.5-1.5b"])
def test_what_a_runtime_has_of_its_own_stays(tmp_path: Path, name: str) -> None:
    own = copy.deepcopy(TUNE)
    own["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    own["initContainers"] = [{"name": "fetch", "image": "fetch"}]
    own["containers"][0]["env"] = [{"name": "NCCL_DEBUG", "value": "INFO"}]
    initializers = {"dataset_initializer": TRAINER, "model_initializer": TRAINER} if "tune" in name else {}
    result = build(tmp_path, runtime(name, **initializers, node=own))
    assert result.returncode == 0, result.stderr
    pod = trainer_pod(result.stdout, name)
    (node,) = pod["containers"]
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in node["env"]
    assert {volume["name"] for volume in pod["volumes"]} == {"data", "trainjob-progress"}
    assert {container["name"] for container in pod["initContainers"]} == {"fetch", "trainjob-progress"}


def test_a_runtime_of_another_shape_stops_the_build(tmp_path: Path) -> None:
    result = build(tmp_path, runtime("torch-distributed", dataset_initializer=TRAINER, node=TRAINER))
    assert result.returncode != 0
    assert "replicatedJobs" in result.stderr


def test_what_the_init_container_copies_is_a_package_that_reports(tmp_path: Path) -> None:
    pod = patched_pod("trainer.yaml")
    (init,), (node,) = pod["initContainers"], pod["containers"]
    environ = {variable["name"]: variable["value"] for variable in node["env"]}
    _, option, script = init["command"]
    here = str(tmp_path)
    subprocess.run([sys.executable, option, script.replace("/trainjob-progress", here)], check=True)
    environ = {name: value.replace("/trainjob-progress", here) for name, value in environ.items()}
    train = (
        "import sys, trainjob_progress\n"
        f"assert trainjob_progress.__path__[0].startswith({here!r})\n"
        "assert 'trainjob_progress.auto' in sys.modules\n"
        "with trainjob_progress.report(total_steps=2) as r: r.step(2)"
    )
    subprocess.run([sys.executable, "-c", train], env=environ, cwd=here, check=True)
    assert json.loads((tmp_path / "progress.json").read_bytes())["step"] == 2


def test_both_patches_give_the_same() -> None:
    assert patched_pod("trainer.yaml") == patched_pod("torchtune.yaml")
