"""The paths that a job's pods push to, and the audiences of a token.

`OWN_JOB` names no job: the token's pod tells which. Beside it each kind has a path that names the job;
TrainJobs have Kubeflow Trainer's as well."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from visibility_api.auth.token_review import MAX_TOKEN_BYTES
from visibility_api.errors.status import Forbidden, NotFound
from visibility_api.kinds import BUILT_IN, Kinds
from visibility_api.models.served import GROUP
from visibility_api.workloads.kind import JobKind

from .body import Headers

UPSTREAM_PREFIX = "/apis/trainer.kubeflow.org/"
OWN_JOB = f"/apis/{GROUP}/v1alpha1/push"  # for the job of the pod that pushes, of whichever kind
AUDIENCE = GROUP  # our own: one for all jobs, so that a runtime can name it once
MAX_PATH_CHARACTERS = 256
NO_POD = "a bearer token that is bound to a pod is required: that of the training pod"

_NAME = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"  # of namespaces, and of jobs: at most 63 characters
_PATH = re.compile(
    rf"/apis/(visibility\.)?trainer\.kubeflow\.org/v1alpha1/namespaces/({_NAME})/([a-z]+)/({_NAME})/status"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The job that a path names; it may not exist."""

    path: str
    # None for `OWN_JOB`. The rest is then of the pod, as its token claims before it is reviewed.
    kind: JobKind | None
    namespace: str
    name: str
    audiences: tuple[str, ...] = (AUDIENCE,)  # a token must have one of them

    @property
    def resource(self) -> str:
        """ "" while the kind is not known."""
        return "" if self.kind is None else self.kind.served.plural

    @property
    def kind_name(self) -> str:
        """Such as TrainJob."""
        return "job" if self.kind is None else self.kind.name


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Binding(msgspec.Struct, frozen=True):
    namespace: str = ""
    pod: _Named = _Named()


class Claims(msgspec.Struct, frozen=True, rename={"binding": "kubernetes.io"}):
    """What a token says of itself: a service account's is a JWT."""

    exp: float = math.inf  # when it expires, seconds since 1970
    binding: _Binding = _Binding()


def read_claims(token: str) -> Claims:
    """Unverified. Those of a token that is no JWT are empty."""
    try:
        payload = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=Claims)
    except (IndexError, ValueError, RecursionError, msgspec.MsgspecError):
        return Claims()


def is_push(method: str, path: str, kinds: Kinds = BUILT_IN) -> bool:
    """Whether a request is a push: a POST to either path, or any method on Kubeflow Trainer's."""
    return (method == "POST" or path.startswith(UPSTREAM_PREFIX)) and (
        path == OWN_JOB or find_target(path, kinds) is not None
    )


def find_push(method: str, path: str, headers: Headers, kinds: Kinds = BUILT_IN) -> Target:
    """The job that a push is for. Raises NotFound for other methods than POST, Forbidden where neither path
    nor token names anything."""
    target = _own_target(headers) if path == OWN_JOB else find_target(path, kinds)
    if target is None or method != "POST":
        raise NotFound("only POST to the status of a job is served here")
    return target


def find_target(path: str, kinds: Kinds = BUILT_IN) -> Target | None:
    """The job that `path` names; None when it is not a push path."""
    return _find(path, kinds) if len(path) <= MAX_PATH_CHARACTERS else None


def _own_target(headers: Headers) -> Target:
    credentials = next((value for name, value in headers if name == b"authorization"), b"")
    binding = read_claims(credentials[:MAX_TOKEN_BYTES].decode("latin-1")).binding
    if not binding.namespace or not binding.pod.name:
        raise Forbidden(NO_POD)
    return Target(path=OWN_JOB, kind=None, namespace=binding.namespace, name=binding.pod.name)


@lru_cache(16_384)
def _find(path: str, kinds: Kinds) -> Target | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    is_ours, namespace, resource, name = match.groups()
    kind = kinds.by_resource.get(resource)
    if kind is None or not (is_ours or kind.has_trainer_status):
        return None
    upstream = f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/{resource}/{name}/status"
    audiences = (upstream, AUDIENCE) if kind.has_trainer_status else (AUDIENCE,)
    return Target(path=path, kind=kind, namespace=namespace, name=name, audiences=audiences)
