"""What a new cluster holds: namespaces, default roles and bindings, the authentication ConfigMap."""

from __future__ import annotations

from localcluster.apiserver.registry import Registry
from localcluster.machinery.metadata import Object
from localcluster.machinery.resources import BY_PLURAL

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_RBAC = "rbac.authorization.k8s.io"
_AGGREGATE = f"{_RBAC}/aggregate-to-"
_BOOTSTRAP_LABEL = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_VIEWED = [
    "configmaps",
    "endpoints",
    "events",
    "namespaces",
    "pods",
    "pods/log",
    "pods/status",
    "serviceaccounts",
    "services",
]


def _rule(
    groups: list[str], resources: list[str], verbs: list[str], names: list[str] | None = None
) -> Object:
    rule: Object = {"apiGroups": groups, "resources": resources, "verbs": verbs}
    return rule | {"resourceNames": names} if names else rule


def _paths(urls: list[str], verbs: list[str]) -> Object:
    return {"nonResourceURLs": urls, "verbs": verbs}


_TRAINING_RULES = [
    _rule(["batch"], ["jobs", "jobs/status"], _READ),
    _rule(["discovery.k8s.io"], ["endpointslices"], _READ),
    _rule(["jobset.x-k8s.io"], ["jobsets", "jobsets/status"], _READ),
    _rule(["trainer.kubeflow.org"], ["trainjobs", "trainjobs/status", "trainingruntimes"], _READ),
]
_VIEW_RULES = [_rule([""], _VIEWED, _READ), *_TRAINING_RULES]
_EDIT_RULES = [
    _rule([""], ["pods/attach", "pods/exec", "pods/portforward", "secrets", "services/proxy"], _READ),
    _rule(
        [""], ["configmaps", "events", "pods", "pods/exec", "secrets", "serviceaccounts", "services"], _WRITE
    ),
    _rule([""], ["serviceaccounts/token"], ["create"]),
    _rule(["batch"], ["jobs"], _WRITE),
    _rule(["coordination.k8s.io"], ["leases"], _READ + _WRITE),
    _rule(["jobset.x-k8s.io"], ["jobsets"], _WRITE),
    _rule(["trainer.kubeflow.org"], ["trainjobs", "trainingruntimes"], _WRITE),
]
_ADMIN_RULES = [
    _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
    _rule([_RBAC], ["rolebindings", "roles"], _READ + _WRITE),
]
_DISCOVERY_PATHS = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    *_HEALTH[:3],
    "/openapi",
    "/openapi/*",
    *_HEALTH[3:],
]
_METRICS_PATHS = [f"/{path}{suffix}" for path in ("healthz", "livez", "readyz") for suffix in ("", "/*")]

CLUSTER_ROLES: dict[str, list[Object]] = {
    "cluster-admin": [_rule(["*"], ["*"], ["*"]), _paths(["*"], ["*"])],
    "system:aggregate-to-admin": _ADMIN_RULES,
    "system:aggregate-to-edit": _EDIT_RULES,
    "system:aggregate-to-view": _VIEW_RULES,
    "system:discovery": [_paths(_DISCOVERY_PATHS, ["get"])],
    "system:public-info-viewer": [_paths(_HEALTH, ["get"])],
    "system:basic-user": [
        _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
        _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
    ],
    "system:auth-delegator": [
        _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ],
    "system:monitoring": [_paths(["/metrics", "/metrics/slis", *_METRICS_PATHS], ["get"])],
}
AGGREGATED_ROLES = {"view": ["view"], "edit": ["edit"], "admin": ["admin"]}
CLUSTER_ROLE_BINDINGS = {
    "cluster-admin": ["system:masters"],
    "system:discovery": ["system:authenticated"],
    "system:basic-user": ["system:authenticated"],
    "system:public-info-viewer": ["system:authenticated", "system:unauthenticated"],
    "system:monitoring": ["system:monitoring"],
}
_AGGREGATED_INTO = {"admin": ["admin"], "edit": ["admin", "edit"], "view": ["admin", "edit", "view"]}
AUTHENTICATION_CONFIG = "extension-apiserver-authentication"
AUTHENTICATION_READER = "extension-apiserver-authentication-reader"


def objects(proxy_settings: dict[str, str]) -> list[tuple[str, Object]]:
    """(plural, object) of everything; `proxy_settings` is the data of the authentication ConfigMap."""
    everything: list[tuple[str, Object]] = [
        ("namespaces", {"metadata": {"name": name}}) for name in NAMESPACES
    ]
    for name, rules in CLUSTER_ROLES.items():
        labels = dict(_BOOTSTRAP_LABEL)
        if name.startswith("system:aggregate-to-"):
            labels |= {_AGGREGATE + target: "true" for target in _AGGREGATED_INTO[name.rpartition("-")[2]]}
        everything.append(("clusterroles", {"metadata": {"name": name, "labels": labels}, "rules": rules}))
    for name in AGGREGATED_ROLES:
        rule = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + name: "true"}}]}
        role = {
            "metadata": {"name": name, "labels": dict(_BOOTSTRAP_LABEL)},
            "aggregationRule": rule,
            "rules": [],
        }
        everything.append(("clusterroles", role))
    for name, groups in CLUSTER_ROLE_BINDINGS.items():
        subjects = [{"kind": "Group", "apiGroup": _RBAC, "name": group} for group in groups]
        reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
        everything.append(
            ("clusterrolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
        )
    reader = {"metadata": {"name": AUTHENTICATION_READER, "namespace": "kube-system"}}
    rules = [_rule([""], ["configmaps"], _READ, [AUTHENTICATION_CONFIG])]
    everything.append(("roles", reader | {"rules": rules}))
    config = {"metadata": {"name": AUTHENTICATION_CONFIG, "namespace": "kube-system"}, "data": proxy_settings}
    everything.append(("configmaps", config))
    return everything


def fill(registry: Registry, proxy_settings: dict[str, str]) -> None:
    for plural, thing in objects(proxy_settings):
        registry.create(BY_PLURAL[plural], thing["metadata"].get("namespace", ""), thing)
