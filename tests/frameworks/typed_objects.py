"""A pytest plugin: every object of tests/workload_objects.py must be one of Kubeflow's published types."""

from __future__ import annotations

from typing import Any

from kubeflow_trainer_api import models

from tests import workload_objects
from visibility_api.kinds.replicated_jobs import JobSet
from visibility_api.kinds.trainjob import TrainJob
from visibility_api.workloads.objects import BatchJob, Pod

TYPES = {
    BatchJob: models.IoK8sApiBatchV1Job,
    JobSet: models.JobsetV1alpha2JobSet,
    Pod: models.IoK8sApiCoreV1Pod,
    TrainJob: models.TrainerV1alpha1TrainJob,
}
made = workload_objects.made
counts = dict.fromkeys(TYPES, 0)


def checked(fields: dict[str, Any], type_: Any) -> Any:
    TYPES[type_].model_validate(fields)
    counts[type_] += 1
    return made(fields, type_)


def pytest_configure() -> None:
    # Before any test module makes one as it is imported; those of the builders themselves are made anew.
    workload_objects.made = checked
    workload_objects.TORCH = workload_objects.jobset(("node", "trainer"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for type_, count in counts.items():
        terminalreporter.write_line(f"checked {type_.__name__} {count}")
