"""Which resources exist: one row each. Knows names and paths, nothing about what the objects mean."""

from __future__ import annotations

from dataclasses import dataclass

STORED_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
OBJECT_FIELDS = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One row of the API: what discovery shows and which paths it has."""

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = STORED_VERBS
    selectable_fields: tuple[str, ...] = ()  # beyond OBJECT_FIELDS

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`trainjobs.trainer.kubeflow.org`, or just `pods`: the form error messages use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_stored(self) -> bool:
        return "get" in self.verbs

    @property
    def is_custom(self) -> bool:
        """Defined by a CustomResourceDefinition on a real cluster."""
        return "." in self.group and (not self.group.endswith(".k8s.io") or self.group.endswith(".x-k8s.io"))

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path; an empty namespace means all of them (or a cluster-scoped resource)."""
        parts = [self.root]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


def _core(plural: str, kind: str, *short: str, **rest: object) -> Resource:
    return Resource(plural=plural, kind=kind, short_names=short, **rest)  # type: ignore[arg-type]


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource(group="rbac.authorization.k8s.io", plural=plural, kind=kind, namespaced=namespaced)


def _review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource(group=group, plural=plural, kind=kind, namespaced=namespaced, verbs=("create",))


_STATUS = ("status",)
_TRAINER = "trainer.kubeflow.org"
_AUTHZ = "authorization.k8s.io"

BUILT_IN: tuple[Resource, ...] = (
    _core("configmaps", "ConfigMap", "cm"),
    # Kept as events of the core group, which kubectl shows.
    Resource(group="events.k8s.io", plural="events", kind="Event", verbs=("create",)),
    _core(
        "events",
        "Event",
        "ev",
        selectable_fields=(
            *(
                f"involvedObject.{field}"
                for field in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
            ),
            *("involvedObject.resourceVersion", "reason", "type", "reportingComponent", "source"),
        ),
    ),
    _core(
        "namespaces",
        "Namespace",
        "ns",
        namespaced=False,
        subresources=_STATUS,
        selectable_fields=("status.phase",),
    ),
    _core("nodes", "Node", "no", namespaced=False, subresources=_STATUS),
    _core(
        "pods",
        "Pod",
        "po",
        categories=("all",),
        subresources=("binding", "exec", "log", "status"),
        selectable_fields=("spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"),
    ),
    _core("secrets", "Secret", selectable_fields=("type",)),
    _core("serviceaccounts", "ServiceAccount", "sa", subresources=("token",)),
    _core("services", "Service", "svc", categories=("all",), subresources=_STATUS),
    Resource(
        group="batch",
        plural="jobs",
        kind="Job",
        categories=("all",),
        subresources=_STATUS,
        selectable_fields=("status.successful",),
    ),
    Resource(group="coordination.k8s.io", plural="leases", kind="Lease"),
    Resource(group="discovery.k8s.io", plural="endpointslices", kind="EndpointSlice"),
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    _rbac("clusterroles", "ClusterRole", namespaced=False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Resource(
        group="apiregistration.k8s.io",
        plural="apiservices",
        kind="APIService",
        namespaced=False,
        subresources=_STATUS,
    ),
    Resource(
        group="apiextensions.k8s.io",
        plural="customresourcedefinitions",
        kind="CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        subresources=_STATUS,
    ),
    Resource(
        group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets", kind="JobSet", subresources=_STATUS
    ),
    Resource(group=_TRAINER, version="v1alpha1", plural="trainjobs", kind="TrainJob", subresources=_STATUS),
    Resource(group=_TRAINER, version="v1alpha1", plural="trainingruntimes", kind="TrainingRuntime"),
    Resource(
        group=_TRAINER,
        version="v1alpha1",
        plural="clustertrainingruntimes",
        kind="ClusterTrainingRuntime",
        namespaced=False,
    ),
    # Nothing acts on these; they are here so that whole manifests can be applied.
    Resource(
        group="apps", plural="deployments", kind="Deployment", short_names=("deploy",), subresources=_STATUS
    ),
    Resource(
        group="apps", plural="statefulsets", kind="StatefulSet", short_names=("sts",), subresources=_STATUS
    ),
    Resource(group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget", subresources=_STATUS),
    Resource(group="networking.k8s.io", plural="networkpolicies", kind="NetworkPolicy"),
    Resource(group="scheduling.k8s.io", plural="priorityclasses", kind="PriorityClass", namespaced=False),
    Resource(
        group="flowcontrol.apiserver.k8s.io",
        plural="flowschemas",
        kind="FlowSchema",
        namespaced=False,
        subresources=_STATUS,
    ),
    Resource(
        group="flowcontrol.apiserver.k8s.io",
        plural="prioritylevelconfigurations",
        kind="PriorityLevelConfiguration",
        namespaced=False,
        subresources=_STATUS,
    ),
    _review("authentication.k8s.io", "tokenreviews", "TokenReview"),
    _review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    _review(_AUTHZ, "subjectaccessreviews", "SubjectAccessReview"),
    _review(_AUTHZ, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review(_AUTHZ, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    _review(_AUTHZ, "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
)

BY_PLURAL: dict[str, Resource] = {resource.plural: resource for resource in BUILT_IN}
