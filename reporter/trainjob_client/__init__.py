"""Progress of training jobs from Python, with the kubeconfig's or the pod's own rights.

    from trainjob_client import Client

    with Client() as client:
        print(client.get_job("bert").progress)

`pip install './reporter[client]'` in a checkout brings what it needs. Training code does not import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .client import Client
    from .connection import Connection
    from .errors import (
        ApiError,
        ClientError,
        ConfigError,
        ForbiddenError,
        JobEndedError,
        NotFoundError,
        UnauthorizedError,
        UnreachableError,
    )
    from .history import JobHistory
    from .jobs import Job, JobEvent
    from .records import JobRecord, JobRecords

_HOMES = {
    "ApiError": "errors",
    "AsyncClient": "async_client",
    "Client": "client",
    "ClientError": "errors",
    "ConfigError": "errors",
    "Connection": "connection",
    "ForbiddenError": "errors",
    "Job": "jobs",
    "JobEndedError": "errors",
    "JobEvent": "jobs",
    "JobHistory": "history",
    "JobRecord": "records",
    "JobRecords": "records",
    "NotFoundError": "errors",
    "UnauthorizedError": "errors",
    "UnreachableError": "errors",
}
__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "ConfigError",
    "Connection",
    "ForbiddenError",
    "Job",
    "JobEndedError",
    "JobEvent",
    "JobHistory",
    "JobRecord",
    "JobRecords",
    "NotFoundError",
    "UnauthorizedError",
    "UnreachableError",
]


def __getattr__(name: str) -> Any:
    """Each when it is first used: a command in a terminal needs few of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("httpx", "pydantic", "yaml"):
            raise ModuleNotFoundError(
                f"trainjob_client needs {error.name}: "
                "pip install './reporter[client]' in a checkout (docs/python.md)",
                name=error.name,
            ) from error
        raise
    globals()[name] = found
    return found


def __dir__() -> "list[str]":
    return __all__
