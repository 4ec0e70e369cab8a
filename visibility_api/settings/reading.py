"""Settings from flags, variables and a file: --help, and every fault in one message."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from visibility_api import __version__

from .file import FileError
from .model import ENVIRONMENT_PREFIX, Settings
from .values import Conflict, Metavar, shown_value


class SettingsError(Exception):
    """One or more settings cannot be used; the message has a line for each."""


def read_settings(arguments: Sequence[str]) -> Settings:
    """The settings of `visibility-api serve ARGUMENTS`. Raises SettingsError; argparse exits on --help."""
    given = _parse(arguments)
    faults = []
    try:
        try:
            return Settings(**given)
        except FileError as error:  # what else is wrong is found without the file
            faults.append(str(error))
            Settings(**given | {"config": None})
    except ValidationError as error:
        config = given.get("config") or os.environ.get(_variable("config"), "")
        # A default that depends on other settings is not worked out when one of them has a fault.
        named = [fault for fault in error.errors() if fault["type"] != "default_factory_not_called"]
        faults.extend(_describe(fault, given, config) for fault in named)
    raise SettingsError("\n".join(faults))


def shown(settings: Settings) -> dict[str, str | int | bool | None]:
    """The effective values by name, for the log. Files are only named."""
    return {name: shown_value(getattr(settings, name)) for name in Settings.model_fields}


def _describe(fault: ErrorDetails, given: Mapping[str, object], config: object) -> str:
    """One line: which setting, the value and where it was given, what would be accepted."""
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f'--config "{config}": there is no setting "{name.strip()}"; names are those of the flags'
    error = fault.get("ctx", {}).get("error")
    if isinstance(error, Conflict):
        return str(error)
    value = fault["input"]
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    if "@" in str(text) and "://" in str(text):
        text = "[a URL with credentials]"
    where = ""
    if name not in given:
        is_variable = _variable(name) in map(str.upper, os.environ)
        where = f" in {_variable(name) if is_variable else config}"
    return f'{_flag(name)} "{text}"{where}: {error or fault["msg"]}'


# The first field of each part of --help.
_PARTS = {
    "kubeconfig": "the cluster",
    "bind_address": "serving",
    "trusted_proxy_client_ca_file": "a proxy that authenticates users",
    "sources": "progress",
}


def _parse(arguments: Sequence[str]) -> dict[str, Any]:
    """The flags that were given, by name of the field, as text."""
    parser = argparse.ArgumentParser(
        prog="visibility-api serve",
        usage="visibility-api serve [FLAG ...]",
        description="Serve the progress of training jobs as an aggregated Kubernetes API.",
        epilog="Each flag can also be set by a variable, for instance --probe-interval by"
        f" {_variable('probe_interval')}, and in a file (--config). A flag takes precedence over a"
        " variable, and a variable over the file.",
        allow_abbrev=False,
        add_help=False,
    )
    part: argparse._ArgumentGroup = parser.add_argument_group("general")
    part.add_argument("-h", "--help", action="help", help="show this text")
    version = f"trainjob-visibility {__version__}"
    part.add_argument("--version", action="version", version=version, help="show the version")
    for name, field in Settings.model_fields.items():
        if name in _PARTS:
            part = parser.add_argument_group(_PARTS[name])
        _add(part, name, field)
    parsed = {name: values for name, values in vars(parser.parse_args(list(arguments))).items() if values}
    # The last one counts, but lists add up: each part of a deployment adds its own.
    return {name: ",".join(values) if _is_list(name) else values[-1] for name, values in parsed.items()}


def _add(part: argparse._ArgumentGroup, name: str, field: FieldInfo) -> None:
    metavar = next(meta.text for meta in field.metadata if isinstance(meta, Metavar))
    default = None if field.default_factory else shown_value(field.default)
    text = f"{field.description}"
    if default not in (None, "", False):
        text += f" (default: {default})"
    optional: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
    names = ["-v", "--v"] if name == "v" else [_flag(name)]
    part.add_argument(
        *names, dest=name, action="append", metavar=metavar, help=text.replace("%", "%%"), **optional
    )


def _is_list(name: str) -> bool:
    return isinstance(Settings.model_fields[name].default, tuple)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()
