"""Discovery documents: resource list, group, group list, and the aggregated document.

All are encoded once. The aggregator requests them several times a minute: its availability controller makes
five requests at a time, and the whole API counts as unavailable when none succeeds within 5 s
(`kube-aggregator/pkg/controllers/status/remote`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import Request
from starlette.responses import Response

from visibility_api.app.documents import Document
from visibility_api.kubeapi.negotiation import JSON, parse_accept
from visibility_api.models.discovery_v2 import (
    APIGroupDiscovery,
    APIGroupDiscoveryList,
    APIResourceDiscovery,
    APISubresourceDiscovery,
    APIVersionDiscovery,
    GroupName,
    GroupVersionKind,
)
from visibility_api.models.meta_v1 import (
    APIGroup,
    APIGroupList,
    APIResource,
    APIResourceList,
    GroupVersionForDiscovery,
    ListMeta,
)
from visibility_api.models.served import GROUP, GROUP_VERSION, VERSION, Resource

# With fewer parameters clients read the body as a legacy document.
AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def resource_list(resources: Sequence[Resource]) -> APIResourceList:
    """Our group version. Verbs are sorted, and only those that are served: an untrue `delete` would make each
    deletion of a namespace call this server."""
    entries: list[APIResource] = []
    for resource in resources:
        entries.append(
            APIResource(
                name=resource.plural,
                singular_name=resource.singular,
                namespaced=resource.namespaced,
                kind=resource.kind,
                verbs=_sorted(resource.verbs),
                short_names=resource.short_names or None,
            )
        )
        entries.extend(
            APIResource(
                name=f"{resource.plural}/{subresource.name}",
                singular_name="",
                namespaced=resource.namespaced,  # as the parent, or the aggregator cannot convert it
                kind=subresource.kind,
                verbs=_sorted(subresource.verbs),
            )
            for subresource in resource.subresources
        )
    return APIResourceList(group_version=GROUP_VERSION, resources=tuple(entries))


def group() -> APIGroup:
    """Our group by itself."""
    return _GROUP.model_copy(update={"kind": "APIGroup", "api_version": "v1"})


def group_list() -> APIGroupList:
    """All groups, which is ours alone; only direct clients see it, not those of kube-apiserver."""
    return APIGroupList(groups=(_GROUP,))


def aggregated(resources: Sequence[Resource]) -> APIGroupDiscoveryList:
    """The aggregated discovery document."""
    version = APIVersionDiscovery(version=VERSION, resources=tuple(map(_aggregated_entry, resources)))
    group = APIGroupDiscovery(metadata=GroupName(name=GROUP), versions=(version,))
    return APIGroupDiscoveryList(metadata=ListMeta(), items=(group,))


class Discovery:
    """The discovery documents, all in memory."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._group_list = Document(group_list().encode())
        self._group = Document(group().encode())
        self._resources = Document(resource_list(resources).encode())
        self._aggregated = Document(aggregated(resources).encode())

    def groups(self, request: Request) -> Response:
        """APIGroupList, or the aggregated document under its ETag for a client that accepts it."""
        if _wants_aggregated(request.headers.get("accept", "")):
            return self._aggregated.tagged(request, AGGREGATED_TYPE, {"Cache-Control": "public"})
        return self._group_list.negotiated(request)

    def group(self, request: Request) -> Response:
        """APIGroup. Raises NotAcceptable."""
        return self._group.negotiated(request)

    def resources(self, request: Request) -> Response:
        """APIResourceList. Raises NotAcceptable."""
        return self._resources.negotiated(request)


def _wants_aggregated(accept: str) -> bool:
    """Whether the preferred clause that can be served is the aggregated form in v2.

    v2beta1 is off since Kubernetes 1.33. Other parameters, such as `profile=nopeer`, are ignored.
    """
    for clause in parse_accept(accept):
        if not clause.matches(JSON):
            continue
        kind = clause.parameter("as")
        if not kind:
            return False
        if (
            kind == "APIGroupDiscoveryList"
            and clause.parameter("g") == "apidiscovery.k8s.io"
            and clause.parameter("v") == "v2"
        ):
            return True
    return False


_VERSION = GroupVersionForDiscovery(group_version=GROUP_VERSION, version=VERSION)
_GROUP = APIGroup(name=GROUP, versions=(_VERSION,), preferred_version=_VERSION)


def _aggregated_entry(resource: Resource) -> APIResourceDiscovery:
    subresources = tuple(
        APISubresourceDiscovery(subresource=s.name, response_kind=_kind(s.kind), verbs=_sorted(s.verbs))
        for s in resource.subresources
    )
    return APIResourceDiscovery(
        resource=resource.plural,
        response_kind=_kind(resource.kind),
        scope="Namespaced" if resource.namespaced else "Cluster",
        singular_resource=resource.singular,
        verbs=_sorted(resource.verbs),
        short_names=resource.short_names or None,
        subresources=subresources or None,
    )


def _kind(kind: str) -> GroupVersionKind:
    """A responseKind; client-go drops an entry whose own is empty."""
    return GroupVersionKind(group=GROUP, version=VERSION, kind=kind)


def _sorted(verbs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(verbs))
