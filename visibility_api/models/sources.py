"""Each source of reports, once: for settings, annotations, rights, merging and the published documents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceType:
    """One way in which a report comes."""

    name: str
    meaning: str  # where the report is read
    is_optional: bool = True  # switched on by --sources; may be named in the annotation `source`
    # Its reports contain what is new, or what Kubeflow's form has room for: the rest is kept from others.
    is_partial: bool = False
    is_passive: bool = False  # brings its reports by itself: it is not probed
    rights: tuple[str, ...] = ()  # of the server's: verb, path of the API, resource
    may_lack_rights: bool = False  # where a namespace grants them by itself


SOURCE_TYPES = (
    SourceType(
        name="exec",
        meaning="a file in the container",
        rights=("create /api/v1 pods/exec",),
        may_lack_rights=True,
    ),
    SourceType(name="http", meaning="a port of the pod"),
    SourceType(
        name="logs", meaning="what the container prints", is_partial=True, rights=("get /api/v1 pods/log",)
    ),
    SourceType(
        name="push",
        meaning="sent by the pod",
        is_partial=True,
        is_passive=True,
        rights=(
            "get /api/v1 pods",
            "get /apis/batch/v1 jobs",
            "get /apis/jobset.x-k8s.io/v1alpha2 jobsets",
        ),
    ),
    SourceType(name="status", meaning="the job's own status", is_partial=True, is_passive=True),
    SourceType(name="termination", meaning="the container's termination message", is_optional=False),
)
SOURCES = tuple(each.name for each in SOURCE_TYPES if each.is_optional)
MEANINGS = ", ".join(f"{each.name} ({each.meaning})" for each in SOURCE_TYPES)
PARTIAL = frozenset(each.name for each in SOURCE_TYPES if each.is_partial)
PASSIVE = frozenset(each.name for each in SOURCE_TYPES if each.is_passive)
