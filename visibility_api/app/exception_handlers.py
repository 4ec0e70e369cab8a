"""Exceptions of FastAPI's operations and router as the error responses of a Kubernetes API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visibility_api.auth.errors import AuthError
from visibility_api.errors.status import (
    BadRequest,
    InternalError,
    MethodNotAllowed,
    PageNotFound,
    RequestEntityTooLarge,
    RequestError,
    UnknownRoute,
)
from visibility_api.errors.text import quote

from .documents import to_response
from .refusal import refuse

MAX_REPEATED_CHARACTERS = 64  # of a parameter, in the error about it
# What a parameter accepts, by the type of pydantic's error. A ValueError of ours says it itself.
_ACCEPTED = {
    "bool_parsing": "true or false",
    **dict.fromkeys(
        ("int_parsing", "int_parsing_size", "greater_than_equal", "less_than_equal"),
        "a whole number from {ge} to {le}",
    ),
    "string_too_short": "a name",
    "too_long": "given at most {max_length} times",
    "value_error": "{error}",
}


def add_exception_handlers(app: FastAPI) -> None:
    """Every exception becomes a Status, or the API server's own text outside the API groups."""
    app.add_exception_handler(RequestError, _raised)
    app.add_exception_handler(AuthError, _raised)
    app.add_exception_handler(TimeoutError, _raised)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(Exception, _raised)  # unforeseen: the chain logs it


async def _raised(request: Request, error: Exception) -> Response:
    return to_response(refuse(error, scope=request.scope, query=request.scope["request_info"].query))


async def _invalid(request: Request, error: Exception) -> Response:
    """The first parameter that does not fit: a 400, as in the API server."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it alone
    return await _raised(request, _bad_parameter(request.scope["route"], error.errors()[0]))


def _bad_parameter(route: APIRoute, fault: Mapping[str, Any]) -> BadRequest:
    """Names the parameter, what it accepts, and the value, cut."""
    bounds = {"ge": "-2^63", "le": "2^63"}
    for field in route.dependant.query_params:
        if field.alias == fault["loc"][1]:
            for bound in field.field_info.metadata:
                bounds |= {name: str(getattr(bound, name)) for name in ("ge", "le") if hasattr(bound, name)}
    accepted = _ACCEPTED.get(fault["type"], "valid").format_map(bounds | fault.get("ctx", {}))
    given = fault["input"]
    shown = f", not {quote(given[:MAX_REPEATED_CHARACTERS])}" if isinstance(given, str) else ""
    return BadRequest(f"{fault['loc'][1]} must be {accepted}{shown}")


async def _http_exception(request: Request, error: Exception) -> Response:
    """What FastAPI itself raises: of the router, and for a body that is too long."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it alone
    refused: RequestError
    match error.status_code:
        case 404:
            is_resource = request.scope["request_info"].attributes.is_resource
            refused = UnknownRoute() if is_resource else PageNotFound()
        case 405:
            refused = MethodNotAllowed()
        case 413:
            refused = RequestEntityTooLarge(str(error.detail))
        case _:
            refused = InternalError()
    response = await _raised(request, refused)
    response.headers.update(error.headers or {})
    return response
