"""Why an attempt of a job failed: of all that ended badly at about one time, what came first."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

# Times are those of the nodes' clocks, in whole seconds: closer together, the one that explains more counts.
SAME_TIME = timedelta(seconds=2)
# A rank that has failed may end after those that have lost it: its launcher and its threads take their time.
TEARDOWN = timedelta(seconds=60)
NODE_LOST, DEADLINE_EXCEEDED = "NodeLost", "DeadlineExceeded"
# A node counts as lost only after node-monitor-grace-period, and its pods after a toleration of 300 s
# (https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller-configurable-settings): by then the
# other replicas have long missed it.
LOST_BEFORE = timedelta(seconds=400)
SIGTERM = 15
OF_THE_JOB_ALONE = (DEADLINE_EXCEEDED, "TrainingRuntimeNotSupported")
WAITS_AT_MOST = timedelta(hours=1)  # for its peers; torch's own time limits are 5 to 30 minutes
SOON = timedelta(minutes=10)  # a job whose last pod is made again fails so soon after it, if by that


class Failure(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """How one container or pod failed, or the job as a whole."""

    at: datetime
    since: datetime | None = None  # when that run of the container, or that pod, began; None: not known
    replica: str = ""  # replicated job and index, such as node-3; "" for the job as a whole
    pod_name: str = ""
    node_name: str = ""
    container_name: str = ""  # "" for the pod as a whole
    exit_code: int | None = None
    signal: int | None = None  # 1 to 64
    reason: str = ""  # CamelCase: OOMKilled, Evicted, Preempted, NodeLost, DeadlineExceeded, Error, …
    message: str = ""  # a sentence
    is_retryable: bool | None = None  # None: it depends
    is_of_job: bool = False  # the job's own condition says so
    reached: str = ""  # a sentence: what the run had reported by then
    # By what the container printed; in our own words, with numbers and names of code.
    cause_class: str = ""  # CamelCase: AcceleratorOutOfMemory, FileMissing, ProgramError, …; "": not known
    cause: str = ""  # a sentence
    hint: str = ""  # a sentence: what to do
    is_cascade: bool = False  # mostly the sign of another rank's failure
    rank: int | None = None  # whose output says so, where ranks are marked in it

    @property
    def came_at(self) -> datetime:
        """When others could notice it."""
        return self.at - LOST_BEFORE if self.reason == NODE_LOST else self.at

    @property
    def because(self) -> str:
        """The cause and what to do, as sentences; "" where none is known."""
        return f"Cause ({self.cause_class}): {self.cause} {self.hint}" if self.cause_class else ""

    @property
    def weight(self) -> int:
        """How much it explains, beside others of the same time: an error is often the sign of another's."""
        if self.is_of_job:
            return 0
        if self.is_cascade:
            return 1
        if self.cause_class or self.reason not in ("", "Error"):
            return 4
        return 2 if self.signal in (None, SIGTERM) else 3


def first_of(held: Failure | None, found: Failure, *, started_at: datetime | None = None) -> Failure:
    """Which of the two is shown: of one time of failing the first, else the later.

    `started_at`: when the present run of rank 0 began, or a later report of it came; what failed after that
    is not what failed before.
    """
    if held is None or held == found:
        return found
    is_one = held.container_name == found.container_name or "" in (held.container_name, found.container_name)
    if held.pod_name == found.pod_name and held.at == found.at and is_one:
        # The same one, of which more may be known. A sign of another's failure replaces no cause.
        is_root = bool(held.cause_class) and not held.is_cascade
        held, found = (
            (_explained(held, found), found)
            if found.cause_class and not (is_root and found.is_cascade)
            else (held, _explained(found, held))
        )
        return replace(found, reached=held.reached) if found.weight >= held.weight else held
    if held.is_of_job != found.is_of_job:
        of_job, of_pod = (held, found) if held.is_of_job else (found, held)
        return of_job if _is_of_its_own(of_job, of_pod, started_at) else of_pod
    if _has_gone_on(held, found, started_at):
        return found
    if _has_gone_on(found, held, started_at):
        return held
    apart = TEARDOWN if held.is_cascade != found.is_cascade else SAME_TIME
    if held.weight != found.weight and abs(held.came_at - found.came_at) <= apart:
        return held if held.weight > found.weight else found
    return held if held.came_at <= found.came_at else found


def _explained(failure: Failure, by: Failure) -> Failure:
    """`failure` with the cause that another reading of the same has found."""
    if not by.cause_class:
        return failure
    return replace(
        failure,
        cause_class=by.cause_class,
        cause=by.cause,
        hint=by.hint,
        is_cascade=by.is_cascade,
        rank=by.rank,
        is_retryable=by.is_retryable,
    )


def _has_gone_on(one: Failure, other: Failure, started_at: datetime | None) -> bool:
    """Whether the job was trained again after the one, until the other."""
    if other.at <= one.at:
        return False
    if other.since is not None and other.since >= one.at:
        # A peer that is restarted alone waits for the others, and fails again by that.
        is_alone = started_at is not None and started_at <= one.at
        return not is_alone or other.at - other.since > WAITS_AT_MOST
    return started_at is not None and one.at < started_at <= other.at


def _is_of_its_own(of_job: Failure, of_pod: Failure, started_at: datetime | None) -> bool:
    """Whether the job failed otherwise than by that pod: its time was over, or it had long gone on."""
    if of_job.reason in OF_THE_JOB_ALONE:
        return True
    resumed = started_at is not None and of_pod.at < started_at
    return resumed and started_at is not None and of_job.at - started_at > SOON
