"""What the operation of log tails is given: how to find a job, to check rights, to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.kubeapi.message import Authorizer
from visibility_api.probing.log_end import LogEnds
from visibility_api.store import Entry

_CROWDED = "too many logs are being read; try again after the time in Retry-After"


def _queues() -> ClientQueues:
    """Each is read by a kubelet: a user with a thousand tabs waits for itself."""
    return ClientQueues(
        crowded=_CROWDED,
        max_running=16,
        max_running_per_client=4,
        max_waiting=256,
        max_waiting_per_client=32,
        wait_s=10.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTails:
    """`find` takes a namespace and a name. `logs` is None where the source `logs` is not switched on."""

    find: Callable[[str, str], Entry | None]
    authorizer: Authorizer
    logs: LogEnds | None
    queues: ClientQueues = field(default_factory=_queues)  # by user
