"""Role-based access control over the RBAC objects in the store (plugin/pkg/auth/authorizer/rbac)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from localcluster.identity import User
from localcluster.metadata import Object
from localcluster.resources import BY_PLURAL
from localcluster.status import ApiError
from localcluster.store import Store

MASTERS = "system:masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One question: may this user do that? Either a resource or a non-resource path."""

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
    """Reads roles and bindings afresh for each question: they are few, and a change counts at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decide(self, asked: Attributes) -> tuple[bool, str]:
        """Allowed or not, and the reason RBAC gives."""
        if MASTERS in asked.user.groups:
            return True, ""
        for rule, reason in self.rules(asked.user, asked.namespace):
            if _allows(rule, asked):
                return True, f"RBAC: allowed by {reason}"
        return False, ""

    def check(self, asked: Attributes) -> None:
        """Raises the 403 of Z14 and Z15."""
        allowed, _ = self.decide(asked)
        if not allowed:
            raise forbidden(asked)

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


def _allows(rule: Object, asked: Attributes) -> bool:
    if not _has(rule.get("verbs"), asked.verb):
        return False
    if asked.path:
        return any(_path_matches(pattern, asked.path) for pattern in rule.get("nonResourceURLs") or [])
    resources = rule.get("resources") or []
    return (
        _has(rule.get("apiGroups"), asked.group)
        and (
            _has(resources, asked.resource_path)
            or (bool(asked.subresource) and f"*/{asked.subresource}" in resources)
        )
        and (not rule.get("resourceNames") or asked.name in rule["resourceNames"])
    )


def _has(allowed: list[str] | None, wanted: str) -> bool:
    return allowed is not None and ("*" in allowed or wanted in allowed)


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def forbidden(asked: Attributes) -> ApiError:
    """The wording of Z14 and Z15."""
    user = asked.user.name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if asked.path:
        message = f'forbidden: User "{user}" cannot {asked.verb} path "{asked.path}"'
        return ApiError(403, "Forbidden", message, {})
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    named = f'{qualified} "{asked.name}"' if asked.name else qualified
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    message = (
        f'{named} is forbidden: User "{user}" cannot {asked.verb} resource "{asked.resource_path}" '
        f'in API group "{asked.group}" {where}'
    )
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return ApiError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
