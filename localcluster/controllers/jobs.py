"""Job → Pods, Indexed or not as Kubernetes' job controller makes them. Pure: no I/O."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from localcluster.machinery.metadata import (
    Object,
    annotations_of,
    condition_is,
    controller_reference,
    is_terminating,
    random_suffix,
    timestamp,
    with_condition,
)

PREFIX = "batch.kubernetes.io/"
COMPLETION_INDEX = f"{PREFIX}job-completion-index"
DEFAULT_BACKOFF_LIMIT = 6
MAX_GENERATED_NAME = 58  # before the random suffix (podGenerateNameWithIndex)


def phase_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_active(pod: Object) -> bool:
    return phase_of(pod) not in ("Succeeded", "Failed") and not is_terminating(pod)


def pods_to_create(job: Object, pods: Sequence[Object]) -> list[Object]:
    """Pods still missing for the wished-for parallelism."""
    spec = job["spec"]
    active = [pod for pod in pods if is_active(pod)]
    done = succeeded_indexes(job, pods)
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed":
        busy = {annotations_of(pod).get(COMPLETION_INDEX) for pod in active}
        missing = [index for index in range(completions or 1) if index not in done and str(index) not in busy]
        room = spec.get("parallelism", 1) - len(active)
        return [_pod(job, index) for index in missing[: max(room, 0)]]
    left = (completions if completions is not None else spec.get("parallelism", 1)) - len(done)
    count = min(spec.get("parallelism", 1), max(left, 0)) - len(active)
    return [_pod(job, None) for _ in range(max(count, 0))]


def _pod(job: Object, index: int | None) -> Object:
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    template = copy.deepcopy(job["spec"]["template"])
    meta = template.get("metadata") or {}
    labels = {
        f"{PREFIX}job-name": name,
        f"{PREFIX}controller-uid": uid,
        "job-name": name,
        "controller-uid": uid,
    }
    annotations: dict[str, str] = {}
    pod_name = f"{name}-"
    if index is not None:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        pod_name = f"{name[: MAX_GENERATED_NAME - len(f'-{index}-')]}-{index}-"
        template["spec"].setdefault("hostname", f"{name}-{index}")
        variable = {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}},
        }
        for container in [*(template["spec"].get("initContainers") or []), *template["spec"]["containers"]]:
            container["env"] = [*(container.get("env") or []), variable]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name + random_suffix(),
            "namespace": job["metadata"]["namespace"],
            "labels": (meta.get("labels") or {}) | labels,
            "annotations": (meta.get("annotations") or {}) | annotations,
            "ownerReferences": [controller_reference(job)],
        },
        "spec": template["spec"],
    }


def succeeded_indexes(job: Object, pods: Sequence[Object]) -> set[int]:
    """Completion indexes that are done (0, 1, … when the Job is not Indexed); deleted pods still count."""
    succeeded = [pod for pod in pods if phase_of(pod) == "Succeeded"]
    if job["spec"].get("completionMode") == "Indexed":
        known = (job.get("status") or {}).get("completedIndexes") or ""
        return _parse_indexes(known) | {int(annotations_of(pod)[COMPLETION_INDEX]) for pod in succeeded}
    return set(range(max(len(succeeded), (job.get("status") or {}).get("succeeded", 0))))


def _parse_indexes(text: str) -> set[int]:
    """`0,2-4`"""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _format_indexes(indexes: set[int]) -> str:
    spans: list[list[int]] = []
    for index in sorted(indexes):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(str(a) if a == b else f"{a}{',' if b == a + 1 else '-'}{b}" for a, b in spans)


def has_failed(job: Object, pods: Sequence[Object]) -> bool:
    """Past backoffLimit: by failed pods, or by restarts in place (pastBackoffLimitOnFailure)."""
    limit = job["spec"].get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
    if _failed(job, pods) > limit:
        return True
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    statuses = [
        each for pod in pods if is_active(pod) for each in pod["status"].get("containerStatuses") or []
    ]
    restarts = sum(each["restartCount"] for each in statuses)
    return bool(restarts > 0 if limit == 0 else restarts >= limit)


def _failed(job: Object, pods: Sequence[Object]) -> int:
    """Failed pods. What a suspension ends has not failed."""
    suspended = bool(job["spec"].get("suspend"))
    return sum(1 for pod in pods if phase_of(pod) == "Failed" and not (suspended and is_terminating(pod)))


def job_status(job: Object, pods: Sequence[Object]) -> Object:
    """Counts and conditions. As since Kubernetes 1.31, the criterion precedes the final condition."""
    status: Object = copy.deepcopy(job.get("status") or {})
    active = [pod for pod in pods if is_active(pod)]
    done = succeeded_indexes(job, pods)
    status |= {
        "active": len(active),
        "ready": sum(1 for pod in active if condition_is(pod, "Ready")),
        "succeeded": len(done),
        "failed": max(_failed(job, pods), status.get("failed", 0)),
        "terminating": sum(
            1 for pod in pods if is_terminating(pod) and phase_of(pod) not in ("Succeeded", "Failed")
        ),
        "uncountedTerminatedPods": {},
    }
    if job["spec"].get("completionMode") == "Indexed":
        status["completedIndexes"] = _format_indexes(done)
    conditions = status.get("conditions")
    if job["spec"].get("suspend"):
        conditions = with_condition(conditions, "Suspended", "True", "JobSuspended", "Job suspended")
        status.pop("startTime", None)
    else:
        status.setdefault("startTime", timestamp())
        if any(found["type"] == "Suspended" for found in conditions or []):
            conditions = with_condition(conditions, "Suspended", "False", "JobResumed", "Job resumed")
    ending = _ending(job, pods, len(done))
    if ending:
        criterion, condition, reason, message = ending
        if criterion == "FailureTarget" and not condition_is(job, "FailureTarget"):
            status["failed"] += len(active)  # they are deleted now, and count
        conditions = with_condition(conditions, criterion, "True", reason, message)
        if not active and not status["terminating"]:
            status["ready"] = 0
            conditions = with_condition(conditions, condition, "True", reason, message)
            if condition == "Complete":
                status.setdefault("completionTime", timestamp())
    if conditions:
        status["conditions"] = conditions
    # The Go type omits these when they are zero; with them every reconciliation would write a change.
    unsaid = ("active", "succeeded", "failed", "completedIndexes")
    return {field: value for field, value in status.items() if value or field not in unsaid}


def _ending(job: Object, pods: Sequence[Object], done: int) -> tuple[str, str, str, str] | None:
    completions = job["spec"].get("completions")
    if condition_is(job, "FailureTarget") or has_failed(job, pods):
        message = "Job has reached the specified backoff limit"
        return "FailureTarget", "Failed", "BackoffLimitExceeded", message
    if completions is not None and done >= completions:
        message = "Reached expected number of succeeded pods"
        return "SuccessCriteriaMet", "Complete", "CompletionsReached", message
    return None
