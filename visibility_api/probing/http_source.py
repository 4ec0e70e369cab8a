"""The `http` source: what the training process serves on a port of its own pod."""

from __future__ import annotations

import asyncio
import ipaddress
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from visibility_api.jobs.job import JobRef, Rank0
from visibility_api.reports.document import Outcome, Refused, RetryClass
from visibility_api.reports.fields import MAX_DOCUMENT_BYTES
from visibility_api.reports.report import parse_report

from .http_exchange import CutShort, HttpResponse, NotHTTP, get
from .readings import Readings

log = structlog.get_logger("visibility.probe")

# The path that Open Data Hub's controller requests. Its newer handlers serve no other, our reporter serves
# any path: with one path for all forms no second request is needed to find out which form it is.
PATH = "/metrics"
POLICY_HINT = "If a NetworkPolicy guards the pod, let this server in (docs/install.md)."

Connect = Callable[[str, int], Awaitable[tuple[StreamReader, StreamWriter]]]


class HttpSource:
    """GET of the pod's own IP address and nothing else; what comes back is read as a report, or not at all.

    `connect` opens a TCP connection to an address and port.
    """

    name = "http"

    def __init__(
        self,
        *,
        timeout_s: float,
        readings: Readings | None = None,
        connect: Connect = asyncio.open_connection,
    ) -> None:
        self._timeout_s = timeout_s
        self._readings = Readings() if readings is None else readings
        self._connect = connect

    async def probe(self, ref: JobRef, rank0: Rank0) -> Outcome:
        address = _address(rank0)
        if isinstance(address, Refused):
            return address
        assert rank0.http_port is not None  # noqa: S101 - by _address
        port = rank0.http_port
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._get(address, port)
        except TimeoutError:
            return Refused(
                "ProbeTimeout",
                f"Port {port} of the pod did not answer within {self._timeout_s:g}s. {POLICY_HINT}",
            )
        except ConnectionRefusedError:
            return Refused(
                "NothingListens",
                f"Nothing listens on port {port} of the pod. Check that rank 0 serves its progress there.",
            )
        except (CutShort, ConnectionError):
            return Refused(
                "AnswerCutShort", f"The connection to port {port} broke before the end of the answer."
            )
        except NotHTTP:
            return Refused(
                "NotHTTP",
                f"What listens on port {port} does not speak HTTP. Check the port that the job declares.",
                RetryClass.RARELY,
            )
        except OSError as error:
            log.debug("pod unreachable", job=str(ref), errno=error.errno)
            return Refused(
                "NoRouteToPod", f"Port {port} of the pod cannot be reached. {POLICY_HINT}", RetryClass.SOON
            )
        return await self._readings.read(
            ref, len(response.body), partial(_read, response, port, is_trusted=not rank0.is_port_annotated)
        )

    async def _get(self, address: str, port: int) -> HttpResponse:
        reader, writer = await self._connect(address, port)
        try:
            host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            return await get(reader, writer, host=host, path=PATH, max_body_bytes=MAX_DOCUMENT_BYTES)
        finally:
            # At once: there is nothing left to send, and the peer must not delay us at the end.
            writer.transport.abort()


def _address(rank0: Rank0) -> str | Refused:
    """The pod's own address in its plain form, or why it is not probed.

    With hostNetwork a pod shares its ports with everything else on the node. A status could name any address:
    127.0.0.1 would be this server, and 169.254.169.254 the cloud's metadata service.
    """
    if rank0.http_port is None:
        return Refused(
            "NoPort",
            "The job declares no port. "
            "Set annotation visibility.trainer.kubeflow.org/port or TRAINJOB_PROGRESS_PORT.",
            RetryClass.RARELY,
        )
    if rank0.host_network:
        return Refused(
            "HostNetwork",
            "The pod uses its node's network, where another process may listen on that port. "
            "Report to a file.",
            RetryClass.RARELY,
        )
    if not rank0.pod_ip:
        return Refused("NoPodIP", "The pod has no IP address yet.", RetryClass.SOON)
    try:
        address = ipaddress.ip_address(rank0.pod_ip)
    except ValueError:
        return _odd_address()
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return _odd_address()
    if isinstance(address, ipaddress.IPv6Address) and (
        # Most lead to an IPv4 address inside, such as NAT64's; a pod has an IPv4 address in its plain form.
        address.is_reserved
        or address.is_site_local
        or address.ipv4_mapped
        or address.sixtofour
        or address.teredo
        or address.scope_id
    ):
        return _odd_address()
    return str(address)


def _odd_address() -> Refused:
    return Refused(
        "PodIPRefused",
        "The pod's IP address is not one of its own (loopback, link-local or the like), so it is not probed.",
        RetryClass.RARELY,
    )


def _read(response: HttpResponse, port: int, *, is_trusted: bool) -> Outcome:
    if response.status == 503:  # what our reporter answers before its first report
        return Refused("NoProgressYet", f"Port {port} answers, but has no report yet (HTTP status 503).")
    if response.status != 200:  # a redirect too: it is never followed
        return Refused(
            "HTTPStatus", f"Port {port} answered with HTTP status {response.status} instead of 200."
        )
    if response.content_encoding not in ("", "identity"):
        return Refused(
            "AnswerCompressed",
            f"Port {port} compressed its answer without being asked to. Send it uncompressed.",
            RetryClass.RARELY,
        )
    if response.is_too_large:
        return Refused(
            "TooLarge",
            f"The answer of port {port} is larger than {MAX_DOCUMENT_BYTES} bytes. Send a smaller one.",
            RetryClass.RARELY,
        )
    outcome = parse_report(response.body, is_path_trusted=is_trusted)
    if isinstance(outcome, Refused):
        return Refused(outcome.reason, f"Port {port}: {outcome.message}")
    return outcome
