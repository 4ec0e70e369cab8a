"""What every test may ask of a cluster, whichever it is: see local_cluster and real_cluster."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Protocol

from tests.e2e.api import Api
from tests.e2e.exec_faults import FaultyAgent
from tests.e2e.pki import KeyPair


class ExecPath(enum.Enum):
    """How kube-apiserver reaches a kubelet with a v5 WebSocket (X3). Both are in the field."""

    TRANSLATED = "it ends the WebSocket itself and speaks SPDY onward"
    PASSED_ON = "from 1.36 on, to a node that declares it understands"

    @property
    def declared_features(self) -> list[str]:
        """For the node's status."""
        return ["ExtendWebSocketsToKubelet"] if self is ExecPath.PASSED_ON else []


class Cluster(Protocol):
    """A running API server, the controllers of training jobs, and a node whose pods are local processes."""

    kind: str  # "local" or "real"
    url: str
    port: int
    ca_file: Path  # what signs the API server's certificate
    admin: Api
    admin_pair: KeyPair
    agent: FaultyAgent

    def issue_client(self, name: str, *groups: str) -> KeyPair:
        """A client certificate of the cluster's ordinary client CA."""
        ...

    def issue_front_proxy(self, name: str) -> KeyPair:
        """A client certificate of the request-header CA; the aggregator's own has name front-proxy-client."""
        ...

    def stop_apiserver(self) -> None: ...

    def start_apiserver(self) -> None:
        """On the same port and with the same state; returns when it is ready."""
        ...

    def forget_history(self) -> None:
        """From now on every resourceVersion handed out before is too old to watch from (410 Expired)."""
        ...

    def check(self) -> None:
        """Raise when a part of the cluster has died: what a test sees then is not the server's fault."""
        ...

    def stop(self) -> None: ...
