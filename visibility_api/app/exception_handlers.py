"""Exceptions of FastAPI's operations and router as the error responses of a Kubernetes API server."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visibility_api.auth.errors import AuthError
from visibility_api.errors.status import (
    BadRequest,
    Cause,
    Details,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotFound,
    PageNotFound,
    RequestEntityTooLarge,
    RequestError,
    Timeout,
    TooManyRequests,
    Unavailable,
    UnknownRoute,
)

from .documents import to_response
from .refusal import refuse

# What an operation may raise as FastAPI's HTTPException, by code; anything else is a fault of ours.
_NAMED = (BadRequest, Forbidden, NotFound, RequestEntityTooLarge, Invalid, TooManyRequests, Unavailable)
_BY_CODE: dict[int, Callable[[str], RequestError]] = {error.code: error for error in _NAMED}


def add_exception_handlers(app: FastAPI) -> None:
    """Every exception becomes a Status, or the API server's own text outside the API groups."""
    app.add_exception_handler(RequestError, _raised)
    app.add_exception_handler(AuthError, _raised)
    app.add_exception_handler(TimeoutError, _timed_out)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(Exception, _raised)  # unforeseen: the chain logs it


async def _raised(request: Request, error: Exception) -> Response:
    return to_response(refuse(error, scope=request.scope, query=request.scope["request_info"].query))


async def _timed_out(request: Request, _: Exception) -> Response:
    """What an operation waited for did not come in time."""
    return await _raised(request, Timeout("request did not complete within the allotted timeout"))


async def _invalid(request: Request, error: Exception) -> Response:
    """Parameters or a body that FastAPI could not validate: the fields and their faults, never the values."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it alone
    causes = tuple(
        Cause(
            reason="FieldValueInvalid",
            message=fault["msg"],
            field=".".join(str(part) for part in fault["loc"]),
        )
        for fault in error.errors()
    )
    text = "; ".join(f"{cause.field}: {cause.message}" for cause in causes)
    return await _raised(request, Invalid(f"the request is invalid: {text}", details=Details(causes=causes)))


async def _http_exception(request: Request, error: Exception) -> Response:
    """The router's 404 and 405, and whatever an operation raises by FastAPI's own class."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it alone
    refused = _translate(error, is_resource=request.scope["request_info"].attributes.is_resource)
    response = await _raised(request, refused)
    response.headers.update(error.headers or {})
    return response


def _translate(error: HTTPException, *, is_resource: bool) -> RequestError:
    if error.detail == HTTPStatus(error.status_code).phrase:  # as Starlette's router raises them
        if error.status_code == 404:
            return UnknownRoute() if is_resource else PageNotFound()
        if error.status_code == 405:
            return MethodNotAllowed()
    make = _BY_CODE.get(error.status_code)
    return make(str(error.detail)) if make is not None else InternalError()
