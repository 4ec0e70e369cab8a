"""One container as a local process. Its root directory stands for its filesystem; nothing is isolated.

Exec arguments, the progress file, the termination message and volume mounts are mapped below the root. The
main command runs from the host, so `python` is this environment's interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from localcluster.kubelet.container_log import READ_BYTES, ContainerLog
from localcluster.kubelet.memory import LOOK_EVERY_S, limit_bytes, used_bytes
from localcluster.machinery.metadata import Object, annotations_of, labels_of
from localcluster.machinery.node_agent import ExecError

DEFAULT_PROGRESS_FILE = "/tmp/trainjob-progress.json"
MAX_TERMINATION_MESSAGE_BYTES = 4096  # X14: the last ones are kept
REAP_S = 10.0
START_ERROR = 128  # what containerd reports, under reason StartError
_VARIABLE = re.compile(r"\$\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\)")
_METADATA_FIELD = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")


def path_below(root: Path, absolute: str) -> Path:
    """Where a path of the container lies on the host. `..` cannot climb out."""
    return root / posixpath.normpath("/" + absolute).lstrip("/")


def field_value(pod: Object, path: str) -> str:
    """The downward API's fieldRef."""
    if found := _METADATA_FIELD.fullmatch(path):
        values = labels_of(pod) if found["map"] == "labels" else annotations_of(pod)
        return values.get(found["key"], "")
    section, _, field = path.partition(".")
    return str(pod.get(section, {}).get(field, ""))


def environment(pod: Object, container: Object, root: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The process environment; `extra` holds the variables that came from Secrets and ConfigMaps."""
    variables: dict[str, str] = {}
    for entry in container.get("env") or []:
        source = entry.get("valueFrom") or {}
        if "fieldRef" in source:
            value = field_value(pod, source["fieldRef"]["fieldPath"])
        else:
            value = extra.get(entry["name"], _expand(entry.get("value") or "", variables))
        variables[entry["name"]] = value
    variables.setdefault("TRAINJOB_PROGRESS_FILE", DEFAULT_PROGRESS_FILE)
    variables["TRAINJOB_TERMINATION_MESSAGE_PATH"] = container["terminationMessagePath"]
    mounts = [mount["mountPath"] for mount in container.get("volumeMounts") or []]
    for name, value in variables.items():
        is_ours = name in ("TRAINJOB_PROGRESS_FILE", "TRAINJOB_TERMINATION_MESSAGE_PATH")
        if is_ours or is_mounted(value, mounts):
            variables[name] = str(path_below(root, value))
    own_bin = str(Path(sys.executable).parent)
    host = {"PATH": f"{own_bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "LANG": "C.UTF-8"}
    return (
        host
        | {"HOME": str(root), "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"]}
        | variables
    )


def is_mounted(path: str, mounts: Sequence[str]) -> bool:
    return any(path == mount or path.startswith(mount.rstrip("/") + "/") for mount in mounts)


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)`; a name that is not set stays as it is written."""
    return _VARIABLE.sub(lambda found: variables.get(found["name"], found[0]), text)


class Container:
    """Runs the process of one container, one start at a time."""

    def __init__(
        self, pod: Object, spec: Object, root: Path, log_directory: Path, variables: Mapping[str, str]
    ) -> None:
        self.name = str(spec["name"])
        self.root = root
        self.log: ContainerLog | None = None
        self.previous_log: ContainerLog | None = None
        self._spec = spec
        self._log_directory = log_directory
        self._environment = environment(pod, spec, root, variables)
        self.failed_to_start = False
        self.ran_out_of_memory = False  # in its latest run
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def run(self, mounts: Mapping[str, Path], started: Callable[[], None]) -> int:
        """Start from a fresh root, wait for the end; the exit code as Kubernetes shows it (128 + signal).

        `started` is called once there is a process: from then on commands may be run beside it.
        """
        self._prepare(mounts)
        self.ran_out_of_memory = False
        self.previous_log, self.log = self.log, ContainerLog(self._log_directory / f"{self._starts}.log")
        self._starts += 1
        argv = self._argv(list(mounts))
        try:
            process = self._process = await _spawn(argv, self._environment, self._working_directory())
        except OSError:
            self.failed_to_start = True
            self.log.close()
            return START_ERROR
        started()
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self.log.copy_from(_pipe(process.stdout)))
                pumps.create_task(self.log.copy_from(_pipe(process.stderr)))
                guard = pumps.create_task(self._keep_memory_limit(process.pid))
                code = await process.wait()
                guard.cancel()
                self._kill_group()  # its remaining processes end with it, as in a pid namespace
        finally:
            self._kill_group()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REAP_S):
                    await process.wait()
            self.log.close()
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """SIGKILL reaches everything in the container; any other signal its first process only."""
        if self._process is None or not self.is_running:
            return
        if number == signal.SIGKILL:
            self._kill_group()
        else:
            self._process.send_signal(number)

    async def _keep_memory_limit(self, pid: int) -> None:
        """Kill everything in the container when that has more in memory than it may, as the kernel does."""
        limit = limit_bytes(self._spec)
        if limit is None:
            return
        while used_bytes(pid) <= limit:  # noqa: ASYNC110 - nobody notifies of it
            await asyncio.sleep(LOOK_EVERY_S)
        self.ran_out_of_memory = True
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def exec(self, argv: Sequence[str]) -> ExecProcess:
        """Run a command beside the container's own; raises ExecError as a CRI refuses (X10)."""
        if not self.is_running:
            raise ExecError(
                "InternalError", f'unable to upgrade connection: container not found ("{self.name}")'
            )
        missing = f'exec: "{argv[0]}": executable file not found in $PATH: unknown'
        failure = (
            "Internal error occurred: error executing command in container: failed to exec in container: "
            f"OCI runtime exec failed: exec failed: unable to start container process: {missing}"
        )
        if any(part.startswith("distroless") for part in self._spec.get("image", "").split("/")):
            raise ExecError("InternalError", failure)
        mapped = [str(path_below(self.root, each)) if each.startswith("/") else each for each in argv[1:]]
        try:
            return ExecProcess(await _spawn([argv[0], *mapped], self._environment, self.root))
        except OSError as error:
            raise ExecError("InternalError", failure) from error

    def termination_message(self, exit_code: int) -> str:
        """X13-X15. Bytes that are not UTF-8 are replaced."""
        path = path_below(self.root, self._spec["terminationMessagePath"])
        message = b""
        if path.is_file():
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - MAX_TERMINATION_MESSAGE_BYTES, 0))
                message = file.read(MAX_TERMINATION_MESSAGE_BYTES)
        falls_back = self._spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if not message and exit_code and falls_back and self.log:
            message = self.log.tail(max_bytes=2048, max_lines=80)
        return message.decode(errors="replace")

    def _prepare(self, mounts: Mapping[str, Path]) -> None:
        """Files outside volumes do not survive a restart."""
        shutil.rmtree(self.root, ignore_errors=True)
        for mount_path, volume in mounts.items():
            target = path_below(self.root, mount_path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(volume, target_is_directory=True)
        for path in (
            "/tmp",
            self._spec["terminationMessagePath"],
            self._environment["TRAINJOB_PROGRESS_FILE"],
        ):
            inside = path_below(self.root, path.removeprefix(str(self.root)))
            (inside if path == "/tmp" else inside.parent).mkdir(parents=True, exist_ok=True)

    def _argv(self, mounts: Sequence[str]) -> list[str]:
        """An image here has no entry point: only `command` and `args` count."""
        argv = [*(self._spec.get("command") or []), *(self._spec.get("args") or [])] or ["sleep", "infinity"]
        expanded = [_expand(each, self._environment) for each in argv]
        return [str(path_below(self.root, each)) if is_mounted(each, mounts) else each for each in expanded]

    def _working_directory(self) -> Path:
        directory = path_below(self.root, self._spec.get("workingDir") or "/")
        directory.mkdir(parents=True, exist_ok=True)
        return directory


class ExecProcess:
    """A command started by exec. Read both streams, `wait`, and `close` it in any case."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def stdout(self) -> asyncio.StreamReader:
        return _pipe(self._process.stdout)

    @property
    def stderr(self) -> asyncio.StreamReader:
        return _pipe(self._process.stderr)

    async def wait(self) -> int:
        """The exit code; 128 + n when ended by signal n."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End the command if it still runs, and free its pipes."""
        if self._process.returncode is None:
            self.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REAP_S):
                for stream in (self.stdout, self.stderr):
                    while await stream.read(READ_BYTES):
                        pass
                await self._process.wait()


async def _spawn(
    argv: Sequence[str], variables: Mapping[str, str], directory: Path
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=directory,
        env=dict(variables),
        start_new_session=True,
    )


def _pipe(reader: asyncio.StreamReader | None) -> asyncio.StreamReader:
    if reader is None:
        raise RuntimeError("the process was started without pipes")
    return reader
