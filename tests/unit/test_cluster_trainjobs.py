"""A TrainJob put together from what Kubernetes shows of it: rank 0, phase, replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import permutations
from typing import Any, Self

import msgspec
import pytest
from hypothesis import given, strategies as st

from visibility_api.cluster import inventory as inventory_module, slices as slices_module
from visibility_api.cluster.annotations import MONITORING, OPT_IN, PREFIX, path_fault
from visibility_api.cluster.declarations import LOG_VARIABLE, PATH_VARIABLES, PORT_VARIABLE
from visibility_api.cluster.errors import Unreachable
from visibility_api.cluster.inventory import TrainJobInventory, describe_trainjob
from visibility_api.cluster.objects import (
    Container,
    EnvVar,
    JobSet,
    Meta,
    OwnerReference,
    PartMeta,
    Pod,
    TrainJob,
)
from visibility_api.cluster.slices import in_slices
from visibility_api.progress.job import JobRef, Phase, Rank0, TrainingJob

ANNOTATIONS = st.sampled_from([PREFIX + key for key in ("source", "interval", "path", "port", "container")])
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def trainjob(*, uid: str = "t1", status: dict[str, Any] | None = None, **spec: Any) -> TrainJob:
    return msgspec.convert(
        {
            "metadata": {
                "name": "bert",
                "namespace": "team-a",
                "uid": uid,
                "labels": {"team": "nlp"},
                "annotations": spec.pop("annotations", {}),
                "creationTimestamp": "2026-01-23T10:00:00Z",
            },
            "spec": spec,
            "status": status,
        },
        TrainJob,
    )


def condition(type_: str, status: str = "True", reason: str = "") -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": reason or f"{type_}Reason",
        "lastTransitionTime": "2026-01-23T10:00:00Z",
    }


def jobset(*groups: tuple[str, str | None], owner: str = "t1", uid: str = "js1", **spec: Any) -> JobSet:
    return msgspec.convert(
        {
            "metadata": {
                "name": "bert",
                "namespace": "team-a",
                "uid": uid,
                "ownerReferences": [{"uid": owner, "kind": "TrainJob", "name": "bert", "controller": True}],
            },
            "spec": {
                "replicatedJobs": [
                    {
                        "name": name,
                        "replicas": 1,
                        "template": {"metadata": {"labels": {ANCESTOR: ancestor} if ancestor else {}}},
                    }
                    for name, ancestor in groups
                ],
                **spec,
            },
            "status": {"conditions": spec.pop("conditions", [])} if "conditions" in spec else None,
        },
        JobSet,
    )


TORCH = jobset(("node", "trainer"))
MPI = jobset(("node", None), ("launcher", "trainer"), successPolicy={"targetReplicatedJobs": ["launcher"]})


def pod(
    group: str = "node",
    *,
    name: str = "",
    uid: str = "p1",
    created: str = "2026-01-23T10:01:00Z",
    attempt: int = 0,
    deleting: bool = False,
    jobset_uid: str = "js1",
    owner: tuple[str, str] | None = None,
    container: str = "node",
    containers: list[dict[str, Any]] | None = None,
    state: dict[str, Any] | None = None,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    init: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    scheduled: bool = True,
    reason: str | None = None,
) -> Pod:
    kind, owner_name = owner or ("Job", f"bert-{group}-0")
    return msgspec.convert(
        {
            "metadata": {
                "name": name or f"bert-{group}-0-0-{uid}",
                "namespace": "team-a",
                "uid": uid,
                "labels": {
                    "jobset.sigs.k8s.io/jobset-name": "bert",
                    "jobset.sigs.k8s.io/jobset-uid": jobset_uid,
                    "jobset.sigs.k8s.io/replicatedjob-name": group,
                    "jobset.sigs.k8s.io/restart-attempt": str(attempt),
                },
                "annotations": annotations or {},
                "creationTimestamp": created,
                "deletionTimestamp": "2026-01-23T11:00:00Z" if deleting else None,
                "ownerReferences": [{"uid": "j1", "kind": kind, "name": owner_name, "controller": True}],
            },
            "spec": {
                "nodeName": "gpu-1" if scheduled else None,
                "containers": containers or [{"name": container}],
            },
            "status": {
                "phase": "Running",
                "reason": reason,
                "podIP": "10.0.0.7",
                "initContainerStatuses": init,
                "containerStatuses": [
                    {
                        "name": container,
                        "restartCount": restarts,
                        "state": state if state is not None else {"running": {}},
                        "lastState": last or {},
                    }
                ],
            },
        },
        Pod,
    )


def rank0_of(*pods: Pod, js: JobSet = TORCH, job: TrainJob | None = None) -> Rank0 | None:
    return describe_trainjob(job or trainjob(), js, pods).rank0


def test_under_torch_rank_0_is_index_0_of_the_trainer_labelled_group() -> None:
    js = jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer"))
    found = rank0_of(pod("dataset-initializer", uid="d"), pod("node", uid="n"), js=js)
    assert found is not None
    assert (found.pod_uid, found.container_name) == ("n", "node")


def test_under_mpi_the_launcher_is_asked_first_and_the_node_may_answer() -> None:
    job = describe_trainjob(trainjob(), MPI, [pod("node", uid="n"), pod("launcher", uid="l")])
    assert job.rank0 is not None
    assert job.rank0.pod_uid == "l"
    assert [a.pod_uid for a in job.alternates] == ["n"]


@pytest.mark.parametrize(
    ("js", "group"),
    [
        (jobset(("a", None), ("b", None), successPolicy={"targetReplicatedJobs": ["b"]}), "b"),
        (jobset(("x", None), ("node", None)), "node"),
        (jobset(("x", None), ("launcher", None)), "launcher"),
        (jobset(("only", None)), "only"),
    ],
)
def test_without_the_ancestor_label_policy_then_name_then_the_only_group_decides(
    js: JobSet, group: str
) -> None:
    found = rank0_of(*(pod(name, uid=name) for name in ("a", "b", "x", "node", "launcher", "only")), js=js)
    assert found is not None
    assert found.pod_uid == group


def test_two_unnamed_groups_leave_rank_0_unknown() -> None:
    assert rank0_of(pod("a"), pod("b"), js=jobset(("a", None), ("b", None))) is None


def test_the_highest_restart_attempt_wins_over_age() -> None:
    old = pod(uid="old", created="2026-01-23T10:09:00Z", attempt=0)
    new = pod(uid="new", created="2026-01-23T10:05:00Z", attempt=1)
    found = rank0_of(new, old)
    assert found is not None
    assert found.pod_uid == "new"


def test_a_pod_that_is_being_deleted_loses_to_one_that_is_not() -> None:
    leaving = pod(uid="leaving", created="2026-01-23T10:09:00Z", deleting=True)
    staying = pod(uid="staying", created="2026-01-23T10:05:00Z")
    found = rank0_of(leaving, staying)
    assert found is not None
    assert found.pod_uid == "staying"


def test_of_two_equal_pods_the_newest_wins() -> None:
    found = rank0_of(
        pod(uid="a", created="2026-01-23T10:05:00Z"), pod(uid="b", created="2026-01-23T10:06:00Z")
    )
    assert found is not None
    assert found.pod_uid == "b"


@pytest.mark.parametrize(
    "stranger",
    [
        pod(jobset_uid="another"),
        pod(owner=("Job", "other-node-0")),
        pod(owner=("ReplicaSet", "bert-node-0")),
    ],
)
def test_a_pod_that_only_wears_the_labels_is_not_rank_0(stranger: Pod) -> None:
    assert rank0_of(stranger) is None


def test_a_jobset_of_the_same_name_that_another_object_controls_is_not_the_jobs() -> None:
    job = describe_trainjob(trainjob(uid="t2"), jobset(("node", "trainer"), owner="t1"), [pod()])
    assert job.rank0 is None
    assert (job.phase, job.reason) == (Phase.PENDING, "NoJobSet")


def test_the_container_is_the_annotated_one_then_node_then_the_default_then_the_first() -> None:
    two = [{"name": "sidecar"}, {"name": "node"}, {"name": "main"}]
    wish = {"visibility.trainer.kubeflow.org/container": "main"}
    default = {"kubectl.kubernetes.io/default-container": "main"}

    def chosen(p: Pod, job: TrainJob | None = None) -> str | None:
        found = rank0_of(p, job=job)
        return found.container_name if found else None

    assert chosen(pod(containers=two), trainjob(annotations=wish)) == "main"
    assert chosen(pod(containers=two)) == "node"
    assert chosen(pod(containers=[{"name": "a"}, {"name": "main"}], annotations=default)) == "main"
    assert chosen(pod(containers=[{"name": "a"}, {"name": "b"}])) == "a"


def test_the_path_is_the_annotated_one_then_the_containers_env_then_the_default() -> None:
    env = [{"name": "node", "env": [{"name": "TRAINJOB_PROGRESS_FILE", "value": "/data/p.json"}]}]
    wish = {"visibility.trainer.kubeflow.org/path": "/mnt/p.json"}

    def path(p: Pod, job: TrainJob | None = None) -> str | None:
        found = rank0_of(p, job=job)
        return found.progress_path if found else None

    assert path(pod(containers=env), trainjob(annotations=wish)) == "/mnt/p.json"
    assert path(pod(containers=env)) == "/data/p.json"
    assert path(pod()) == "/tmp/trainjob-progress.json"


@pytest.mark.parametrize(
    "path",
    ["relative", "/var/run/secrets/kubernetes.io/serviceaccount/token", "/proc/1/environ", "/a\0b",
     "//run/secrets/x", "/tmp/../run/secrets/x", "/dev/zero", "/" + "a" * 2000, ""],
)  # fmt: skip
def test_a_path_that_may_not_be_read_is_left_out_and_named(path: str) -> None:
    job = describe_trainjob(
        trainjob(annotations={"visibility.trainer.kubeflow.org/path": path}), TORCH, [pod()]
    )
    assert job.rank0 is not None
    assert job.rank0.progress_path == "/tmp/trainjob-progress.json"
    (fault,) = job.hints.faults
    assert fault.startswith("annotation visibility.trainer.kubeflow.org/path is ignored")


def test_a_path_in_the_containers_env_is_held_to_the_same_rules() -> None:
    env = [{"name": "node", "env": [{"name": "TRAINJOB_PROGRESS_FILE", "value": "/run/secrets/token"}]}]
    found = rank0_of(pod(containers=env))
    assert found is not None
    assert found.progress_path == "/tmp/trainjob-progress.json"


@pytest.mark.parametrize(
    ("text", "interval_s"), [("30s", 30.0), ("2m", 120.0), ("30", 30.0), ("1h", 3600.0), ("1s", 1.0)]
)
def test_the_interval_annotation_is_a_duration(text: str, interval_s: float) -> None:
    job = describe_trainjob(
        trainjob(annotations={"visibility.trainer.kubeflow.org/interval": text}), None, ()
    )
    assert job.hints.interval_s == interval_s


@pytest.mark.parametrize("text", ["0s", "100ms", "2h", "soon", "", "-5s", "1e3"])
def test_an_interval_out_of_bounds_is_left_out_and_named(text: str) -> None:
    job = describe_trainjob(
        trainjob(annotations={"visibility.trainer.kubeflow.org/interval": text}), None, ()
    )
    assert job.hints.interval_s is None
    assert len(job.hints.faults) == 1


def test_an_exit_by_signal_is_read_from_the_exit_code() -> None:
    found = rank0_of(
        pod(state={"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-23T10:02:00Z"}})
    )
    assert found is not None
    assert found.last_termination is not None
    assert (found.last_termination.exit_code, found.last_termination.signal) == (137, 9)
    assert found.last_termination.is_retryable is True
    assert not found.is_running


def test_out_of_memory_is_not_worth_a_retry() -> None:
    found = rank0_of(pod(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))
    assert found is not None
    assert found.last_termination is not None
    assert found.last_termination.is_retryable is False


def test_an_eviction_is_named_by_the_pod_where_the_container_says_only_error() -> None:
    found = rank0_of(pod(state={"terminated": {"exitCode": 137, "reason": "Error"}}, reason="Evicted"))
    assert found is not None
    assert found.last_termination is not None
    assert found.last_termination.reason == "Evicted"


def test_after_a_restart_in_place_the_exit_of_the_life_before_is_shown_but_not_its_last_words() -> None:
    found = rank0_of(
        pod(restarts=1, state={"running": {}}, last={"terminated": {"exitCode": 1, "message": "{}"}})
    )
    assert found is not None
    assert found.last_termination is not None
    assert found.last_termination.exit_code == 1
    assert found.termination_message == ""
    assert found.attempt == "p1/1/0"


def phase_of(job: TrainJob, js: JobSet | None = TORCH, *pods: Pod) -> tuple[str, str]:
    seen = describe_trainjob(job, js, pods)
    return seen.phase, seen.reason


def counts(**numbers: int) -> dict[str, Any]:
    return {"jobsStatus": [{"name": "node", **numbers}]}


@pytest.mark.parametrize(
    ("job", "js", "pods", "expected"),
    [
        pytest.param(
            trainjob(status={"conditions": [condition("Failed", reason="FailedJobs")]}),
            TORCH, [pod()], ("Failed", "FailedJobs"), id="failed",
        ),
        pytest.param(
            trainjob(status={"conditions": [condition("Complete", reason="AllJobsCompleted")]}, suspend=True),
            TORCH, [], ("Succeeded", "AllJobsCompleted"), id="complete",
        ),
        pytest.param(trainjob(suspend=True), TORCH, [pod()], ("Suspended", "Suspended"), id="suspend wanted"),
        pytest.param(
            trainjob(status={"conditions": [condition("Suspended", "False"), condition("Failed", "False")]}),
            TORCH, [pod()], ("Running", "Rank0Running"), id="resumed: looked up by type, not by position",
        ),
        pytest.param(trainjob(), None, [], ("Pending", "NoJobSet"), id="no JobSet"),
        pytest.param(trainjob(), TORCH, [], ("Pending", "NoPod"), id="no pod"),
        pytest.param(
            trainjob(), TORCH, [pod(scheduled=False, state={})], ("Pending", "Unscheduled"), id="unscheduled"
        ),
        pytest.param(
            trainjob(), TORCH, [pod(state={"waiting": {"reason": "ContainerCreating"}})],
            ("Initializing", "ContainerCreating"), id="container creating",
        ),
        pytest.param(
            trainjob(), TORCH, [pod(state={"waiting": {"reason": "ImagePullBackOff"}})],
            ("Initializing", "ImagePullBackOff"), id="image pull",
        ),
        pytest.param(
            trainjob(), TORCH,
            [pod(state={"waiting": {"reason": "PodInitializing"}},
                 init=[{"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}])],
            ("Initializing", "CrashLoopBackOff"), id="init container crashes",
        ),
        pytest.param(
            trainjob(), TORCH,
            [pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last={"terminated": {"exitCode": 1}})],
            ("Running", "CrashLoopBackOff"), id="crash loop",
        ),
        pytest.param(
            trainjob(), TORCH, [pod(state={"terminated": {"exitCode": 0}})],
            ("Running", "Rank0Terminated"), id="rank 0 has ended, the job not yet",
        ),
        pytest.param(
            trainjob(status=counts(ready=1)), TORCH, [], ("Running", "TrainerReady"), id="trainer ready"
        ),
        pytest.param(
            trainjob(managedBy="kueue.x-k8s.io/multikueue"), None, [],
            ("Unknown", "ManagedElsewhere"), id="managed elsewhere",
        ),
        pytest.param(
            trainjob(status={"jobsStatus": [{"name": "dataset-initializer", "active": 1}]}),
            jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer")), [],
            ("Initializing", "InitializerRunning"), id="initializer",
        ),
    ],
)  # fmt: skip
def test_the_phase_is_the_first_rule_that_matches(
    job: TrainJob, js: JobSet | None, pods: list[Pod], expected: tuple[str, str]
) -> None:
    assert phase_of(job, js, *pods) == expected


def test_a_suspended_job_with_a_queue_name_is_queued() -> None:
    plain = trainjob(suspend=True)
    queued = msgspec.convert(
        {
            "metadata": {**msgspec.to_builtins(plain.metadata), "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"suspend": True},
        },
        TrainJob,
    )
    assert describe_trainjob(queued, None, ()).is_queued
    assert not describe_trainjob(plain, None, ()).is_queued


def test_every_replica_group_is_counted_in_the_trainjobs_own_units() -> None:
    job = describe_trainjob(trainjob(status=counts(ready=0, active=1)), MPI, ())
    assert [(r.name, r.desired, r.ready, r.active) for r in job.replicas] == [
        ("node", 1, 0, 1),
        ("launcher", 1, None, None),
    ]


def test_a_container_that_the_pod_does_not_have_is_named() -> None:
    wish = {"visibility.trainer.kubeflow.org/container": "trainer"}
    job = describe_trainjob(trainjob(annotations=wish), TORCH, [pod(name="bert-0")])
    assert job.rank0 is not None
    assert job.rank0.container_name == "node"
    (fault,) = job.hints.faults
    assert fault.startswith(f"annotation {PREFIX}container is ignored: pod bert-0 has no container of that")
    assert fault.endswith("node is read")


def test_a_mistyped_annotation_is_named_with_those_that_are_known() -> None:
    job = describe_trainjob(trainjob(annotations={PREFIX + "intervall": "5s"}), None, ())
    (fault,) = job.hints.faults
    assert (
        fault == f"annotation {PREFIX}intervall is ignored: known are source, interval, path, port, container"
    )


@given(st.dictionaries(ANNOTATIONS, st.text(max_size=40), max_size=4))
def test_whatever_annotations_say_there_is_a_job_and_a_path_that_may_be_read(said: dict[str, str]) -> None:
    job = describe_trainjob(trainjob(annotations=said), TORCH, [pod()])
    assert job.rank0 is not None
    assert path_fault(job.rank0.progress_path) == ""
    assert job.hints.interval_s is None or 1.0 <= job.hints.interval_s <= 3600.0


class Heard:
    def __init__(self) -> None:
        self.jobs: list[TrainingJob] = []
        self.gone: list[JobRef] = []
        self.inventory = TrainJobInventory(on_job=self.jobs.append, on_gone=self.gone.append)

    @classmethod
    async def of(
        cls, trainjobs: Sequence[TrainJob] = (), jobsets: Sequence[JobSet] = (), pods: Sequence[Pod] = ()
    ) -> Self:
        """An inventory in which all three collections have been listed."""
        heard = cls()
        await heard.inventory.list_trainjobs(in_slices(trainjobs))
        await heard.inventory.list_jobsets(in_slices(jobsets))
        await heard.inventory.list_pods(in_slices(pods))
        return heard


async def test_a_job_is_told_once_and_then_only_when_it_changes() -> None:
    heard = await Heard.of([trainjob()])
    await heard.inventory.list_trainjobs(in_slices([trainjob()]))
    heard.inventory.change_trainjob("MODIFIED", trainjob())
    assert len(heard.jobs) == 1
    heard.inventory.change_jobset("ADDED", TORCH)
    heard.inventory.change_pod("ADDED", pod())
    assert [j.phase for j in heard.jobs] == [Phase.PENDING, Phase.PENDING, Phase.RUNNING]


@pytest.mark.parametrize("order", list(permutations(("trainjobs", "jobsets", "pods"))), ids=" ".join)
async def test_a_job_is_told_of_once_all_collections_are_listed_and_only_then_whole(
    order: tuple[str, ...],
) -> None:
    listed: dict[str, list[Any]] = {"trainjobs": [trainjob()], "jobsets": [TORCH], "pods": [pod()]}
    heard = Heard()
    for plural in order:
        assert heard.jobs == []
        await getattr(heard.inventory, f"list_{plural}")(in_slices(listed[plural]))
    assert [j.phase for j in heard.jobs] == [Phase.RUNNING]


async def test_what_changes_before_all_collections_are_listed_is_taken_into_account() -> None:
    heard = Heard()
    await heard.inventory.list_trainjobs(in_slices([trainjob(), named("other")]))
    await heard.inventory.list_pods(in_slices([pod()]))
    heard.inventory.change_pod("MODIFIED", pod(restarts=1))
    heard.inventory.change_trainjob("DELETED", named("other"))
    await heard.inventory.list_jobsets(in_slices([TORCH]))
    assert [j.rank0 and j.rank0.restart_count for j in heard.jobs] == [1]
    assert heard.gone == []


async def test_a_namespace_of_which_a_collection_is_not_known_holds_up_no_other() -> None:
    heard = Heard()
    for scope in ("team-a", "team-b"):
        await heard.inventory.list_trainjobs(in_slices([named(scope, namespace=scope)]), scope=scope)
        await heard.inventory.list_jobsets(in_slices([]), scope=scope)
    await heard.inventory.list_pods(in_slices([]), scope="team-b")
    assert [j.ref.namespace for j in heard.jobs] == ["team-b"]


async def test_a_long_list_lets_others_in_and_takes_over_what_they_change_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices_module, "SLICE_S", 0.0)  # a pause after each object
    heard = await Heard.of()
    names = [f"job-{number}" for number in range(20)]
    async with asyncio.TaskGroup() as group:
        group.create_task(heard.inventory.list_trainjobs(in_slices([named(name) for name in names])))
        await asyncio.sleep(0)  # its task begins
        await asyncio.sleep(0)
        assert 0 < len(heard.jobs) < len(names)
        # the JobSet of one that comes later, and one of a job that is there already
        for name in (names[0], names[-1]):
            heard.inventory.change_jobset("ADDED", jobset_of(name))
    shown = {j.ref.name: j.reason for j in heard.jobs}
    assert shown == {n: "NoPod" if n in (names[0], names[-1]) else "NoJobSet" for n in names}


async def test_an_object_that_cannot_be_held_hides_no_other_and_is_not_shown_as_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heard = await Heard.of([trainjob(), named("other")])
    odd = trainjob(status={"trainerStatus": {"progressPercentage": 10**30}})
    await heard.inventory.list_trainjobs(in_slices([odd, named("third")]))
    assert [j.ref.name for j in heard.jobs] == ["bert", "other", "third"]
    assert {g.name for g in heard.gone} == {"bert", "other"}
    assert "OverflowError" in "".join(capsys.readouterr())


def named(name: str, namespace: str = "team-a") -> TrainJob:
    return TrainJob(metadata=Meta(name=name, namespace=namespace, uid=f"uid of {name}"))


def jobset_of(name: str) -> JobSet:
    owner = OwnerReference(uid=f"uid of {name}", kind="TrainJob", name=name, controller=True)
    metadata = PartMeta(name=name, namespace="team-a", uid=f"jobset of {name}", owner_references=(owner,))
    return JobSet(metadata=metadata, spec=TORCH.spec)


async def test_a_deleted_job_is_gone_and_a_pod_of_it_changes_nothing() -> None:
    heard = await Heard.of([trainjob()])
    heard.inventory.change_trainjob("DELETED", trainjob())
    heard.inventory.change_pod("ADDED", pod())
    assert [g.uid for g in heard.gone] == ["t1"]
    assert len(heard.jobs) == 1


async def test_a_job_that_a_relist_no_longer_shows_is_gone() -> None:
    heard = await Heard.of([trainjob()])
    await heard.inventory.list_trainjobs(in_slices([]))
    assert [g.uid for g in heard.gone] == ["t1"]


async def test_a_job_deleted_and_created_again_between_two_lists_is_another_job() -> None:
    heard = await Heard.of([trainjob(uid="t1")])
    await heard.inventory.list_trainjobs(in_slices([trainjob(uid="t2")]))
    assert [g.uid for g in heard.gone] == ["t1"]
    assert [j.ref.uid for j in heard.jobs] == ["t1", "t2"]


async def test_a_list_of_one_namespace_leaves_the_others_alone() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    for list_all in (heard.inventory.list_trainjobs, heard.inventory.list_jobsets, heard.inventory.list_pods):
        await list_all(in_slices([]), scope="team-b")
    assert heard.gone == []
    assert len(heard.jobs) == 1
    await heard.inventory.list_trainjobs(in_slices([]), scope="team-a")
    assert [g.uid for g in heard.gone] == ["t1"]


async def test_a_list_that_breaks_off_takes_nothing_away() -> None:
    async def broken() -> AsyncIterator[TrainJob]:
        yield named("new")
        raise Unreachable("the connection is gone")

    heard = await Heard.of([trainjob(), named("other")])
    with pytest.raises(Unreachable):
        await heard.inventory.list_trainjobs(broken())
    assert heard.gone == []
    assert [j.ref.name for j in heard.jobs] == ["bert", "other", "new"]


async def test_a_first_list_that_breaks_off_shows_nothing_until_it_is_whole() -> None:
    async def broken() -> AsyncIterator[Pod]:
        yield pod()
        raise Unreachable("the connection is gone")

    heard = Heard()
    await heard.inventory.list_trainjobs(in_slices([trainjob()]))
    await heard.inventory.list_jobsets(in_slices([TORCH]))
    with pytest.raises(Unreachable):
        await heard.inventory.list_pods(broken())
    assert heard.jobs == []
    await heard.inventory.list_pods(in_slices([pod()]))
    assert [j.phase for j in heard.jobs] == [Phase.RUNNING]


async def test_a_pod_that_is_labelled_as_another_jobs_leaves_the_first() -> None:
    heard = await Heard.of([trainjob()], [TORCH])
    heard.inventory.change_pod("ADDED", pod())
    labels = {"jobset.sigs.k8s.io/jobset-name": "other"}
    metadata = msgspec.structs.replace(pod().metadata, labels=labels)
    heard.inventory.change_pod("MODIFIED", msgspec.structs.replace(pod(), metadata=metadata))
    assert [j.rank0 is not None for j in heard.jobs] == [False, True, False]


async def test_a_deleted_pod_is_known_by_its_name_alone() -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    nothing_else = PartMeta(name=pod().metadata.name, namespace="team-a")
    heard.inventory.change_pod("DELETED", Pod(metadata=nothing_else))
    assert [j.rank0 is not None for j in heard.jobs] == [True, False]


async def test_a_relist_asks_only_for_the_jobs_that_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = await Heard.of([trainjob()], [TORCH], [pod()])
    described: list[str] = []
    monkeypatch.setattr(inventory_module, "describe_trainjob", lambda job, *_: described.append(job))
    await heard.inventory.list_trainjobs(in_slices([trainjob()]))
    await heard.inventory.list_jobsets(in_slices([jobset(("node", "trainer"))]))
    await heard.inventory.list_pods(in_slices([pod()]))
    assert described == []
    await heard.inventory.list_pods(in_slices([pod(restarts=1)]))
    assert len(described) == 1


async def test_a_job_that_trips_us_up_hides_no_other_and_is_told_without_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    taken: list[str] = []

    def take(job: TrainingJob) -> None:
        if job.ref.name == "bert":
            raise ValueError("s3cr3t")
        taken.append(job.ref.name)

    inventory = TrainJobInventory(on_job=take, on_gone=lambda _: None)
    other = TrainJob(metadata=Meta(name="other", namespace="team-a", uid="t2"))
    await inventory.list_pods(in_slices([]))
    await inventory.list_jobsets(in_slices([]))
    await inventory.list_trainjobs(in_slices([trainjob(), other]))
    inventory.change_trainjob("MODIFIED", trainjob(suspend=True))
    assert taken == ["other"]
    said = capsys.readouterr()
    assert "ValueError" in said.out + said.err
    assert "s3cr3t" not in said.out + said.err


@pytest.mark.parametrize(
    "name", [*PATH_VARIABLES, PORT_VARIABLE, LOG_VARIABLE, PREFIX + "path", OPT_IN, MONITORING + "port"]
)
def test_what_is_read_of_an_object_is_kept_of_it(name: str) -> None:
    container = Container(name="node", env=(EnvVar(name=name, value="1"), EnvVar(name="HOME", value="/")))
    metadata = Meta(name="bert", annotations={name: "1", "last-applied": "{}"})
    kept = {e.name for e in container.env or ()} | (metadata.annotations or {}).keys()
    assert kept == {name}


def test_what_fills_an_object_to_its_limit_is_cut() -> None:
    failed = {**condition("Failed", reason="r" * 30_000), "message": "m" * 30_000}
    groups = [(f"group-{number}", None) for number in range(20_000)]
    job = describe_trainjob(trainjob(status={"conditions": [failed]}), jobset(*groups), ())
    assert len(job.replicas) == 64
    assert (len(job.reason), len(job.message)) == (256, 1024)
