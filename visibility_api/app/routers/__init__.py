"""The FastAPI operations, a router for each subject."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from . import diagnose, history, log_tail

# Of each job, by the names that `models/served.py` gives them. `make openapi` publishes them.
SUBRESOURCES: Mapping[str, APIRouter] = {
    "diagnose": diagnose.router,
    "history": history.router,
    "log-tail": log_tail.router,
}
