"""Role-based access control over the RBAC objects in the store (plugin/pkg/auth/authorizer/rbac)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from localcluster.apiserver.identity import User
from localcluster.apiserver.store import Store
from localcluster.machinery.metadata import Object
from localcluster.machinery.resources import BY_PLURAL
from localcluster.machinery.status import ApiError

MASTERS = "system:masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a decision is about: a user, a verb, and either a resource or a non-resource path."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""  # set for non-resource requests only

    @property
    def resource_path(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Authorizer:
    """Reads roles and bindings afresh for each decision: they are few, and a change applies at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decide(self, attributes: Attributes) -> tuple[bool, str]:
        """Allowed or not, and the reason RBAC gives."""
        if MASTERS in attributes.user.groups:
            return True, ""
        for rule, reason in self.rules(attributes.user, attributes.namespace):
            if _allows(rule, attributes):
                return True, f"RBAC: allowed by {reason}"
        return False, ""

    def check(self, attributes: Attributes) -> None:
        """Raises the 403 of Z14 and Z15."""
        allowed, _ = self.decide(attributes)
        if not allowed:
            raise forbidden(attributes)

    def rules(self, user: User, namespace: str) -> Iterator[tuple[Object, str]]:
        """Every rule for this user in that namespace ("" = only cluster-wide ones), with its origin."""
        for entry in self._store.entries(BY_PLURAL["clusterrolebindings"]):
            yield from self._bound_rules(entry.object, user, "")
        if namespace:
            for entry in self._store.entries(BY_PLURAL["rolebindings"], namespace):
                yield from self._bound_rules(entry.object, user, namespace)

    def _bound_rules(self, binding: Object, user: User, namespace: str) -> Iterator[tuple[Object, str]]:
        subject = next(
            (each for each in binding.get("subjects") or [] if _is_subject(each, user, namespace)), None
        )
        if subject is None:
            return
        reference = binding["roleRef"]
        if reference["kind"] == "ClusterRole":
            role = self._store.get(BY_PLURAL["clusterroles"], "", reference["name"])
        else:
            role = self._store.get(BY_PLURAL["roles"], namespace, reference["name"])
        if role is None:
            return
        bound = binding["metadata"]["name"] + (f"/{namespace}" if namespace else "")
        reason = f'{binding["kind"]} "{bound}" of {reference["kind"]} "{reference["name"]}"'
        where = f"/{subject['namespace']}" if "namespace" in subject else ""
        who = f'{subject["kind"]} "{subject["name"]}{where}"'
        for rule in role.object.get("rules") or []:
            yield rule, f"{reason} to {who}"


def _is_subject(subject: Object, user: User, namespace: str) -> bool:
    if subject["kind"] == "User":
        return bool(subject["name"] in ("*", user.name))
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    account_namespace = subject.get("namespace") or namespace
    return user.name == f"system:serviceaccount:{account_namespace}:{subject['name']}"


def _allows(rule: Object, attributes: Attributes) -> bool:
    if not _has(rule.get("verbs"), attributes.verb):
        return False
    if attributes.path:
        return any(_path_matches(pattern, attributes.path) for pattern in rule.get("nonResourceURLs") or [])
    resources = rule.get("resources") or []
    return (
        _has(rule.get("apiGroups"), attributes.group)
        and (
            _has(resources, attributes.resource_path)
            or (bool(attributes.subresource) and f"*/{attributes.subresource}" in resources)
        )
        and (not rule.get("resourceNames") or attributes.name in rule["resourceNames"])
    )


def _has(allowed: list[str] | None, wanted: str) -> bool:
    return allowed is not None and ("*" in allowed or wanted in allowed)


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def forbidden(attributes: Attributes) -> ApiError:
    """The wording of Z14 and Z15."""
    user = attributes.user.name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if attributes.path:
        message = f'forbidden: User "{user}" cannot {attributes.verb} path "{attributes.path}"'
        return ApiError(403, "Forbidden", message, {})
    qualified = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    named = f'{qualified} "{attributes.name}"' if attributes.name else qualified
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    message = (
        f'{named} is forbidden: User "{user}" cannot {attributes.verb} resource "{attributes.resource_path}" '
        f'in API group "{attributes.group}" {where}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return ApiError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
