"""What a job's annotations may ask of us. Hostile: whoever may edit a TrainJob writes them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from visibility_api.progress.duration import parse_duration_s
from visibility_api.progress.job import ProbeHints

PREFIX = "visibility.trainer.kubeflow.org/"
DEFAULT_PATH = "/tmp/trainjob-progress.json"  # noqa: S108 - inside the training container
PATH_VARIABLE = "TRAINJOB_PROGRESS_FILE"
MAX_PATH_BYTES = 1024
MIN_INTERVAL_S, MAX_INTERVAL_S = 1.0, 3600.0
KEYS = ("source", "interval", "path", "container")
MAX_UNKNOWN = 3
SOURCES = ("exec", "none")

# Never read, whoever asks: credentials, and files whose reading has effects or no end.
FORBIDDEN_ROOTS = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")

_CONTAINER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The annotations of one job, checked."""

    hints: ProbeHints
    path: str | None
    container: str | None


def read_annotations(annotations: Mapping[str, str] | None) -> Wishes:
    """What the annotations ask for; a value that cannot be used is left out and named in `hints.faults`."""
    given = annotations or {}
    faults: list[str] = []

    def refuse(key: str, accepted: str) -> None:
        faults.append(f"annotation {PREFIX}{key} is ignored: {accepted}")

    source = given.get(PREFIX + "source")
    if source is not None and source not in SOURCES:
        refuse("source", f"it must be one of {', '.join(SOURCES)}")
        source = None

    interval_s: float | None = None
    if (text := given.get(PREFIX + "interval")) is not None:
        interval_s = parse_duration_s(text + "s" if text.isdigit() else text)  # `30` occurs as well (1.2)
        if interval_s is None:
            refuse("interval", 'it must be a duration such as "30s" or "2m"')
        elif not MIN_INTERVAL_S <= interval_s <= MAX_INTERVAL_S:
            refuse("interval", f"it must lie between {MIN_INTERVAL_S:g}s and {MAX_INTERVAL_S:g}s")
            interval_s = None

    path = given.get(PREFIX + "path")
    if path is not None and (why := path_fault(path)):
        refuse("path", why)
        path = None

    container = given.get(PREFIX + "container")
    if container is not None and not _CONTAINER.fullmatch(container):
        refuse("container", "it must be a container name (RFC 1123 label)")
        container = None

    # A mistyped key would be ignored in silence otherwise; a few are enough to say so.
    unknown = sorted(k for k in given if k.startswith(PREFIX) and k.removeprefix(PREFIX) not in KEYS)
    for key in unknown[:MAX_UNKNOWN]:
        refuse(key.removeprefix(PREFIX), f"known are {', '.join(KEYS)}")

    return Wishes(
        hints=ProbeHints(source=source, interval_s=interval_s, faults=tuple(faults)),
        path=path,
        container=container,
    )


def path_fault(path: str) -> str:
    """Why a progress path is refused, "" when it may be read."""
    if not path.startswith("/") or "\0" in path:
        return "it must be an absolute path"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"it must not exceed {MAX_PATH_BYTES} bytes"
    plain = "/" + posixpath.normpath(path).lstrip("/")
    if any(plain == root or plain.startswith(root + "/") for root in FORBIDDEN_ROOTS):
        return f"files below {', '.join(FORBIDDEN_ROOTS)} are never read"
    return ""
