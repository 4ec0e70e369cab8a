"""The watches that keep an inventory of TrainJobs up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from visibility_api.kube.client import KubeClient
from visibility_api.kube.watch import Watch

from .inventory import TrainJobInventory
from .objects import BatchJob, JobSet, Pod, TrainJob, mark_unread
from .rank0 import JOB_SELECTOR, POD_SELECTOR

TRAINER_API = "/apis/trainer.kubeflow.org/v1alpha1"
JOBSET_API = "/apis/jobset.x-k8s.io/v1alpha2"
BATCH_API = "/apis/batch/v1"
CORE_API = "/api/v1"
COLLECTIONS = ("trainjobs", "jobsets", "jobs", "pods")  # in the order of `trainjob_watches`


def trainjob_watches(
    client: KubeClient,
    inventory: TrainJobInventory,
    namespaces: Sequence[str],
    *,
    count_unread: Callable[[str, str], None],
) -> list[Watch[Any]]:
    """Four watches for the whole cluster, or four per namespace.

    Of pods only the possible rank 0, and only those Jobs that may own one. `count_unread` is called with
    collection and reason for each object that is too large or cannot be decoded.
    """

    def count(collection: str) -> Callable[[str], None]:
        return partial(count_unread, collection)

    watches: list[Watch[Any]] = []
    for scope in namespaces or (None,):
        within = "" if scope is None else f"/namespaces/{scope}"
        watches += [
            Watch(
                client,
                f"{TRAINER_API}{within}/trainjobs",
                kind=TrainJob,
                on_list=partial(inventory.list_trainjobs, scope=scope),
                on_event=inventory.change_trainjob,
                scope=scope,
                mark=mark_unread,
                count_unread=count("trainjobs"),
            ),
            Watch(
                client,
                f"{JOBSET_API}{within}/jobsets",
                kind=JobSet,
                on_list=partial(inventory.list_jobsets, scope=scope),
                on_event=inventory.change_jobset,
                scope=scope,
                mark=mark_unread,
                count_unread=count("jobsets"),
            ),
            Watch(
                client,
                f"{BATCH_API}{within}/jobs",
                kind=BatchJob,
                on_list=partial(inventory.list_jobs, scope=scope),
                on_event=inventory.change_job,
                scope=scope,
                mark=mark_unread,
                count_unread=count("jobs"),
                label_selector=JOB_SELECTOR,
            ),
            Watch(
                client,
                f"{CORE_API}{within}/pods",
                kind=Pod,
                on_list=partial(inventory.list_pods, scope=scope),
                on_event=inventory.change_pod,
                scope=scope,
                mark=mark_unread,
                count_unread=count("pods"),
                label_selector=POD_SELECTOR,
            ),
        ]
    return watches
