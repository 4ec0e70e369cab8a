"""The `exec` source: `cat -- PATH` in the rank-0 container."""

from __future__ import annotations

import structlog

from visibility_api.cluster.client import KubeClient
from visibility_api.cluster.errors import ApiError, Unreachable
from visibility_api.cluster.execute import ExecFailed, Executed, execute
from visibility_api.progress.document import MAX_DOCUMENT_BYTES, Refused
from visibility_api.progress.job import JobRef, Rank0
from visibility_api.progress.report import parse_report

from .source import Answer, Patience

log = structlog.get_logger("visibility.probe")

# What coreutils, busybox and toybox print; looked for, never repeated.
_CAT_SAYS = (
    (
        b"No such file",
        "NoProgressFile",
        "does not exist (yet): report with trainjob_progress, or declare where",
    ),
    (b"s a directory", "ProgressFileUnreadable", "is a directory"),
    (b"ermission denied", "ProgressFileUnreadable", "may not be read by the container's user"),
)


class ExecSource:
    """Reads the progress file through pods/exec; works in every image that has `cat`."""

    name = "exec"

    def __init__(self, client: KubeClient, *, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def ask(self, ref: JobRef, rank0: Rank0) -> Answer:
        try:
            done = await execute(
                self._client,
                namespace=ref.namespace,
                pod=rank0.pod_name,
                container=rank0.container_name,
                argv=("cat", "--", rank0.progress_path),
                max_bytes=MAX_DOCUMENT_BYTES,
                timeout_s=self._timeout_s,
            )
        except TimeoutError:
            # The process in the container may live on (X8): asking often would pile them up.
            return _refused(
                "ProbeTimeout",
                f"reading {rank0.progress_path} did not end within {self._timeout_s:g}s",
                Patience.RARELY,
            )
        except ExecFailed as error:
            return _exec_failed(error)
        except ApiError as error:
            return _api_error(error)
        except Unreachable as error:
            # The error names kube-apiserver's address: whoever may read a job need not know that.
            log.debug("pod not reached", job=str(ref), error=str(error))
            return _refused(
                "PodUnreachable",
                "the connection through kube-apiserver and the kubelet to the pod broke or came to nothing",
                Patience.SOON,
            )
        return _read(done, rank0.progress_path)


def _read(done: Executed, path: str) -> Answer:
    if done.is_cut:
        return _refused("TooLarge", f"{path} exceeds {MAX_DOCUMENT_BYTES} bytes", Patience.RARELY)
    if done.exit_code == 0:
        outcome = parse_report(done.stdout)
        if isinstance(outcome, Refused):  # perhaps caught in the middle of a write that is not atomic
            return _refused(outcome.reason, f"{path}: {outcome.message}", Patience.LATER)
        return Answer(outcome=outcome)
    if done.exit_code in (126, 127):
        return _no_cat()
    for sign, reason, text in _CAT_SAYS:
        if sign in done.stderr:
            return _refused(reason, f"{path} {text}", Patience.LATER)
    return _refused(
        "ProgressFileUnreadable", f"cat {path} ended with exit code {done.exit_code}", Patience.LATER
    )


def _exec_failed(error: ExecFailed) -> Answer:
    text = str(error)
    if "executable file not found" in text or "no such file or directory" in text:
        return _no_cat()
    if "container not found" in text or "not running" in text or "not found" in text:
        return _refused("ContainerNotRunning", "the container does not run", Patience.SOON)
    return _refused("ExecFailed", "the container runtime could not run cat", Patience.RARELY)


def _api_error(error: ApiError) -> Answer:
    if error.status == 403:
        return _refused(
            "ExecForbidden",
            "this server may not exec into the pod: grant get and create on pods/exec in its namespace",
            Patience.FORBIDDEN,
        )
    if error.status == 404:
        return _refused("PodGone", "the pod is gone", Patience.SOON)
    return _refused("PodUnreachable", f"kube-apiserver answered HTTP {error.status}", Patience.SOON)


def _no_cat() -> Answer:
    return _refused(
        "NoCatInImage",
        "the image has no cat: use one with coreutils or busybox; termination messages are read all the same",
        Patience.RARELY,
    )


def _refused(reason: str, message: str, patience: Patience) -> Answer:
    return Answer(outcome=Refused(reason=reason, message=message), patience=patience)
