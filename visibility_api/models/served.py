"""What is served of each kind of job; discovery, OpenAPI and routes are derived from it.

The table is in `kinds/`.

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
    # Not in discovery: with `delete` there, each deletion of a namespace would delete the archive's records.
    unlisted_verbs: tuple[str, ...] = ()
    is_archived: bool = False  # read from the archive, whatever is known of the jobs that exist
    columns: tuple[str, ...] = ()  # of its Tables, beside those that all have
    categories: tuple[str, ...] = ()  # `kubectl get training` lists all resources of this category

    @property
    def list_kind(self) -> str:
        """The kind and `List`: the dynamic client removes it to get the kind of an item."""
        return self.kind + "List"

    @property
    def singular(self) -> str:
        """The lower-case kind; `trainjob` would collide with the CRD's."""
        return self.kind.lower()

    def subresource(self, name: str) -> Subresource:
        return next(each for each in self.subresources if each.name == name)


# The jobs of all kinds. In no category: `kubectl get training` would list each job twice.
TRAINING_JOBS = Resource(plural="trainingjobs", kind="TrainingJob", short_names=("tjs",))

# Jobs that have ended, where there is an archive.
JOB_RECORDS = Resource(
    plural="jobrecords",
    kind="JobRecord",
    short_names=("jrec",),
    verbs=("get", "list"),
    unlisted_verbs=("delete",),
    is_archived=True,
    subresources=(
        Subresource(name="history", kind="JobRecordHistory"),
        # For callers that may get pods/log as well.
        Subresource(name="log-tail", kind="JobRecordLogTail"),
    ),
)


def progress_of(workload: str, plural: str, short_name: str, columns: tuple[str, ...] = ()) -> Resource:
    """The resource of one kind of job, such as TrainJob."""
    return Resource(
        plural=plural,
        kind=f"{workload}Progress",
        short_names=(short_name,),
        columns=columns,
        categories=("training",),
        subresources=(
            # A right to it can be granted without the right to list.
            Subresource(name="progress", kind=f"{workload}Progress"),
            Subresource(name="history", kind=f"{workload}ProgressHistory", is_operation=True),
            # For callers that may get pods/log as well.
            Subresource(name="log-tail", kind=f"{workload}LogTail", is_operation=True),
            # To get it takes pods/log as well; to create one has the ranks read now.
            Subresource(
                name="diagnose", kind=f"{workload}Diagnosis", verbs=("create", "get"), is_operation=True
            ),
        ),
    )
