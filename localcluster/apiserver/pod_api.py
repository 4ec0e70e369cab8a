"""pods/exec and pods/log: what kube-apiserver passes on to the kubelet of the pod's node (X1-X12)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import web

from localcluster.apiserver.rbac import Authorizer
from localcluster.apiserver.registry import PODS, Registry
from localcluster.apiserver.request_info import integer, is_true
from localcluster.apiserver.responses import Call, attributes
from localcluster.machinery.metadata import Object
from localcluster.machinery.node_agent import ExecError, LogQuery, NodeAgent, Process
from localcluster.machinery.resources import Resource
from localcluster.machinery.status import bad_request, invalid, not_found

CHUNK_BYTES = 32 * 1024
HEARTBEAT_S = 30.0
_STDOUT, _STDERR, _ERROR, _CLOSE = 1, 2, 3, 255
_LOG_OPTIONS = Resource(plural="podlogoptions", kind="PodLogOptions")
_V5, _V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


class PodApi:
    """Answers exec over WebSocket and logs, through the agent registered for the pod's node."""

    def __init__(self, registry: Registry, authorizer: Authorizer, agents: Mapping[str, NodeAgent]) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._agents = agents

    async def answer(self, call: Call) -> web.StreamResponse:
        pod = self._registry.get(PODS, call.info.namespace, call.info.name).object
        container = _container(pod, call.query.get("container", ""))
        if call.info.subresource == "exec":
            return await self._exec(call, pod, container)
        return await self._logs(call, pod, container)

    def _agent(self, pod: Object) -> NodeAgent:
        node = pod["spec"].get("nodeName")
        if not node:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        agent = self._agents.get(node)
        if agent is None:
            raise not_found(PODS, node)  # kube-apiserver's message names pods here too, not nodes
        return agent

    async def _exec(self, call: Call, pod: Object, container: str) -> web.StreamResponse:
        if call.request.method == "GET":  # X7: since 1.35 an upgrade by GET needs `create` as well
            self._authorizer.check(replace(attributes(call.user, call.info), verb="create"))
        argv = call.request.query.getall("command", [])
        agent = self._agent(pod)
        if not argv:
            raise bad_request("you must specify at least 1 command for the container")
        streams = {_STDOUT: is_true(call.query.get("stdout")), _STDERR: is_true(call.query.get("stderr"))}
        if not any(streams.values()) and not is_true(call.query.get("stdin")):
            raise bad_request("you must specify at least one of stdin, stdout, stderr")
        if call.request.headers.get("Upgrade", "").lower() != "websocket":
            raise bad_request("unable to upgrade: the local cluster offers exec over WebSocket only")
        socket = web.WebSocketResponse(protocols=(_V5, _V4), compress=False, heartbeat=HEARTBEAT_S)
        await socket.prepare(call.request)
        if socket.ws_protocol is None:
            await socket.close(code=1002)
            return socket
        place = (call.info.namespace, call.info.name, container)
        status = await self._run(socket, agent, place, argv, streams)
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(bytes([_ERROR]) + msgspec.json.encode(status))
            await socket.close()
        return socket

    async def _run(
        self,
        socket: web.WebSocketResponse,
        agent: NodeAgent,
        place: tuple[str, str, str],
        argv: list[str],
        streams: dict[int, bool],
    ) -> Object:
        """Copy the command's output to the socket; the Status that ends it (X5)."""
        for channel, wanted in streams.items():
            if wanted:
                await socket.send_bytes(bytes([channel]))  # "connected", not end of file (X4)
        try:
            process = await agent.exec(*place, argv)
        except ExecError as error:
            return _failure(error.reason, error.message)
        listener = asyncio.create_task(_until_closed(socket, process), name="exec listener")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(process.stdout, socket, _STDOUT, streams[_STDOUT]))
                group.create_task(_copy(process.stderr, socket, _STDERR, streams[_STDERR]))
            code = await process.wait()
        finally:
            listener.cancel()
            await process.close()  # bounded: unlike a real kubelet, nothing outlives its client
        if code == 0:
            return {"metadata": {}, "status": "Success"}
        cause = {"reason": "ExitCode", "message": str(code)}
        message = f"command terminated with non-zero exit code: command terminated with exit code {code}"
        return _failure("NonZeroExitCode", message) | {"details": {"causes": [cause]}}

    async def _logs(self, call: Call, pod: Object, container: str) -> web.StreamResponse:
        query = call.query
        numbers: dict[str, Any] = {}
        for field, name, least in (
            ("tail_lines", "tailLines", 0),
            ("limit_bytes", "limitBytes", 1),
            ("since_seconds", "sinceSeconds", 1),
        ):
            if name in query:
                numbers[field] = _number(call.info.name, query[name], name, least)
        flags = {name: is_true(query.get(name)) for name in ("previous", "timestamps", "follow")}
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        lines = self._agent(pod).stream_logs(
            call.info.namespace, call.info.name, container, LogQuery(**numbers, **flags)
        )
        first = await anext(lines, b"")  # refusals come before the header is out
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(call.request)
        await response.write(first)
        async for chunk in lines:
            await response.write(chunk)
        await response.write_eof()
        return response


async def _copy(
    reader: asyncio.StreamReader, socket: web.WebSocketResponse, channel: int, wanted: bool
) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        if wanted:
            with contextlib.suppress(ConnectionError):  # after a disconnect: drain, end with the process
                await socket.send_bytes(bytes([channel]) + chunk)


async def _until_closed(socket: web.WebSocketResponse, process: Process) -> None:
    """Answer pings; stdin is not passed on. Ends the command when the client disconnects."""
    async for _ in socket:
        pass
    process.kill()


def _failure(reason: str, message: str) -> Object:
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason}
    return status | {"code": 500} if reason == "InternalError" else status


def _container(pod: Object, name: str) -> str:
    """X2: the name may be left out when there is only one."""
    pod_name = pod["metadata"]["name"]
    names = [each["name"] for each in pod["spec"].get("containers") or []]
    every = [*names, *(each["name"] for each in pod["spec"].get("initContainers") or [])]
    if name:
        if name not in every:
            raise bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    if len(every) == 1:
        return str(every[0])
    listed = " ".join(names)
    raise bad_request(f"a container name must be specified for pod {pod_name}, choose one of: [{listed}]")


def _number(pod_name: str, text: str, name: str, least: int) -> int:
    if integer(text) < least:
        bound = "greater than or equal to 0" if least == 0 else "greater than 0"
        raise invalid(_LOG_OPTIONS, pod_name, name, f"Invalid value: {text}: must be {bound}")
    return int(text)
