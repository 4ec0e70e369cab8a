"""One pod on its node: init containers, containers, restarts, and the status a kubelet reports."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.kubelet.containers import Container
from localcluster.machinery.metadata import Object, annotations_of, new_uid, timestamp, uid_of, with_condition

EXIT_REASON_ANNOTATION = "localcluster/exit-reason"  # in place of the kernel's own, such as OOMKilled
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 10.0  # the real kubelet: 10 s to 5 min
MAX_POD_MESSAGE_BYTES = 12 * 1024  # X14: shared by all containers


@dataclass(slots=True)
class _Slot:
    """What is known of one container; the shape of a ContainerStatus."""

    container: Container
    image: str
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: Object = field(default_factory=dict)
    restart_count: int = 0
    container_id: str = ""

    @property
    def exit_code(self) -> int | None:
        ended = self.state.get("terminated")
        return ended["exitCode"] if ended else None


class PodWorker:
    """Owns the processes of one pod. `report` is called whenever `status()` has changed."""

    def __init__(
        self,
        pod: Object,
        directory: Path,
        variables: Mapping[str, Mapping[str, str]],
        volumes: Mapping[str, Path],
        report: Callable[[], None],
    ) -> None:
        """`pod` has its addresses in its status already.

        `variables`: container → environment from Secrets and ConfigMaps. `volumes`: name → directory."""
        self.pod = pod
        self.directory = directory
        self._volumes = volumes
        self._report = report
        self._started_at = timestamp()
        self.ended = asyncio.Event()  # set once `run` has returned
        self.reporting = asyncio.Lock()  # held while its status is written
        self._stopping = asyncio.Event()
        self._kill_reason: str | None = None
        self._init = self._slots("initContainers", variables)
        self._main = self._slots("containers", variables)

    @property
    def uid(self) -> str:
        return uid_of(self.pod)

    def _slots(self, field_name: str, variables: Mapping[str, Mapping[str, str]]) -> dict[str, _Slot]:
        slots = {}
        for spec in self.pod["spec"].get(field_name) or []:
            name = spec["name"]
            logs = self.directory / ".logs" / name
            container = Container(self.pod, spec, self.directory / name, logs, variables.get(name, {}))
            slots[name] = _Slot(container, spec.get("image", ""))
        return slots

    def container(self, name: str) -> Container | None:
        slot = self._main.get(name) or self._init.get(name)
        return slot.container if slot else None

    async def run(self) -> None:
        """Returns when no container runs or will run again."""
        try:
            await self._run_all()
        finally:
            self.ended.set()

    async def _run_all(self) -> None:
        for name in self._init:
            await self._keep_running(self._init[name], "initContainers", name, is_init=True)
            if self._init[name].exit_code != 0:
                return
        async with asyncio.TaskGroup() as group:
            for name, slot in self._main.items():
                group.create_task(self._keep_running(slot, "containers", name), name=f"container {name}")

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after the grace period; `run` returns soon after."""
        self._stopping.set()
        for slot in self._all():
            slot.container.signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.ended.wait()
        self.kill()

    def kill(self, number: int = signal.SIGKILL, *, container: str = "", reason: str | None = None) -> None:
        """Signal one container or all of them; `reason` replaces the one its status would give."""
        self._kill_reason = reason
        for slot in self._all():
            if container in ("", slot.container.name):
                slot.container.signal(number)

    def _all(self) -> list[_Slot]:
        return [*self._init.values(), *self._main.values()]

    def _mounts(self, field_name: str, name: str) -> dict[str, Path]:
        spec = next(each for each in self.pod["spec"][field_name] if each["name"] == name)
        mounts = spec.get("volumeMounts") or []
        return {
            each["mountPath"]: self._volumes[each["name"]] for each in mounts if each["name"] in self._volumes
        }

    async def _keep_running(self, slot: _Slot, field_name: str, name: str, *, is_init: bool = False) -> None:
        mounts = self._mounts(field_name, name)
        backoff_s = FIRST_BACKOFF_S
        restarts = 0
        while not self._stopping.is_set():
            slot.container_id = f"localcluster://{new_uid()}"
            started_at = timestamp()
            note_start = functools.partial(self._note_start, slot, started_at, restarts)
            code = await slot.container.run(mounts, note_start)
            slot.restart_count = restarts
            slot.state = {"terminated": self._terminated(slot, code, started_at)}
            self._report()
            policy = self.pod["spec"]["restartPolicy"]
            if (
                (code == 0 and (is_init or policy != "Always"))
                or policy == "Never"
                or self._stopping.is_set()
            ):
                return
            # While it waits, the restart count is still that of the run that ended, as with a kubelet.
            slot.last_state, restarts = slot.state, restarts + 1
            message = f"back-off {backoff_s:.0f}s restarting failed container={name}"
            slot.state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
            self._report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff_s):
                    await self._stopping.wait()
            if self._stopping.is_set():
                slot.state = slot.last_state
            backoff_s = min(backoff_s * 2, LAST_BACKOFF_S)

    def _note_start(self, slot: _Slot, started_at: str, restarts: int) -> None:
        slot.restart_count = restarts
        slot.state = {"running": {"startedAt": started_at}}
        self._report()

    def _terminated(self, slot: _Slot, code: int, started_at: str) -> Object:
        reason = "Completed" if code == 0 else "Error"
        if slot.container.failed_to_start:
            reason = "StartError"
        elif slot.container.ran_out_of_memory:
            reason = "OOMKilled"
        elif code == 128 + signal.SIGKILL:
            reason = self._kill_reason or annotations_of(self.pod).get(EXIT_REASON_ANNOTATION, reason)
        ended: Object = {
            "exitCode": code,
            "reason": reason,
            "startedAt": started_at,
            "finishedAt": timestamp(),
        }
        message = slot.container.termination_message(code)
        share = MAX_POD_MESSAGE_BYTES // len(self._all())
        if message:
            ended["message"] = message.encode()[:share].decode(errors="ignore")
        return ended | {"containerID": slot.container_id}

    def status(self, previous: Object) -> Object:
        """The pod's status; `previous` keeps the transition times of conditions."""
        phase = self._phase()
        initialized = all(slot.exit_code == 0 for slot in self._init.values())
        ready = phase == "Running" and all("running" in slot.state for slot in self._main.values())
        conditions = previous.get("conditions")
        not_ready = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        for kind, holds, reason in (
            ("PodScheduled", True, ""),
            ("Initialized", initialized, "ContainersNotInitialized"),
            ("ContainersReady", ready, not_ready),
            ("Ready", ready, not_ready),
        ):
            conditions = with_condition(conditions, kind, str(holds), "" if holds else reason, "")
        status: Object = {
            "phase": phase,
            "conditions": [{key: value for key, value in each.items() if value} for each in conditions or []],
            **{key: self.pod["status"][key] for key in ("hostIP", "podIP", "podIPs")},
            "startTime": previous.get("startTime") or self._started_at,
            "qosClass": "BestEffort",
            "containerStatuses": [self._container_status(slot) for slot in self._main.values()],
        }
        if self._init:
            status["initContainerStatuses"] = [self._container_status(slot) for slot in self._init.values()]
        return status

    def _phase(self) -> str:
        if any(slot.exit_code for slot in self._init.values()):
            return "Failed"
        codes = [slot.exit_code for slot in self._main.values()]
        if all(code == 0 for code in codes):
            return "Succeeded"
        if all(code is not None for code in codes):
            return "Failed"
        return "Running" if any(slot.container_id for slot in self._main.values()) else "Pending"

    def _container_status(self, slot: _Slot) -> Object:
        running = "running" in slot.state
        return {
            "name": slot.container.name,
            "image": slot.image,
            "imageID": f"localcluster://{slot.image}",
            "containerID": slot.container_id,
            "ready": running or (slot.container.name in self._init and slot.exit_code == 0),
            "started": running,
            "restartCount": slot.restart_count,
            "state": slot.state,
            "lastState": slot.last_state,
        }
