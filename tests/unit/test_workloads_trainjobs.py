"""A TrainJob described from its objects: rank 0, what it declares, replicas."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.workload_objects import MPI, TORCH, batch_job, condition, counts, described, jobset, pod, trainjob
from visibility_api.jobs.job import Phase, Rank0
from visibility_api.kinds.replicated_jobs import JobSet
from visibility_api.kinds.trainjob import TrainJob
from visibility_api.workloads.annotations import PREFIX
from visibility_api.workloads.objects import Pod


def rank0_of(*pods: Pod, js: JobSet = TORCH, job: TrainJob | None = None) -> Rank0 | None:
    return described(job or trainjob(), js, pods).rank0


def test_under_torch_rank_0_is_index_0_of_the_trainer_labelled_group() -> None:
    js = jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer"))
    found = rank0_of(pod("dataset-initializer", uid="d"), pod("node", uid="n"), js=js)
    assert found is not None
    assert (found.pod_uid, found.container_name) == ("n", "node")


def test_under_mpi_the_launcher_is_probed_first_and_the_node_may_answer() -> None:
    job = described(trainjob(), MPI, [pod("node", uid="n"), pod("launcher", uid="l")])
    assert job.rank0 is not None
    assert job.rank0.pod_uid == "l"
    assert [a.pod_uid for a in job.alternates] == ["n"]


@pytest.mark.parametrize(
    ("js", "group"),
    [
        (
            jobset(
                ("a", None), ("b", None), successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]}
            ),
            "b",
        ),
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


def test_a_pod_that_is_being_deleted_loses_to_one_that_is_not() -> None:
    leaving = pod(uid="leaving", created="2026-01-23T10:05:00Z", deleting=True)
    staying = pod(uid="staying", created="2026-01-23T10:09:00Z")
    found = rank0_of(leaving, staying)
    assert found is not None
    assert found.pod_uid == "staying"


def test_a_failed_pod_loses_to_the_one_that_the_job_controller_makes_in_its_place() -> None:
    failed = pod(uid="failed", created="2026-01-23T10:05:00Z", phase="Failed")
    found = rank0_of(failed, pod(uid="next", created="2026-01-23T10:06:00Z"))
    assert found is not None
    assert found.pod_uid == "next"


def test_of_two_that_have_failed_the_newest_is_shown() -> None:
    found = rank0_of(
        pod(uid="a", created="2026-01-23T10:05:00Z", phase="Failed"),
        pod(uid="b", created="2026-01-23T10:06:00Z", phase="Failed"),
    )
    assert found is not None
    assert found.pod_uid == "b"


def test_the_restart_attempt_is_that_of_the_live_job() -> None:
    job = described(trainjob(), TORCH, [pod()], [batch_job(attempt=3)])
    assert job.rank0 is not None
    assert job.rank0.restart_attempt == 3


def test_a_jobset_of_the_same_name_that_another_object_controls_is_not_the_jobs() -> None:
    job = described(trainjob(uid="t2"), jobset(("node", "trainer"), owner="t1"), [pod()])
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


@pytest.mark.parametrize(
    "path",
    ["relative", "/var/run/secrets/kubernetes.io/serviceaccount/token", "/proc/1/environ", "/a\0b",
     "//run/secrets/x", "/tmp/../run/secrets/x", "/var/lock/../secrets/x",
     "/a/..", "/data/../p.json", "/dev/zero", "/" + "a" * 2000, ""],
)  # fmt: skip
def test_a_path_that_may_not_be_read_is_left_out_and_named(path: str) -> None:
    job = described(trainjob(annotations={"visibility.trainer.kubeflow.org/path": path}), TORCH, [pod()])
    assert job.rank0 is not None
    assert job.rank0.progress_path == "/tmp/trainjob-progress.json"
    (fault,) = job.hints.faults
    assert fault.startswith("Annotation visibility.trainer.kubeflow.org/path is ignored")


@pytest.mark.parametrize(
    ("text", "interval_s"), [("30s", 30.0), ("2m", 120.0), ("30", 30.0), ("1h", 3600.0), ("1s", 1.0)]
)
def test_the_interval_annotation_is_a_duration(text: str, interval_s: float) -> None:
    job = described(trainjob(annotations={"visibility.trainer.kubeflow.org/interval": text}), None, ())
    assert job.hints.interval_s == interval_s


@pytest.mark.parametrize("text", ["0s", "100ms", "2h", "soon", "", "-5s", "1e3"])
def test_an_interval_out_of_bounds_is_left_out_and_named(text: str) -> None:
    job = described(trainjob(annotations={"visibility.trainer.kubeflow.org/interval": text}), None, ())
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


def test_an_eviction_is_named_by_the_pod_when_the_container_has_only_error() -> None:
    found = rank0_of(pod(state={"terminated": {"exitCode": 137, "reason": "Error"}}, reason="Evicted"))
    assert found is not None
    assert found.last_termination is not None
    assert found.last_termination.reason == "Evicted"


def test_after_a_restart_in_place_the_last_exit_is_shown_but_not_its_final_report() -> None:
    found = rank0_of(
        pod(restarts=1, state={"running": {}}, last={"terminated": {"exitCode": 1, "message": "{}"}})
    )
    assert found is not None
    assert found.last_termination is not None
    assert found.last_termination.exit_code == 1
    assert found.termination_message == ""
    assert found.attempt == "p1/1/0"


def test_every_replica_group_is_there() -> None:
    job = described(trainjob(status=counts(ready=1, active=1)), MPI, ())
    assert [(r.name, r.desired, r.ready) for r in job.replicas] == [("node", 1, 1), ("launcher", 1, None)]


def test_a_container_that_the_pod_does_not_have_is_named() -> None:
    wish = {"visibility.trainer.kubeflow.org/container": "trainer"}
    job = described(trainjob(annotations=wish), TORCH, [pod()])
    assert job.rank0 is not None
    assert job.rank0.container_name == "node"
    (fault,) = job.hints.faults
    assert fault.startswith(
        f"Annotation {PREFIX}container is ignored: pod bert-node-0-0-p1 has no container of"
    )
    assert fault.endswith("node is read.")


def test_a_mistyped_annotation_is_named_with_those_that_are_known() -> None:
    job = described(trainjob(annotations={PREFIX + "intervall": "5s"}), None, ())
    (fault,) = job.hints.faults
    known = (
        "the known ones are source, interval, path, port, container, stalled-after, diverged-above,"
        " straggling-above,"
        " plateau-metric, plateau-better, plateau-after, goodput-below, at-risk-after, should-stop,"
        " should-stop-label, idle-after"
    )
    assert fault == f"Annotation {PREFIX}intervall is ignored: {known}."


CONDITION_AT = datetime(2026, 1, 23, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("conditions", "suspend", "suspension_changed_at", "ended_at"),
    [
        ([], False, None, None),
        ([], True, None, None),
        ([condition("Suspended")], True, CONDITION_AT, None),
        ([condition("Suspended", "False")], False, CONDITION_AT, None),
        ([condition("Suspended", "False")], True, None, None),  # its controller has not seen it yet
        ([condition("Complete")], False, None, CONDITION_AT),
        ([condition("Failed"), condition("Suspended", "False")], False, CONDITION_AT, CONDITION_AT),
        ([condition("Complete", "False")], False, None, None),
    ],
)
def test_times_are_those_of_the_job_s_own_conditions(
    conditions: list[dict[str, str]], suspend: bool, suspension_changed_at: object, ended_at: object
) -> None:
    job = described(trainjob(status={"conditions": conditions}, suspend=suspend), TORCH, [pod()])
    assert (job.suspension_changed_at, job.ended_at) == (suspension_changed_at, ended_at)


def test_the_start_of_a_container_is_known_after_its_end() -> None:
    ended = {
        "terminated": {
            "exitCode": 0,
            "startedAt": "2026-01-23T10:00:00Z",
            "finishedAt": "2026-01-23T11:00:00Z",
        }
    }
    job = described(trainjob(), TORCH, [pod(state=ended)])
    assert job.rank0 is not None
    assert job.rank0.started_at == CONDITION_AT
    waits = described(trainjob(), TORCH, [pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=ended)])
    assert waits.rank0 is not None
    assert waits.rank0.started_at is None  # of the run that is to come


GPU = {"nvidia.com/gpu": "1"}


NO_NAMES = ('x"} 1\nevil{a="', "\u202ex", "a b", "x" * 300)


def template(*, containers: Any = (), init: Any = None, claims: Any = None, pods: int = 1) -> dict[str, Any]:
    spec = {"containers": [{"name": f"c{n}", "resources": r} for n, r in enumerate(containers)]}
    if init is not None:
        spec["initContainers"] = [{"name": f"i{n}", "resources": r} for n, r in enumerate(init)]
    return {"parallelism": pods, "template": {"spec": spec | ({"resourceClaims": claims} if claims else {})}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (template(containers=[{}]), {}),
        (template(containers=[{"limits": {"cpu": "4", "memory": "64Gi"}}]), {}),
        (template(containers=[{"limits": GPU | {"cpu": 4}}], pods=16), {"nvidia.com/gpu": 16}),
        (template(containers=[{"limits": {"nvidia.com/gpu": 8}}]), {"nvidia.com/gpu": 8}),
        (template(containers=[{"requests": {"amd.com/gpu": "2"}}]), {"amd.com/gpu": 2}),
        (
            template(containers=[{key: {"google.com/tpu": "4"} for key in ("limits", "requests")}], pods=2),
            {"google.com/tpu": 8},
        ),
        (template(containers=[{"limits": {"nvidia.com/mig-1g.5gb": "1"}}]), {"nvidia.com/mig-1g.5gb": 1}),
        (template(containers=[{"limits": {"aws.amazon.com/neuron": "1k"}}]), {"aws.amazon.com/neuron": 1000}),
        # Parts of one, and devices of other kinds.
        (template(containers=[{"limits": {"nvidia.com/gpumem": "3000", "vpc.amazonaws.com/efa": "4"}}]), {}),
        # Containers together; an init container before them.
        (
            template(containers=[{"limits": GPU}] * 2, init=[{"limits": GPU}]),
            {"nvidia.com/gpu": 2},
        ),
        (template(init=[{"limits": {"nvidia.com/gpu": "4"}}]), {"nvidia.com/gpu": 4}),
        (
            template(claims=[{"name": "gpu", "resourceClaimTemplateName": "h100"},
                             {"name": "net", "resourceClaimName": "fabric"}], pods=3),
            {"resourceclaim/fabric": 1, "resourceclaim/h100": 3},
        ),
        # As many as fit an object.
        (
            template(containers=[{"limits": {f"nvidia.com/mig-{n:05}": "1" for n in range(20_000)}}]),
            {f"nvidia.com/mig-{n:05}": 1 for n in range(8)},
        ),
        # What no API server lets through.
        (template(containers=[{"limits": {"amd.com/gpu": v}} for v in ("x", "", "-1", "1.5", 2.5)]), {}),
        (template(containers=[{"limits": {"nvidia.com/gpu": "9" * 5000}}]), {}),
        (template(containers=[{"limits": {"nvidia.com/gpu": "999999999"}}]), {"nvidia.com/gpu": 1_000_000}),
        (template(containers=[{"limits": {f"nvidia.com/mig-{end}": "1"}} for end in NO_NAMES]), {}),
        (template(claims=[{"name": "gpu", "resourceClaimTemplateName": end} for end in NO_NAMES]), {}),
        (template(claims=[{"name": "gpu", "resourceClaimName": end} for end in NO_NAMES]), {}),
        (template(containers=[None]), {}),
        (None, {}),
        ({"parallelism": 3, "template": None}, {}),
    ],
)  # fmt: skip
def test_accelerators_are_those_of_all_pods(spec: dict[str, Any] | None, expected: dict[str, int]) -> None:
    fields = msgspec.to_builtins(WITH_DATA)
    for group in fields["spec"]["replicatedJobs"]:
        group["template"]["spec"] = spec
    js = msgspec.convert(fields, JobSet)
    assert dict(described(trainjob(), js, ()).accelerators) == expected
    kept = msgspec.msgpack.encode(js)
    again = msgspec.msgpack.decode(kept, type=JobSet)
    assert described(trainjob(), again, ()).accelerators == described(trainjob(), js, ()).accelerators
    assert b"memory" not in kept


WITH_DATA = jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer"))


def on_nodes(*terms: dict[str, Any]) -> dict[str, Any]:
    """The affinity of a pod that needs a node by one of these."""
    required = {"nodeSelectorTerms": [{"matchExpressions": [each]} for each in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


GKE, KARPENTER = "cloud.google.com/gke-nodepool", "karpenter.sh/nodepool"
ON_H100 = {"key": KARPENTER, "operator": "In", "values": ["h100"]}


@pytest.mark.parametrize(
    ("spec", "pool"),
    [
        ({}, ""),
        ({"nodeSelector": {"eks.amazonaws.com/nodegroup": "p5", "disk": "fast"}}, "p5"),
        ({"nodeSelector": {"kubernetes.azure.com/agentpool": "nd"}}, "nd"),
        ({"nodeSelector": {KARPENTER: "h100", GKE: "a3"}}, "a3"),
        (on_nodes(ON_H100), "h100"),
        ({"nodeSelector": {GKE: "a3"}} | on_nodes(ON_H100), "a3"),
        (on_nodes(ON_H100, {"key": GKE, "operator": "Exists"}), ""),  # one of them is enough
        (on_nodes({**ON_H100, "operator": "NotIn"}), ""),
        (on_nodes({**ON_H100, "values": ["h100", "a100"]}), ""),
        (on_nodes(), ""),
        ({"affinity": {"nodeAffinity": {}}}, ""),
    ],
)
def test_the_node_pool_is_the_one_that_rank_0_requires(spec: dict[str, Any], pool: str) -> None:
    found = rank0_of(pod(spec=spec))
    assert found is not None
    assert found.node_pool == pool
