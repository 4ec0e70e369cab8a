"""`/version`: the version of this server."""

from __future__ import annotations

import platform
import sys

from fastapi import APIRouter

from visibility_api import __version__
from visibility_api.models.version import VersionInfo

router = APIRouter(tags=["version"])

_MAJOR, _MINOR, *_ = [*__version__.split("."), "", ""]
_VERSION = VersionInfo(
    major=_MAJOR,
    minor=_MINOR,
    git_version=f"v{__version__}",
    git_commit="",
    git_tree_state="",
    build_date="",
    go_version=f"{sys.implementation.name}{platform.python_version()}",  # there is no other field for it
    compiler=sys.implementation.name,
    platform=f"{sys.platform}/{platform.machine()}",
)


@router.api_route("/version", methods=["GET", "HEAD"])
async def version() -> VersionInfo:
    """The version of this server, in the form of every Kubernetes component."""
    return _VERSION
