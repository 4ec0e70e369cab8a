"""What the ranks of a job do: one exec in each pod, for the files that ranks write; in a stall for /proc too.

Only names of code, states of processes and times are printed: no arguments, no environment, no variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import structlog

from visibility_api.diagnosis.claims import MAX_STATES, PodState, work_of
from visibility_api.diagnosis.judging import diagnose
from visibility_api.diagnosis.programs import PYTHON, SHELL
from visibility_api.diagnosis.reading import read_pod
from visibility_api.diagnosis.result import Diagnosis
from visibility_api.errors.text import describe_fault
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, ClusterError, Unreachable
from visibility_api.kube.exec import CommandFailed, ExecFailed, OutputTooLarge, execute
from visibility_api.reports.ranks import Ranks

log = structlog.get_logger("visibility.diagnosis")

AT_A_TIME = 32  # pods
POD_TIMEOUT_S = 15.0
MAX_BYTES = 512 * 1024  # of a pod: MAX_RANKS files and traces, MAX_PROCESSES twice


class RankStates:
    """Reads them through kube-apiserver, and keeps nothing of them."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def diagnose(
        self, namespace: str, pods: Sequence[PodState], path: str, *, within_s: float, is_requested: bool
    ) -> Diagnosis:
        """Ask all of these pods, `AT_A_TIME` at one time, and judge what they say.

        `path`: of the progress file. A pod that has not answered in time has said nothing. Raises ApiError
        with status 403 if this server may exec into none of them.
        """
        at = datetime.now(UTC)  # a rank that goes on while the others are asked is not one that hangs
        states = await self._ask_all(namespace, pods, (path,), within_s=within_s)
        return await asyncio.to_thread(diagnose, states, at, is_requested=is_requested)

    async def read_work(
        self, namespace: str, pods: Sequence[PodState], path: str, *, within_s: float, apart_s: float
    ) -> Ranks:
        """How each rank works, as its own file says. `apart_s`: between two pods. Raises as `diagnose`."""
        states = await self._ask_all(
            namespace, pods, (path, "files"), within_s=within_s, at_a_time=1, apart_s=apart_s
        )
        return await asyncio.to_thread(work_of, states, datetime.now(UTC))

    async def _ask_all(
        self,
        namespace: str,
        pods: Sequence[PodState],
        arguments: tuple[str, ...],
        *,
        within_s: float,
        at_a_time: int = AT_A_TIME,
        apart_s: float = 0.0,
    ) -> list[PodState]:
        """A refusal is the last question, unless another pod has granted it: some may be forbidden alone."""
        until = asyncio.get_running_loop().time() + within_s
        slots = asyncio.Semaphore(at_a_time)
        most = max(1, MAX_STATES // max(1, len(pods)))  # of one pod: none takes from what another says
        refused: list[ApiError] = []
        granted: list[PodState] = []

        async def ask(pod: PodState) -> PodState:
            if pod.not_running or pod.unread:
                return pod
            async with slots:
                if refused and not granted:
                    return _silent(pod, NO_RIGHT)
                left_s = min(POD_TIMEOUT_S, until - asyncio.get_running_loop().time())
                try:
                    said = _cut(await self._ask(namespace, pod, arguments, left_s), most)
                    if said.ranks or not said.unread:
                        granted.append(pod)
                except ApiError as error:
                    refused.append(error)
                    return _silent(pod, NO_RIGHT)
                except Exception as error:  # of one pod: docs/decisions/0005
                    log.error("pod not read", namespace=namespace, pod=pod.name, **describe_fault(error))
                    return _silent(pod, "this server failed to read it")
                await asyncio.sleep(apart_s)
                return said

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(pod), name=f"ranks of {pod.name}") for pod in pods]
        states = [task.result() for task in asked]
        if refused and not granted:
            raise refused[0]
        return states

    async def _ask(
        self, namespace: str, pod: PodState, arguments: tuple[str, ...], timeout_s: float
    ) -> PodState:
        if timeout_s <= 0:
            return _silent(pod, "it was not asked in time")
        try:
            try:
                output = await self._run(
                    namespace, pod, ("sh", "-c", SHELL, "sh", *arguments), timeout_s=timeout_s
                )
            except (ExecFailed, CommandFailed) as error:
                if isinstance(error, CommandFailed) and error.exit_code not in (126, 127):
                    raise
                if isinstance(error, ExecFailed) and not _is_missing(error):
                    raise
                output = await self._run(
                    namespace, pod, ("python3", "-c", PYTHON, *arguments), timeout_s=timeout_s
                )
        except TimeoutError:
            return _silent(pod, "it did not answer in time")
        except OutputTooLarge:
            return _silent(pod, "it printed too much")
        except CommandFailed as error:
            return _silent(pod, _NO_PROGRAM if error.exit_code in (126, 127) else "its sh or python3 failed")
        except ExecFailed as error:
            return _silent(
                pod, _NO_PROGRAM if _is_missing(error) else "its container could not run a program"
            )
        except ApiError as error:
            if error.status == 403:
                raise
            return _silent(pod, "its node gave no answer")
        except (Unreachable, ClusterError) as error:
            log.debug("pod not asked", namespace=namespace, pod=pod.name, error=type(error).__name__)
            return _silent(pod, "its node gave no answer")
        ranks = await asyncio.to_thread(read_pod, output)  # hostile lines take 20 ms
        return msgspec.structs.replace(pod, ranks=tuple(ranks))

    async def _run(self, namespace: str, pod: PodState, argv: tuple[str, ...], *, timeout_s: float) -> bytes:
        return await execute(
            self._client,
            namespace=namespace,
            pod=pod.name,
            container=pod.container_name,
            argv=argv,
            max_bytes=MAX_BYTES,
            timeout_s=timeout_s,
        )


_NO_PROGRAM = "its image has neither sh nor python3"
NO_RIGHT = "this server has no right to exec into it"


def _silent(pod: PodState, why: str) -> PodState:
    return msgspec.structs.replace(pod, unread=why)


def _cut(pod: PodState, most: int) -> PodState:
    """Of a pod with more ranks than fit in what is kept of the job, the first ones."""
    if len(pod.ranks) <= most:
        return pod
    return msgspec.structs.replace(pod, ranks=pod.ranks[:most], unread="it has more ranks than are read")


def _is_missing(error: ExecFailed) -> bool:
    text = str(error)
    return "executable file not found" in text or "no such file or directory" in text
