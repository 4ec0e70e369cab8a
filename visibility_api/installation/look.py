"""What a check may ask the cluster, and what it finds."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from visibility_api.kube.errors import ApiError, ClusterError, Unreachable

Object = Mapping[str, Any]
Query = tuple[tuple[str, str], ...]


class State(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not for long, or not all of it
    FAULT = "fault"
    UNKNOWN = "unknown"  # whoever asks may not see it


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says. `do`: a command or a step that mends it; "" where nothing is to be done."""

    state: State
    says: str
    do: str = ""


def ok(says: str) -> Finding:
    return Finding(State.OK, says)


def warning(says: str, do: str) -> Finding:
    return Finding(State.WARNING, says, do)


def fault(says: str, do: str) -> Finding:
    return Finding(State.FAULT, says, do)


class Client(Protocol):
    """The part of a Kubernetes client that is used here."""

    async def get(self, path: str, *, query: Query) -> bytes: ...

    async def post(self, path: str, body: bytes) -> bytes: ...


class Look:
    """Reads of one run; each object is read once, as it is then. `namespace`: of the server."""

    def __init__(
        self, client: Client, namespace: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._found: dict[tuple[str, Query], Object | None] = {}
        self.namespace = namespace
        self.now = now

    async def read(self, path: str, query: Query = ()) -> Object | None:
        """An object, or None if there is none. Raises ClusterError."""
        key = path, query
        if key not in self._found:
            try:
                self._found[key] = _decode(await self._client.get(path, query=query))
            except ApiError as error:
                if error.status != 404:
                    raise
                self._found[key] = None
        return self._found[key]

    async def items(self, path: str, query: Query = ()) -> Sequence[Object]:
        """Of a list. Raises ClusterError."""
        return listed(await self.read(path, query), "items")

    async def create(self, path: str, body: Object) -> Object:
        """A review: an answer that nothing keeps. Raises ClusterError."""
        return _decode(await self._client.post(path, msgspec.json.encode(body)))


Check = Callable[[Look], Awaitable[Finding]]


async def run(look: Look, checks: Sequence[tuple[str, Check]]) -> list[tuple[str, Finding]]:
    """Each in its order, whatever the others find."""
    found = list[tuple[str, Finding]]()
    for name, check in checks:
        try:
            finding = await check(look)
        except ApiError as error:
            if error.status in (401, 403):
                finding = Finding(State.UNKNOWN, f"not checked: {error.message or error}")
            else:
                finding = fault(str(error), "try again; see the log of kube-apiserver")
        except ClusterError as error:
            finding = fault(str(error), "check that kube-apiserver can be reached with this kubeconfig")
            if isinstance(error, Unreachable):
                return [*found, (name, finding)]  # the others would find the same
        found.append((name, finding))
    return found


def at(found: Object | None, *keys: str | int) -> Any:  # noqa: ANN401 - JSON
    """What is there in an object of any form; None for what is not there."""
    value: Any = found
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def listed(found: Object | None, *keys: str | int) -> Sequence[Object]:
    """The list that is there; none for anything else."""
    value = at(found, *keys)
    return value if isinstance(value, list) else ()


def _decode(body: bytes) -> Object:
    try:
        found = msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise ClusterError("the answer is not JSON") from error
    if not isinstance(found, dict):
        raise ClusterError("the answer is no object")
    return found
