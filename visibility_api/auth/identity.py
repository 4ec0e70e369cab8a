"""The caller's identity and the request's attributes, which authentication hands to authorisation."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

ANONYMOUS_USER = "system:anonymous"
UNAUTHENTICATED_GROUP = "system:unauthenticated"
AUTHENTICATED_GROUP = "system:authenticated"
MASTERS_GROUP = "system:masters"

Headers = Sequence[tuple[bytes, bytes]]  # names in lower case, as ASGI gives them; repeated names stay


# Hashes are cached: these values are looked up far more often than made. Every field is part of the hash:
# a client that could choose many values of equal hash would make every look-up slow.


class Identity(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A user as Kubernetes knows one. Hashable: it is part of the access review's cache key."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # sorted by key


ANONYMOUS = Identity(user=ANONYMOUS_USER, groups=(UNAUTHENTICATED_GROUP,))


_ACCOUNT = "system:serviceaccount:"


def client_of(identity: Identity) -> str:
    """Whose share a request takes: the namespace of a service account, else the user.

    Whoever rules a namespace can create any number of accounts there.
    """
    user = identity.user
    return user.rpartition(":")[0] if user.startswith(_ACCOUNT) else user


def client_in(namespace: str) -> str:
    """`client_of` the service accounts of a namespace."""
    return f"{_ACCOUNT}{namespace}"


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """One selector requirement of a list or watch, as SubjectAccessReview carries it."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist
    values: tuple[str, ...] = ()


class Attributes(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A request's attributes for authorisation. A non-resource request has `verb` and `path` alone.

    As in `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`.
    """

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_requirements: tuple[Requirement, ...] = ()
    label_requirements: tuple[Requirement, ...] = ()


def log_of(namespace: str, pod_name: str = "") -> Attributes:
    """The request for the log of a pod, or of any pod, that kube-apiserver would see."""
    return Attributes(
        verb="get",
        path=f"/api/v1/namespaces/{namespace}/pods{pod_name and f'/{pod_name}/log'}",
        is_resource=True,
        version="v1",
        resource="pods",
        subresource="log",
        namespace=namespace,
        name=pod_name,
    )


def authenticated(identity: Identity) -> Identity:
    """`identity` with the group `system:authenticated`, unless it has that or `system:unauthenticated`.

    The aggregator sends its own requests without groups; RBAC grants discovery to this group.
    """
    if (
        identity.user == ANONYMOUS_USER
        or AUTHENTICATED_GROUP in identity.groups
        or UNAUTHENTICATED_GROUP in identity.groups
    ):
        return identity
    return replace(identity, groups=(*identity.groups, AUTHENTICATED_GROUP))
