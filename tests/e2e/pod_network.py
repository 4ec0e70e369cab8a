"""A network with the addresses of two pods and nothing else, not even a way out.

The http source refuses 127.0.0.1, which is all that the pods of other tests have. In a network namespace a
run of pytest has addresses that nobody else sees, so a whole cluster with such pods fits in there.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence

POD_IP, NEIGHBOUR_IP = "10.244.0.5", "10.244.0.6"
# With process ids of its own as well: when the first process is killed, so is all that it has started.
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")
_SET_UP = f"""
ip address add {POD_IP}/32 dev lo
ip address add {NEIGHBOUR_IP}/32 dev lo
ip link set lo up
exec "$@"
"""


def inside(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` in such a network; killing it leaves nothing behind."""
    return [*_UNSHARE, "sh", "-ec", _SET_UP, "sh", *argv]


def why_impossible() -> str:
    """Why there can be no such network on this machine; "" when there can."""
    missing = [name for name in (_UNSHARE[0], "ip") if shutil.which(name) is None]
    if missing:
        return f"no network of its own without {' and '.join(missing)}"
    tried = subprocess.run(inside(["true"]), capture_output=True, text=True, timeout=90, check=False)
    return f"no network of its own: {tried.stderr.strip()}" if tried.returncode else ""


def is_here() -> bool:
    """Whether this process is in such a network."""
    with socket.socket() as probe:
        try:
            probe.bind((POD_IP, 0))
        except OSError:
            return False
    return True
