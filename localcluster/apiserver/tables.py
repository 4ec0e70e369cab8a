"""Tables and metadata-only forms for kubectl and metadata informers (T1-T10, R12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from localcluster.machinery.metadata import Object, is_terminating, parse_timestamp
from localcluster.machinery.resources import Resource
from localcluster.machinery.status import bad_request

_Cell = Callable[[Object], Any]


def age(created: str | None) -> str:
    """T7, apimachinery/pkg/util/duration.HumanDuration."""
    if not created:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - parse_timestamp(created)).total_seconds())
    if seconds < 0:
        return "<invalid>" if seconds <= -2 else "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    for limit, text in (
        (120, f"{seconds}s"),
        (600, f"{minutes}m{_rest(seconds % 60, 's')}"),
        (3 * 3600, f"{minutes}m"),
        (8 * 3600, f"{hours}h{_rest(minutes % 60, 'm')}"),
        (48 * 3600, f"{hours}h"),
        (8 * 86400, f"{days}d{_rest(hours % 24, 'h')}"),
        (2 * 365 * 86400, f"{days}d"),
        (8 * 365 * 86400, f"{days // 365}y{_rest(days % 365, 'd')}"),
    ):
        if seconds < limit:
            return text
    return f"{days // 365}y"


def _rest(number: int, unit: str) -> str:
    return f"{number}{unit}" if number else ""


def _pod_ready(pod: Object) -> str:
    statuses = pod["status"].get("containerStatuses") or []
    return f"{sum(1 for each in statuses if each.get('ready'))}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Object) -> str:
    if is_terminating(pod):
        return "Terminating"
    for each in pod["status"].get("containerStatuses") or []:
        state = each["state"].get("waiting") or each["state"].get("terminated")
        if state and state.get("reason"):
            return str(state["reason"])
    return str(pod["status"].get("reason") or pod["status"]["phase"])


def _pod_restarts(pod: Object) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses") or [])


def _job_completions(job: Object) -> str:
    return f"{job.get('status', {}).get('succeeded', 0)}/{job['spec'].get('completions', 1)}"


def _true_conditions(thing: Object) -> str:
    conditions = thing.get("status", {}).get("conditions") or []
    return ",".join(found["type"] for found in conditions if found["status"] == "True")


_COLUMNS: dict[str, tuple[tuple[str, str, _Cell], ...]] = {
    "pods": (
        ("Ready", "string", _pod_ready),
        ("Status", "string", _pod_status),
        ("Restarts", "string", _pod_restarts),
    ),
    "jobs": (("Status", "string", _true_conditions), ("Completions", "string", _job_completions)),
    "jobsets": (("Status", "string", _true_conditions),),
    "trainjobs": (("State", "string", _true_conditions),),
    "namespaces": (("Status", "string", lambda thing: thing["status"]["phase"]),),
    "nodes": (("Status", "string", _true_conditions),),
    "apiservices": (
        ("Available", "string", lambda thing: "True" if "Available" in _true_conditions(thing) else "False"),
    ),
    "configmaps": (("Data", "string", lambda thing: str(len(thing.get("data") or {}))),),
    "secrets": (("Type", "string", lambda thing: thing.get("type", "")),),
    "events": (
        ("Type", "string", lambda thing: thing.get("type", "")),
        ("Reason", "string", lambda thing: thing.get("reason", "")),
        ("Message", "string", lambda thing: thing.get("message", "")),
    ),
}


def column_definitions(resource: Resource) -> list[Object]:
    named = [
        ("Name", "string"),
        *((name, kind) for name, kind, _ in _COLUMNS.get(resource.plural, ())),
        ("Age", "string"),
    ]
    return [
        {
            "name": name,
            "type": kind,
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 0,
        }
        for name, kind in named
    ]


def partial(thing: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": thing["metadata"],
    }


def table(
    resource: Resource,
    things: Sequence[Object],
    revision: str,
    include: str = "Metadata",
    *,
    columns: bool = True,
) -> Object:
    """`include` is the includeObject parameter: Metadata, Object or None (T8)."""
    if include not in ("", "Metadata", "Object", "None"):
        raise bad_request(f'unrecognized includeObject value: "{include}"')
    rows = []
    for thing in things:
        cells = [cell(thing) for _, _, cell in _COLUMNS.get(resource.plural, ())]
        shown = {"Object": thing, "None": None}.get(include, partial(thing))
        rows.append(
            {
                "cells": [thing["metadata"]["name"], *cells, age(thing["metadata"].get("creationTimestamp"))],
                "object": shown,
            }
        )
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": column_definitions(resource) if columns else [],
        "rows": rows,
    }
