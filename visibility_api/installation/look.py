"""What a check may ask the cluster, and what it finds."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from visibility_api.kube.client import KubeClient
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
    """What a check says. `do`: a command or a step that mends it; "" where nothing is to be done.
    `is_last`: the links after it would only say the same."""

    state: State
    says: str
    do: str = ""
    is_last: bool = False


def ok(says: str) -> Finding:
    return Finding(State.OK, says)


def warning(says: str, do: str) -> Finding:
    return Finding(State.WARNING, says, do)


def fault(says: str, do: str, *, is_last: bool = False) -> Finding:
    return Finding(State.FAULT, says, do, is_last)


class Look:
    """Reads of one run; each object is read once, as it is then. `namespace`: of the server.

    `server`: asks as the server's service account, if the user may. `own_arguments`: of the server, where
    this runs in its container."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        *,
        server: KubeClient | None = None,
        own_arguments: Sequence[str] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._server = client, server
        self._found: dict[tuple[str, Query], Object | None] = {}
        self.namespace = namespace
        self.account = f"system:serviceaccount:{namespace}:visibility-api"
        self.own_arguments = own_arguments
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

    async def try_patch(self, path: str, body: Object) -> None:
        """Ask for a change that nothing keeps. Raises ClusterError."""
        headers = {"Content-Type": "application/merge-patch+json"}
        await self._client.patch(path, msgspec.json.encode(body), query=(("dryRun", "All"),), headers=headers)

    async def who(self) -> Object:
        """As whom kube-apiserver knows this client, and when by its clock. Raises ClusterError."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        return await self.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)

    async def acting(self) -> Look | None:
        """The same as the server's service account; None if this user may not act as it."""
        for client in (self._client, self._server):
            if client is None:
                continue
            look = Look(client, self.namespace)
            try:
                name = at(await look.who(), "status", "userInfo", "username")
            except ApiError as error:
                if error.status not in (401, 403):
                    raise
                continue
            if name == self.account:
                return look
        return None


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
            finding = fault(
                str(error),
                "check that kube-apiserver can be reached with this kubeconfig",
                is_last=isinstance(error, Unreachable),
            )
        found.append((name, finding))
        if finding.is_last:
            break
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
