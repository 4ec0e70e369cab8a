"""The watches that keep an inventory of TrainJobs up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from visibility_api.kube.client import KubeClient
from visibility_api.kube.separate import SeparateNamespaces
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

    kinds: tuple[tuple[str, type[Any], Any, Any, str], ...] = (
        (f"{TRAINER_API}%s/trainjobs", TrainJob, inventory.list_trainjobs, inventory.change_trainjob, ""),
        (f"{JOBSET_API}%s/jobsets", JobSet, inventory.list_jobsets, inventory.change_jobset, ""),
        (f"{BATCH_API}%s/jobs", BatchJob, inventory.list_jobs, inventory.change_job, JOB_SELECTOR),
        (f"{CORE_API}%s/pods", Pod, inventory.list_pods, inventory.change_pod, POD_SELECTOR),
    )

    def make(collection: str, kind: tuple[str, type[Any], Any, Any, str], scope: str | None) -> Watch[Any]:
        path, type_, on_list, on_event, selector = kind
        separate: SeparateNamespaces[Watch[Any]] | None = None
        if scope is None:
            separate = SeparateNamespaces(partial(make, collection, kind))
        return Watch(
            client,
            path % ("" if scope is None else f"/namespaces/{scope}"),
            kind=type_,
            on_list=partial(on_list, scope=scope, but=separate or ()),
            on_event=on_event,
            scope=scope,
            separate=separate,
            mark=mark_unread,
            count_unread=partial(count_unread, collection),
            label_selector=selector,
        )

    return [
        make(collection, kind, scope)
        for scope in namespaces or (None,)
        for collection, kind in zip(COLLECTIONS, kinds, strict=True)
    ]
