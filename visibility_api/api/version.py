"""`/version`: which build answers, in the form of every Kubernetes component (D20)."""

from __future__ import annotations

import platform
import sys

import msgspec

from visibility_api import __version__

from .message import Handler, Request, Response


def version_endpoint() -> dict[str, Handler]:
    """The document is fixed for the life of the process. Fields that a Python build lacks are empty."""
    major, minor, *_ = [*__version__.split("."), "", ""]
    implementation = f"{sys.implementation.name}{platform.python_version()}"
    body = (
        msgspec.json.encode(
            {
                "major": major,
                "minor": minor,
                "gitVersion": f"v{__version__}",
                "gitCommit": "",
                "gitTreeState": "",
                "buildDate": "",
                "goVersion": implementation,  # clients print it; there is no field for anything but Go
                "compiler": sys.implementation.name,
                "platform": f"{sys.platform}/{platform.machine()}",
            }
        )
        + b"\n"
    )

    async def show(_: Request) -> Response:
        return Response(body=body)

    return {"/version": show}
