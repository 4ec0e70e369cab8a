"""Where the other replicas are: the names of --peers, resolved, without this process's own address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple


class Address(NamedTuple):
    host: str  # an IP address
    port: int


def plain(host: str) -> str:
    """An IP address as DNS has it: a dual-stack socket shows a caller's 10.0.0.7 as ::ffff:10.0.0.7."""
    mapped = ipaddress.IPv6Address(host).ipv4_mapped if host.startswith("::") and "%" not in host else None
    return host if mapped is None else str(mapped)


def split_name(name: str, default_port: int) -> tuple[str, int]:
    """Host and port of HOST or HOST:PORT."""
    host, _, port = name.partition(":")
    return host, int(port) if port else default_port


async def resolve(host: str, port: int, *, own_port: int) -> set[Address]:
    """Every address of a name but this server's own, which listens on `own_port`.

    Raises OSError when DNS is unreachable or has no such name, UnicodeError for one that cannot be a name.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = {str(address[0]) for *_, address in found}
    return {Address(each, port) for each in addresses if port != own_port or not _is_own(each)}


def _is_own(host: str) -> bool:
    """Whether an address is one of this machine or pod: packets to it would have it as their source."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # a datagram socket sends nothing here
        except OSError:
            return False
        return bool(probe.getsockname()[0] == host)
