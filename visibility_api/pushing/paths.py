"""The paths that a job's pods push to, and the audiences of a token.

Each kind has a path of ours; TrainJobs have Kubeflow Trainer's as well."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from visibility_api.errors.status import NotFound
from visibility_api.kinds import BY_RESOURCE
from visibility_api.workloads.kind import JobKind

GROUP = "visibility.trainer.kubeflow.org"
UPSTREAM_PREFIX = "/apis/trainer.kubeflow.org/"
AUDIENCE = GROUP  # our own: one for all jobs, so that a runtime can name it once
MAX_PATH_CHARACTERS = 256

_NAME = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"  # of namespaces, and of jobs: at most 63 characters
_PATH = re.compile(
    rf"/apis/(visibility\.)?trainer\.kubeflow\.org/v1alpha1/namespaces/({_NAME})/([a-z]+)/({_NAME})/status"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The job that a path names; it may not exist."""

    path: str
    kind: JobKind
    namespace: str
    name: str
    audiences: tuple[str, ...]  # a token must have one of them

    @property
    def resource(self) -> str:
        return self.kind.served.plural

    @property
    def kind_name(self) -> str:
        """Such as TrainJob."""
        return self.kind.name


def is_push(method: str, path: str) -> bool:
    """Whether a request is a push: a POST to either path, or any method on Kubeflow Trainer's."""
    return (method == "POST" or path.startswith(UPSTREAM_PREFIX)) and find_target(path) is not None


def find_push(method: str, path: str) -> Target:
    """The job that a push is for. Raises NotFound for other methods than POST."""
    target = find_target(path)
    if target is None or method != "POST":
        raise NotFound("only POST to the status of a job is served here")
    return target


def find_target(path: str) -> Target | None:
    """The job that `path` names; None when it is not a push path."""
    return _find(path) if len(path) <= MAX_PATH_CHARACTERS else None


@lru_cache(16_384)
def _find(path: str) -> Target | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    is_ours, namespace, resource, name = match.groups()
    kind = BY_RESOURCE.get(resource)
    if kind is None or not (is_ours or kind.has_trainer_status):
        return None
    upstream = f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/{resource}/{name}/status"
    audiences = (upstream, AUDIENCE) if kind.has_trainer_status else (AUDIENCE,)
    return Target(path=path, kind=kind, namespace=namespace, name=name, audiences=audiences)
