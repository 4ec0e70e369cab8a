"""Version v1alpha1 of the API: a document for each training job.

From these models come the OpenAPI documents, and so what `kubectl explain` shows, and the fields that
`kubeapi/v1alpha1.py` encodes. Names, types and limits of the fields that `TrainJob.status.trainerStatus`
has as well are its own, so that its clients can read ours.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .condition_types import MEANINGS
from .meta_v1 import Condition, ListMeta, ObjectMeta
from .sources import MEANINGS as MEANINGS_OF_SOURCES
from .wire import API_VERSION, ApiVersion, Double, Int32, Int64, Time, WireModel, map_keyed_by

Phase = Literal["Pending", "Initializing", "Running", "Suspended", "Succeeded", "Failed", "Unknown"]


class Metric(WireModel):
    """One named number of the training process, as it wrote it."""

    name: str = Field(max_length=64, description="Such as loss, eval_loss, learning_rate or accuracy.")
    value: str = Field(
        max_length=64,
        description="A number as text, so that NaN and very large numbers can be written in JSON.",
    )


class Steps(WireModel):
    """Optimizer steps."""

    current: Int64 | None = Field(default=None, ge=0, description="Steps finished; 0 before the first.")
    total: Int64 | None = Field(
        default=None, ge=0, description="Steps planned; absent when the run has no planned end."
    )
    per_second: Double | None = Field(
        default=None,
        ge=0,
        description="Steps per second in the current attempt, smoothed; absent until there are two reports,"
        " and when the run does not advance.",
    )


class Epochs(WireModel):
    """Passes over the training data."""

    current: Double | None = Field(
        default=None, ge=0, description="Epochs finished; 0.5 is half of the first one."
    )
    total: Double | None = Field(
        default=None, ge=0, description="Epochs planned; absent when the run does not report it."
    )


class Termination(WireModel):
    """How a container ended."""

    exit_code: Int32 = Field(description="Exit code. Above 128: the container was ended by a signal.")
    signal: Int32 | None = Field(
        default=None, description="The signal, 1 to 64; absent when the container exited by itself."
    )
    reason: str | None = Field(
        default=None, description="The reason that the kubelet gives: OOMKilled, Error, Completed."
    )
    retryable: bool | None = Field(
        default=None,
        description="Whether another attempt may succeed: true for most signals, for instance an eviction;"
        " false for an error of the program and for lack of memory. Absent after a success.",
    )
    finished_at: Time | None = Field(default=None, description="When the container ended.")


class Failure(WireModel):
    """Why an attempt of the job failed: of all that failed at about the same time, what came first."""

    time: Time = Field(description="When it failed.")
    replica: str | None = Field(
        default=None,
        description="Which replica: the replicated job and the pod's index, such as node-3, or the name of an"
        " initializer. Absent when the job as a whole failed, for instance for a deadline.",
    )
    pod_name: str | None = Field(default=None, description="The pod; it may be gone by now.")
    node_name: str | None = Field(default=None, description="The node that the pod was on.")
    container_name: str | None = Field(
        default=None, description="The container; absent when the pod as a whole failed, such as by eviction."
    )
    exit_code: Int32 | None = Field(default=None, description="Exit code; absent when there was none.")
    signal: Int32 | None = Field(default=None, description="The signal that ended it, 1 to 64.")
    reason: str | None = Field(
        default=None,
        description="One CamelCase word: OOMKilled, Evicted, Preempted, NodeLost, DeadlineExceeded,"
        " InitializerFailed, Error, or another that the kubelet or the job's controller gives.",
    )
    message: str | None = Field(
        default=None,
        description="What failed, where and how, and what the run had last reported, in sentences.",
    )
    retryable: bool | None = Field(
        default=None,
        description="Whether another attempt may succeed: true for evictions, lost nodes and most signals,"
        " false for lack of memory and errors of the program. Absent where that depends.",
    )
    class_: str | None = Field(
        default=None,
        description="What kind of fault it was, by the last lines that the container printed: one CamelCase"
        " word, such as AcceleratorOutOfMemory, CheckpointMismatch, PeerLost or ProgramError. Absent where"
        " that is not known, or no logs are read.",
    )
    cause: str | None = Field(default=None, description="The same as a sentence, in the server's words.")
    hint: str | None = Field(default=None, description="What can be done about a fault of that class.")
    rank: Int32 | None = Field(
        default=None, ge=0, description="The rank that printed it, where ranks are marked in the output."
    )


class DiagnosisGroup(WireModel):
    """Ranks that were at the same place."""

    count: Int32 = Field(ge=1, description="How many ranks, or processes where ranks are not known.")
    ranks: str | None = Field(
        default=None, description="Which ranks, such as 0-36,38-63; absent where ranks are not known."
    )
    where: str = Field(description="What they did, in the server's words, such as 'is in all_reduce'.")
    frames: tuple[str, ...] | None = Field(
        default=None,
        description="Their stack as module:function:line, innermost first. Only in the subresource diagnose.",
    )


class DiagnosisSuspect(WireModel):
    """A rank that the others waited for, as far as could be seen."""

    reason: str = Field(description="One CamelCase word, as the reason of the diagnosis.")
    rank: Int32 | None = Field(default=None, ge=0, description="The rank; absent where it is not known.")
    pod_name: str = Field(description="Its pod; it may be gone by now.")
    node_name: str | None = Field(default=None, description="The node that the pod was on.")
    step: Int64 | None = Field(default=None, ge=0, description="The last step that it had finished.")


class Diagnosis(WireModel):
    """Where the ranks of the job were when it stood still: read once when a stall begins, and on request."""

    time: Time = Field(description="When the ranks were read.")
    requested: bool | None = Field(
        default=None, description="True where a user had requested it; absent where a stall was the reason."
    )
    reason: str = Field(
        description="What was found, one CamelCase word: InDataLoader, InOwnCode, ProcessStopped,"
        " ProcessEnded, GilHeld, InCollective, CollectiveMismatch, PodNotRunning, NotReadable, NotKnown, or"
        " another one."
    )
    message: str = Field(description="The same as a sentence: which rank, where, and what the others do.")
    hint: str | None = Field(default=None, description="What to do about it.")
    ranks_read: Int32 = Field(ge=0, description="How many ranks, or processes, were read.")
    pods_unread: Int32 | None = Field(
        default=None, ge=1, description="How many pods did not run, or showed no rank; absent for none."
    )
    groups: tuple[DiagnosisGroup, ...] | None = Field(
        default=None, description="Ranks by equal place, the eight largest groups."
    )
    other_ranks: Int32 | None = Field(
        default=None, ge=1, description="How many ranks are in further groups; absent for none."
    )
    suspects: tuple[DiagnosisSuspect, ...] | None = Field(
        default=None, description="The ranks that the others waited for, at most eight; absent for none."
    )


class Rank0(WireModel):
    """The pod and container that report for the whole job. Stays after the pod is deleted."""

    pod_name: str = Field(description="Name of the rank-0 pod.")
    node_name: str | None = Field(
        default=None, description="Node that the pod runs on; absent until it is scheduled."
    )
    container_name: str = Field(description="Container of the pod that trains.")
    restart_count: Int32 = Field(ge=0, description="How often the kubelet has restarted that container.")
    last_termination: Termination | None = Field(
        default=None, description="How the container last ended; absent when it never has."
    )


class AcceleratorCount(WireModel):
    """How many accelerators of one name a job requests."""

    name: str = Field(
        description="The resource's name, such as nvidia.com/gpu; resourceclaim/ and the name of a"
        " ResourceClaimTemplate or ResourceClaim where devices are claimed."
    )
    count: Int32 = Field(ge=1, description="In all pods together. A claim counts as one.")


class Resources(WireModel):
    """The accelerators that a job requests, and how long it has held them."""

    accelerators: Int32 = Field(ge=1, description="In all pods together, initializers apart.")
    by_name: tuple[AcceleratorCount, ...] = Field(
        description="The same by their names.", json_schema_extra=map_keyed_by("name")
    )
    accelerator_seconds: Int64 = Field(
        ge=0,
        description="Seconds for which they were held, of all together and in all attempts: from when rank"
        " 0's pod was on its node until the job ended, was suspended, or the pod was gone. At most a minute"
        " old while the job runs.",
    )
    wasted_accelerator_seconds: Int64 | None = Field(
        default=None,
        ge=0,
        description="Of these, those with nothing to show for them: starting, stalled, recovering, or doing"
        " steps again that an earlier attempt had done. Absent for a job that has never reported and does"
        " not say where it would.",
    )


class SecondsByKind(WireModel):
    """Seconds by kind. The kinds are disjoint; one on which no time was spent is absent."""

    queued: Int64 | None = Field(default=None, ge=0, description="Suspended, or without a node yet.")
    starting: Int64 | None = Field(
        default=None, ge=0, description="On a node, until the container of rank 0 runs."
    )
    program_startup: Int64 | None = Field(
        default=None, ge=0, description="Until the first steps, what they take longer than later ones too."
    )
    productive: Int64 | None = Field(
        default=None, ge=0, description="Steps that no earlier attempt had done."
    )
    data_loading: Int64 | None = Field(
        default=None, ge=0, description="Waiting for the next batch, as the run marks it."
    )
    checkpoint_save: Int64 | None = Field(
        default=None, ge=0, description="Saving checkpoints, as the run marks it."
    )
    checkpoint_restore: Int64 | None = Field(
        default=None, ge=0, description="Restoring checkpoints, as the run marks it."
    )
    evaluation: Int64 | None = Field(default=None, ge=0, description="Evaluating, as the run marks it.")
    lost_progress: Int64 | None = Field(
        default=None, ge=0, description="Steps that an earlier attempt had done already."
    )
    recovery: Int64 | None = Field(
        default=None,
        ge=0,
        description="From an attempt's end until the run is as far again, without those steps.",
    )
    stalled: Int64 | None = Field(default=None, ge=0, description="Without an advance: condition Stalled.")
    other: Int64 | None = Field(
        default=None, ge=0, description="All else, such as pauses that nothing explains."
    )


class Checkpoint(WireModel):
    """A checkpoint that is complete: a run that ends goes on from there."""

    step: Int64 = Field(ge=0, description="The step that it is of.")
    time: Time = Field(description="When it was complete. What was done since then is lost if the run ends.")


class GoodputOfWindow(WireModel):
    """What the time of a window was spent on."""

    percentage: Double | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Goodput: productive time, of all in which the job was not queued. Absent before that.",
    )
    scheduling_percentage: Double | None = Field(
        default=None, ge=0, le=100, description="Time in which the job was not queued, of all."
    )
    seconds: SecondsByKind = Field(description="Seconds by kind. They sum to the length of the window.")
    accelerator_seconds: SecondsByKind | None = Field(
        default=None, description="The same, times the accelerators; absent for a job that requests none."
    )


class Goodput(WireModel):
    """What the time of the job was spent on."""

    time: Time = Field(
        description="Until when it is counted: at most a minute old while a job runs. Of one that is queued"
        " the time until it was."
    )
    current: str | None = Field(
        default=None,
        description="What time is spent on since then: Queued, Starting, ProgramStartup, Productive,"
        " DataLoading, CheckpointSave, CheckpointRestore, Evaluation, LostProgress, Recovery, Stalled or"
        " Other. Absent when the job has ended.",
    )
    whole: GoodputOfWindow = Field(description="Since the job was made.")
    hour: GoodputOfWindow | None = Field(
        default=None, description="The last hour before that time; absent for a job that is younger."
    )
    day: GoodputOfWindow | None = Field(
        default=None, description="The last 24 hours before that time; absent for a job that is younger."
    )
    wasted_message: str | None = Field(
        default=None,
        description="For how long there is nothing to show, by kind: Starting, LostProgress, Recovery and"
        " Stalled. Absent where that is nothing.",
    )


class Replica(WireModel):
    """Pod counts of one replica group. A count that its controllers do not report is absent."""

    name: str = Field(description="Name of the group, such as node, launcher or dataset-initializer.")
    desired: Int32 | None = Field(default=None, ge=0, description="Pods that the group should have.")
    ready: Int32 | None = Field(default=None, ge=0, description="Pods that are ready.")
    active: Int32 | None = Field(default=None, ge=0, description="Pods that have not ended.")
    succeeded: Int32 | None = Field(default=None, ge=0, description="Pods that have succeeded.")
    failed: Int32 | None = Field(default=None, ge=0, description="Pods that have failed.")


class ReplicaStatus(WireModel):
    """The pod of one replica: as it is, or as it was seen last."""

    name: str = Field(
        description="The replica group and the index in it, such as node-3; a pod's name where it has none."
    )
    rank: Int32 | None = Field(
        default=None,
        ge=0,
        description="Rank of the pod in the run, of one process a pod. Absent where that is not known.",
    )
    pod_name: str | None = Field(default=None, description="Name of the pod; it may be gone by now.")
    node_name: str | None = Field(default=None, description="Node that the pod is or was on.")
    state: Literal["Pending", "Running", "Succeeded", "Failed", "Terminating", "Gone", "Unknown"] = Field(
        description="The pod's phase; Terminating while it is being deleted; Gone where it was deleted before"
        " it was seen to end."
    )
    reason: str | None = Field(
        default=None,
        description="Why it is in this state, as one CamelCase word: Unscheduled, PullingImage, Evicted, …",
    )
    restart_count: Int32 = Field(ge=0, description="How often the kubelet has restarted its container.")
    last_termination: Termination | None = Field(
        default=None, description="How the container last ended; absent when it never has."
    )
    last_report_time: Time | None = Field(
        default=None,
        description="When it last reported, or rank 0 about it; absent where neither is known.",
    )
    step: Int64 | None = Field(default=None, ge=0, description="Steps finished, by that report.")
    step_seconds: Double | None = Field(
        default=None,
        ge=0,
        description="Seconds of its own work for one step, without waiting for other ranks, as rank 0 reports"
        " them. Of several processes in the pod the slowest.",
    )


class Observation(WireModel):
    """Where the progress was read, and whether reading it works."""

    source: str = Field(description=f"Where progress is read: {MEANINGS_OF_SOURCES}.")
    last_probe_time: Time | None = Field(
        default=None, description="When rank 0 was last probed, with or without success."
    )
    next_probe_time: Time | None = Field(
        default=None, description="When rank 0 will be probed next; absent when no probe is planned."
    )
    latency_seconds: Double | None = Field(
        default=None, ge=0, description="How long the last successful probe took."
    )
    consecutive_failures: Int32 = Field(
        ge=0, description="Probes in a row that found no progress; 0 after a success."
    )
    reason: str | None = Field(
        default=None, description="Why the last probe failed, as one CamelCase word; absent after a success."
    )
    message: str | None = Field(
        default=None, description="The same as a sentence. It never contains a byte of what was read."
    )


class TimeRange(WireModel):
    """Between two times."""

    earliest: Time = Field(description="It is not expected before.")
    latest: Time = Field(description="It is expected to have happened by then.")


class ProgressStatus(WireModel):
    """What is known of one training job. What is not known is absent, never 0. The condition Fresh says
    whether the numbers are current: an old number is never shown as new."""

    phase: Phase = Field(description="State of the job, in the same words for every kind of job.")
    phase_reason: str | None = Field(
        default=None,
        description="Why the job is in this phase, as one CamelCase word: Queued, Unscheduled, PullingImage,"
        " InitializerRunning, ImagePullBackOff, or the reason of the job's own condition.",
    )
    phase_message: str | None = Field(
        default=None, description="The same as a sentence; absent when the reason says it all."
    )
    attempts: Int32 | None = Field(
        default=None,
        ge=1,
        description="How often training was started so far: once, and again with each restart of the rank-0"
        " container or of its pod. Absent before the first.",
    )
    progress_percentage: Int32 | None = Field(
        default=None,
        ge=0,
        le=100,
        description="How much of the run is done, as the run reports it, else computed from its steps.",
    )
    estimated_remaining_seconds: Int32 | None = Field(
        default=None,
        ge=0,
        description="Time left at the pace observed in the current attempt, else as the run reports it."
        " Absent when the run does not advance: its report is old, or it is stalled, suspended, restarting or"
        " ended.",
    )
    metrics: tuple[Metric, ...] | None = Field(
        default=None,
        max_length=256,
        description="The last value of each metric, in the order in which the run reports them.",
        json_schema_extra=map_keyed_by("name"),
    )
    last_updated_time: Time | None = Field(
        default=None, description="When the training process wrote its last report, by its own clock."
    )
    estimated_completion_time: Time | None = Field(
        default=None,
        description="When the run is expected to end, at the observed pace. Absent when it does not advance,"
        " and when that time has passed.",
    )
    estimated_completion_range: TimeRange | None = Field(
        default=None,
        description="Between when the run is expected to end: nine of ten do. Narrower as more of the run was"
        " seen. Absent when there is no estimate, and when it is the run's own.",
    )
    start_time: Time | None = Field(
        default=None, description="When the run started, as it reports itself, else when its container did."
    )
    end_time: Time | None = Field(
        default=None, description="When the job completed or failed; absent before that."
    )
    duration_seconds: Int64 | None = Field(
        default=None, ge=0, description="How long an ended run took, from its start to its end."
    )
    steps: Steps | None = Field(
        default=None, description="How many optimizer steps are done, and how fast they are done."
    )
    epochs: Epochs | None = Field(default=None, description="How many passes over the data are done.")
    message: str | None = Field(default=None, description="A sentence of the run about itself, as reported.")
    failure: Failure | None = Field(
        default=None,
        description="Why the job failed, or its last attempt that did. Stays when the pods are gone and"
        " while the next attempt runs; absent when nothing has failed.",
    )
    diagnosis: Diagnosis | None = Field(
        default=None,
        description="Why the run stood still, when its ranks were read last. Stays when the run goes on and"
        " when the pods are gone; absent while they were never read.",
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        description="Conditions of the job; kubectl wait --for=condition=Complete works with them. "
        + MEANINGS,
        json_schema_extra=map_keyed_by("type"),
    )
    rank0: Rank0 | None = Field(default=None, description="The pod that reports; absent before there is one.")
    replicas: tuple[Replica, ...] | None = Field(
        default=None,
        description="Every replica group of the job, not only rank 0's.",
        json_schema_extra=map_keyed_by("name"),
    )
    replica_statuses: tuple[ReplicaStatus, ...] | None = Field(
        default=None,
        description="Each replica, by group and index. Only in the subresource progress, with"
        " ?replicas=all; at most 1,000, the others by ?continue=.",
        json_schema_extra=map_keyed_by("name"),
    )
    replica_statuses_time: Time | None = Field(
        default=None, description="When the pods were listed; absent when they never were."
    )
    replica_statuses_continue: str | None = Field(
        default=None, description="What to send as ?continue= for the next ones; absent after the last."
    )
    resources: Resources | None = Field(
        default=None, description="Accelerators; absent for a job that requests none."
    )
    checkpoint: Checkpoint | None = Field(
        default=None,
        description="The last checkpoint that is complete, of any attempt; absent where the run tells of"
        " none.",
    )
    goodput: Goodput | None = Field(default=None, description="What the time of the job was spent on.")
    observation: Observation | None = Field(
        default=None, description="Where and how well the progress is read; absent before the first probe."
    )


class TrainJobProgress(WireModel):
    """How far the TrainJob of the same name has come, as its rank-0 process reports it."""

    kind: Literal["TrainJobProgress"] = Field(
        default="TrainJobProgress", description="Always TrainJobProgress."
    )
    api_version: ApiVersion = API_VERSION
    metadata: ObjectMeta = Field(
        description="Name, namespace, uid, labels and creation time are those of the job itself. The"
        " resourceVersion is that of this document, which is not stored in etcd."
    )
    status: ProgressStatus = Field(description="What is known of the job, and how it was read.")


class JobReference(WireModel):
    """A training job, in the namespace of the object that refers to it."""

    kind: str = Field(description="Kind of the job, such as PyTorchJob.")
    resource: str = Field(
        description="The resource of this group that shows jobs of its kind alone, with their history and"
        " log-tail, such as pytorchjobs."
    )
    name: str = Field(description="Name of the job.")
    uid: str = Field(description="The job's uid.")


class TrainingJob(WireModel):
    """How far a training job of any kind has come. Its name is the resource of its kind, a dot and the name
    of the job, such as pytorchjobs.bert."""

    kind: Literal["TrainingJob"] = Field(default="TrainingJob", description="Always TrainingJob.")
    api_version: ApiVersion = API_VERSION
    metadata: ObjectMeta = Field(
        description="Namespace, uid, labels and creation time are those of the job itself. The"
        " resourceVersion is that of this document, which is not stored in etcd."
    )
    job_ref: JobReference = Field(description="The job that it shows.")
    status: ProgressStatus = Field(description="What is known of the job, and how it was read.")


class TrainingJobList(WireModel):
    """TrainingJobList is a list of TrainingJob."""

    kind: Literal["TrainingJobList"] = Field(default="TrainingJobList", description="Always TrainingJobList.")
    api_version: ApiVersion = API_VERSION
    metadata: ListMeta = Field(
        default_factory=ListMeta, description="A watch can continue from its resourceVersion."
    )
    items: tuple[TrainingJob, ...] = Field(
        description="One document for each job that the caller may read under its own resource, sorted by"
        " namespace, then by name."
    )


class SumsOfJobs(WireModel):
    """Sums over some jobs."""

    name: str | None = Field(
        default=None, description="What they have in common; absent of those without such a label."
    )
    jobs: Int32 = Field(ge=0, description="How many there are.")
    running: Int32 = Field(ge=0, description="How many of them run.")
    accelerators: Int64 = Field(ge=0, description="How many accelerators those that run request together.")
    goodput: GoodputOfWindow = Field(
        description="What their time was spent on. The percentages are of the accelerators' time, or of the"
        " jobs' where none has any."
    )


class TrainingJobSums(WireModel):
    """Sums over the jobs of a list: what trainingjobs answers with the query parameter sumBy."""

    kind: Literal["TrainingJobSums"] = Field(default="TrainingJobSums", description="Always TrainingJobSums.")
    api_version: ApiVersion = API_VERSION
    metadata: ListMeta = Field(default_factory=ListMeta, description="Its resourceVersion is the list's.")
    time: Time = Field(description="The end of the window.")
    sum_by: str = Field(description="What the jobs of one group have in common.")
    window: Literal["whole", "hour", "day"] = Field(
        description="The whole life of each job, or the last hour or day until that time."
    )
    total: SumsOfJobs = Field(description="Of all jobs of the list.")
    groups: tuple[SumsOfJobs, ...] = Field(
        description="The ten groups that have spent the most time of accelerators, the largest first."
    )
    others: SumsOfJobs | None = Field(default=None, description="Of all further groups.")


class TrainJobProgressList(WireModel):
    """TrainJobProgressList is a list of TrainJobProgress."""

    kind: Literal["TrainJobProgressList"] = Field(
        default="TrainJobProgressList", description="Always TrainJobProgressList."
    )
    api_version: ApiVersion = API_VERSION
    metadata: ListMeta = Field(
        default_factory=ListMeta, description="A watch can continue from its resourceVersion."
    )
    items: tuple[TrainJobProgress, ...] = Field(
        description="One document for each job, sorted by namespace, then by name."
    )
