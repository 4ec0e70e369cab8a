"""Who is asking, and what they ask: the two values that authentication and authorisation exchange."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

ANONYMOUS_USER = "system:anonymous"
UNAUTHENTICATED_GROUP = "system:unauthenticated"
AUTHENTICATED_GROUP = "system:authenticated"
MASTERS_GROUP = "system:masters"


# Hashes are kept: these values are looked up far more often than made. All fields count, for whoever could
# choose many of one hash would make every look-up slow.


class Identity(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A user as Kubernetes knows one. Hashable: it is part of the access review's cache key."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # sorted by key


ANONYMOUS = Identity(user=ANONYMOUS_USER, groups=(UNAUTHENTICATED_GROUP,))


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """One selector requirement of a list or watch, as SubjectAccessReview carries it (Z10)."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist
    values: tuple[str, ...] = ()


class Attributes(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What a request wants, as authorisation sees it (Z3 to Z8). `path` alone for a non-resource request."""

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


def authenticated(identity: Identity) -> Identity:
    """`identity` with the group every authenticated user has (A14), unless it says otherwise itself."""
    if (
        identity.user == ANONYMOUS_USER
        or AUTHENTICATED_GROUP in identity.groups
        or UNAUTHENTICATED_GROUP in identity.groups
    ):
        return identity
    return replace(identity, groups=(*identity.groups, AUTHENTICATED_GROUP))
