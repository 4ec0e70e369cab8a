"""Which proxy the environment names for a server, as Go reads HTTPS_PROXY and NO_PROXY: httpx knows no CIDR.

Reference: https://pkg.go.dev/golang.org/x/net/http/httpproxy#Config
"""

from __future__ import annotations

import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Optional, Union
from urllib.parse import SplitResult


def proxy_of_environment(server: SplitResult) -> Optional[str]:
    """Its URL; None: the server is reached without one."""
    proxy = _variable(f"{server.scheme}_proxy")
    if not proxy or _is_excepted(server):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str) -> str:
    return os.environ.get(name.upper()) or os.environ.get(name) or ""


def _is_excepted(server: SplitResult) -> bool:
    host, port = server.hostname or "", str(server.port or {"https": 443, "http": 80}.get(server.scheme))
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [each.strip().lower() for each in _variable("no_proxy").split(",")]
    return any(_matches(each, host, port) for each in entries if each)


def _matches(entry: str, host: str, port: str) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, of_port = entry, ""
    if entry.startswith("[") or entry.count(":") == 1:  # else an IPv6 address alone
        name, _, of_port = entry.rpartition(":") if not entry.endswith("]") else (entry, "", "")
    name = name.strip("[]")
    if not name or (of_port and of_port != port):
        return False
    if _address(name) is not None:
        return _address(name) == address
    name = name[1:] if name.startswith("*.") else name
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _address(text: str) -> Union[IPv4Address, IPv6Address, None]:
    try:
        return ip_address(text)
    except ValueError:
        return None
