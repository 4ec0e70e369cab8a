"""Where a container reports: by the job's annotations and by the container's environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from visibility_api.jobs.job import ANNOTATION

from .annotations import PREFIX, JobAnnotations, parse_port, path_fault
from .objects import Container

DEFAULT_PATH = "/tmp/trainjob-progress.json"  # noqa: S108 - inside the training container
# The first that is set counts: ours, KEP-2779's, Argo Workflows' (argo-workflows/docs/progress.md).
PATH_VARIABLES = ("TRAINJOB_PROGRESS_FILE", "KUBEFLOW_TRAINER_STATUS_FILE", "ARGO_PROGRESS_FILE")
PORT_VARIABLE = "TRAINJOB_PROGRESS_PORT"
LOG_VARIABLE = "TRAINJOB_PROGRESS_LOG"
VARIABLE = "environment variable "
_READ = frozenset({*PATH_VARIABLES, PORT_VARIABLE, LOG_VARIABLE})


class Declarations(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where one container reports."""

    path: str  # absolute, inside the container
    port: int | None
    sources: tuple[tuple[str, str], ...]  # source and where it is declared, by precedence


def read_declarations(container: Container, annotations: JobAnnotations) -> Declarations:
    """Annotations take precedence over the variables that an image or a manifest sets."""
    environment = _literal_environment(container)
    path, path_variable = annotations.path, ""
    port, port_variable = annotations.port, ""
    if path is None:
        path, path_variable = _path(environment)
    if port is None and (port := parse_port(environment.get(PORT_VARIABLE, ""))) is not None:
        port_variable = PORT_VARIABLE
    return Declarations(
        path=path,
        port=port,
        sources=_sources(
            annotations.port_from,
            PREFIX + "path" if annotations.path is not None else "",
            port_variable,
            path_variable,
            LOG_VARIABLE if environment.get(LOG_VARIABLE, "0") not in ("", "0") else "",
        ),
    )


def _path(environment: Mapping[str, str]) -> tuple[str, str]:
    for name in PATH_VARIABLES:
        path = environment.get(name)
        if path and not path_fault(path):
            return path, name
    return DEFAULT_PATH, ""


def _literal_environment(container: Container) -> dict[str, str]:
    """The variables that are read here, where their values are known; of one name the last counts.

    Not known are values from elsewhere (`valueFrom`), and those with `$(VAR)` or `$$`, which the kubelet
    expands.
    """
    values = {e.name: e.text for e in container.env or () if e.name in _READ}
    return {name: text for name, text in values.items() if text and "$(" not in text and "$$" not in text}


@lru_cache(maxsize=256)  # thousands of jobs share the tuples of a few combinations
def _sources(
    port_annotation: str, path_annotation: str, port_variable: str, path_variable: str, log_variable: str
) -> tuple[tuple[str, str], ...]:
    named = (
        ("http", ANNOTATION, port_annotation),
        ("exec", ANNOTATION, path_annotation),
        ("http", VARIABLE, port_variable),
        ("exec", VARIABLE, path_variable),
        ("logs", VARIABLE, log_variable),
    )
    return tuple((source, kind + name) for source, kind, name in named if name)
