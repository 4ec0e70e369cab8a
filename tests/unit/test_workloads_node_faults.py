"""Which fault of a node is named as the cause of a failure, and what it costs to learn of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from tests.jobs import JOB
from visibility_api.jobs.failure import Failure, first_of
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.workloads.node_faults import EVENTS, NodeFaults
from visibility_api.workloads.replicas import ReplicaStatus

from .bench import at

NODE = "gpu-7"
OTHER = replace(JOB.ref, name="other", uid="u2")


def failure(*, reason: str = "Error", s: float = 1000, node: str = NODE, **more: Any) -> Failure:
    return Failure(
        at=at(s), since=at(0), replica="node-1", pod_name="p1", node_name=node, reason=reason, exit_code=1,
        message="node-1 failed.", **more,
    )  # fmt: skip


def condition(type_: str, status: str = "True", *, s: float = 970, reason: str = "", says: str = "") -> Any:
    time = at(s)
    return {"type": type_, "status": status, "reason": reason, "message": says, "lastTransitionTime": time}


def event(reason: str, *, s: float = 970, says: str = "") -> Any:
    return {"reason": reason, "message": says, "lastTimestamp": at(s)}


def shows(*conditions: Any, taints: Sequence[Any] = ()) -> Any:
    return {"spec": {"taints": list(taints)}, "status": {"conditions": list(conditions)}}


class Cluster:
    """Answers for nodes, and Events of all of them."""

    def __init__(self, *events: Any, **nodes: Any) -> None:
        self.nodes = {name.replace("_", "-"): node for name, node in nodes.items()}
        self.events = events
        self.asked: list[str] = []

    async def get(self, path: str, *, query: Sequence[tuple[str, str]], **_limits: object) -> bytes:
        self.asked.append(path)
        if path == EVENTS:
            assert dict(query)["fieldSelector"].startswith("involvedObject.kind=Node,involvedObject.name=")
            return msgspec.json.encode({"items": self.events})
        found = self.nodes.get(path.removeprefix("/api/v1/nodes/"), ApiError(404))
        if isinstance(found, Exception):
            raise found
        return msgspec.json.encode(found)


class Told:
    """What was found, of each job."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        now_s: float = 1005,
        others: Mapping[JobRef, Failure] = MappingProxyType({}),
    ) -> None:
        self.by_job: dict[JobRef, Failure] = {}
        self.faults = NodeFaults(
            cast(KubeClient, cluster), found=self._found, others=lambda *_: others, now=lambda: at(now_s)
        )

    def _found(self, ref: JobRef, found: Failure) -> None:
        self.by_job[ref] = found

    async def explain(self, *failures: Failure, others: Sequence[str] = (), ref: JobRef = JOB.ref) -> Failure:
        """What is shown of the job in the end."""
        replicas = [
            ReplicaStatus(name=f"node-{number}", pod_name=f"p{number}", state="Running", node_name=node)
            for number, node in enumerate(others)
        ]
        await self.faults.explain(ref, failures, replicas)
        held = None
        for each in [*failures, *([self.by_job[ref]] if ref in self.by_job else [])]:
            held = first_of(held, each)
        assert held is not None
        return held


READY = condition("Ready", s=-9000)
NAMED = [
    (failure(), shows(condition("Ready", "Unknown")), (), "NodeNotReady", "was not ready (Ready), 30 s befo"),
    (failure(), shows(condition("Ready", "False", s=1040)), (), "NodeNotReady", "(Ready) at that time."),
    (failure(), shows(READY), (event("Rebooted"),), "NodeNotReady", "(Rebooted), 30 s before."),
    (failure(reason="NodeLost"), None, (), "NodeReclaimed", "(it is no longer in the cluster)."),
    (
        failure(),
        shows(condition("SysLogsXIDError", says="ErrorCode:79 PCI:0002:00:00 GPU has fallen off the bus")),
        (event("NodeNotSchedulable"),), "AcceleratorFault",
        "node gpu-7 reported a fault of an accelerator (SysLogsXIDError, Xid 79), 30 s before.",
    ),
    (
        failure(), shows(condition("AcceleratedHardwareReady", "False", reason="NvidiaXID48Error")), (),
        "AcceleratorFault", "Xid 48",
    ),
    (failure(), shows(condition("GpuMemWatch")), (), "AcceleratorFault", "(GpuMemWatch)"),
    (
        failure(), shows(), (event("XidError", says="NVRM: Xid (PCI:0000:cb:00): 94, pid=7"),),
        "AcceleratorFault", "(XidError, Xid 94)",
    ),
    (failure(), shows(condition("ReadonlyFilesystem")), (), "NodeFault", "(ReadonlyFilesystem)"),
    (failure(), shows(), (event("SpotInterruption"),), "NodeReclaimed", "taken back by its provider (Spot"),
    (failure(), shows(), (event("PreemptScheduled"),), "NodeReclaimed", "PreemptScheduled"),
    (
        failure(), shows(taints=[{"key": "cloud.google.com/impending-node-termination"}]), (),
        "NodeReclaimed", "(taint cloud.google.com/impending-node-termination).",
    ),
    (
        failure(reason="Evicted"), shows(taints=[{"key": "node.kubernetes.io/unschedulable"}]), (),
        "NodeDrained", "was drained (taint node.kubernetes.io/unschedulable).",
    ),
    (failure(signal=15), shows(), (event("ScaleDown"),), "NodeDrained", "(ScaleDown)"),
    (failure(cause_class="PeerLost", is_cascade=True), shows(condition("Ready", "False")), (), "NodeNotReady",
     "30 s before."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("failed", "node", "events", "name", "says"), NAMED, ids=lambda value: str(value)[:40]
)
async def test_a_fault_of_the_node_is_the_cause(
    failed: Failure, node: Any, events: Sequence[Any], name: str, says: str
) -> None:
    cluster = Cluster(*events, **({"gpu_7": node} if node is not None else {}))
    found = await Told(cluster).explain(failed)
    assert (found.cause_class, found.is_retryable, found.is_cascade) == (name, True, False)
    assert says in found.cause
    assert found.hint.endswith(".")
    assert "bus" not in found.cause  # what others wrote is not quoted


UNNAMED = [
    (failure(), shows(READY), (event("NodeReady"), event("Starting"))),
    (failure(), shows(condition("Ready", "Unknown", s=1000 - 601)), ()),  # long before
    (failure(), shows(condition("Ready", "Unknown", s=1061)), ()),  # long after
    (failure(), shows(condition("MemoryPressure"), condition("KernelReady", "Unknown")), ()),
    (failure(), shows(), (event("NodeNotSchedulable"),)),  # a cordon ends nothing
    (failure(reason="Evicted"), shows(), (event("NodeNotSchedulable", s=1010),)),  # drained after it
    (failure(), shows(), (event("XidError", says="NVRM: Xid (PCI:0000:cb:00): 31, pid=7"),)),  # a program's
    (failure(), shows(taints=[{"key": "aws-node-termination-handler/scheduled-maintenance"}]), ()),
    (failure(reason="OOMKilled"), shows(condition("Ready", "False")), ()),
    (failure(reason="Preempted"), shows(condition("Ready", "False")), ()),
    (failure(cause_class="FileMissing"), shows(condition("Ready", "False")), ()),
    (failure(), None, ()),  # the program's own end, on a node that has gone since
    (failure(), Unreachable("no answer"), ()),
    (failure(node="../pods"), shows(condition("Ready", "False")), ()),
    (failure(node="gpu-7,involvedObject.name=x"), shows(condition("Ready", "False")), ()),
]


@pytest.mark.parametrize(("failed", "node", "events"), UNNAMED, ids=lambda value: str(value)[:40])
async def test_what_does_not_fit_is_no_cause(failed: Failure, node: Any, events: Sequence[Any]) -> None:
    cluster = Cluster(*events, **({"gpu_7": node} if node is not None else {}))
    assert await Told(cluster).explain(failed) == failed
    assert all(path in ("/api/v1/nodes/gpu-7", EVENTS) for path in cluster.asked)


async def test_a_lost_node_is_named_though_its_pod_shows_nothing() -> None:
    """Its kubelet reports no end; the peers fail by the connection."""
    cluster = Cluster(gpu_7=shows(READY), gpu_9=shows(condition("Ready", "Unknown", s=1030)))
    told = Told(cluster)
    peer = failure(cause_class="PeerLost", is_cascade=True)
    found = await told.explain(peer, others=("gpu-8", NODE, "gpu-9"))
    assert (found.replica, found.pod_name, found.node_name) == ("node-2", "p2", "gpu-9")
    assert found.cause_class == "NodeNotReady"
    assert cluster.asked.count(EVENTS) == 1  # of nodes whose pods have failed alone


async def test_jobs_that_one_node_has_ended_are_told_of_each_other() -> None:
    told = Told(Cluster(gpu_7=shows(condition("Ready", "False"))))
    assert "other job" not in (await told.explain(failure())).cause
    later = failure(s=1003)
    assert (await told.explain(later, ref=OTHER)).cause.endswith(" It ended 1 other job as well.")
    assert told.by_job[JOB.ref].cause.endswith(" It ended 1 other job as well.")
    assert told.by_job[JOB.ref].at == at(1000)


async def test_jobs_that_other_replicas_evaluate_count_among_those_that_a_node_has_ended() -> None:
    told = Told(Cluster(gpu_7=shows(condition("Ready", "False"))), others={OTHER: failure(s=1003)})
    assert (await told.explain(failure())).cause.endswith(" It ended 1 other job as well.")


async def test_many_jobs_that_fail_read_their_node_once() -> None:
    cluster = Cluster(gpu_7=shows(READY))
    told = Told(cluster)
    for _ in range(50):
        await told.explain(failure())
    assert cluster.asked == ["/api/v1/nodes/gpu-7", EVENTS]


async def test_without_the_right_a_node_is_not_asked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(gpu_7=ApiError(403), gpu_8=ApiError(403))
    told = Told(cluster)
    for node in (NODE, "gpu-8", "gpu-9"):
        assert await told.explain(failure(node=node)) == failure(node=node)
    assert [path for path in cluster.asked if path != EVENTS] == ["/api/v1/nodes/gpu-7"]
    assert "node-faults" in "".join(capsys.readouterr())


def test_a_sign_of_another_s_failure_replaces_no_fault_of_the_node() -> None:
    root = failure(cause_class="NodeNotReady", cause="So it is.")
    sign = failure(cause_class="PeerLost", is_cascade=True)
    for order in ([root, sign], [sign, root]):
        shown = first_of(first_of(None, order[0]), order[1])
        assert shown.cause_class == "NodeNotReady"
    assert first_of(root, replace(sign, at=root.at + timedelta(seconds=1))).cause_class == "NodeNotReady"
