"""`kubectl_complete-trainjob_progress`: what kubectl asks for completion, by its plugin convention.

It prints a candidate on each line, then `:4`: no file names.
Reference: https://kubernetes.io/docs/reference/kubectl/ (KEP 2379, kubectl plugin completion).
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, List, Sequence

from .main import OUTPUTS, commands, ordered

_CHOICES = {
    ("-o", "--output"): OUTPUTS,
    ("--by",): ("namespace", "queue", "kind", "nodePool"),
    ("--window",): ("hour", "day", "whole"),
    ("--until",): ("done", "ended", "50%", "stalled", "diverged"),
}
_JOBS = ("get", "history", "logs", "wait", "compare", "why", "records")


def candidates(words: Sequence[str]) -> List[str]:
    """For the last word, which may be empty. Never raises: a shell has no place for errors."""
    before, last = list(words[:-1]), words[-1] if words else ""
    previous = before[-1] if before else ""
    for names, choices in _CHOICES.items():
        if previous in names:
            return [each for each in choices if each.startswith(last)]
    command, *rest = ordered(before) if before else ["get"]
    if last.startswith("-"):
        known = commands.commands.get(command)
        params = known.params if known is not None else []
        options = [name for each in params for name in each.opts if name.startswith("--")]
        return sorted(each for each in options if each.startswith(last))
    found = [] if before else list(commands.commands)
    with contextlib.suppress(Exception):  # of any kind: no cluster, no rights, a flag without its value
        found += _names(previous, command, rest)
    return sorted(each for each in found if each.startswith(last))


def _names(previous: str, command: str, rest: Sequence[str]) -> List[str]:
    from trainjob_client import kubeconfig
    from trainjob_client.requests import PREFIX

    from .api import Api
    from .listing import pages

    flags = _flags(command, rest)
    if previous == "--context":
        return kubeconfig.context_names(flags.get("kubeconfig"))
    api = Api(flags, end=time.monotonic())  # asked once, and briefly
    if previous in ("-n", "--namespace"):
        items = api.read("/api/v1/namespaces")["items"]
        return [each["metadata"]["name"] for each in items]
    if previous in ("-k", "--kind"):
        return [each["name"] for each in api.read(PREFIX)["resources"] if "/" not in each["name"]]
    return [row["NAME"] for rows, _, _ in pages(api) for row in rows] if command in _JOBS else []


def _flags(command: str, rest: Sequence[str]) -> "dict[str, Any]":
    """What is typed already, as far as it can be read."""
    found = commands.commands[command].make_context(command, list(rest), resilient_parsing=True).params
    return {key: value for key, value in found.items() if value}


def script() -> None:
    """The entry point."""
    print("\n".join([*candidates(sys.argv[1:]), ":4"]))
