"""The commands: `serve`, `openapi`, `certificate`."""

from __future__ import annotations

import argparse
import gc
import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from visibility_api import __version__

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)

USAGE = """usage: visibility-api COMMAND [FLAGS]

commands:
  serve        serve the API; `visibility-api serve --help` lists the flags
  openapi      write the published OpenAPI documents
  certificate  make a serving certificate and its CA, for deploy/base

Each command has --help.
"""

MAX_CERTIFICATE_DAYS = 36500


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


def _certificate(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="visibility-api certificate",
        description="Make a CA and a serving certificate signed by it, as ca.crt, tls.crt and tls.key. "
        "The CA's key is not kept: to renew, run this with --renew and apply the kustomization again.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory of the files")
    parser.add_argument("--service", default="visibility-api", help="default: visibility-api")
    parser.add_argument("--namespace", default="trainjob-visibility", help="default: trainjob-visibility")
    parser.add_argument("--days", type=int, default=365, help="validity in days; default: 365")
    parser.add_argument(
        "--renew",
        action="store_true",
        help="replace the files of an earlier run; its CA stays in ca.crt beside the new one, so that "
        "replicas which serve the former certificate are trusted until they restart",
    )
    given = parser.parse_args(list(arguments))
    for flag, value in (("--service", given.service), ("--namespace", given.namespace)):
        if not _LABEL.fullmatch(value):
            parser.error(f"{flag} {value!r}: give the name of a {flag[2:]}")
    if not 1 <= given.days <= MAX_CERTIFICATE_DAYS:
        parser.error(f"--days {given.days}: give a whole number from 1 to {MAX_CERTIFICATE_DAYS}")
    from visibility_api.auth.errors import TrustUnusable
    from visibility_api.serving.certificate import write_serving_certificate

    name = f"{given.service}.{given.namespace}.svc"
    try:
        files = write_serving_certificate(
            given.out, names=[name, f"{name}.cluster.local"], days=given.days, renew=given.renew
        )
    except TrustUnusable as error:
        return _failed(f"certificate: {error}")
    for path in files:
        print(path)
    return 0


def _failed(why: str) -> int:
    print(f"visibility-api {why}", file=sys.stderr)
    return 1


_COMMANDS = {"serve": _serve, "openapi": _openapi, "certificate": _certificate}
