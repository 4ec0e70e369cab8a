"""The table of served resources, from which discovery, OpenAPI and routes are derived.

The OpenAPI of a subresource that is an operation is written in `apidocs/`.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "visibility.trainer.kubeflow.org"
VERSION = "v1alpha1"
GROUP_VERSION = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A subresource. It may have its parent's kind: kubectl does not map names with a slash."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("get",)
    is_operation: bool = False  # answered by an operation in app/routers, not by kubeapi/


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A top-level resource. No other has its kind: kubectl maps a kind back to one plural only."""

    plural: str
    kind: str
    short_names: tuple[str, ...]  # none of the CRD's, whose resource would win with a warning
    namespaced: bool = True
    verbs: tuple[str, ...] = ("get", "list", "watch")  # as served: controllers act on them
    subresources: tuple[Subresource, ...] = ()

    @property
    def list_kind(self) -> str:
        """The kind and `List`: the dynamic client removes it to get the kind of an item."""
        return self.kind + "List"

    @property
    def singular(self) -> str:
        """The lower-case kind; `trainjob` would collide with the CRD's."""
        return self.kind.lower()


TRAINJOBS = Resource(
    plural="trainjobs",
    kind="TrainJobProgress",
    short_names=("tjp",),
    subresources=(
        # A right to it can be granted without the right to list.
        Subresource(name="progress", kind="TrainJobProgress"),
        Subresource(name="history", kind="TrainJobProgressHistory", is_operation=True),
        # For callers that may get pods/log as well.
        Subresource(name="log-tail", kind="TrainJobLogTail", is_operation=True),
    ),
)

RESOURCES: tuple[Resource, ...] = (TRAINJOBS,)
