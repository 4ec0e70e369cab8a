"""The commands: `serve`, `openapi`."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from visibility_api import __version__

USAGE = """usage: visibility-api COMMAND [FLAGS]

commands:
  serve    serve the API; `visibility-api serve --help` lists the flags
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


def _failed(why: str) -> int:
    print(f"visibility-api {why}", file=sys.stderr)
    return 1


_COMMANDS = {"serve": _serve, "openapi": _openapi}
