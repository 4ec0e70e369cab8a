"""ObjectMeta as all rooms use it: times, uids, owners. Objects are plain JSON dictionaries."""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime
from typing import Any

# Schema-less on purpose: whatever JSON comes is stored, as with a CRD that preserves unknown fields.
Object = dict[str, Any]
ObjectKey = tuple[str, str]  # namespace ("" when cluster-scoped), name

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery/pkg/util/rand: no vowels, no look-alikes


def timestamp(at: datetime | None = None) -> str:
    """RFC 3339, UTC, whole seconds: metav1.Time."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def new_uid() -> str:
    return str(uuid.uuid4())


def random_suffix() -> str:
    """Five characters, as generateName appends."""
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


def key_of(thing: Object) -> ObjectKey:
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def uid_of(thing: Object) -> str:
    return str(thing["metadata"]["uid"])


def labels_of(thing: Object) -> dict[str, str]:
    return thing["metadata"].get("labels") or {}


def annotations_of(thing: Object) -> dict[str, str]:
    return thing["metadata"].get("annotations") or {}


def is_terminating(thing: Object) -> bool:
    return "deletionTimestamp" in thing["metadata"]


def controller_reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(thing: Object) -> Object | None:
    """The owner reference with `controller: true`, if there is one."""
    references = thing["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)


def condition_is(thing: Object, kind: str, status: str = "True") -> bool:
    conditions = thing.get("status", {}).get("conditions") or []
    return any(found["type"] == kind and found["status"] == status for found in conditions)


def with_condition(
    conditions: list[Object] | None, kind: str, status: str, reason: str, message: str
) -> list[Object]:
    """The list with that condition set; its transition time moves only when the status changes."""
    previous = next((found for found in conditions or [] if found["type"] == kind), None)
    changed = previous is None or previous["status"] != status
    fresh = {
        "type": kind,
        "status": status,
        "lastTransitionTime": timestamp() if changed or not previous else previous["lastTransitionTime"],
        "reason": reason,
        "message": message,
    }
    if previous is None:
        return [*(conditions or []), fresh]
    return [fresh if found is previous else found for found in conditions or []]
