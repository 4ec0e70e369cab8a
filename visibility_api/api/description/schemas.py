"""The schema of what is served, field by field: what `kubectl explain` shows and clients are generated from.

OpenAPI v3 form. Names and limits of the fields shared with `TrainJob.status.trainerStatus` are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from visibility_api.api.resources import GROUP, GROUP_VERSION, VERSION, Resource
from visibility_api.progress.job import Phase

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."  # merged cluster-wide: copied exactly, or not at all (O8)
PREFIX = ".".join(reversed(GROUP.split("."))) + f".{VERSION}."  # nobody else's, so never renamed (O8)


def meta_schemas() -> dict[str, Schema]:
    """The definitions of meta/v1 we refer to, as Kubernetes 1.36 publishes them."""
    text = files(__package__).joinpath("meta_v1.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Schema])


def component_schemas(resources: Sequence[Resource]) -> dict[str, Schema]:
    """Every schema, by name: ours, one document and one list a resource, and those of meta/v1."""
    schemas = {PREFIX + name: schema for name, schema in _parts().items()}
    for resource in resources:
        schemas[PREFIX + resource.kind] = _document(resource)
        schemas[PREFIX + resource.list_kind] = _list(resource)
    return dict(sorted((schemas | meta_schemas()).items()))


def refer(name: str) -> Schema:
    """A reference to a schema by its full name."""
    return {"$ref": REFERENCE + name}


def group_version_kind(kind: str) -> dict[str, str]:
    """For `x-kubernetes-group-version-kind`: exactly these keys, or kubectl does not find it (O9)."""
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _document(resource: Resource) -> Schema:
    return _object(
        resource.description,
        {
            **_type_meta(resource.kind),
            "metadata": _embed(
                META + "ObjectMeta",
                "Name, namespace, uid, labels and creation time are those of the job itself. The"
                " resourceVersion is that of this document, which is not stored in etcd.",
            ),
            "status": _embed(PREFIX + "ProgressStatus", "What is known of the job, and how well."),
        },
        required=("metadata", "status"),
        kind=resource.kind,
    )


def _list(resource: Resource) -> Schema:
    return _object(
        f"{resource.list_kind} is a list of {resource.kind}.",
        {
            **_type_meta(resource.list_kind),
            "metadata": _embed(META + "ListMeta", "Its resourceVersion is where a watch can go on."),
            "items": _array(_embed(PREFIX + resource.kind), "One document a job, by namespace, then name."),
        },
        required=("items",),
        kind=resource.list_kind,
    )


def _type_meta(kind: str) -> Mapping[str, Schema]:
    return {
        "apiVersion": _string(f"Always {GROUP_VERSION}."),
        "kind": _string(f"Always {kind}."),
    }


def _parts() -> dict[str, Schema]:
    return {
        "ProgressStatus": _status(),
        "Metric": _object(
            "One named number of the training process, as it wrote it.",
            {
                "name": _string("Such as loss, eval_loss, learning_rate or accuracy.", maxLength=64),
                "value": _string(
                    "A number as text, so that NaN and very large ones survive JSON.", maxLength=64
                ),
            },
            required=("name", "value"),
        ),
        "Steps": _object(
            "Optimizer steps.",
            {
                "current": _integer("Steps finished; 0 before the first.", "int64", minimum=0),
                "total": _integer(
                    "Steps planned; absent when the run has no planned end.", "int64", minimum=0
                ),
                "perSecond": _number("Pace of the present attempt, smoothed; absent until two reports."),
            },
        ),
        "Epochs": _object(
            "Passes over the training data.",
            {
                "current": _number("Epochs finished; 0.5 is half of the first."),
                "total": _number("Epochs planned; absent when the run does not say."),
            },
        ),
        "Rank0": _object(
            "The pod and container that speak for the whole job. Stays after the pod has gone.",
            {
                "podName": _string("Name of the rank-0 pod."),
                "nodeName": _string("Node it runs on; absent until it is scheduled."),
                "containerName": _string("Container in it that trains."),
                "restartCount": _integer("How often that container was restarted in place.", minimum=0),
                "lastTermination": _embed(
                    PREFIX + "Termination", "How the container last ended; absent when it never did."
                ),
            },
            required=("podName", "containerName", "restartCount"),
        ),
        "Termination": _object(
            "How a container ended.",
            {
                "exitCode": _integer("Exit code; 128 and more means it was ended by a signal."),
                "signal": _integer("The signal, 1 to 64; absent when it exited by itself."),
                "reason": _string("The kubelet's word for it: OOMKilled, Error, Completed."),
                "retryable": {
                    "type": "boolean",
                    "description": "Whether another try may help: true for most signals, such as an eviction;"
                    " false for errors of the program and for want of memory. Absent after a success.",
                },
                "finishedAt": _time("When it ended."),
            },
            required=("exitCode",),
        ),
        "Replica": _object(
            "Counts of one replica group. A count that the job's controller does not give is absent.",
            {
                "name": _string("Name of the group, such as node, launcher or dataset-initializer."),
                "desired": _integer("Pods the group should have.", minimum=0),
                "ready": _integer("Pods that are ready.", minimum=0),
                "active": _integer("Pods that have not ended.", minimum=0),
                "succeeded": _integer("Pods that ended well.", minimum=0),
                "failed": _integer("Pods that failed.", minimum=0),
            },
            required=("name",),
        ),
        "Observation": _object(
            "How what is shown was learnt, and how well that goes.",
            {
                "source": _string(
                    "Where reports are read: exec (a file in the container), http, logs, push, status, or"
                    " termination (the container's last message)."
                ),
                "lastProbeTime": _time("When rank 0 was last asked, with or without success."),
                "nextProbeTime": _time("When it will be asked next; absent when it will not."),
                "latencySeconds": _number("How long the last answer took."),
                "consecutiveFailures": _integer(
                    "Looks in a row without a document; 0 after a success.", minimum=0
                ),
                "reason": _string("Why the last look failed, in one CamelCase word; absent after a success."),
                "message": _string("The same in a sentence. Never a byte of what was read."),
            },
            required=("source", "consecutiveFailures"),
        ),
    }


def _status() -> Schema:
    return _object(
        "What is known of one training job. Absent is unknown, never 0. Whether the numbers are current is"
        " said by the condition Fresh: an old number is never shown as new.",
        {
            "phase": _string(
                "Where the job stands, whatever kind it is.", enum=[str(phase) for phase in Phase]
            ),
            "progressPercentage": _integer(
                "How much is done, as the run says or as its steps show.", minimum=0, maximum=100
            ),
            "estimatedRemainingSeconds": _integer(
                "Time left at the pace observed in the present attempt, else as the run says.", minimum=0
            ),
            "estimatedCompletionTime": _time("When the run should end, at the observed pace."),
            "startTime": _time("When the run began, as it says itself."),
            "lastUpdatedTime": _time("When the training process wrote the report, by its own clock."),
            "steps": _embed(PREFIX + "Steps", "How many optimizer steps are done, and how fast."),
            "epochs": _embed(PREFIX + "Epochs", "How many passes over the data are done."),
            "metrics": _array(
                _embed(PREFIX + "Metric"),
                "The last value of each metric, in the order the run gives them.",
                maxItems=256,
                **_map_keyed_by("name"),
            ),
            "message": _string("What the run says of itself, in its own words."),
            "conditions": _array(
                _embed(META + "Condition"),
                "The verdict; kubectl wait --for=condition=Complete works on it. Reporting: rank 0 gives"
                " reports that can be read. Fresh: the numbers shown are current. Stalled: no advance for far"
                " longer than the run's usual pauses. Diverged: a loss or gradient norm is not finite."
                " Suspended, Complete, Failed: as the job's own.",
                **_map_keyed_by("type"),
            ),
            "rank0": _embed(PREFIX + "Rank0", "The pod that reports; absent before there is one."),
            "replicas": _array(
                _embed(PREFIX + "Replica"), "Every replica group of the job.", **_map_keyed_by("name")
            ),
            "observation": _embed(PREFIX + "Observation", "How we know; absent before the first look."),
        },
        required=("phase",),
    )


def _object(
    description: str, properties: Mapping[str, Schema], *, required: Sequence[str] = (), kind: str = ""
) -> Schema:
    schema: Schema = {"type": "object", "description": description, "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    if kind:
        schema["x-kubernetes-group-version-kind"] = [group_version_kind(kind)]  # an array here (O9)
    return schema


def _embed(name: str, description: str = "") -> Schema:
    """A reference with a description beside it: v3 ignores whatever stands next to a bare `$ref`."""
    schema: Schema = {"allOf": [refer(name)]}
    return schema | {"description": description} if description else refer(name)


def _array(items: Schema, description: str, **more: object) -> Schema:
    return {"type": "array", "description": description, "items": items, **more}


def _map_keyed_by(key: str) -> Schema:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def _string(description: str, **more: object) -> Schema:
    return {"type": "string", "description": description, **more}


def _integer(description: str, format_: str = "int32", **more: object) -> Schema:
    return {"type": "integer", "format": format_, "description": description, **more}


def _number(description: str) -> Schema:
    return {"type": "number", "format": "double", "description": description, "minimum": 0}


def _time(description: str) -> Schema:
    return _embed(META + "Time", description)
