"""The parts of Kubernetes' meta/v1 that this API shows, with the fields that it fills.

Published are Kubernetes' own, complete definitions of these names (`apidocs/meta_v1.json`): they are
merged across the cluster, so a shorter one would be renamed or would replace the complete one. A test holds
each model here to the definition of its name. Descriptions are therefore not repeated here.
Reference: https://kubernetes.io/docs/reference/using-api/api-concepts/ and
https://github.com/kubernetes/apimachinery/blob/v0.36.2/pkg/apis/meta/v1/types.go
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .wire import Int32, Int64, Time, WireModel


class ObjectMeta(WireModel):
    """Metadata of one object."""

    name: str
    namespace: str | None = None
    uid: str
    resource_version: str
    creation_timestamp: Time | None = None
    labels: dict[str, str] | None = None


class ListMeta(WireModel):
    """Metadata of a list."""

    resource_version: str | None = None
    continue_: str | None = Field(default=None, alias="continue")
    remaining_item_count: Int64 | None = Field(default=None, ge=0)


class Condition(WireModel):
    """One aspect of an object's state. All five fields are always there."""

    type: str
    status: Literal["True", "False", "Unknown"]
    last_transition_time: Time
    reason: str
    message: str


class StatusCause(WireModel):
    """One of several things that are wrong with a request."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(WireModel):
    """What a client acts on besides the reason. `kind` is the plural resource, as kube-apiserver has it."""

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: Int32 | None = None


class Status(WireModel):
    """The answer to a request that failed."""

    kind: Literal["Status"] = "Status"
    api_version: Literal["v1"] = "v1"
    metadata: ListMeta
    status: Literal["Failure"] = "Failure"
    message: str
    reason: str
    details: StatusDetails | None = None
    code: Int32
