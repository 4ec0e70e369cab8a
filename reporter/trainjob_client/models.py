"""What the server answers. Made of its own models by `make openapi`: do not edit."""

from __future__ import annotations

from datetime import datetime
from typing import Dict, Optional, Tuple

from .wire import WireModel


class ObjectMeta(WireModel):
    """Metadata of one object."""

    name: str

    namespace: Optional[str] = None

    uid: str

    resource_version: str

    creation_timestamp: Optional[datetime] = None

    labels: Optional[Dict[str, str]] = None


class JobReference(WireModel):
    """A training job, in the namespace of the object that refers to it."""

    kind: str
    """Kind of the job, such as PyTorchJob."""

    resource: str
    """The resource of this group that shows jobs of its kind alone, with their history and log-tail, such as
    pytorchjobs."""

    name: str
    """Name of the job."""

    uid: str
    """The job's uid."""


class Metric(WireModel):
    """One named number of the training process, as it wrote it."""

    name: str
    """Such as loss, eval_loss, learning_rate or accuracy."""

    value: str
    """A number as text, so that NaN and very large numbers can be written in JSON."""


class TimeRange(WireModel):
    """Between two times."""

    earliest: datetime
    """It is not expected before."""

    latest: datetime
    """It is expected to have happened by then."""


class Steps(WireModel):
    """Optimizer steps."""

    current: Optional[int] = None
    """Steps finished; 0 before the first."""

    total: Optional[int] = None
    """Steps planned; absent when the run has no planned end."""

    per_second: Optional[float] = None
    """Steps per second in the current attempt, smoothed; absent until there are two reports, and when the run
    does not advance."""


class Epochs(WireModel):
    """Passes over the training data."""

    current: Optional[float] = None
    """Epochs finished; 0.5 is half of the first one."""

    total: Optional[float] = None
    """Epochs planned; absent when the run does not report it."""


class Failure(WireModel):
    """Why an attempt of the job failed: of all that failed at about the same time, what came first."""

    time: datetime
    """When it failed."""

    replica: Optional[str] = None
    """Which replica: the replicated job and the pod's index, such as node-3, or the name of an initializer.
    Absent when the job as a whole failed, for instance for a deadline."""

    pod_name: Optional[str] = None
    """The pod; it may be gone by now."""

    node_name: Optional[str] = None
    """The node that the pod was on."""

    container_name: Optional[str] = None
    """The container; absent when the pod as a whole failed, such as by eviction."""

    exit_code: Optional[int] = None
    """Exit code; absent when there was none."""

    signal: Optional[int] = None
    """The signal that ended it, 1 to 64."""

    reason: Optional[str] = None
    """One CamelCase word: OOMKilled, Evicted, Preempted, NodeLost, DeadlineExceeded, InitializerFailed,
    Error, or another that the kubelet or the job's controller gives."""

    message: Optional[str] = None
    """What failed, where and how, and what the run had last reported, in sentences."""

    retryable: Optional[bool] = None
    """Whether another attempt may succeed: true for evictions, lost nodes and most signals, false for lack of
    memory and errors of the program. Absent where that depends."""

    class_: Optional[str] = None
    """What kind of fault it was, by the last lines that the container printed: one CamelCase word, such as
    AcceleratorOutOfMemory, CheckpointMismatch, PeerLost or ProgramError. Absent where that is not known, or
    no logs are read."""

    cause: Optional[str] = None
    """The same as a sentence, in the server's words."""

    hint: Optional[str] = None
    """What can be done about a fault of that class."""

    rank: Optional[int] = None
    """The rank that printed it, where ranks are marked in the output."""


class DiagnosisGroup(WireModel):
    """Ranks that were at the same place."""

    count: int
    """How many ranks, or processes where ranks are not known."""

    ranks: Optional[str] = None
    """Which ranks, such as 0-36,38-63; absent where ranks are not known."""

    where: str
    """What they did, in the server's words, such as 'is in all_reduce'."""

    frames: Optional[Tuple[str, ...]] = None
    """Their stack as module:function:line, innermost first. Only in the subresource diagnose."""


class DiagnosisSuspect(WireModel):
    """A rank that the others waited for, as far as could be seen."""

    reason: str
    """One CamelCase word, as the reason of the diagnosis."""

    rank: Optional[int] = None
    """The rank; absent where it is not known."""

    pod_name: str
    """Its pod; it may be gone by now."""

    node_name: Optional[str] = None
    """The node that the pod was on."""

    step: Optional[int] = None
    """The last step that it had finished."""


class Diagnosis(WireModel):
    """Where the ranks of the job were when it stood still: read once when a stall begins, and on request."""

    time: datetime
    """When the ranks were read."""

    requested: Optional[bool] = None
    """True where a user had requested it; absent where a stall was the reason."""

    reason: str
    """What was found, one CamelCase word: InDataLoader, InOwnCode, ProcessStopped, ProcessEnded, GilHeld,
    InCollective, CollectiveMismatch, PodNotRunning, NotReadable, NotKnown, or another one."""

    message: str
    """The same as a sentence: which rank, where, and what the others do."""

    hint: Optional[str] = None
    """What to do about it."""

    ranks_read: int
    """How many ranks, or processes, were read."""

    pods_unread: Optional[int] = None
    """How many pods did not run, or showed no rank; absent for none."""

    groups: Optional[Tuple[DiagnosisGroup, ...]] = None
    """Ranks by equal place, the eight largest groups."""

    other_ranks: Optional[int] = None
    """How many ranks are in further groups; absent for none."""

    suspects: Optional[Tuple[DiagnosisSuspect, ...]] = None
    """The ranks that the others waited for, at most eight; absent for none."""


class Condition(WireModel):
    """One aspect of an object's state. All five fields are always there."""

    type: str

    status: str

    last_transition_time: datetime

    reason: str

    message: str


class Termination(WireModel):
    """How a container ended."""

    exit_code: int
    """Exit code. Above 128: the container was ended by a signal."""

    signal: Optional[int] = None
    """The signal, 1 to 64; absent when the container exited by itself."""

    reason: Optional[str] = None
    """The reason that the kubelet gives: OOMKilled, Error, Completed."""

    retryable: Optional[bool] = None
    """Whether another attempt may succeed: true for most signals, for instance an eviction; false for an
    error of the program and for lack of memory. Absent after a success."""

    finished_at: Optional[datetime] = None
    """When the container ended."""


class Rank0(WireModel):
    """The pod and container that report for the whole job. Stays after the pod is deleted."""

    pod_name: str
    """Name of the rank-0 pod."""

    node_name: Optional[str] = None
    """Node that the pod runs on; absent until it is scheduled."""

    container_name: str
    """Container of the pod that trains."""

    restart_count: int
    """How often the kubelet has restarted that container."""

    last_termination: Optional[Termination] = None
    """How the container last ended; absent when it never has."""


class Replica(WireModel):
    """Pod counts of one replica group. A count that its controllers do not report is absent."""

    name: str
    """Name of the group, such as node, launcher or dataset-initializer."""

    desired: Optional[int] = None
    """Pods that the group should have."""

    ready: Optional[int] = None
    """Pods that are ready."""

    active: Optional[int] = None
    """Pods that have not ended."""

    succeeded: Optional[int] = None
    """Pods that have succeeded."""

    failed: Optional[int] = None
    """Pods that have failed."""


class ReplicaStatus(WireModel):
    """The pod of one replica: as it is, or as it was seen last."""

    name: str
    """The replica group and the index in it, such as node-3; a pod's name where it has none."""

    rank: Optional[int] = None
    """Rank of the pod in the run, of one process a pod. Absent where that is not known."""

    pod_name: Optional[str] = None
    """Name of the pod; it may be gone by now."""

    node_name: Optional[str] = None
    """Node that the pod is or was on."""

    state: str
    """The pod's phase; Terminating while it is being deleted; Gone where it was deleted before it was seen to
    end."""

    reason: Optional[str] = None
    """Why it is in this state, as one CamelCase word: Unscheduled, PullingImage, Evicted, …"""

    restart_count: int
    """How often the kubelet has restarted its container."""

    last_termination: Optional[Termination] = None
    """How the container last ended; absent when it never has."""

    last_report_time: Optional[datetime] = None
    """When it last reported, or rank 0 about it; absent where neither is known."""

    step: Optional[int] = None
    """Steps finished, by that report."""

    step_seconds: Optional[float] = None
    """Seconds of its own work for one step, without waiting for other ranks, as rank 0 reports them. Of
    several processes in the pod the slowest."""


class AcceleratorCount(WireModel):
    """How many accelerators of one name a job requests."""

    name: str
    """The resource's name, such as nvidia.com/gpu; resourceclaim/ and the name of a ResourceClaimTemplate or
    ResourceClaim where devices are claimed."""

    count: int
    """In all pods together. A claim counts as one."""


class Resources(WireModel):
    """The accelerators that a job requests, and how long it has held them."""

    accelerators: int
    """In all pods together, initializers apart."""

    by_name: Tuple[AcceleratorCount, ...]
    """The same by their names."""

    accelerator_seconds: int
    """Seconds for which they were held, of all together and in all attempts: from when rank 0's pod was on
    its node until the job ended, was suspended, or the pod was gone. At most a minute old while the job
    runs."""

    wasted_accelerator_seconds: Optional[int] = None
    """Of these, those with nothing to show for them: starting, stalled, recovering, or doing steps again that
    an earlier attempt had done. Absent for a job that has never reported and does not say where it would."""


class Checkpoint(WireModel):
    """A checkpoint that is complete: a run that ends goes on from there."""

    step: int
    """The step that it is of."""

    time: datetime
    """When it was complete. What was done since then is lost if the run ends."""


class SecondsByKind(WireModel):
    """Seconds by kind. The kinds are disjoint; one on which no time was spent is absent."""

    queued: Optional[int] = None
    """Suspended, or without a node yet."""

    starting: Optional[int] = None
    """On a node, until the container of rank 0 runs."""

    program_startup: Optional[int] = None
    """Until the first steps, what they take longer than later ones too."""

    productive: Optional[int] = None
    """Steps that no earlier attempt had done."""

    data_loading: Optional[int] = None
    """Waiting for the next batch, as the run marks it."""

    checkpoint_save: Optional[int] = None
    """Saving checkpoints, as the run marks it."""

    checkpoint_restore: Optional[int] = None
    """Restoring checkpoints, as the run marks it."""

    evaluation: Optional[int] = None
    """Evaluating, as the run marks it."""

    lost_progress: Optional[int] = None
    """Steps that an earlier attempt had done already."""

    recovery: Optional[int] = None
    """From an attempt's end until the run is as far again, without those steps."""

    stalled: Optional[int] = None
    """Without an advance: condition Stalled."""

    other: Optional[int] = None
    """All else, such as pauses that nothing explains."""


class GoodputOfWindow(WireModel):
    """What the time of a window was spent on."""

    percentage: Optional[float] = None
    """Goodput: productive time, of all in which the job was not queued. Absent before that."""

    scheduling_percentage: Optional[float] = None
    """Time in which the job was not queued, of all."""

    seconds: SecondsByKind
    """Seconds by kind. They sum to the length of the window."""

    accelerator_seconds: Optional[SecondsByKind] = None
    """The same, times the accelerators; absent for a job that requests none."""


class Goodput(WireModel):
    """What the time of the job was spent on."""

    time: datetime
    """Until when it is counted: at most a minute old while a job runs. Of one that is queued the time until
    it was."""

    current: Optional[str] = None
    """What time is spent on since then: Queued, Starting, ProgramStartup, Productive, DataLoading,
    CheckpointSave, CheckpointRestore, Evaluation, LostProgress, Recovery, Stalled or Other. Absent when the
    job has ended."""

    whole: GoodputOfWindow
    """Since the job was made."""

    hour: Optional[GoodputOfWindow] = None
    """The last hour before that time; absent for a job that is younger."""

    day: Optional[GoodputOfWindow] = None
    """The last 24 hours before that time; absent for a job that is younger."""

    wasted_message: Optional[str] = None
    """For how long there is nothing to show, by kind: Starting, LostProgress, Recovery and Stalled. Absent
    where that is nothing."""


class Observation(WireModel):
    """Where the progress was read, and whether reading it works."""

    source: str
    """Where progress is read: exec (a file in the container), http (a port of the pod), logs (what the
    container prints), push (sent by the pod), status (the job's own status), termination (the container's
    termination message)."""

    last_probe_time: Optional[datetime] = None
    """When rank 0 was last probed, with or without success."""

    next_probe_time: Optional[datetime] = None
    """When rank 0 will be probed next; absent when no probe is planned."""

    latency_seconds: Optional[float] = None
    """How long the last successful probe took."""

    consecutive_failures: int
    """Probes in a row that found no progress; 0 after a success."""

    reason: Optional[str] = None
    """Why the last probe failed, as one CamelCase word; absent after a success."""

    message: Optional[str] = None
    """The same as a sentence. It never contains a byte of what was read."""


class ProgressStatus(WireModel):
    """What is known of one training job. What is not known is absent, never 0. The condition Fresh says
    whether the numbers are current: an old number is never shown as new."""

    phase: str
    """State of the job, in the same words for every kind of job."""

    phase_reason: Optional[str] = None
    """Why the job is in this phase, as one CamelCase word: Queued, Unscheduled, PullingImage,
    InitializerRunning, ImagePullBackOff, or the reason of the job's own condition."""

    phase_message: Optional[str] = None
    """The same as a sentence; absent when the reason says it all."""

    attempts: Optional[int] = None
    """How often training was started so far: once, and again with each restart of the rank-0 container or of
    its pod. Absent before the first."""

    progress_percentage: Optional[int] = None
    """How much of the run is done, as the run reports it, else computed from its steps."""

    estimated_remaining_seconds: Optional[int] = None
    """Time left at the pace observed in the current attempt, else as the run reports it. Absent when the run
    does not advance: its report is old, or it is stalled, suspended, restarting or ended."""

    metrics: Optional[Tuple[Metric, ...]] = None
    """The last value of each metric, in the order in which the run reports them."""

    last_updated_time: Optional[datetime] = None
    """When the training process wrote its last report, by its own clock."""

    estimated_completion_time: Optional[datetime] = None
    """When the run is expected to end, at the observed pace. Absent when it does not advance, and when that
    time has passed."""

    estimated_completion_range: Optional[TimeRange] = None
    """Between when the run is expected to end: nine of ten do. Narrower as more of the run was seen. Absent
    when there is no estimate, and when it is the run's own."""

    start_time: Optional[datetime] = None
    """When the run started, as it reports itself, else when its container did."""

    end_time: Optional[datetime] = None
    """When the job completed or failed; absent before that."""

    duration_seconds: Optional[int] = None
    """How long an ended run took, from its start to its end."""

    steps: Optional[Steps] = None
    """How many optimizer steps are done, and how fast they are done."""

    epochs: Optional[Epochs] = None
    """How many passes over the data are done."""

    message: Optional[str] = None
    """A sentence of the run about itself, as reported."""

    failure: Optional[Failure] = None
    """Why the job failed, or its last attempt that did. Stays when the pods are gone and while the next
    attempt runs; absent when nothing has failed."""

    diagnosis: Optional[Diagnosis] = None
    """Why the run stood still, when its ranks were read last. Stays when the run goes on and when the pods
    are gone; absent while they were never read."""

    conditions: Optional[Tuple[Condition, ...]] = None
    """Conditions of the job; kubectl wait --for=condition=Complete works with them. Diverged: a loss or
    gradient norm is not finite, or far above what was usual; Unknown while there is nothing to judge yet.
    Stalled: no advance for far longer than is usual for the run. NoProgress: three attempts in a row have
    ended without a new step; there once it was true. Reporting: progress can be read. Fresh: the numbers
    shown are current. Straggling: one rank is far slower than the others; there where ranks were compared.
    Plateaued: no improvement for long; there once it was true. AtRisk: no checkpoint for a large share of the
    run; there where the run tells of its checkpoints. LowGoodput: goodput is below the share that an
    annotation of the job says; absent without it. ShouldStop: the rules of an annotation of the job advise to
    stop it early; absent without them. AcceleratorsIdle: no accelerator was busy for 15 minutes, or as long
    as an annotation says; there once it was true. Suspended: as the job itself has it. Complete: as the job
    itself has it. Failed: as the job itself has it."""

    rank0: Optional[Rank0] = None
    """The pod that reports; absent before there is one."""

    replicas: Optional[Tuple[Replica, ...]] = None
    """Every replica group of the job, not only rank 0's."""

    replica_statuses: Optional[Tuple[ReplicaStatus, ...]] = None
    """Each replica, by group and index. Only in the subresource progress, with ?replicas=all; at most 1,000,
    the others by ?continue=."""

    replica_statuses_time: Optional[datetime] = None
    """When the pods were listed; absent when they never were."""

    replica_statuses_continue: Optional[str] = None
    """What to send as ?continue= for the next ones; absent after the last."""

    resources: Optional[Resources] = None
    """Accelerators; absent for a job that requests none."""

    checkpoint: Optional[Checkpoint] = None
    """The last checkpoint that is complete, of any attempt; absent where the run tells of none."""

    goodput: Optional[Goodput] = None
    """What the time of the job was spent on."""

    observation: Optional[Observation] = None
    """Where and how well the progress is read; absent before the first probe."""


class TrainingJob(WireModel):
    """How far a training job of any kind has come. Its name is the resource of its kind, a dot and the name
    of the job, such as pytorchjobs.bert."""

    kind: str = "TrainingJob"
    """Always TrainingJob."""

    api_version: str = "visibility.trainer.kubeflow.org/v1alpha1"
    """Always visibility.trainer.kubeflow.org/v1alpha1."""

    metadata: ObjectMeta
    """Namespace, uid, labels and creation time are those of the job itself. The resourceVersion is that of
    this document, which is not stored in etcd."""

    job_ref: Optional[JobReference] = None
    """The job that it shows."""

    status: ProgressStatus
    """What is known of the job, and how it was read."""


class ListMeta(WireModel):
    """Metadata of a list."""

    resource_version: Optional[str] = None

    continue_: Optional[str] = None

    remaining_item_count: Optional[int] = None


class SumsOfJobs(WireModel):
    """Sums over some jobs."""

    name: Optional[str] = None
    """What they have in common; absent of those without such a label."""

    jobs: int
    """How many there are."""

    running: int
    """How many of them run."""

    accelerators: int
    """How many accelerators those that run request together."""

    goodput: GoodputOfWindow
    """What their time was spent on. The percentages are of the accelerators' time, or of the jobs' where none
    has any."""


class TrainingJobSums(WireModel):
    """Sums over the jobs of a list: what trainingjobs answers with the query parameter sumBy."""

    kind: str = "TrainingJobSums"
    """Always TrainingJobSums."""

    api_version: str = "visibility.trainer.kubeflow.org/v1alpha1"
    """Always visibility.trainer.kubeflow.org/v1alpha1."""

    metadata: Optional[ListMeta] = None
    """Its resourceVersion is the list's."""

    time: datetime
    """The end of the window."""

    sum_by: str
    """What the jobs of one group have in common."""

    window: str
    """The whole life of each job, or the last hour or day until that time."""

    total: SumsOfJobs
    """Of all jobs of the list."""

    groups: Tuple[SumsOfJobs, ...]
    """The ten groups that have spent the most time of accelerators, the largest first."""

    others: Optional[SumsOfJobs] = None
    """Of all further groups."""


class HistoryAttempt(WireModel):
    """One attempt of the job: one run of its training process."""

    number: int
    """0 is the first attempt of which anything is known."""

    start_time: Optional[datetime] = None
    """When it first reported."""

    first_step: Optional[int] = None
    """The first step that it reported; above 0 after a resume."""

    last_step: Optional[int] = None
    """The last step that it reported."""

    last_time: Optional[datetime] = None
    """When it last reported."""


class HistoryProgress(WireModel):
    """How far one attempt had come, and when."""

    attempt: int
    """Number of the attempt."""

    times: Tuple[float, ...]
    """Seconds since 1970 in UTC, by the training process's clock, corrected where it is found to be wrong."""

    steps: Optional[Tuple[Optional[int], ...]] = None
    """Optimizer steps finished at these times; null where none was reported."""

    epochs: Optional[Tuple[Optional[float], ...]] = None
    """Epochs finished at these times; null where none was reported."""


class HistorySeries(WireModel):
    """The values of one metric in one attempt."""

    metric: str
    """Name of the metric, as it is reported."""

    attempt: int
    """Number of the attempt."""

    times: Tuple[float, ...]
    """Seconds since 1970 in UTC, by the training process's clock, corrected where it is found to be wrong."""

    steps: Optional[Tuple[Optional[int], ...]] = None
    """The steps that were finished when it was reported; null where none was."""

    values: Tuple[str, ...]
    """Numbers as text, so that NaN and Infinity can be written in JSON."""


class TrainJobProgressHistory(WireModel):
    """What the job has reported over time: all of late, further back the extremes."""

    kind: Optional[str] = None
    """Always TrainJobProgressHistory."""

    api_version: Optional[str] = None
    """Always visibility.trainer.kubeflow.org/v1alpha1."""

    metadata: ObjectMeta
    """Name, namespace, uid, labels and creation time are those of the job itself. The resourceVersion is that
    of the job's progress, of which this is the past."""

    attempts: Tuple[HistoryAttempt, ...]
    """The attempts that are kept, oldest first: ten at most, of which the shortest go first."""

    progress: Tuple[HistoryProgress, ...]
    """Steps and epochs over time, by attempt."""

    series: Tuple[HistorySeries, ...]
    """Metrics over time, by attempt."""


class TrainJobLogTail(WireModel):
    """The last lines of the log of the container that failed first, or of rank 0's when none has."""

    kind: Optional[str] = None
    """Always TrainJobLogTail."""

    api_version: Optional[str] = None
    """Always visibility.trainer.kubeflow.org/v1alpha1."""

    metadata: ObjectMeta
    """Those of the job's document."""

    pod_name: str
    """The pod whose log it is."""

    container_name: Optional[str] = None
    """The container; absent for the pod's default one."""

    replica: Optional[str] = None
    """Which replica failed, such as node-3; absent when none has."""

    previous: bool
    """Whether it is the log of the run before the present one."""

    truncated: bool
    """Whether lines are missing before these, or beginnings of lines: an answer has at most 64 KiB, a line
    2,000 characters."""

    cause_line: Optional[str] = None
    """Of these, the one that says why the container failed; absent where none does. The document's
    status.failure says it in the server's words."""

    lines: Tuple[str, ...]
    """The oldest first; control characters are replaced by U+FFFD."""


class RecordSummary(WireModel):
    """What a list shows of a job that has ended."""

    phase: str
    """Succeeded or Failed, or what the job was in when it was deleted."""

    deleted: Optional[bool] = None
    """True of a job that was deleted before it had ended."""

    start_time: Optional[datetime] = None
    """When training began."""

    end_time: Optional[datetime] = None
    """When the job ended, or when it last reported if it was deleted before."""

    duration_seconds: Optional[int] = None
    """From start to end."""

    attempts: Optional[int] = None
    """How often training was started."""

    progress_percentage: Optional[int] = None
    """How far it had come."""

    steps: Optional[Steps] = None
    """Optimizer steps."""

    metrics: Optional[Tuple[Metric, ...]] = None
    """The last values of the first sixteen metrics."""

    best: Optional[Tuple[Metric, ...]] = None
    """The best values of these over all attempts, where the name tells which is better: of losses and errors
    the lowest, of accuracies and the like the highest."""

    accelerators: Optional[int] = None
    """Those of all pods together."""

    accelerator_seconds: Optional[int] = None
    """Seconds for which they were held, of all together."""

    goodput_percentage: Optional[float] = None
    """Productive time, of all in which the job was not queued."""

    cause: Optional[str] = None
    """Why it failed, in one word, such as AcceleratorOutOfMemory or OOMKilled."""


class RecordEventObject(WireModel):
    """What an Event was about, in the namespace of the record."""

    kind: str
    """Such as TrainJob or Pod."""

    name: str
    """Name of what the Event was about."""


class RecordEvent(WireModel):
    """A Kubernetes Event, as it was when the record was written."""

    type: str
    """Normal or Warning."""

    reason: str
    """Why, in one word, such as FailedScheduling."""

    message: str
    """The same in a sentence."""

    object: RecordEventObject
    """What it was about."""

    count: int
    """How often it was."""

    first_time: Optional[datetime] = None
    """When it was first."""

    last_time: Optional[datetime] = None
    """When it was last."""


class JobRecord(WireModel):
    """A job of the past: what was known of it when it ended or was deleted."""

    kind: str = "JobRecord"
    """Always JobRecord."""

    api_version: str = "visibility.trainer.kubeflow.org/v1alpha1"
    """Always visibility.trainer.kubeflow.org/v1alpha1."""

    metadata: ObjectMeta
    """The name is that of the job, a dash and the beginning of its uid. Namespace, uid, labels and creation
    time are those of the job."""

    job_ref: JobReference
    """The job that it was."""

    summary: RecordSummary
    """What lists show."""

    progress: Optional[ProgressStatus] = None
    """The status of the job's last document. Absent in lists."""

    events: Optional[Tuple[RecordEvent, ...]] = None
    """The last fifty Kubernetes Events about the job, the pod of rank 0 and the pod that failed. Absent in
    lists."""
