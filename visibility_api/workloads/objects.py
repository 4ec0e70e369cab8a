"""The fields of Kubernetes objects that are used here; everything else is skipped while decoding.

So are labels, annotations and environment variables that nothing here reads: they are most of a pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice
from typing import Annotated, TypeVar

import msgspec
from msgspec.structs import replace

from visibility_api.jobs.job import Replica as ReplicaCounts
from visibility_api.reports.fields import EARLIEST, LATEST

from .annotations import MONITORING, OPEN_DATA_HUB, OPT_IN, PREFIX, TRACEPARENT

# Prefixes of the names that are kept.
ANNOTATIONS = (
    PREFIX,
    OPT_IN,
    OPEN_DATA_HUB + "metrics-",  # not its trainerStatus, a document that is rewritten at every poll
    MONITORING,
    TRACEPARENT,
    "kubectl.kubernetes.io/default-container",
)
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
# Labels of nodes that name their pool, for each cloud or autoscaler.
NODE_POOLS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)
VARIABLES = ("TRAINJOB_PROGRESS_", "KUBEFLOW_TRAINER_STATUS_", "ARGO_PROGRESS_")

# Waiting reasons of a container that starts as it should.
UNEVENTFUL = ("ContainerCreating", "PodInitializing")
# Conditions of a pod, each with the status in which it is kept; in the other one it has no meaning.
DISRUPTED = {"DisruptionTarget": "True"}
POD_CONDITIONS = DISRUPTED | {"PodScheduled": "False", "PodReadyToStartContainers": "True"}

# Resources that are accelerators, by the device plugins' own names. Others of the same vendors are parts of
# one: nvidia.com/gpumem, gpu.intel.com/millicores.
ACCELERATORS = frozenset(
    {
        "amd.com/gpu",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "aws.amazon.com/neurondevice",
        "cambricon.com/mlu",
        "google.com/tpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "iluvatar.com/gpu",
        "metax-tech.com/gpu",
        "mthreads.com/gpu",
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "qualcomm.com/qaic",
    }
)
ACCELERATOR_PREFIXES = ("huawei.com/Ascend", "nvidia.com/mig-")  # and the model, or the size of the slice
CLAIM = "resourceclaim/"  # and the name of a ResourceClaimTemplate or ResourceClaim
MAX_NAMES = 8  # of accelerators, in one pod
_NAME, MAX_NAME_LENGTH = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"), 253  # of any object
# Containers, claims, resources and our variables of a container: 60,000 fit an object, and take 50 ms.
MAX_LISTED = 256
MAX_AMOUNT, MAX_DIGITS = 1_000_000, 9

Labels = dict[str, str]
Quantity = str | int | float | None
Count = Annotated[int, msgspec.Meta(ge=0)]


class KubernetesObject(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Absent fields take the default. Not tracked by the garbage collector: these form no cycles."""


class OwnerReference(KubernetesObject, frozen=True):
    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class Meta(KubernetesObject, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: Labels | None = None
    annotations: Labels | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: Count | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    # Why nothing else of the object is known; "" when it was read. No field of metadata has such a name.
    unread: str = msgspec.field(default="", name="~unread")

    def __post_init__(self) -> None:
        if self.annotations is not None:
            msgspec.structs.force_setattr(self, "annotations", _only(self.annotations, ANNOTATIONS))
        if self.owner_references is not None:  # thousands fit an object, and one counts
            controller = self.controller
            msgspec.structs.force_setattr(self, "owner_references", (controller,) if controller else None)

    def label(self, key: str) -> str:
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        return (self.annotations or {}).get(key, "")

    @property
    def controller(self) -> OwnerReference | None:
        """The reference to the controlling object, as controllers set it: it blocks the owner's deletion.

        Every creator of an object may write any reference. With the admission plugin
        OwnerReferencesPermissionEnforcement, a blocking one requires a right on the owner.
        """
        for reference in self.owner_references or ():
            if reference.controller and reference.block_owner_deletion:
                return reference
        return None


class PartLabels(KubernetesObject, frozen=True):
    restart_attempt: str = msgspec.field(default="", name=RESTART_ATTEMPT)


class PartMeta(Meta, frozen=True):
    """Of JobSets, Jobs and pods: keeps one label, where it is not 0. A TrainJob's labels are all served."""

    labels: PartLabels | None = None  # type: ignore[assignment]  # in the place of a dictionary of all

    def __post_init__(self) -> None:
        Meta.__post_init__(self)
        if self.labels is not None and self.labels.restart_attempt in ("", "0"):
            msgspec.structs.force_setattr(self, "labels", None)

    def label(self, key: str) -> str:
        return self.labels.restart_attempt if self.labels is not None and key == RESTART_ATTEMPT else ""


def _bound_times(found: msgspec.Struct, *names: str) -> None:
    """A time to which nothing can be added is not known: a status may have any from year 1 to 9999."""
    for name in names:
        moment = getattr(found, name)
        if moment is not None and not _is_known(moment):
            msgspec.structs.force_setattr(found, name, None)


def _is_known(moment: datetime) -> bool:
    return moment.tzinfo is not None and EARLIEST <= moment <= LATEST


def _only(pairs: Labels, beginnings: tuple[str, ...]) -> Labels | None:
    return {name: value for name, value in pairs.items() if name.startswith(beginnings)} or None


class AnyObject(KubernetesObject, frozen=True):
    """What is common to all that are watched."""

    metadata: Meta


class MadeObject(AnyObject, frozen=True):
    """What a controller makes on the way to the pods, where its name and its owner are all that counts."""

    metadata: PartMeta


class ObjectCondition(KubernetesObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None

    def __post_init__(self) -> None:
        _bound_times(self, "last_transition_time")


class ResourceAmounts(KubernetesObject, frozen=True):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class TemplateContainer(KubernetesObject, frozen=True):
    resources: ResourceAmounts | None = None


class ResourceClaim(KubernetesObject, frozen=True):
    """A claim of Dynamic Resource Allocation; what it allocates is in the claim or its template."""

    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodTemplateSpec(KubernetesObject, frozen=True):
    containers: tuple[TemplateContainer, ...] | None = None
    init_containers: tuple[TemplateContainer, ...] | None = None
    resource_claims: tuple[ResourceClaim, ...] | None = None


_NO_SPEC = PodTemplateSpec()


class PodTemplate(KubernetesObject, frozen=True):
    spec: PodTemplateSpec | None = None


class PodMaker(KubernetesObject, frozen=True):
    """What has the template of pods. Of that nothing else is kept than how many of each accelerator a pod
    holds, and claims that all the pods share. No field of Kubernetes' has such a name."""

    template: PodTemplate | None = None
    held: dict[str, Count] | None = msgspec.field(default=None, name="~held")
    shared: dict[str, Count] | None = msgspec.field(default=None, name="~shared")

    def __post_init__(self) -> None:
        if self.template is not None:
            held, shared = accelerators_of(self.template.spec or _NO_SPEC)
            msgspec.structs.force_setattr(self, "held", held or None)
            msgspec.structs.force_setattr(self, "shared", shared or None)
            msgspec.structs.force_setattr(self, "template", None)


class JobTemplateSpec(PodMaker, frozen=True):
    parallelism: Count = 1


def accelerators_of(spec: PodTemplateSpec) -> tuple[dict[str, int], dict[str, int]]:
    """How many accelerators of each name a pod requests, and the claims that it shares with others.

    Containers hold theirs together, each init container before them (sidecars are taken for such).
    A claim counts as one accelerator: how many it allocates is not read.
    """
    held: dict[str, int] = {}
    for container in islice(spec.containers or (), MAX_LISTED):
        for name, amount in _amounts(container):
            held[name] = min(held.get(name, 0) + amount, MAX_AMOUNT)
    for container in islice(spec.init_containers or (), MAX_LISTED):
        for name, amount in _amounts(container):
            held[name] = max(held.get(name, 0), amount)
    shared: dict[str, int] = {}
    for claim in islice(spec.resource_claims or (), MAX_LISTED):
        of_template, of_claim = claim.resource_claim_template_name or "", claim.resource_claim_name or ""
        if _is_name(of_template):
            held[CLAIM + of_template] = held.get(CLAIM + of_template, 0) + 1
        elif _is_name(of_claim):
            shared[CLAIM + of_claim] = 1
    return _first_names(held), _first_names(shared)


def _first_names(held: dict[str, int]) -> dict[str, int]:
    return dict(sorted(held.items())[:MAX_NAMES])


def _amounts(container: TemplateContainer) -> Iterator[tuple[str, int]]:
    if container.resources is not None:
        limits, requests = container.resources.limits or {}, container.resources.requests or {}
        # Of such a resource a limit is a request (an extended resource cannot be overcommitted).
        named = chain(limits.items(), (each for each in requests.items() if each[0] not in limits))
        for name, text in islice(named, MAX_LISTED):
            if is_accelerator(name) and (amount := _whole(text)):
                yield name, amount


def is_accelerator(name: str) -> bool:
    """Whether this resource is counted in accelerators, and not in shares or memory of one."""
    return name in ACCELERATORS or (
        name.startswith(ACCELERATOR_PREFIXES) and _is_name(name.partition("/")[2])
    )


def _is_name(text: str) -> bool:
    """Whether Kubernetes accepts it. In the template of a custom resource it may be any text."""
    return len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text) is not None


def _whole(quantity: Quantity) -> int:
    """Kubernetes wants whole numbers of these, and writes thousands as `1k`."""
    text = str(quantity)
    digits, factor = (text[:-1], 1000) if text.endswith("k") else (text, 1)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > MAX_DIGITS:
        return 0
    return min(int(digits) * factor, MAX_AMOUNT)


class BatchJobStatus(KubernetesObject, frozen=True):
    """Counts of pods. The Job controller omits those that are 0, but for `ready`."""

    ready: Count | None = None  # None: its controller has not seen the Job yet
    active: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    conditions: tuple[ObjectCondition, ...] | None = None  # of those, Failed

    def __post_init__(self) -> None:
        if self.conditions is not None:
            kept = tuple(c for c in self.conditions if c.type == "Failed" and c.status == "True")
            msgspec.structs.force_setattr(self, "conditions", kept or None)

    def counts(self, name: str, desired: int) -> ReplicaCounts:
        """Of the replica group of this name, which is to have so many."""
        return ReplicaCounts(
            name=name,
            desired=desired,
            ready=self.ready,
            active=self.active,
            succeeded=self.succeeded,
            failed=self.failed,
        )

    @property
    def failed_condition(self) -> ObjectCondition | None:
        return self.conditions[0] if self.conditions else None


class BatchJob(AnyObject, frozen=True):
    """A Job of a JobSet."""

    metadata: PartMeta
    status: BatchJobStatus = BatchJobStatus()


class EnvVar(KubernetesObject, frozen=True):
    name: str = ""
    # As it came: others' values, which may have megabytes, are not decoded. null for valueFrom.
    value: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def text(self) -> str | None:
        """Of a variable that was kept. None for another type of value."""
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.msgpack.decode(self.value, type=str)
        return None

    def kept(self) -> EnvVar:
        """A copy in MessagePack, as `ObjectCache` keeps objects: what is read refers to all that it was
        read from."""
        value = bytes(self.value)
        if value < b"\x80":  # JSON: no text of MessagePack begins so
            text = None
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                text = msgspec.json.decode(value, type=str)
            value = msgspec.msgpack.encode(text)
        return EnvVar(self.name, msgspec.Raw(value))


class Container(KubernetesObject, frozen=True):
    name: str = ""
    env: tuple[EnvVar, ...] | None = None

    def __post_init__(self) -> None:
        if self.env is not None:
            ours = [each for each in self.env if each.name.startswith(VARIABLES)][-MAX_LISTED:]
            msgspec.structs.force_setattr(self, "env", tuple([each.kept() for each in ours]) or None)


class StateWaiting(KubernetesObject, frozen=True):
    reason: str = ""
    message: str | None = None

    def __post_init__(self) -> None:
        # The delay in CrashLoopBackOff's grows with each restart; the others say no more than the reason.
        if self.message is not None and self.reason in ("CrashLoopBackOff", "", *UNEVENTFUL):
            msgspec.structs.force_setattr(self, "message", None)


class StateRunning(KubernetesObject, frozen=True):
    started_at: datetime | None = None

    def __post_init__(self) -> None:
        _bound_times(self, "started_at")


class StateTerminated(KubernetesObject, frozen=True):
    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    def __post_init__(self) -> None:
        _bound_times(self, "started_at", "finished_at")


class ContainerState(KubernetesObject, frozen=True):
    waiting: StateWaiting | None = None
    running: StateRunning | None = None
    terminated: StateTerminated | None = None


class ContainerStatus(KubernetesObject, frozen=True):
    name: str = ""
    restart_count: Count = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class NodeRequirement(KubernetesObject, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeTerm(KubernetesObject, frozen=True):
    match_expressions: tuple[NodeRequirement, ...] | None = None


class NodeTerms(KubernetesObject, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...] | None = None


class NodeAffinity(KubernetesObject, frozen=True):
    required: NodeTerms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(KubernetesObject, frozen=True):
    node_affinity: NodeAffinity | None = None

    def values(self) -> Labels:
        """Of labels of nodes, those that a node must have."""
        terms = (self.node_affinity and self.node_affinity.required) or NodeTerms()
        first, *others = terms.node_selector_terms or (NodeTerm(),)
        return {
            each.key: each.values[0]
            for each in first.match_expressions or ()
            if not others and each.operator == "In" and each.values is not None and len(each.values) == 1
        }


class PodSpec(KubernetesObject, frozen=True):
    node_name: str | None = None
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    node_pool: str = msgspec.field(default="", name="~nodePool")  # follows from the two, which are not kept

    def __post_init__(self) -> None:
        if self.node_selector is None and self.affinity is None:
            return
        wanted = (self.affinity.values() if self.affinity is not None else {}) | (self.node_selector or {})
        pool = next((wanted[label] for label in NODE_POOLS if label in wanted), "")
        for name, value in (("node_selector", None), ("affinity", None), ("node_pool", pool)):
            msgspec.structs.force_setattr(self, name, value)


class PodCondition(KubernetesObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None  # parsed when it is needed: that is of one in thousands

    @property
    def since(self) -> datetime | None:
        """When it got its status; None where that cannot be read."""
        try:
            since = msgspec.convert(self.last_transition_time, datetime)
        except msgspec.ValidationError:
            return None
        return since if _is_known(since) else None


class PodStatus(KubernetesObject, frozen=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] | None = None
    reason: str | None = None
    message: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    start_time: datetime | None = None  # when the kubelet accepted it
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None

    def __post_init__(self) -> None:
        _bound_times(self, "start_time")
        if self.conditions is not None:
            # How a running pod was started is not used, and would be kept for each one.
            wanted = POD_CONDITIONS if self.phase == "Pending" else DISRUPTED
            read = None
            for condition in self.conditions:
                if wanted.get(condition.type) == condition.status:
                    read = (*(read or ()), condition)
            msgspec.structs.force_setattr(self, "conditions", read)

    def condition(self, type_: str) -> PodCondition | None:
        """That of `POD_CONDITIONS`, if the pod has it."""
        return next((c for c in self.conditions or () if c.type == type_), None)


class Pod(AnyObject, frozen=True):
    metadata: PartMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


Known = TypeVar("Known", bound=AnyObject)


def mark_unread(object_: Known, reason: str) -> Known:
    """The object, of which nothing but metadata is known, for this reason."""
    return replace(object_, metadata=replace(object_.metadata, unread=reason))


def without_all_else(object_: Known, reason: str) -> Known:
    """The object with what names it and its controller, marked as unread for this reason."""
    meta = object_.metadata
    controller = meta.controller
    named = type(meta)(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        creation_timestamp=meta.creation_timestamp,
        owner_references=(controller,) if controller is not None else None,
        unread=reason,
    )
    return type(object_)(metadata=named)
