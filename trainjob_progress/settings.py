"""Where a process should report, read from its environment."""

from __future__ import annotations

import os
from typing import Mapping, Optional

from .sinks import Sink
from .sinks.file import FileSink, TerminationSink

DEFAULT_PATH = "/tmp/trainjob-progress.json"  # noqa: S108 — the one directory that nearly every image lets its user write
DEFAULT_TERMINATION_PATH = "/dev/termination-log"


def find_sinks(environ: Optional[Mapping[str, str]] = None) -> list[Sink]:
    """The sinks that the environment asks for. None off a cluster, unless a variable names one."""
    environ = os.environ if environ is None else environ
    sinks: list[Sink] = []
    path = environ.get("TRAINJOB_PROGRESS_FILE")
    termination_path = environ.get("TRAINJOB_TERMINATION_MESSAGE_PATH")
    if "KUBERNETES_SERVICE_HOST" in environ:  # set by the kubelet in every container
        path = path if path is not None else DEFAULT_PATH
        if termination_path is None and os.path.exists(DEFAULT_TERMINATION_PATH):
            termination_path = DEFAULT_TERMINATION_PATH
    if path:
        sinks.append(FileSink(path))
    if termination_path:
        sinks.append(TerminationSink(termination_path))
    return sinks


def find_attempt(environ: Optional[Mapping[str, str]] = None) -> Optional[int]:
    """How often this training was started before, where the launcher says so."""
    environ = os.environ if environ is None else environ
    text = environ.get("TRAINJOB_ATTEMPT") or environ.get("TORCHELASTIC_RESTART_COUNT") or ""
    return int(text) if text.isdecimal() else None
