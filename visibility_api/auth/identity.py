"""Who is asking, and what they ask: the two values that authentication and authorisation exchange."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

ANONYMOUS_USER = "system:anonymous"
UNAUTHENTICATED_GROUP = "system:unauthenticated"
AUTHENTICATED_GROUP = "system:authenticated"
MASTERS_GROUP = "system:masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user as Kubernetes knows one. Hashable: it is part of the access review's cache key."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # sorted by key
    _hash: int = field(init=False, repr=False, compare=False)  # looked up far more often than made

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.user, self.groups, self.uid, self.extra)))

    def __hash__(self) -> int:
        return self._hash


ANONYMOUS = Identity(user=ANONYMOUS_USER, groups=(UNAUTHENTICATED_GROUP,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One selector requirement of a list or watch, as SubjectAccessReview carries it (Z10)."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
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
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # All fields: whoever could choose many of one hash would make every look-up slow.
        values = (
            self.verb, self.path, self.is_resource, self.group, self.version, self.namespace, self.resource,
            self.subresource, self.name, self.field_requirements, self.label_requirements,
        )  # fmt: skip
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash


def authenticated(identity: Identity) -> Identity:
    """`identity` with the group every authenticated user has (A14), unless it says otherwise itself."""
    if (
        identity.user == ANONYMOUS_USER
        or AUTHENTICATED_GROUP in identity.groups
        or UNAUTHENTICATED_GROUP in identity.groups
    ):
        return identity
    return replace(identity, groups=(*identity.groups, AUTHENTICATED_GROUP))
