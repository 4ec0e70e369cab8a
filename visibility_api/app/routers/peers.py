"""What other replicas of this server ask for and relay; the chain has recognised them."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, StreamingResponse

from visibility_api.errors.status import PageNotFound
from visibility_api.peers.giving import HISTORY_PATH, PATH, StateGiver
from visibility_api.pushing.endpoint import PushEndpoint
from visibility_api.pushing.relayed import PATH as PUSHES_PATH, decode_pushes

router = APIRouter()


@router.get(PATH, include_in_schema=False)
async def state(request: Request) -> StreamingResponse:
    """One frame for each job (`visibility_api/peers/frames.py`)."""
    return StreamingResponse(_giver(request).stream(), media_type="application/octet-stream")


@router.get(HISTORY_PATH, include_in_schema=False)
async def histories(request: Request) -> StreamingResponse:
    """The same of their histories."""
    return StreamingResponse(_giver(request).stream_histories(), media_type="application/octet-stream")


@router.post(PUSHES_PATH, include_in_schema=False)
async def pushes(request: Request) -> JSONResponse:
    """Takes pushes; the response says how many of them were refused."""
    _check(request)
    endpoint: PushEndpoint | None = request.app.state.pushes
    if endpoint is None:
        raise PageNotFound
    refused = await endpoint.take_relayed(decode_pushes(await request.body()))
    return JSONResponse({"refused": refused})


def _giver(request: Request) -> StateGiver:
    _check(request)
    giver: StateGiver = request.app.state.peers
    return giver


def _check(request: Request) -> None:
    if not request.scope.get("is_of_a_peer"):  # a user with rights to every path, who wrote it differently
        raise PageNotFound
