"""apidiscovery.k8s.io/v2: everything that is served, in one document for kube-apiserver's aggregator.

Reference: https://github.com/kubernetes/api/blob/v0.36.2/apidiscovery/v2/types.go
"""

from __future__ import annotations

from typing import Literal

from .meta_v1 import ListMeta
from .wire import WireModel


class GroupVersionKind(WireModel):
    """The kind of an answer. Clients drop an entry whose own kind is empty."""

    group: str
    version: str
    kind: str


class APISubresourceDiscovery(WireModel):
    """Something below one object."""

    subresource: str
    response_kind: GroupVersionKind
    verbs: tuple[str, ...]


class APIResourceDiscovery(WireModel):
    """One resource."""

    resource: str
    response_kind: GroupVersionKind
    scope: Literal["Namespaced", "Cluster"]
    singular_resource: str
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] | None = None
    subresources: tuple[APISubresourceDiscovery, ...] | None = None


class APIVersionDiscovery(WireModel):
    """One version of a group."""

    version: str
    resources: tuple[APIResourceDiscovery, ...]
    freshness: Literal["Current"] = "Current"


class GroupName(WireModel):
    """Metadata of a group: its name."""

    name: str


class APIGroupDiscovery(WireModel):
    """One group."""

    metadata: GroupName
    versions: tuple[APIVersionDiscovery, ...]


class APIGroupDiscoveryList(WireModel):
    """Every group that is served."""

    kind: Literal["APIGroupDiscoveryList"] = "APIGroupDiscoveryList"
    api_version: Literal["apidiscovery.k8s.io/v2"] = "apidiscovery.k8s.io/v2"
    metadata: ListMeta
    items: tuple[APIGroupDiscovery, ...]
