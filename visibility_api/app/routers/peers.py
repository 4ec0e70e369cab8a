"""The state of the jobs for other replicas of this server, which the chain has recognised."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from visibility_api.errors import PageNotFound
from visibility_api.peers.giving import HISTORY_PATH, PATH, StateGiver

router = APIRouter()


@router.get(PATH, include_in_schema=False)
async def state(request: Request) -> StreamingResponse:
    """One frame for each job (`visibility_api/peers/frames.py`)."""
    return StreamingResponse(_giver(request).stream(), media_type="application/octet-stream")


@router.get(HISTORY_PATH, include_in_schema=False)
async def histories(request: Request) -> StreamingResponse:
    """The same of their histories."""
    return StreamingResponse(_giver(request).stream_histories(), media_type="application/octet-stream")


def _giver(request: Request) -> StateGiver:
    if not request.scope.get("is_of_a_peer"):  # a user with rights to every path, who wrote it differently
        raise PageNotFound
    giver: StateGiver = request.app.state.peers
    return giver
