"""JobSet → Jobs: names, labels, restarts, success (kubernetes-sigs/jobset). Pure: no I/O."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence

from localcluster.machinery.metadata import (
    Object,
    condition_is,
    controller_reference,
    labels_of,
    with_condition,
)

PREFIX = "jobset.sigs.k8s.io/"
RESTART_ATTEMPT = f"{PREFIX}restart-attempt"
REPLICATED_JOB = f"{PREFIX}replicatedjob-name"


def is_finished(thing: Object) -> bool:
    """True for a Job or JobSet that has ended for good."""
    return any(condition_is(thing, kind) for kind in ("Complete", "Completed", "Failed"))


def restarts_of(jobset: Object) -> int:
    return int((jobset.get("status") or {}).get("restarts", 0))


def wanted_jobs(jobset: Object, present: Sequence[Object]) -> list[Object]:
    """Every Job of the current attempt whose dependencies are met. `present`: its Jobs of this attempt."""
    jobs: list[Object] = []
    total = sum(replicated.get("replicas", 1) for replicated in jobset["spec"]["replicatedJobs"])
    global_index = 0
    for replicated in jobset["spec"]["replicatedJobs"]:
        for index in range(replicated.get("replicas", 1)):
            if _dependencies_met(replicated, present):
                jobs.append(_job(jobset, replicated, index, global_index, total))
            global_index += 1
    return jobs


def _dependencies_met(replicated: Object, present: Sequence[Object]) -> bool:
    for dependency in replicated.get("dependsOn") or []:
        jobs = [job for job in present if labels_of(job)[REPLICATED_JOB] == dependency["name"]]
        wanted = (
            _is_ready if dependency.get("status") == "Ready" else (lambda job: condition_is(job, "Complete"))
        )
        if not jobs or not all(wanted(job) for job in jobs):
            return False
    return True


def _job(jobset: Object, replicated: Object, index: int, global_index: int, total: int) -> Object:
    jobset_name, namespace = jobset["metadata"]["name"], jobset["metadata"]["namespace"]
    name = f"{jobset_name}-{replicated['name']}-{index}"
    replicas = replicated.get("replicas", 1)
    marks = {
        "jobset-name": jobset_name,
        "jobset-uid": jobset["metadata"]["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": str(replicas),
        "global-replicas": str(total),
        "job-index": str(index),
        "job-key": hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest(),
        "job-global-index": str(global_index),
        "restart-attempt": str(restarts_of(jobset)),
        "group-name": replicated.get("groupName", "default"),
        "group-replicas": str(total),
        "job-group-index": str(global_index),
    }
    marked = {PREFIX + key: value for key, value in marks.items()}
    own = replicated["template"].get("metadata") or {}
    spec = copy.deepcopy(replicated["template"]["spec"])
    spec["suspend"] = bool(jobset["spec"].get("suspend", False))
    pod_template = spec["template"]
    pod_meta = pod_template.setdefault("metadata", {})
    pod_meta["labels"] = (pod_meta.get("labels") or {}) | marked
    pod_meta["annotations"] = (pod_meta.get("annotations") or {}) | marked
    pod_template["spec"].setdefault("restartPolicy", "OnFailure")
    network = jobset["spec"].get("network") or {}
    pod_template["spec"].setdefault("subdomain", network.get("subdomain") or jobset_name)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": (own.get("labels") or {}) | marked,
            "annotations": (own.get("annotations") or {}) | marked,
            "ownerReferences": [controller_reference(jobset)],
        },
        "spec": spec,
    }


def jobset_status(jobset: Object, jobs: Sequence[Object]) -> Object:
    """The status by the Jobs of the current attempt; `restarts` grows when they must start again."""
    status: Object = copy.deepcopy(jobset.get("status") or {})
    status["restarts"] = restarts_of(jobset)
    status["replicatedJobsStatus"] = [
        _replicated_status(replicated, jobs) for replicated in jobset["spec"]["replicatedJobs"]
    ]
    conditions = status.get("conditions")
    if jobset["spec"].get("suspend"):
        conditions = with_condition(conditions, "Suspended", "True", "SuspendedJobs", "jobset is suspended")
    elif any(found["type"] == "Suspended" for found in conditions or []):
        conditions = with_condition(conditions, "Suspended", "False", "ResumeJobs", "jobset is resumed")
    failed = [job for job in jobs if condition_is(job, "Failed")]
    allowed = (jobset["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
    if failed and status["restarts"] < allowed:
        status["restarts"] += 1
    elif failed:
        reason = "ReachedMaxRestarts" if allowed else "FailedJobs"
        first = failed[0]["metadata"]["name"]
        message = f"jobset failed due to one or more job failures (first failed job: {first})"
        conditions = with_condition(conditions, "Failed", "True", reason, message)
        status["terminalState"] = "Failed"
    elif _has_succeeded(jobset, jobs):
        message = "jobset completed successfully"
        conditions = with_condition(conditions, "Completed", "True", "AllJobsCompleted", message)
        status["terminalState"] = "Completed"
    if conditions:
        status["conditions"] = conditions
    return status


def _has_succeeded(jobset: Object, jobs: Sequence[Object]) -> bool:
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or [
        each["name"] for each in jobset["spec"]["replicatedJobs"]
    ]
    wanted = sum(
        each.get("replicas", 1) for each in jobset["spec"]["replicatedJobs"] if each["name"] in targets
    )
    done = sum(
        1 for job in jobs if labels_of(job)[REPLICATED_JOB] in targets and condition_is(job, "Complete")
    )
    return done > 0 if policy.get("operator") == "Any" else done >= wanted


def _replicated_status(replicated: Object, jobs: Sequence[Object]) -> Object:
    mine = [job for job in jobs if labels_of(job)[REPLICATED_JOB] == replicated["name"]]
    unfinished = [job for job in mine if not is_finished(job)]
    return {
        "name": replicated["name"],
        "ready": sum(1 for job in unfinished if _is_ready(job)),
        "succeeded": sum(1 for job in mine if condition_is(job, "Complete")),
        "failed": sum(1 for job in mine if condition_is(job, "Failed")),
        "active": sum(1 for job in unfinished if (job.get("status") or {}).get("active")),
        "suspended": sum(1 for job in unfinished if job["spec"].get("suspend")),
    }


def _is_ready(job: Object) -> bool:
    """Ready + finished pods reach the expected count."""
    status, spec = job.get("status") or {}, job["spec"]
    expected = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= expected)
