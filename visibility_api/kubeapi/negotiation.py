"""Content negotiation: from Accept, `?pretty` and User-Agent to the form of a response.

As in `k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from visibility_api.errors.status import NotAcceptable

from .message import ResourceRequest

MediaType = Literal["application/json", "application/yaml"]
Transform = Literal["Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
TableVersion = Literal["v1", "v1beta1"]

JSON: MediaType = "application/json"
YAML: MediaType = "application/yaml"

MAX_CLAUSES = 64  # Go clients send at most four, browsers about eight
MAX_PARAMETERS = 16  # of a clause; Go clients send three
MAX_CACHED_BYTES = 1024  # longer headers are parsed each time instead of being cached

_META_GROUP = "meta.k8s.io"
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")  # used by people
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))  # Go's strconv.ParseBool


class Target(StrEnum):
    """The kind of response, which decides the forms that can be had."""

    OBJECT = "object"
    LIST = "list"
    WATCH = "watch"
    PLAIN = "plain"  # discovery, version: JSON or YAML, no transformation


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause of an Accept header, in lower case but for the parameters' values."""

    type: str
    subtype: str
    parameters: tuple[tuple[str, str], ...] = ()

    def parameter(self, name: str) -> str:
        """The value, "" when it is absent; the last of a repeated one counts, as in Go."""
        return next((v for k, v in reversed(self.parameters) if k == name), "")

    def matches(self, media_type: str) -> bool:
        type_, _, subtype = media_type.partition("/")
        return (self.type == "*" and self.subtype == "*") or (
            self.type == type_ and self.subtype in ("*", subtype)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Representation:
    """The form of a response. `version` is that of the transformation, v1 when there is none."""

    media_type: MediaType = JSON
    transform: Transform | None = None
    version: TableVersion = "v1"
    pretty: bool = False


def negotiate(
    accept: str | None, *, target: Target, pretty: str | None = None, user_agent: str | None = None
) -> Representation:
    """The best form for an Accept header; `pretty` is the query parameter's value.

    Raises NotAcceptable.
    """
    chosen = _choose(accept or "", target)
    if chosen.pretty or chosen.media_type is not JSON or not is_pretty(pretty, user_agent):
        return chosen
    return replace(chosen, pretty=True)


def negotiate_request(request: ResourceRequest, target: Target) -> Representation:
    """`negotiate` with the request's own headers and query. Raises NotAcceptable."""
    accept: bytes | None = None
    agent = b""
    for name, value in request.headers:
        if name == b"accept":
            accept = value if accept is None else accept
        elif name == b"user-agent":
            agent = value
    pretty = request.parameter("pretty") if request.query else None
    # Clients send the same headers with each request, so the result is cached.
    if len(accept or b"") + len(agent) + len(pretty or "") > MAX_CACHED_BYTES:
        return _negotiate.__wrapped__(accept, target, pretty, agent)
    return _negotiate(accept, target, pretty, agent)


@lru_cache(maxsize=1024)
def _negotiate(accept: bytes | None, target: Target, pretty: str | None, agent: bytes) -> Representation:
    return negotiate(
        None if accept is None else accept.decode("latin-1"),
        target=target,
        pretty=pretty,
        user_agent=agent.decode("latin-1"),
    )


def negotiate_error(accept: str | None, *, pretty: str | None, user_agent: str | None) -> Representation:
    """The form of an error: transformations are ignored, and JSON replaces what is not served.

    The error keeps its status: a 404 must not become a 406.
    """
    media_type = next((m for c in parse_accept(accept or "") for m in (JSON, YAML) if c.matches(m)), JSON)
    return Representation(media_type=media_type, pretty=media_type == JSON and is_pretty(pretty, user_agent))


def is_pretty(parameter: str | None, user_agent: str | None) -> bool:
    """Whether JSON is indented: as `?pretty` says, else for curl, wget and browsers."""
    if parameter:
        return parameter in _TRUE
    return user_agent is not None and user_agent.startswith(_PRETTY_AGENTS)


def parse_accept(header: str) -> tuple[Clause, ...]:
    """The clauses of an Accept header: by q, then specific before wildcard, then as written.

    An empty header accepts anything. Clauses that cannot be parsed, or have q=0, are left out.
    """
    weighted: list[tuple[tuple[float, bool, bool], Clause]] = []
    for part in header.split(",", MAX_CLAUSES)[:MAX_CLAUSES] if header.strip() else ("*/*",):
        media_range, *rest = part.split(";", MAX_PARAMETERS + 1)[: MAX_PARAMETERS + 1]
        type_, _, subtype = media_range.strip().lower().partition("/")
        subtype = subtype or ("*" if type_ == "*" else "")
        if not type_ or not subtype or "/" in subtype:
            continue
        pairs = [(k.strip().lower(), v.strip()) for k, _, v in (p.partition("=") for p in rest)]
        weight = next((_quality(v) for k, v in pairs if k == "q"), 1.0)
        if weight > 0:
            clause = Clause(
                type=type_, subtype=subtype, parameters=tuple((k, v) for k, v in pairs if k != "q")
            )
            weighted.append(((-weight, type_ == "*", subtype == "*"), clause))
    weighted.sort(key=lambda pair: pair[0])  # stable: equals stay as written
    return tuple(clause for _, clause in weighted)


def _quality(text: str) -> float:
    """A weight in [0, 1]; 0 when it is not a number, as with Go's parser."""
    try:
        return min(max(float(text), 0.0), 1.0) if text.lower() not in ("nan", "-nan", "+nan") else 0.0
    except ValueError:
        return 0.0


def _choose(accept: str, target: Target) -> Representation:
    """The first clause that can be served with its parameters. Raises NotAcceptable."""
    # YAML has no framing between events, so a watch is JSON only.
    offered = (JSON,) if target is Target.WATCH else (JSON, YAML)
    for clause in parse_accept(accept):
        for media_type in offered:
            if clause.matches(media_type):
                chosen = _with_parameters(clause, media_type, target)
                if chosen is not None:
                    return chosen
    raise NotAcceptable(("application/json;stream=watch",) if target is Target.WATCH else offered)


def _with_parameters(clause: Clause, media_type: MediaType, target: Target) -> Representation | None:
    """The form that a clause selects; None when its parameters name something that is not served."""
    stream = clause.parameter("stream")
    if stream and (stream != "watch" or media_type != JSON):
        return None
    pretty = media_type == JSON and clause.parameter("pretty") == "1"
    kind = clause.parameter("as")
    if not kind:
        return Representation(media_type=media_type, pretty=pretty)
    version = clause.parameter("v")
    if target is Target.PLAIN or clause.parameter("g") != _META_GROUP or version not in ("v1", "v1beta1"):
        return None
    known: dict[str, Transform] = {
        "Table": "Table",
        "PartialObjectMetadata": "PartialObjectMetadata",
        "PartialObjectMetadataList": "PartialObjectMetadataList",
    }
    transform = known.get(kind)
    if transform is None:
        return None
    # A list form for an object, or the reverse, refuses the request, not only the clause.
    if transform == "PartialObjectMetadata" and target is Target.LIST:
        raise NotAcceptable("you requested PartialObjectMetadata, but the requested object is a list")
    if transform == "PartialObjectMetadataList" and target is not Target.LIST:
        raise NotAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list")
    return Representation(
        media_type=media_type,
        transform=transform,
        version="v1beta1" if version == "v1beta1" else "v1",
        pretty=pretty,
    )
