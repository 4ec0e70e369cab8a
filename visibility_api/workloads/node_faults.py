"""What ailed the nodes of a job when it failed: their conditions, taints and Events, in our own words.

A node is read when a job fails, once for all jobs of that time; none is watched. Names are those of
Kubernetes, Node Problem Detector, NVSentinel, the clouds' agents and autoscalers. A text of theirs is
searched for an Xid's number, and never quoted: who may read a job may have no right on nodes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
import structlog
from cachetools import LRUCache, TTLCache
from msgspec.structs import replace

from visibility_api.errors.text import harmless
from visibility_api.jobs.failure import NODE_LOST, SIGTERM, Failure
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.kube.decoding import UNDECODABLE
from visibility_api.kube.errors import ApiError, ClusterError

from .failures import NODE_SHUTDOWN
from .objects import KubernetesObject, ObjectCondition
from .replicas import ReplicaStatus

log = structlog.get_logger("visibility.inspection")

BEFORE = timedelta(minutes=10)  # that long a fault may last until it ends a process
NOTICED_WITHIN = timedelta(seconds=60)  # node-monitor-grace-period is 50 s, agents' intervals are a minute
AT_ONCE = timedelta(seconds=5)  # clocks differ
KEPT_S, MAX_KEPT = 15.0, 1024  # what a node has shown serves all jobs that fail at that time
MAX_FAILED, MAX_OTHERS = 8, 64  # nodes of one job: of pods that have failed, with their Events; of others
REFUSED_S = 600.0  # after which a missing right is tried again
MAX_EVENTS, MAX_BYTES = 200, 4 * 1024 * 1024
MAX_JOBS = 64  # of one node, that are told of each other
TOLD_WITHIN = timedelta(hours=1)
TIMEOUT_S = 5.0
EVENTS = "/api/v1/namespaces/default/events"  # where those of objects without a namespace are

ACCELERATOR_FAULT, NODE_FAULT, RECLAIMED = "AcceleratorFault", "NodeFault", "NodeReclaimed"
NOT_READY, DRAINED = "NodeNotReady", "NodeDrained"
_LATE = {ACCELERATOR_FAULT: NOTICED_WITHIN, NODE_FAULT: NOTICED_WITHIN, NOT_READY: NOTICED_WITHIN}
# What drains or loses a node comes from the fault, so a fault explains more. In that order.
_SAYS = {
    ACCELERATOR_FAULT: ("reported a fault of an accelerator", "Have its accelerators checked"),
    NODE_FAULT: ("reported a fault of its own", "Have it checked"),
    RECLAIMED: (
        "was stopped or taken back by its provider",
        "Nothing is wrong with the program: let it restart from a checkpoint",
    ),
    NOT_READY: ("was not ready", "Have it checked"),
    DRAINED: ("was drained", "Nothing is wrong with the program: let it restart from a checkpoint"),
}
# Conditions that are True, or whose name ends in Ready and that are False; and reasons of Events.
_SIGNS = (
    (
        ACCELERATOR_FAULT,
        r"(?i:\w*xid\w*)|SysLogsGPUFallenOff|Gpu\w+Watch|Gpu(?:Problem|Fault|Error|Unhealthy)",
    ),
    (ACCELERATOR_FAULT, r"(?:Nvidia|Neuron|DCGM)\w*(?:Error|Failure)|AcceleratedHardwareReady"),
    (NODE_FAULT, r"KernelDeadlock|KernelOops|ReadonlyFilesystem|FilesystemCorruptionProblem|Ext4Error"),
    (NODE_FAULT, r"CorruptDockerOverlay2|Frequent(?:Kubelet|Docker|Containerd)Restart|NetworkUnavailable"),
    (NODE_FAULT, r"(?:Kubelet|ContainerRuntime)(?:Problem|IsDown|Unhealthy)"),
    (NODE_FAULT, r"(?:Kernel|Storage|Networking|ContainerRuntime)Ready"),
    (RECLAIMED, r"SpotInterruption|SpotInterrupted|TerminatingOnInterruption|ScheduledEvent|ASGLifecycle"),
    (RECLAIMED, r"(?:Preempt|Terminate|Reboot|Redeploy)Scheduled|Instance(?:Terminating|Stopping)"),
    (RECLAIMED, r"StateChange|DeletingNode|RemovingNode"),
    (NOT_READY, r"Ready|NodeNotReady|Rebooted|NodeShutdown|Shutdown"),
    (DRAINED, r"NodeNotSchedulable|ScaleDown|CordonAndDrain|DisruptionTerminating"),
)
_TAINTS = (
    (RECLAIMED, r"aws-node-termination-handler/(?:spot-itn|asg-lifecycle-termination)"),
    (
        RECLAIMED,
        r"cloud\.google\.com/impending-node-termination|node\.cloudprovider\.kubernetes\.io/shutdown",
    ),
    (RECLAIMED, r"cloudprovider\.azure\.microsoft\.com/draining"),
    (NOT_READY, r"node\.kubernetes\.io/(?:not-ready|unreachable|out-of-service)"),
    (DRAINED, r"ToBeDeletedByClusterAutoscaler|karpenter\.sh/(?:disrupted|disruption)"),
    (DRAINED, r"node\.kubernetes\.io/unschedulable"),
)
_TABLE = tuple((name, re.compile(names)) for name, names in _SIGNS)
_TAINT_TABLE = tuple((name, re.compile(names)) for name, names in _TAINTS)
_XID = re.compile(r"(?:Xid (?:\(PCI:[\da-fA-F:.]{1,20}\): )?|ErrorCode:|XID)(\d{1,3})\b|XID(\d{1,3})Error")
_NODE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
# Errors of programs, by NVIDIA's catalogue (https://docs.nvidia.com/deploy/xid-errors/).
PROGRAMS_XIDS = frozenset((13, 31, 43, 45))
# Failures that a fault of the node may explain: the others are explained better.
_BY_NODE = ("", "Error", "Evicted", NODE_LOST, NODE_SHUTDOWN, "ContainerStatusUnknown", "Unknown")


class _Taint(KubernetesObject, frozen=True):
    key: str = ""
    time_added: datetime | None = None


class _Spec(KubernetesObject, frozen=True):
    taints: tuple[_Taint, ...] | None = None


class _Status(KubernetesObject, frozen=True):
    conditions: tuple[ObjectCondition, ...] | None = None


class Node(KubernetesObject, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Series(KubernetesObject, frozen=True):
    last_observed_time: datetime | None = None


class NodeEvent(KubernetesObject, frozen=True):
    reason: str | None = None
    message: str | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: _Series | None = None

    @property
    def at(self) -> datetime | None:
        return (self.series and self.series.last_observed_time) or self.last_timestamp or self.event_time


class _Events(KubernetesObject, frozen=True):
    items: tuple[NodeEvent, ...] | None = None


class Fault(NamedTuple):
    """One thing that ailed a node. `at`: None for what is there now, and nothing says since when."""

    name: str
    at: datetime | None
    by: str  # the condition, taint or Event


def faults_of(node: Node, events: Iterable[NodeEvent]) -> list[Fault]:
    """All that it shows, whenever it was."""
    found = list[Fault]()
    for condition in node.status.conditions or ():
        is_good_if_true = condition.type.endswith("Ready")
        # Unknown: the kubelet, or the agent, is not heard of. Of an agent's that is no fault of what it sees.
        bad = ("False", "Unknown") if condition.type == "Ready" else ("False" if is_good_if_true else "True",)
        if condition.status in bad:
            found += _fault(
                condition.type, condition.last_transition_time, condition.reason, condition.message
            )
    for event in events:
        found += _fault(event.reason or "", event.at, event.reason, event.message)
    for taint in node.spec.taints or ():
        name = next((name for name, names in _TAINT_TABLE if names.fullmatch(taint.key)), "")
        if name:
            found.append(Fault(name, taint.time_added, f"taint {taint.key}"))
    return found


def _fault(name: str, at: datetime | None, *texts: str | None) -> list[Fault]:
    kind = next((kind for kind, names in _TABLE if names.fullmatch(name)), "")
    if not kind or at is None:
        return []
    xids = [int(first or second) for text in texts for first, second in _XID.findall((text or "")[:2000])]
    if xids and all(xid in PROGRAMS_XIDS for xid in xids):
        return []
    return [Fault(kind, at, f"{name}, Xid {xids[0]}" if xids and kind == ACCELERATOR_FAULT else name)]


def fitting(faults: Iterable[Fault], failure: Failure, *, now: datetime, is_own: bool = True) -> Fault | None:
    """The fault that explains this failure. `is_own`: it is of a pod on that node, else of a peer's."""
    first: Fault | None = None
    order = list(_SAYS)
    for fault in faults:
        at = fault.at or now - AT_ONCE
        late = _LATE.get(fault.name, AT_ONCE)
        # What has no time of its own was found seconds after the failure.
        is_in_time = failure.at - BEFORE <= at <= failure.at + (BEFORE if fault.at is None else late)
        if fault.name == DRAINED:  # which ends processes by its evictions alone
            is_in_time &= is_own and (failure.signal == SIGTERM or failure.reason not in ("", "Error"))
        if is_in_time and (first is None or order.index(fault.name) < order.index(first.name)):
            first = fault
    return first


def explained(failure: Failure, fault: Fault, others: int = 0) -> Failure:
    """The failure with the fault of its node as the cause. `others`: further jobs that it has ended."""
    says, hint = _SAYS[fault.name]
    when = ""
    if fault.at is not None:
        before_s = (failure.at - fault.at).total_seconds()
        when = f", {before_s:.0f} s before" if before_s > AT_ONCE.total_seconds() else " at that time"
    also = f" It ended {others} other job{'s' if others > 1 else ''} as well." if others else ""
    return replace(
        failure,
        cause_class=fault.name,
        cause=harmless(f"node {failure.node_name} {says} ({fault.by}){when}.{also}"),
        hint=f"{hint}.",
        is_cascade=False,
        is_retryable=True,
    )


def may_explain(failure: Failure) -> bool:
    """Whether a fault of a node would say more than is known."""
    return failure.reason in _BY_NODE and (not failure.cause_class or failure.is_cascade)


def foremost(
    failures: Sequence[Failure], replicas: Sequence[ReplicaStatus]
) -> tuple[Sequence[Failure], Sequence[ReplicaStatus]]:
    """Those of one job that are looked at."""
    nodes = {each.node_name for each in failures}
    first = sorted((each for each in failures if may_explain(each)), key=lambda each: each.came_at)
    others = [each for each in replicas if each.node_name and each.node_name not in nodes]
    return first[:MAX_FAILED], others[:MAX_OTHERS]


class NodeFaults:
    """Reads the nodes of jobs that fail, and keeps for each which jobs its faults have ended."""

    def __init__(
        self,
        client: KubeClient,
        *,
        found: Callable[[JobRef, Failure], None],
        others: Callable[[str, str], Mapping[JobRef, Failure]] = lambda _node, _fault: {},
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`others`: jobs that another replica evaluates, and of which it has said that this fault of this
        node has ended them."""
        self._client, self._found, self._others, self._now = client, found, others, now
        self._read: TTLCache[tuple[str, bool], list[Fault] | None] = TTLCache(MAX_KEPT, KEPT_S)
        self._ended: LRUCache[tuple[str, str], dict[JobRef, Failure]] = LRUCache(MAX_KEPT)
        self._refused_until: dict[str, float] = {}  # by path, on the loop's clock

    async def explain(
        self, ref: JobRef, failures: Sequence[Failure], replicas: Sequence[ReplicaStatus]
    ) -> bool:
        """Call `found` with what a node has caused, of the first that it explains. Returns whether any is."""
        open_, others = foremost(failures, replicas)
        if not open_:
            return False
        for failure in open_:
            faults = await self.read(failure.node_name, with_events=True) if failure.node_name else ()
            if faults is None and failure.reason in (NODE_LOST, NODE_SHUTDOWN, "Evicted"):
                faults = [Fault(RECLAIMED, None, "it is no longer in the cluster")]
            if (fault := fitting(faults or (), failure, now=self._now())) is not None:
                self._tell(ref, failure, fault)
                return True
        return await self._explain_by_others(ref, open_[0], others)

    async def _explain_by_others(self, ref: JobRef, first: Failure, others: Sequence[ReplicaStatus]) -> bool:
        """A node that is lost reports no failure of its pods: their peers notice first."""
        for replica in others:
            faults = await self.read(replica.node_name, with_events=False) or ()
            fault = fitting(faults, first, now=self._now(), is_own=False)
            if fault is not None:
                at = min(fault.at or first.at, first.at)
                if first.since is not None and first.since >= at:
                    continue  # the run began after it
                says = (
                    f"{replica.name}: pod {replica.pod_name} was on node {replica.node_name}, which failed."
                )
                own = Failure(
                    at=at,
                    replica=replica.name,
                    pod_name=replica.pod_name,
                    node_name=replica.node_name,
                    reason=fault.name,
                    message=harmless(says),
                )
                self._tell(ref, own, fault)
                return True
        return False

    def _tell(self, ref: JobRef, failure: Failure, fault: Fault) -> None:
        """This job's users, and those of the jobs that the same fault has ended before."""
        key = failure.node_name, fault.name
        recent = {
            each: was
            for each, was in {**self._others(*key), **self._ended.get(key, {})}.items()
            if abs(failure.at - was.at) < TOLD_WITHIN and each != ref
        }
        if len(recent) < MAX_JOBS:
            self._ended[key] = recent | {ref: failure}
        for each, was in (recent | {ref: failure}).items():
            self._found(each, explained(was, fault, len(recent)))

    async def read(self, name: str, *, with_events: bool) -> list[Fault] | None:
        """What this node shows now; None if there is no such node. Raises nothing of the cluster's."""
        key = name, with_events
        if key not in self._read:
            self._read[key] = await self._ask(name, with_events=with_events)
        return self._read[key]

    async def _ask(self, name: str, *, with_events: bool) -> list[Fault] | None:
        if not _NODE_NAME.fullmatch(name):
            return []
        body = await self._get(f"/api/v1/nodes/{name}", "/api/v1/nodes", (("resourceVersion", "0"),))
        if body is None:
            return None
        events = b""
        if with_events:
            selector = f"involvedObject.kind=Node,involvedObject.name={name}"
            query = (("fieldSelector", selector), ("limit", str(MAX_EVENTS)))
            events = await self._get(EVENTS, EVENTS, query) or b""
        try:
            node = msgspec.json.decode(body, type=Node) if body else Node()
            listed = msgspec.json.decode(events, type=_Events).items if events else ()
        except UNDECODABLE:
            return []
        return faults_of(node, listed or ())

    async def _get(self, path: str, right: str, query: Sequence[tuple[str, str]]) -> bytes | None:
        """b"" for what is not answered; None for what is not there."""
        clock = asyncio.get_running_loop().time()
        if clock < self._refused_until.get(right, 0.0):
            return b""
        try:
            return await self._client.get(path, query=query, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES)
        except ApiError as error:
            if error.status == 404:
                return None
            if error.status in (401, 403):
                self._refused_until[right] = clock + REFUSED_S
                log.warning("no right to read nodes", path=right, hint="apply components/node-faults")
        except ClusterError as error:
            log.debug("node not read", error=type(error).__name__)
        return b""
