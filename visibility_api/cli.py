"""The commands: `serve`, `check`, `openapi`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from visibility_api import __version__

USAGE = """usage: visibility-api COMMAND [FLAGS]

commands:
  serve    serve the API; `visibility-api serve --help` lists the flags
  check    check every link from kube-apiserver to the jobs, and say what to mend
  openapi  write the published OpenAPI documents

Each command has --help.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 when the command failed, 2 when the command line is not valid."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, *rest = given or ["--help"]
    if command in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if command == "--version":
        print(f"trainjob-visibility {__version__}")
        return 0
    if command not in _COMMANDS:
        print(f'visibility-api: there is no command "{command}"\n\n{USAGE}', end="", file=sys.stderr)
        return 2
    return _COMMANDS[command](rest)


def _serve(arguments: Sequence[str]) -> int:
    gc.disable()  # until all is imported, which makes no garbage: the assembly switches it on
    from visibility_api.settings import SettingsError, read_settings  # not needed by the other commands

    try:
        settings = read_settings(arguments)
    except SettingsError as error:
        print(f"visibility-api serve: these settings cannot be used:\n{error}", file=sys.stderr)
        return 2
    from visibility_api.serving import UntestedUvicorn, require_tested_uvicorn

    try:
        require_tested_uvicorn()  # first: with another version the next import may fail
    except UntestedUvicorn as error:
        return _failed(f"serve: {error}")
    from visibility_api.server import StartFailed, run

    try:
        run(settings)
    except StartFailed as error:
        return _failed(f"serve: {error}")
    return 0


def _openapi(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="visibility-api openapi", description="Write the OpenAPI documents as the server publishes them."
    )
    parser.add_argument("--out", type=Path, default=Path("openapi"), metavar="DIR", help="default: openapi/")
    out: Path = parser.parse_args(list(arguments)).out
    try:
        out.mkdir(parents=True, exist_ok=True)
        for document in files("visibility_api").joinpath("openapi").iterdir():
            (out / document.name).write_bytes(document.read_bytes())
            print(out / document.name)
    except OSError as error:
        return _failed(f"openapi: cannot write: {error}")
    return 0


def _check(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="visibility-api check",
        description="Check every link between a user's request and a job's progress, in order, and say what"
        " mends it. Nothing is changed. The exit code is 0 without a fault, 1 with one.",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="an administrator's; default: $KUBECONFIG, ~/.kube/config, or the pod's service account",
    )
    parser.add_argument(
        "--namespace", default="trainjob-visibility", help="of the server; default: trainjob-visibility"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    given = parser.parse_args(list(arguments))
    from visibility_api.installation.links import check_installation
    from visibility_api.installation.report import describe, encode, is_good
    from visibility_api.kube.errors import ClusterError

    try:
        found = asyncio.run(check_installation(given.kubeconfig or _kubeconfig(), given.namespace))
    except ClusterError as error:
        return _failed(f"check: {error}")
    print(encode(found) if given.output == "json" else describe(found), end="")
    return 0 if is_good(found) else 1


def _kubeconfig() -> Path | None:
    """As kubectl finds it. None in a pod without one."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if named:
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if usual.exists() else None


def _failed(why: str) -> int:
    print(f"visibility-api {why}", file=sys.stderr)
    return 1


_COMMANDS = {"serve": _serve, "check": _check, "openapi": _openapi}
