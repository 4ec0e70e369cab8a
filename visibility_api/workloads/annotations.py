"""The annotations of a job that say where and how often to probe it, and when its conditions hold.

They are untrusted: every user who may edit a TrainJob can write them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import ProbeHints
from visibility_api.models.sources import SOURCES as READ_SOURCES
from visibility_api.models.wire import parse_duration_s

from . import thresholds

PREFIX = "visibility.trainer.kubeflow.org/"
MAX_PATH_BYTES = 1024
MIN_INTERVAL_S, MAX_INTERVAL_S = 1.0, 3600.0
PROBE_KEYS = ("source", "interval", "path", "port", "container")
KEYS = (*PROBE_KEYS, *thresholds.KEYS)
MAX_UNKNOWN = 3
NO_SOURCE = "none"  # switches probing off
SOURCES = (*READ_SOURCES, NO_SOURCE)

# The same settings under other projects' names; ours take precedence.
# Open Data Hub's, which count only with its opt-in: github.com/opendatahub-io/trainer/blob/main/pkg/rhai.
OPEN_DATA_HUB = "trainer.opendatahub.io/"
OPT_IN = OPEN_DATA_HUB + "progression-tracking"
OPEN_DATA_HUB_PORT = 28080
# KEP-2779 (github.com/kubeflow/trainer), in the variant that polls, which was not built.
MONITORING = "trainer.kubeflow.org/trainjob-monitoring-"
MIN_FOREIGN_INTERVAL_S, MAX_FOREIGN_INTERVAL_S = 5.0, 300.0  # Open Data Hub clamps to these, so do we

# Never read: credentials, and files that never end or whose reading has side effects.
FORBIDDEN_ROOTS = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")

TRACEPARENT = "opentelemetry.io/traceparent"  # as Tekton, and kubeflow/sdk#447
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_CONTAINER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class JobAnnotations(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The annotations of one job that are valid."""

    hints: ProbeHints
    path: str | None
    container: str | None
    port: int | None  # of the training process's own HTTP endpoint
    port_from: str  # the annotation's name; "" without a port


_NONE = JobAnnotations(hints=ProbeHints(), path=None, container=None, port=None, port_from="")


def read_annotations(annotations: Mapping[str, str] | None) -> JobAnnotations:
    """Parse the annotations; an invalid value is ignored and described in `hints.faults`."""
    if not annotations:
        return _NONE
    given = annotations
    faults: list[str] = []

    def refuse(key: str, accepted: str, prefix: str = PREFIX) -> None:
        faults.append(f"Annotation {prefix}{key} is ignored: {accepted}.")

    source = given.get(PREFIX + "source")
    if source is not None and source not in SOURCES:
        refuse("source", f"it must be one of {', '.join(SOURCES)}")
        source = None

    path = given.get(PREFIX + "path")
    if path is not None and (why := path_fault(path) or _climbs(path)):
        refuse("path", why)
        path = None

    container = given.get(PREFIX + "container")
    if container is not None and not _CONTAINER.fullmatch(container):
        refuse("container", "it must be a container name (RFC 1123 label)")
        container = None

    interval_s = _read_interval_s(given, refuse)
    port, port_from = _read_port(given, refuse)
    limits = thresholds.read_thresholds(given, PREFIX, refuse)

    # Otherwise a mistyped key would be ignored silently; a few are enough to point it out.
    unknown = sorted(k for k in given if k.startswith(PREFIX) and k.removeprefix(PREFIX) not in KEYS)
    for key in unknown[:MAX_UNKNOWN]:
        refuse(key.removeprefix(PREFIX), f"the known ones are {', '.join(KEYS)}")

    return JobAnnotations(
        hints=ProbeHints(
            source=source,
            interval_s=interval_s,
            thresholds=limits,
            traceparent=_read_traceparent(given),
            faults=tuple(faults),
        ),
        path=path,
        container=container,
        port=port,
        port_from=port_from,
    )


def _read_traceparent(given: Mapping[str, str]) -> str | None:
    """As W3C's Trace Context has it; anything else is nobody's fault here."""
    text = given.get(TRACEPARENT)
    is_valid = text is not None and _TRACEPARENT.fullmatch(text) is not None
    return text if is_valid else None


_Refuse = Callable[[str, str, str], None]  # key, what is accepted, prefix of the key


def _read_interval_s(given: Mapping[str, str], refuse: _Refuse) -> float | None:
    for prefix, _, key in _namings(given):
        text = given.get(prefix + key)
        if text is None:
            continue
        interval_s = parse_duration_s(
            text + "s" if text.isdigit() else text
        )  # Open Data Hub accepts `30` as well
        if interval_s is None:
            refuse(key, 'it must be a duration such as "30s" or "2m"', prefix)
        elif prefix != PREFIX:
            return max(MIN_FOREIGN_INTERVAL_S, min(MAX_FOREIGN_INTERVAL_S, interval_s))
        elif MIN_INTERVAL_S <= interval_s <= MAX_INTERVAL_S:
            return interval_s
        else:
            refuse(key, f"it must lie between {MIN_INTERVAL_S:g}s and {MAX_INTERVAL_S:g}s", prefix)
    return None


def _read_port(given: Mapping[str, str], refuse: _Refuse) -> tuple[int | None, str]:
    for prefix, key, _ in _namings(given):
        text = given.get(prefix + key)
        if text is None:
            continue
        if (port := parse_port(text)) is not None:
            return port, prefix + key
        refuse(key, "it must be a port number, 1 to 65535", prefix)
    if given.get(OPT_IN) == "true":
        return OPEN_DATA_HUB_PORT, OPT_IN
    return None, ""


def _namings(given: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Prefix and the keys of port and interval, for each naming that applies to this job."""
    yield PREFIX, "port", "interval"
    if given.get(OPT_IN) == "true":
        yield OPEN_DATA_HUB, "metrics-port", "metrics-poll-interval"
    yield MONITORING, "port", "interval"


def parse_port(text: str) -> int | None:
    """A decimal TCP port number, or None."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        return None
    return port if 1 <= (port := int(text)) <= 65535 else None


def _climbs(path: str) -> str:
    """`..` after a link leads where the text does not show: Debian's /var/lock/.. is /run."""
    return 'it must not contain ".."' if ".." in path.split("/") else ""


def path_fault(path: str) -> str:
    """Why a progress path is refused; "" when it is accepted. Links are not known here."""
    if not path.startswith("/") or "\0" in path:
        return "it must be an absolute path"
    if harmless(path) != path:
        return "it must consist of printable characters"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"it must not exceed {MAX_PATH_BYTES} bytes"
    plain = "/" + posixpath.normpath(path).lstrip("/")
    if any(plain == root or plain.startswith(root + "/") for root in FORBIDDEN_ROOTS):
        return f"files below {', '.join(FORBIDDEN_ROOTS)} are never read"
    return ""
