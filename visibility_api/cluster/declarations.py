"""Where a container says that it reports: the job's annotations, then literal variables of the pod spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from .annotations import PREFIX, Wishes, parse_port, path_fault
from .objects import Container

DEFAULT_PATH = "/tmp/trainjob-progress.json"  # noqa: S108 - inside the training container
# The first that is set wins: ours, the one of KEP-2779, Argo Workflows' (1.3).
PATH_VARIABLES = ("TRAINJOB_PROGRESS_FILE", "KUBEFLOW_TRAINER_STATUS_FILE", "ARGO_PROGRESS_FILE")
PORT_VARIABLE = "TRAINJOB_PROGRESS_PORT"
LOG_VARIABLE = "TRAINJOB_PROGRESS_LOG"
_READ = frozenset({*PATH_VARIABLES, PORT_VARIABLE, LOG_VARIABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """What may be asked of one container."""

    path: str  # absolute, inside the container
    port: int | None
    sources: tuple[tuple[str, str], ...]  # source and where it is named, what counts first first


def read_declarations(container: Container, wishes: Wishes) -> Declarations:
    """Annotations before variables: whoever annotates a job has seen what its image brings."""
    environment = _literal_environment(container)
    path, path_variable = wishes.path, ""
    port, port_variable = wishes.port, ""
    if path is None:
        path, path_variable = _path(environment)
    if port is None and (port := parse_port(environment.get(PORT_VARIABLE, ""))) is not None:
        port_variable = PORT_VARIABLE
    return Declarations(
        path=path,
        port=port,
        sources=_sources(
            wishes.port_from,
            PREFIX + "path" if wishes.path is not None else "",
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
    """The variables that matter here, where their values are known; the last of several wins, as in the pod.

    Unknown are values taken from elsewhere (`valueFrom`) and those with `$(VAR)` in them or a `$$`, which the
    kubelet expands by what it knows.
    """
    values = {e.name: e.value for e in container.env or () if e.name in _READ}
    return {name: text for name, text in values.items() if text and "$(" not in text and "$$" not in text}


@lru_cache(maxsize=256)  # few combinations, thousands of jobs: they share the tuples
def _sources(
    port_annotation: str, path_annotation: str, port_variable: str, path_variable: str, log_variable: str
) -> tuple[tuple[str, str], ...]:
    named = (
        ("http", "annotation", port_annotation),
        ("exec", "annotation", path_annotation),
        ("http", "environment variable", port_variable),
        ("exec", "environment variable", path_variable),
        ("logs", "environment variable", log_variable),
    )
    return tuple((source, f"{kind} {name}") for source, kind, name in named if name)
