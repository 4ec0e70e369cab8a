"""Where a process should report, read from its environment."""

from __future__ import annotations

import os
import time

from . import redaction
from .publisher import warn
from .sinks.file import FileSink, TerminationSink
from .termination import let_through
from .values import show, to_amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional

    from .sinks import Sink

DEFAULT_PATH = "/tmp/trainjob-progress.json"  # noqa: S108 — the directory that nearly every image may write to
DEFAULT_TERMINATION_PATH = "/dev/termination-log"
# Id of the process that reports, for its children: whatever way they are made, they do not report too.
OWNER_VARIABLE = "TRAINJOB_PROGRESS_OWNER"
# Set by the wrapper of a command: its process, and a file by which a reporter in the command takes its place.
WRAPPER_VARIABLE = "TRAINJOB_PROGRESS_WRAPPER"
YIELD_S = 0.5  # how long that reporter waits for the wrapper to have left a port


def find_sinks(
    environ: Optional[Mapping[str, str]] = None, *, bar: bool = False, without_push: bool = False
) -> list[Sink]:
    """The sinks that the environment asks for. None off a cluster, unless a variable names one.

    None either in a child of a process that reports: two would take turns in one file. But a wrapper, which
    only reads what is printed, makes room.
    A variable that makes no sense costs one line on stderr and that sink.
    """
    environ = os.environ if environ is None else environ
    owner = environ.get(OWNER_VARIABLE, str(os.getpid()))
    if owner != str(os.getpid()):
        wrapper, _, path = environ.get(WRAPPER_VARIABLE, "").partition(":")
        if wrapper != owner or not _replace_wrapper(path):
            return []
    sinks = []
    finders = [_find_file, _find_termination, _find_log, _find_endpoint]
    if not without_push:
        finders.append(_find_push)
    for find in finders:
        sinks += _try(find, environ)
    for name in environ.get("TRAINJOB_PROGRESS_SINKS", "").replace(",", " ").split():
        sinks += _try(lambda environ: _find_named(name, environ), environ)  # noqa: B023 — called at once
    if bar or environ.get("TRAINJOB_PROGRESS_BAR", "0") not in ("", "0"):
        sinks += _try(lambda _: _make_bar(), environ)
    return sinks


def _replace_wrapper(path: str) -> bool:
    """Ask the wrapper to report no more, and wait a moment until it does not."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        deadline_s = time.monotonic() + YIELD_S
        while os.path.exists(path) and time.monotonic() < deadline_s:
            time.sleep(0.005)
    except OSError:
        return False
    return True


def check_sinks(given: Any) -> tuple[Optional[list[Sink]], Optional[str]]:  # noqa: ANN401 — of anybody's
    """The sinks among what was given, and what is to be said of the rest. None: those of the environment."""
    if given is None:
        return None, None
    try:
        offered = [given] if _is_sink(given) else list(given)
        sinks = [one for one in offered if _is_sink(one)]
        if len(sinks) == len(offered) and not isinstance(given, (str, bytes)):
            return sinks, None
    except Exception as error:  # no list, or a foreign type's own trouble
        let_through(error)
        sinks = []
    used = f"{len(sinks)} of them" if sinks else "what the environment asks for"
    return sinks or None, f"sinks={show(given)} need write, close and interval_s each: {used} is used"


def _is_sink(one: Any) -> bool:  # noqa: ANN401
    if isinstance(one, type) or not (callable(getattr(one, "write", None)) and hasattr(one, "close")):
        return False
    return to_amount(getattr(one, "interval_s", None)) is not None


def find_attempt(environ: Optional[Mapping[str, str]] = None) -> Optional[int]:
    """How often this training was started before, where the launcher says so."""
    environ = os.environ if environ is None else environ
    text = environ.get("TRAINJOB_ATTEMPT") or environ.get("TORCHELASTIC_RESTART_COUNT") or ""
    return int(text) if text.isdecimal() else None


def _try(find: Callable[[Mapping[str, str]], Optional[Sink]], environ: Mapping[str, str]) -> list[Sink]:
    try:
        sink = find(environ)
    except Exception as error:
        let_through(error)
        warn(f"one place to report to is left out: {redaction.describe(error)}")
        return []
    return [] if sink is None else [sink]


def find_rank_file(environ: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The path beside which a rank writes its own file. None where none is written, as in a child of a
    process that reports; its wrapper is none."""
    environ = os.environ if environ is None else environ
    owner = environ.get(OWNER_VARIABLE, str(os.getpid()))
    if owner != str(os.getpid()) and owner != environ.get(WRAPPER_VARIABLE, "").partition(":")[0]:
        return None
    return _find_path(environ)


def _find_file(environ: Mapping[str, str]) -> Optional[Sink]:
    path = _find_path(environ)
    return FileSink(path) if path else None


def _find_path(environ: Mapping[str, str]) -> Optional[str]:
    path = environ.get("TRAINJOB_PROGRESS_FILE")
    if path is None and _is_in_pod(environ):
        path = DEFAULT_PATH
    return path or None


def _find_termination(environ: Mapping[str, str]) -> Optional[Sink]:
    path = environ.get("TRAINJOB_TERMINATION_MESSAGE_PATH")
    if path is None and _is_in_pod(environ) and os.path.exists(DEFAULT_TERMINATION_PATH):
        path = DEFAULT_TERMINATION_PATH
    return TerminationSink(path) if path else None


# The rest is imported when it is asked for: most processes need none of it.


def _find_log(environ: Mapping[str, str]) -> Optional[Sink]:
    if environ.get("TRAINJOB_PROGRESS_LOG", "0") in ("", "0"):
        return None
    from .sinks.log import LogSink

    return LogSink()


def _find_endpoint(environ: Mapping[str, str]) -> Optional[Sink]:
    port = environ.get("TRAINJOB_PROGRESS_PORT")
    if not port:
        return None
    from .sinks.http import HTTPSink

    return HTTPSink(int(port))


def _find_push(environ: Mapping[str, str]) -> Optional[Sink]:
    if not environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
        return None
    from .sinks.push import find_push_sink

    return find_push_sink(environ)


def _find_named(name: str, environ: Mapping[str, str]) -> Optional[Sink]:
    from .trackers import find_named

    return find_named(name, environ)


def _make_bar() -> Sink:
    from .sinks.bar import make_bar

    sink: Sink = make_bar()
    return sink


def _is_in_pod(environ: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environ  # set by the kubelet in every container
