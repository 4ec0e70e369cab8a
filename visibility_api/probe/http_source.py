"""The `http` source: what the training process serves on a port of its own pod."""

from __future__ import annotations

import asyncio
import ipaddress
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable

import structlog

from visibility_api.progress.document import MAX_DOCUMENT_BYTES, Refused
from visibility_api.progress.job import JobRef, Rank0
from visibility_api.progress.report import parse_report

from .http_exchange import CutShort, HttpAnswer, NotHTTP, get
from .source import Answer, Patience

log = structlog.get_logger("visibility.probe")

# The path that Open Data Hub's controller asks for. Its newer handlers answer on no other, our reporter on
# any: one path for all forms spares a second request to find out which it is.
PATH = "/metrics"
POLICY_HINT = "if a NetworkPolicy guards the pod it must let this server in (docs/install.md)"

Connect = Callable[[str, int], Awaitable[tuple[StreamReader, StreamWriter]]]


class HttpSource:
    """GET of the pod's own IP address and nothing else; what comes back is read as a report, or not at all.

    `connect` opens a TCP connection to an address and port.
    """

    name = "http"

    def __init__(self, *, timeout_s: float, connect: Connect = asyncio.open_connection) -> None:
        self._timeout_s = timeout_s
        self._connect = connect

    async def ask(self, ref: JobRef, rank0: Rank0) -> Answer:
        address = _address(rank0)
        if isinstance(address, Answer):
            return address
        assert rank0.http_port is not None  # noqa: S101 - by _address
        port = rank0.http_port
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._get(address, port)
        except TimeoutError:
            return _refused(
                "ProbeTimeout",
                f"port {port} of the pod did not answer within {self._timeout_s:g}s; {POLICY_HINT}",
            )
        except ConnectionRefusedError:
            return _refused("NothingListens", f"nothing listens on port {port} of the pod (yet)")
        except (CutShort, ConnectionError):
            return _refused("AnswerCutShort", f"the connection to port {port} broke before the answer's end")
        except NotHTTP:
            return _refused("NotHTTP", f"what answers on port {port} does not speak HTTP", Patience.RARELY)
        except OSError as error:
            log.debug("pod not reached", job=str(ref), errno=error.errno)
            return _refused(
                "NoRouteToPod", f"port {port} of the pod cannot be reached; {POLICY_HINT}", Patience.SOON
            )
        return _read(answer, port)

    async def _get(self, address: str, port: int) -> HttpAnswer:
        reader, writer = await self._connect(address, port)
        try:
            host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            return await get(reader, writer, host=host, path=PATH, max_body_bytes=MAX_DOCUMENT_BYTES)
        finally:
            # At once: there is nothing left to send, and whoever answers must not hold us up at the end.
            writer.transport.abort()


def _address(rank0: Rank0) -> str | Answer:
    """The pod's own address in its plain form, or why it is not asked.

    In its node's network a pod shares the ports of everything else there. 127.0.0.1 would be ourselves and
    169.254.169.254 the cloud's metadata: no pod has such an address.
    """
    if rank0.http_port is None:
        return _refused(
            "NoPort",
            "the job names no port: set the annotation port or TRAINJOB_PROGRESS_PORT",
            Patience.RARELY,
        )
    if rank0.host_network:
        return _refused(
            "HostNetwork",
            "the pod uses its node's network, where others may listen on that port: report to a file",
            Patience.RARELY,
        )
    if not rank0.pod_ip:
        return _refused("NoPodIP", "the pod has no IP address yet", Patience.SOON)
    try:
        address = ipaddress.ip_address(rank0.pod_ip)
    except ValueError:
        return _odd_address()
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return _odd_address()
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return _odd_address()
    return str(address)


def _odd_address() -> Answer:
    return _refused(
        "PodIPRefused", "the pod's IP address is not one that a pod has of its own", Patience.RARELY
    )


def _read(answer: HttpAnswer, port: int) -> Answer:
    if answer.status == 503:  # what our reporter answers before its first report
        return _refused("NoProgressYet", f"port {port} answers, but has no report yet (HTTP status 503)")
    if answer.status != 200:  # a redirect too: it is never followed
        return _refused("HTTPStatus", f"port {port} answered HTTP status {answer.status} instead of 200")
    if answer.content_encoding not in ("", "identity"):
        return _refused(
            "AnswerCompressed", f"port {port} compressed its answer, unasked; send it plain", Patience.RARELY
        )
    if answer.is_too_large:
        return _refused(
            "TooLarge", f"the answer of port {port} exceeds {MAX_DOCUMENT_BYTES} bytes", Patience.RARELY
        )
    outcome = parse_report(answer.body)
    if isinstance(outcome, Refused):
        return _refused(outcome.reason, f"port {port}: {outcome.message}")
    return Answer(outcome=outcome)


def _refused(reason: str, message: str, patience: Patience = Patience.LATER) -> Answer:
    return Answer(outcome=Refused(reason=reason, message=message), patience=patience)
