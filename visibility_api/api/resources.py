"""The served resources, once: discovery, OpenAPI and the routes are all worked out from this table."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "visibility.trainer.kubeflow.org"
VERSION = "v1alpha1"
GROUP_VERSION = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """Something below one object. It may share its parent's kind: kubectl never maps such names (D6)."""

    name: str
    kind: str
    description: str
    verbs: tuple[str, ...] = ("get",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One top-level resource. Its kind is its own: kubectl maps a kind back to one plural only (D6)."""

    plural: str
    kind: str
    short_names: tuple[str, ...]  # none of the CRD's: the lower-priority one loses with a warning (D7)
    description: str
    namespaced: bool = True
    verbs: tuple[str, ...] = ("get", "list", "watch")  # and no other: verbs drive controllers (D5)
    subresources: tuple[Subresource, ...] = ()

    @property
    def list_kind(self) -> str:
        """Exactly the kind and `List`: the dynamic client cuts it off to get the item's kind (L1)."""
        return self.kind + "List"

    @property
    def singular(self) -> str:
        """The lower-cased kind; `trainjob` would collide with the CRD's (D7)."""
        return self.kind.lower()


TRAINJOBS = Resource(
    plural="trainjobs",
    kind="TrainJobProgress",
    short_names=("tjp",),
    description="How far the TrainJob of the same name has come, as its rank-0 process reports it.",
    subresources=(
        Subresource(
            name="progress",
            kind="TrainJobProgress",
            description="The same document; a right to it can be granted without the right to list.",
        ),
    ),
)

RESOURCES: tuple[Resource, ...] = (TRAINJOBS,)
