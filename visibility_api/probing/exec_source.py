"""The `exec` source: `cat -- PATH` in the rank-0 container."""

from __future__ import annotations

from functools import partial

import structlog

from visibility_api.jobs.job import JobRef, Rank0
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kube.exec import CommandFailed, ExecFailed, OutputTooLarge, execute
from visibility_api.reports.document import Outcome, Refused, RetryClass
from visibility_api.reports.fields import MAX_DOCUMENT_BYTES
from visibility_api.reports.report import parse_report

from .readings import Readings

log = structlog.get_logger("visibility.probe")

# What coreutils, busybox and toybox print; searched for, never repeated.
_NO_FILE = b"No such file"
_CAT_PRINTS = (
    (b"s a directory", "is a directory. Set the path of a file."),
    (b"ermission denied", "cannot be read by the container's user. Check its permissions."),
)


# Refusals that say nothing of the file.
_NOT_OF_THE_FILE = frozenset(
    {"NoCatInImage", "ContainerNotRunning", "ExecFailed", "ExecForbidden", "PodGone", "PodUnreachable"}
)


class ExecSource:
    """Reads the progress file through pods/exec; works in every image that has `cat`."""

    name = "exec"

    def __init__(self, client: KubeClient, *, timeout_s: float, readings: Readings | None = None) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._readings = Readings() if readings is None else readings

    async def probe(self, ref: JobRef, rank0: Rank0) -> Outcome:
        outcome = await self._read(ref, rank0)
        if (
            isinstance(outcome, Refused)
            and rank0.is_path_annotated
            and outcome.reason not in _NOT_OF_THE_FILE
        ):
            return _no_report(rank0, outcome)
        return outcome

    async def _read(self, ref: JobRef, rank0: Rank0) -> Outcome:
        try:
            stdout = await execute(
                self._client,
                namespace=ref.namespace,
                pod=rank0.pod_name,
                container=rank0.container_name,
                argv=("cat", "--", rank0.progress_path),
                max_bytes=MAX_DOCUMENT_BYTES,
                timeout_s=self._timeout_s,
            )
        except TimeoutError:
            # Closing the connection does not end the process in the container
            # (https://github.com/kubernetes/kubernetes/issues/89031): frequent probes would pile them up.
            return Refused(
                "ProbeTimeout",
                f"Reading {rank0.progress_path} took longer than {self._timeout_s:g}s. "
                "Check the file system that it is on.",
                RetryClass.RARELY,
            )
        except OutputTooLarge:
            message = (
                f"{rank0.progress_path} is larger than {MAX_DOCUMENT_BYTES} bytes, or comes in hundreds "
                "of pieces. Write a smaller document."
            )
            return Refused("TooLarge", message, RetryClass.RARELY)
        except CommandFailed as failed:
            return _cat_failed(failed, rank0)
        except ExecFailed as error:
            return _exec_failed(error)
        except ApiError as error:
            return _api_error(error)
        except Unreachable as error:
            # The error names kube-apiserver's address, which a reader of jobs need not know.
            log.debug("pod not reached", job=str(ref), error=str(error))
            return Refused(
                "PodUnreachable",
                "The connection through kube-apiserver and the kubelet to the pod failed; it is tried again.",
                RetryClass.SOON,
            )
        outcome = await self._readings.read(
            ref, len(stdout), partial(parse_report, stdout, is_path_trusted=not rank0.is_path_annotated)
        )
        if isinstance(outcome, Refused):  # perhaps caught in the middle of a write that is not atomic
            return Refused(outcome.reason, f"{rank0.progress_path}: {outcome.message}", RetryClass.LATER)
        return outcome


def _cat_failed(failed: CommandFailed, rank0: Rank0) -> Refused:
    path = rank0.progress_path
    if failed.exit_code in (126, 127):
        return _no_cat()
    if _NO_FILE in failed.stderr:
        return Refused("NoProgressFile", _no_file(rank0), RetryClass.LATER)
    for sign, text in _CAT_PRINTS:
        if sign in failed.stderr:
            return Refused("ProgressFileUnreadable", f"{path} {text}", RetryClass.LATER)
    message = f"cat {path} failed with exit code {failed.exit_code}."
    return Refused("ProgressFileUnreadable", message, RetryClass.LATER)


def _no_file(rank0: Rank0) -> str:
    for source, where in rank0.declared:
        if source == "exec":
            path = f"{rank0.progress_path}, the path in {where}"
            return f"No progress file at {path}. Check that rank 0 writes it."
    return (
        f"No progress file at {rank0.progress_path} (the default path; the job declares no other). "
        "Instrument the job or set TRAINJOB_PROGRESS_FILE."
    )


def _no_report(rank0: Rank0, refused: Refused) -> Refused:
    """The same for whatever lies at an annotated path and is no report, and for nothing.

    Whoever may annotate a job need not be allowed to look into its container, and a path leads anywhere: the
    kernel follows links that cannot be seen from here. Only the pace may differ: see `RetryClass.RARELY`.
    """
    return Refused(
        "NoProgressFile",
        f"No report at {rank0.progress_path}, the path in the job's annotation. "
        "Check that rank 0 writes its progress there (docs/document.md).",
        RetryClass.RARELY if refused.reason == "ProbeTimeout" else RetryClass.LATER,
    )


def _exec_failed(error: ExecFailed) -> Refused:
    text = str(error)
    if "executable file not found" in text or "no such file or directory" in text:
        return _no_cat()
    if "container not found" in text or "not running" in text or "not found" in text:
        return Refused("ContainerNotRunning", "The container is not running.", RetryClass.SOON)
    return Refused(
        "ExecFailed", "The container runtime could not run cat in the container.", RetryClass.RARELY
    )


def _api_error(error: ApiError) -> Refused:
    if error.status == 403:
        return Refused(
            "ExecForbidden",
            "This server has no right to exec into the pod. Grant get and create on pods/exec in its "
            "namespace by a RoleBinding to the ClusterRole trainjob-visibility:source-exec.",
            RetryClass.FORBIDDEN,
        )
    if error.status == 404:
        return Refused("PodGone", "The pod no longer exists.", RetryClass.SOON)
    return Refused(
        "PodUnreachable",
        f"kube-apiserver answered exec with HTTP status {error.status}; it is tried again.",
        RetryClass.SOON,
    )


def _no_cat() -> Refused:
    return Refused(
        "NoCatInImage",
        "The image has no cat to read the progress file with. Use an image with coreutils or busybox, "
        "or report by port, log or push; a termination message is read in any case.",
        RetryClass.RARELY,
    )
