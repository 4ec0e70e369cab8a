"""Create, update, patch and delete with Kubernetes' rules, for any resource. Knows no HTTP and no user."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from localcluster.apiserver import admission
from localcluster.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from localcluster.apiserver.store import Change, Entry, Store
from localcluster.machinery.metadata import (
    Object,
    is_terminating,
    key_of,
    new_uid,
    random_suffix,
    timestamp,
    uid_of,
)
from localcluster.machinery.resources import BUILT_IN, BY_PLURAL, Resource
from localcluster.machinery.status import (
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    unsupported_patch_type,
)

PATCHES: dict[str, Callable[[Any, Any], Any]] = {
    "application/json-patch+json": json_patch,
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
    "application/apply-patch+yaml": strategic_merge_patch,  # no field ownership: an apply is a merge
}
APPLY = "application/apply-patch+yaml"
NAMESPACES = BY_PLURAL["namespaces"]
PODS = BY_PLURAL["pods"]


class Registry:
    """The resources there are, and the one way to change their objects."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.resources: dict[tuple[str, str, str], Resource] = {
            (row.group, row.version, row.plural): row for row in BUILT_IN
        }
        self._dependents: dict[str, set[tuple[Resource, str, str]]] = {}
        for row in BUILT_IN:
            for entry in store.entries(row):
                self._observe(row, Change("ADDED", entry.revision, entry, None))
        store.listeners.append(self._observe)

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        entry = self.store.get(resource, namespace, name)
        if entry is None:
            raise not_found(resource, name)
        return entry

    def create(self, resource: Resource, namespace: str, body: Object) -> Entry:
        thing = copy.deepcopy(body)
        meta = thing.setdefault("metadata", {})
        self._check_identity(resource, namespace, thing)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + random_suffix()
        admission.check_name(resource, meta.get("name") or "")
        admission.check_spec(resource, thing)
        if resource.namespaced:
            meta["namespace"] = namespace
            self._check_namespace(resource, namespace, meta["name"])
        else:
            meta.pop("namespace", None)
        if self.store.get(resource, namespace, meta["name"]):
            raise already_exists(resource, meta["name"])
        for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            meta.pop(field, None)
        meta |= {"uid": new_uid(), "creationTimestamp": timestamp()}
        if "spec" in thing:
            meta["generation"] = 1
        if resource.has_status and resource.plural != "nodes":
            thing.pop("status", None)
        admission.set_defaults(resource, thing)
        return self.store.put(resource, thing)

    def update(
        self, resource: Resource, namespace: str, name: str, body: Object, subresource: str = ""
    ) -> Entry:
        current = self.get(resource, namespace, name)
        self._check_identity(resource, namespace, body, name)
        return self._replace(resource, current, copy.deepcopy(body), subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,  # noqa: ANN401 - JSON of any shape: a JSON patch is a list
        content_type: str,
        subresource: str = "",
    ) -> tuple[Entry, bool]:
        """The new state, and whether it was created (only an apply creates)."""
        apply = PATCHES.get(content_type)
        if apply is None:
            raise unsupported_patch_type()
        current = self.store.get(resource, namespace, name)
        if current is None:
            if content_type != APPLY or subresource:
                raise not_found(resource, name)
            body.setdefault("metadata", {})["name"] = name
            return self.create(resource, namespace, body), True
        # Patching copies what it changes; defaults, which a status does not get, are written in place.
        base = current.object if subresource == "status" else copy.deepcopy(current.object)
        return self._replace(resource, current, apply(base, body), subresource), False

    def delete(self, resource: Resource, namespace: str, name: str, options: Object) -> Entry:
        """Remove, or begin to: pods end gracefully, finalizers are waited for, a namespace empties first."""
        current = self.get(resource, namespace, name)
        thing = current.object
        wanted_uid = (options.get("preconditions") or {}).get("uid")
        if wanted_uid and wanted_uid != uid_of(thing):
            uids = f"precondition ({wanted_uid}) does not match the UID in record ({uid_of(thing)})"
            why = f"the UID in the {uids}. The object might have been deleted and then recreated"
            raise conflict(resource, name, why)
        if options.get("propagationPolicy") == "Orphan":
            self._dependents.pop(uid_of(thing), None)
        grace_s = options.get("gracePeriodSeconds")
        if admission.is_deleted_gracefully(resource, thing) and grace_s != 0:
            grace_s = thing["spec"]["terminationGracePeriodSeconds"] if grace_s is None else grace_s
            return self._mark_terminating(resource, thing, grace_s)
        if resource is NAMESPACES:
            entry = self._mark_terminating(resource, thing, None, status={"phase": "Terminating"})
            self._empty_namespace(name)
            return entry
        if thing["metadata"].get("finalizers"):
            return self._mark_terminating(resource, thing, 0)
        return self.store.remove(resource, namespace, name)

    def _mark_terminating(
        self, resource: Resource, thing: Object, grace_s: int | None, status: Object | None = None
    ) -> Entry:
        if is_terminating(thing):
            return self.get(resource, *key_of(thing))
        due = datetime.now(UTC) + timedelta(seconds=grace_s or 0)
        meta = thing["metadata"] | {"deletionTimestamp": timestamp(due)}
        if grace_s is not None:
            meta["deletionGracePeriodSeconds"] = grace_s
        changed = thing | {"metadata": meta}
        if status:
            changed["status"] = thing.get("status", {}) | status
        return self.store.put(resource, changed)

    def _replace(self, resource: Resource, current: Entry, wanted: Object, subresource: str) -> Entry:
        """Store `wanted` over `current`, keeping what this request may not change."""
        old, name = current.object, current.object["metadata"]["name"]
        meta = wanted.setdefault("metadata", {})
        if meta.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise conflict(resource, name)
        if meta.get("uid") not in (None, uid_of(old)):
            why = (
                f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {uid_of(old)}"
            )
            raise conflict(resource, name, why)
        if subresource == "status":
            kept_meta = old["metadata"] | {key: meta[key] for key in ("annotations", "labels") if key in meta}
            changed = old | {"metadata": kept_meta, "status": wanted.get("status", {})}
        else:
            for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation"):
                meta.pop(field, None)
                if field in old["metadata"]:
                    meta[field] = old["metadata"][field]
            meta.pop("managedFields", None)
            changed = wanted | {"apiVersion": old["apiVersion"], "kind": old["kind"]}
            if resource.has_status:
                changed.pop("status", None)
                if "status" in old:
                    changed["status"] = old["status"]
            admission.set_defaults(resource, changed)
            if changed.get("spec") != old.get("spec"):
                meta["generation"] = old["metadata"].get("generation", 0) + 1
        changed["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if changed == old:
            return current  # an unchanged object keeps its version (L3)
        if (
            is_terminating(changed)
            and not changed["metadata"].get("finalizers")
            and old["metadata"].get("finalizers")
        ):
            return self.store.remove(resource, *key_of(changed))
        return self.store.put(resource, changed)

    def _check_identity(self, resource: Resource, namespace: str, thing: Object, name: str = "") -> None:
        """The body must have the kind, name and namespace of the path."""
        kind, api_version = (
            thing.get("kind") or resource.kind,
            thing.get("apiVersion") or resource.api_version,
        )
        if (kind, api_version) != (resource.kind, resource.api_version):
            raise bad_request(
                f"the API version in the data ({api_version}, {kind}) does not match the expected one "
                f"({resource.api_version}, {resource.kind})"
            )
        thing |= {"apiVersion": api_version, "kind": kind}
        meta = thing.get("metadata") or {}
        if resource.namespaced and meta.get("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if name and meta.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        entry = self.store.get(NAMESPACES, "", namespace)
        if entry is None:
            raise not_found(NAMESPACES, namespace)
        if is_terminating(entry.object):
            why = f"Forbidden: unable to create new content in namespace {namespace}: it is being terminated"
            error = invalid(resource, name, "metadata.namespace", why)
            error.code, error.reason = 403, "Forbidden"
            raise error

    def _observe(self, resource: Resource, change: Change) -> None:
        """Keep the owner index, learn CRDs, and collect what a deletion leaves behind."""
        thing = change.entry.object
        if resource.plural == "customresourcedefinitions" and change.type != "DELETED":
            for served in admission.served_by(thing):
                self.resources.setdefault((served.group, served.version, served.plural), served)
        place = (resource, *key_of(thing))
        for owner in thing["metadata"].get("ownerReferences") or []:
            dependents = self._dependents.setdefault(owner["uid"], set())
            (dependents.discard if change.type == "DELETED" else dependents.add)(place)
        if change.type != "DELETED":
            return
        for dependent in self._dependents.pop(uid_of(thing), set()):
            if self.store.get(*dependent):
                self.delete(*dependent, {})
        namespace = self.store.get(NAMESPACES, "", place[1]) if place[1] else None
        if namespace and is_terminating(namespace.object):
            self._empty_namespace(place[1])

    def _empty_namespace(self, namespace: str) -> None:
        left = [
            (resource, entry)
            for resource in self.resources.values()
            if resource.namespaced and resource.is_stored
            for entry in self.store.entries(resource, namespace)
        ]
        for resource, entry in left:
            if not is_terminating(entry.object) and self.store.get(resource, *key_of(entry.object)):
                self.delete(resource, *key_of(entry.object), {})
        if not left and self.store.get(NAMESPACES, "", namespace):
            self.store.remove(NAMESPACES, "", namespace)
