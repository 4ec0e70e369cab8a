"""Push: a training pod posts its progress in Kubeflow Trainer's protocol, to either of two paths."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from visibility_api.app.documents import whole
from visibility_api.errors.status import UnknownRoute
from visibility_api.models.meta_v1 import Status
from visibility_api.models.served import GROUP
from visibility_api.pushing.body import ClientGone
from visibility_api.pushing.endpoint import Admitted, PushEndpoint

router = APIRouter(tags=["push"])

GROUPS = ("trainer.kubeflow.org", GROUP)  # Kubeflow Trainer's own path, and ours
OTHER_METHODS = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]
_JSON = (b"content-type", b"application/json")
CLIENT_CLOSED_REQUEST = 499  # as nginx logs it; the client does not receive it

# What `admit` and `take` read themselves: FastAPI's resolution would double the cost of a push.
_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
_BODY = {"application/json": {"schema": {"$ref": "#/components/schemas/TrainerStatusUpdate"}}}
_DESCRIPTION: dict[str, Any] = {
    "parameters": [
        {"name": name, "in": "path", "required": True, "schema": _NAME, "description": description}
        for name, description in (
            ("namespace", "The TrainJob's namespace."),
            ("name", "The TrainJob's name."),
        )
    ],
    "requestBody": {"content": _BODY, "required": True},
    "security": [{"BearerToken": []}],
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    403: {"description": "No token, or one that is not bound to a pod of this TrainJob."},
    404: {"description": "No such TrainJob."},
    413: {"description": "The body is too long, by its Content-Length."},
    422: {"description": "The body cannot be read; the message names the field."},
    429: {"description": "Too many pushes; try again after Retry-After."},
    503: {"description": "The TrainJobs of this namespace are not known yet; try again after Retry-After."},
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": _BODY},
    **{code: {**refusal, "model": Status} for code, refusal in _REFUSALS.items()},
}


async def admit(request: Request) -> Admitted:
    """Authenticates a push: the token must be bound to a pod of the job that the path names."""
    pushes: PushEndpoint = request.app.state.pushes
    client = request.scope.get("client")
    scope = request.scope
    return await pushes.admit(scope["method"], scope["path"], scope["headers"], client[0] if client else "")


async def update_status(request: Request, admitted: Annotated[Admitted, Depends(admit)]) -> Response:
    """The response repeats the fields that were understood."""
    pushes: PushEndpoint = request.app.state.pushes
    try:
        echo = await pushes.take(admitted, request.receive)
    except ClientGone:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return whole(echo, "application/json")


async def refuse_method() -> Response:
    """404 for any other method: `status` can only be pushed to."""
    raise UnknownRoute


async def call(scope: Scope, receive: Receive, send: Send) -> None:
    """What `admit` and `update_status` do, as raw ASGI.

    Pushes are frequent, and FastAPI's layers, router, resolution and responses would double the cost of each:
    docs/decisions/0011-fastapi.md has figures.
    """
    pushes: PushEndpoint = scope["app"].state.pushes
    headers, client = scope["headers"], scope.get("client")
    admitted = await pushes.admit(scope["method"], scope["path"], headers, client[0] if client else "")
    status, body = 200, b""
    try:
        body = await pushes.take(admitted, receive)
    except ClientGone:
        status = CLIENT_CLOSED_REQUEST
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length]})
    await send({"type": "http.response.body", "body": body})


for _group in GROUPS:
    _path = f"/apis/{_group}/v1alpha1/namespaces/{{namespace}}/trainjobs/{{name}}/status"
    router.add_api_route(
        _path,
        update_status,
        methods=["POST"],
        responses=_RESPONSES,
        response_model=None,
        openapi_extra=_DESCRIPTION,
        summary="Report a job's progress",
        operation_id=f"update_status_{_group.split('.')[0]}",
    )
    router.add_api_route(_path, refuse_method, methods=OTHER_METHODS, include_in_schema=False)
