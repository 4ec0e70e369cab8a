"""What handlers receive and return. Knows HTTP, nothing about objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from localcluster.apiserver.identity import User
from localcluster.apiserver.rbac import Attributes
from localcluster.apiserver.request_info import RequestInfo
from localcluster.machinery.status import ApiError

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One authorized request on its way to a handler."""

    request: web.Request
    info: RequestInfo
    user: User
    query: Mapping[str, str]  # first occurrence of each parameter


def attributes(user: User, info: RequestInfo) -> Attributes:
    """The attributes of a request that authorization decides on."""
    if not info.is_resource:
        return Attributes(user=user, verb=info.verb, path=info.path)
    return Attributes(
        user=user,
        verb=info.verb,
        group=info.group,
        version=info.version,
        resource=info.resource,
        subresource=info.subresource,
        namespace=info.namespace,
        name=info.name,
    )


def json_response(
    body: Any,  # noqa: ANN401 - JSON of any shape, or bytes of it
    status: int = 200,
) -> web.Response:
    encoded = body if isinstance(body, bytes) else _encode(body)
    return web.Response(body=encoded + b"\n", status=status, headers={"Content-Type": "application/json"})


def status_response(error: ApiError) -> web.Response:
    response = json_response(error.body(), error.code)
    if retry_after_s := (error.details or {}).get("retryAfterSeconds"):
        response.headers["Retry-After"] = str(retry_after_s)
    if error.code == 403:
        response.headers["X-Content-Type-Options"] = "nosniff"
    return response
