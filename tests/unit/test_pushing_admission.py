"""Who may push: the bearer of a token that is bound to a pod of that very job."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from msgspec import structs
from msgspec.structs import replace

from tests.jobs import T0, job_ref
from tests.pushing import OURS, UPSTREAM, Cluster, Endpoint, jwt, pod_claims, upstream_audience
from visibility_api.auth.token_review import PATH as REVIEWS
from visibility_api.errors.status import (
    Forbidden,
    InternalError,
    NotFound,
    RequestError,
    TooManyRequests,
    Unavailable,
)
from visibility_api.flowcontrol.report_shares import PUSHES
from visibility_api.jobs.job import Phase, Replica, TrainingJob
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.pushing.admission import GRANT_TTL_S, LOG_AGAIN_S, REFUSED_UNNAMED_FOR_S
from visibility_api.pushing.ownership import Membership
from visibility_api.pushing.paths import AUDIENCE, OWN_JOB, find_push

POD0, POD1 = "team-a-bert-job-pod0", "team-a-bert-job-pod1"


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add_job("bert")
    return found


@pytest.fixture
def endpoint(cluster: Cluster) -> Endpoint:
    return Endpoint(cluster)


async def admit(
    endpoint: Endpoint,
    token: str = POD0,
    *,
    name: str = "bert",
    namespace: str = "team-a",
    path: str = UPSTREAM,
    authorization: str | None = None,
    client: str = "10.0.0.7",
) -> Membership:
    headers = [(b"authorization", (authorization or f"Bearer {token}").encode("latin-1"))]
    target = find_push("POST", path.format(namespace, name), headers)
    return (await endpoint.admission.admit(target, headers, client)).membership


@pytest.mark.parametrize("path", [UPSTREAM, OURS])
async def test_a_pods_own_token_is_admitted_on_both_paths(endpoint: Endpoint, path: str) -> None:
    assert (await admit(endpoint, path=path)).pod_uid == POD0
    assert (await admit(endpoint, POD1, path=path)).pod_uid == POD1


@pytest.mark.parametrize(
    ("resource", "kind", "groups"),
    [
        ("pytorchjobs", "PyTorchJob", {"master": 1, "worker": 2}),
        ("mpijobs", "MPIJob", {"launcher": 1, "worker": 2}),
        ("volcanojobs", "Job", {"worker": 2}),
    ],
)
async def test_a_pod_beyond_the_replicas_of_its_job_is_refused(
    endpoint: Endpoint, cluster: Cluster, resource: str, kind: str, groups: dict[str, int]
) -> None:
    """Who may create pods can name such a job as the owner, and give them any name that is free."""
    cluster.jobs["team-a", "gpt"] = TrainingJob(
        ref=job_ref("gpt", uid="gpt-uid", resource=resource),
        created_at=T0,
        phase=Phase.RUNNING,
        replicas=tuple(Replica(name=name, desired=number) for name, number in groups.items()),
    )
    path = OURS.replace("trainjobs", resource)
    for name in ("gpt-worker-0", "gpt-worker-1", *(["gpt-launcher"] if "launcher" in groups else [])):
        cluster.add_pod(name, f"{name}-uid", "gpt-uid", "gpt", kind=kind)
        assert (await admit(endpoint, f"{name}-uid", name="gpt", path=path)).pod_name == name
    for name in ("gpt-worker-2", "gpt-worker-99999999", "gpt-other-0"):
        cluster.add_pod(name, f"{name}-uid", "gpt-uid", "gpt", kind=kind)
        with pytest.raises(Forbidden):
            await admit(endpoint, f"{name}-uid", name="gpt", path=path)


OWN = jwt(**pod_claims("bert-node-0-0-abcde"))


@pytest.fixture
def own(cluster: Cluster) -> str:
    """A token that says whose it is."""
    cluster.tokens[OWN] = cluster.tokens[POD0]
    return OWN


async def test_a_token_alone_says_for_which_job_it_is(endpoint: Endpoint, cluster: Cluster, own: str) -> None:
    membership = await admit(endpoint, own, path=OWN_JOB)
    assert (membership.job_name, membership.pod_uid) == ("bert", POD0)
    assert cluster.reviewed == [{"token": own, "audiences": [AUDIENCE]}]
    asked = len(cluster.asked)
    assert asked == 4  # review, pod, job, jobset
    await admit(endpoint, own, path=OWN_JOB)
    assert len(cluster.asked) == asked
    job = cluster.jobs.pop(("team-a", "bert"))
    with pytest.raises(NotFound):
        await admit(endpoint, own, path=OWN_JOB)
    cluster.jobs["team-a", "bert"] = job
    with pytest.raises(NotFound):  # for a while
        await admit(endpoint, own, path=OWN_JOB)
    endpoint.time += REFUSED_UNNAMED_FOR_S
    await admit(endpoint, own, path=OWN_JOB)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"kubernetes.io": {"namespace": "team-a"}},
        {"kubernetes.io": {"pod": {"name": "bert-node-0-0-abcde"}}},
        {"kubernetes.io": "team-a"},
        {"kubernetes.io": {"namespace": 1, "pod": []}},
    ],
)
async def test_without_a_named_job_a_token_that_claims_no_pod_is_refused_without_asking(
    endpoint: Endpoint, cluster: Cluster, claims: dict[str, Any]
) -> None:
    with pytest.raises(Forbidden):
        await admit(endpoint, jwt(**claims), path=OWN_JOB)
    assert cluster.asked == []


async def test_what_a_token_claims_counts_for_nothing_by_itself(endpoint: Endpoint, cluster: Cluster) -> None:
    made_up = jwt(**pod_claims("bert-node-0-0-abcde"))
    with pytest.raises(Forbidden):
        await admit(endpoint, made_up, path=OWN_JOB)
    elsewhere = jwt(**pod_claims("bert-node-0-0-abcde", "team-b"))
    cluster.tokens[elsewhere] = cluster.tokens[POD0]
    with pytest.raises(Forbidden):
        await admit(endpoint, elsewhere, path=OWN_JOB)
    another_pod = jwt(**pod_claims("gpt-node-0-0-abcde"))
    cluster.add_job("gpt")
    cluster.tokens[another_pod] = cluster.tokens[POD1]
    assert (await admit(endpoint, another_pod, path=OWN_JOB)).job_name == "bert"  # as the review says


async def test_upstreams_audience_is_not_enough_without_a_named_job(
    endpoint: Endpoint, cluster: Cluster, own: str
) -> None:
    cluster.tokens[own] = cluster.tokens[own] | {"audiences": [upstream_audience("team-a", "bert")]}
    with pytest.raises(Forbidden):
        await admit(endpoint, own, path=OWN_JOB)


async def test_both_audiences_are_asked_for_and_upstreams_own_is_enough(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    own = upstream_audience("team-a", "bert")
    cluster.tokens[POD0]["audiences"] = [own]
    await admit(endpoint)
    assert cluster.reviewed == [{"token": POD0, "audiences": [own, AUDIENCE]}]


@pytest.mark.parametrize(
    "audiences",
    [
        [],
        ["https://kubernetes.default.svc"],
        ["trainer.kubeflow.org"],
        [upstream_audience("team-a", "other")],
    ],
)
async def test_a_token_for_another_audience_is_refused(
    endpoint: Endpoint, cluster: Cluster, audiences: list[str]
) -> None:
    cluster.tokens[POD0]["audiences"] = audiences
    with pytest.raises(Forbidden):
        await admit(endpoint)


async def test_an_answer_without_the_audience_that_was_asked_for_is_refused(
    endpoint: Endpoint, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A16: an authenticator that knows nothing of audiences says yes to every token."""

    async def yes(*_: Any, **__: Any) -> bytes:
        return b'{"status":{"authenticated":true,"user":{"username":"system:serviceaccount:team-a:default"}}}'

    monkeypatch.setattr(cluster, "post", yes)
    with pytest.raises(Forbidden):
        await admit(endpoint)


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer ", "Basic abc", "abc", "Bearer a b", "Bearer \xe9", "Bearer " + "a" * 20_000],
)
async def test_what_is_no_token_is_refused_without_asking(
    endpoint: Endpoint, cluster: Cluster, authorization: str
) -> None:
    with pytest.raises(Forbidden):
        await admit(endpoint, authorization=authorization)
    assert cluster.asked == []


@pytest.mark.parametrize("authorization", ["bearer {}", "BEARER {}", "  Bearer \t {}  "])
async def test_the_scheme_may_be_in_any_case_and_blanks_as_they_come(
    endpoint: Endpoint, authorization: str
) -> None:
    await admit(endpoint, authorization=authorization.format(POD0))


async def test_a_token_of_another_jobs_pod_is_refused(endpoint: Endpoint, cluster: Cluster) -> None:
    cluster.add_job("gpt")
    with pytest.raises(Forbidden):
        await admit(endpoint, "team-a-gpt-job-pod0")
    await admit(endpoint, "team-a-gpt-job-pod0", name="gpt")
    with pytest.raises(Forbidden):  # also once it is known
        await admit(endpoint, "team-a-gpt-job-pod0")


async def test_a_token_of_another_namespace_is_refused(endpoint: Endpoint, cluster: Cluster) -> None:
    cluster.add_job("bert", "team-b")
    with pytest.raises(Forbidden):
        await admit(endpoint, "team-b-bert-job-pod0")
    assert cluster.asked == [REVIEWS]  # nothing of the pod was asked for


@pytest.mark.parametrize(
    "username", ["alice", "system:serviceaccount:team-b:default", "system:serviceaccount:team-a", ""]
)
async def test_only_a_service_account_of_the_namespace_pushes(
    endpoint: Endpoint, cluster: Cluster, username: str
) -> None:
    cluster.tokens[POD0]["user"]["username"] = username
    with pytest.raises(Forbidden):
        await admit(endpoint)


async def test_a_token_that_is_bound_to_no_pod_is_refused(endpoint: Endpoint, cluster: Cluster) -> None:
    cluster.add_token("unbound", pod=None)
    with pytest.raises(Forbidden):
        await admit(endpoint, "unbound")


def forge_name(cluster: Cluster) -> None:
    """A pod of the right name, labels and Job name, whose controller is another Job."""
    cluster.add_pod("bert-node-0-0-zzzzz", "forged", "another-uid", "bert-node-0")


def forge_kind(cluster: Cluster) -> None:
    cluster.add_pod(
        "bert-node-0-0-zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0", kind="ReplicaSet"
    )


def forge_owner_path(cluster: Cluster) -> None:
    """An owner's name that would lead elsewhere."""
    jobs, name = "/apis/batch/v1/namespaces/team-a/jobs", "../jobs/bert-node-0"
    cluster.objects[f"{jobs}/{name}"] = cluster.objects[f"{jobs}/bert-node-0"]
    cluster.add_pod("bert-node-0-0-zzzzz", "forged", "team-a-bert-job-batch", name)


def no_controller(cluster: Cluster) -> None:
    cluster.add_pod("bert-node-0-0-zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0")
    reference = cluster.objects["/api/v1/namespaces/team-a/pods/bert-node-0-0-zzzzz"]["metadata"]
    reference["ownerReferences"][0]["controller"] = False


def another_pod(cluster: Cluster) -> None:
    """The pod of that name is another one now."""
    cluster.add_pod("bert-node-0-0-zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0")
    cluster.objects["/api/v1/namespaces/team-a/pods/bert-node-0-0-zzzzz"]["metadata"]["uid"] = "newer"


def deleted_pod(cluster: Cluster) -> None:
    cluster.add_token("forged", pod="bert-node-0-0-zzzzz", uid="forged")


def jobset_of_nobody(cluster: Cluster) -> None:
    """A JobSet that no TrainJob controls, with the name of one."""
    home = "/namespaces/team-a"
    cluster.add_object(f"/apis/jobset.x-k8s.io/v1alpha2{home}/jobsets/own", "own-set", "Workflow", "w")
    cluster.add_object(f"/apis/batch/v1{home}/jobs/own-0", "own-batch", "JobSet", "own-set", owner="own")
    cluster.add_pod("own-0-0-zzzzz", "forged", "own-batch", "own-0")


def owner_that_blocks_nothing(cluster: Cluster) -> None:
    """As one may write it who has no right on the Job, where kube-apiserver checks that."""
    cluster.add_pod("bert-node-0-0-zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0")
    meta = cluster.objects["/api/v1/namespaces/team-a/pods/bert-node-0-0-zzzzz"]["metadata"]
    del meta["ownerReferences"][0]["blockOwnerDeletion"]


def name_of_its_own(cluster: Cluster) -> None:
    cluster.add_pod("attacker", "forged", "team-a-bert-job-batch", "bert-node-0", index="1")


def index_unlike_its_name(cluster: Cluster) -> None:
    cluster.add_pod("bert-node-0-0-zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0", index="1")


def index_beyond_the_last(cluster: Cluster) -> None:
    cluster.add_pod("bert-node-0-4096-zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0")


def no_index(cluster: Cluster) -> None:
    cluster.add_pod("bert-node-0--zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0", index="")


def job_that_the_jobset_does_not_make(cluster: Cluster) -> None:
    """Its owner references are right, but it is a further one."""
    jobs = "/apis/batch/v1/namespaces/team-a/jobs"
    cluster.add_object(f"{jobs}/bert-node-1", "own-batch", "JobSet", "team-a-bert-job-set", owner="bert")
    cluster.add_pod("bert-node-1-0-zzzzz", "forged", "own-batch", "bert-node-1")


def jobset_of_another_name(cluster: Cluster) -> None:
    """A second JobSet that names the TrainJob as its controller."""
    home = "/namespaces/team-a"
    path = f"/apis/jobset.x-k8s.io/v1alpha2{home}/jobsets/own"
    cluster.add_object(path, "own-set", "TrainJob", "team-a-bert-job", owner="bert")
    cluster.objects[path]["spec"] = {"replicatedJobs": [{"name": "node"}]}
    cluster.add_object(f"/apis/batch/v1{home}/jobs/own-node-0", "own-batch", "JobSet", "own-set", owner="own")
    cluster.add_pod("own-node-0-0-zzzzz", "forged", "own-batch", "own-node-0")


@pytest.mark.parametrize(
    "forge",
    [
        forge_name, forge_kind, forge_owner_path, no_controller, another_pod, deleted_pod, jobset_of_nobody,
        owner_that_blocks_nothing, name_of_its_own, index_unlike_its_name, index_beyond_the_last, no_index,
        job_that_the_jobset_does_not_make, jobset_of_another_name,
    ],
)  # fmt: skip
async def test_a_pod_that_only_looks_like_one_of_the_job_is_refused(
    endpoint: Endpoint, cluster: Cluster, forge: Any
) -> None:
    forge(cluster)
    with pytest.raises(Forbidden):
        await admit(endpoint, "forged")
    own = jwt(**pod_claims("bert-node-0-0-zzzzz"))
    cluster.tokens[own] = cluster.tokens["forged"]
    with pytest.raises(NotFound):
        await admit(endpoint, own, path=OWN_JOB)
    assert not any(".." in path for path in cluster.asked)


async def test_a_pod_of_an_index_that_its_job_got_later_is_admitted(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    await admit(endpoint)
    cluster.objects["/apis/batch/v1/namespaces/team-a/jobs/bert-node-0"]["spec"]["completions"] = 5000
    cluster.add_pod("bert-node-0-4999-zzzzz", "later", "team-a-bert-job-batch", "bert-node-0")
    await admit(endpoint, "later")


async def test_the_owners_of_a_job_are_read_once_for_all_its_pods(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    await admit(endpoint)
    first = len(cluster.asked)
    assert first == 4  # review, pod, job, jobset
    await admit(endpoint)
    assert len(cluster.asked) == first
    await admit(endpoint, POD1)
    assert len(cluster.asked) == first + 2  # review, pod
    cluster.tokens["renewed"] = cluster.tokens[POD0]
    await admit(endpoint, "renewed")
    assert len(cluster.asked) == first + 4  # review, pod


async def test_little_is_kept_of_a_pods_owners_and_nothing_where_no_job_is_served(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    """A tenant may give a Job 1.5 MB of labels, and delete it."""
    job = cluster.add_job("gpt")
    tokens = {}
    for name in ("bert", "gpt"):
        tokens[name] = jwt(**pod_claims(f"{name}-node-0-0-abcde"))
        cluster.tokens[tokens[name]] = cluster.tokens[f"team-a-{name}-job-pod0"]
        meta = cluster.objects[f"/apis/batch/v1/namespaces/team-a/jobs/{name}-node-0"]["metadata"]
        meta["labels"] |= {f"label-{number}": "" for number in range(1000)}
    assert (await admit(endpoint, tokens["bert"], path=OWN_JOB)).job_name == "bert"
    del cluster.jobs[job.ref.namespace, job.ref.name]
    with pytest.raises(NotFound):
        await admit(endpoint, tokens["gpt"], path=OWN_JOB)
    kept = endpoint.admission._owners._parents
    assert len(kept) == 1
    assert len(repr(list(kept.values()))) < 2000


async def test_a_pod_of_a_job_that_has_just_taken_its_formers_place_is_to_push_again(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    """With replicas that share the jobs, the former one may be served for seconds."""
    job = cluster.jobs["team-a", "bert"]
    cluster.jobs["team-a", "bert"] = replace(job, ref=job_ref("bert", uid="former"))
    cluster.unserved.add(job.ref.uid)
    for path in (UPSTREAM, OURS):
        with pytest.raises(Unavailable):
            await admit(endpoint, path=path)
    cluster.jobs["team-a", "bert"] = job
    assert (await admit(endpoint)).job_uid == job.ref.uid
    # That of the former one is not waited for.
    cluster.unserved.clear()
    cluster.jobs["team-a", "bert"] = replace(job, ref=job_ref("bert", uid="later"))
    with pytest.raises(Forbidden):
        await admit(endpoint)


async def test_a_token_is_reviewed_anew_after_a_while(endpoint: Endpoint, cluster: Cluster) -> None:
    await admit(endpoint)
    del cluster.tokens[POD0]
    endpoint.time = GRANT_TTL_S - 1
    await admit(endpoint)
    endpoint.time = GRANT_TTL_S
    with pytest.raises(Forbidden):
        await admit(endpoint)


async def test_a_token_of_rank_0_ends_as_soon_as_its_pod_is_seen_to_go(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    await admit(endpoint)
    remove_pod(cluster)
    cluster.jobs["team-a", "bert"] = replace(cluster.jobs["team-a", "bert"], rank0=None)
    with pytest.raises(Forbidden):  # though the review of its token still says yes
        await admit(endpoint)


async def test_a_pod_that_is_no_longer_rank_0_may_push_on_while_it_is_there(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    await admit(endpoint)
    cluster.restart(cluster.jobs["team-a", "bert"], pod_name="bert-node-0-0-fghij", pod_uid="newer")
    await admit(endpoint)
    asked = len(cluster.asked)
    await admit(endpoint)
    assert len(cluster.asked) == asked


@pytest.mark.parametrize(
    ("claims", "is_over"), [({"exp": 1_000_030}, True), ({"exp": "x"}, False), ({}, False)]
)
async def test_a_token_ends_when_it_expires(
    endpoint: Endpoint,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    claims: dict[str, Any],
    is_over: bool,
) -> None:
    monkeypatch.setattr("visibility_api.pushing.admission.time.time", lambda: 1_000_000.0)
    token = jwt(**claims)
    cluster.tokens[token] = cluster.tokens.pop(POD0)
    await admit(endpoint, token)
    del cluster.tokens[token]
    endpoint.time = 29.0
    await admit(endpoint, token)
    endpoint.time = 30.0
    if is_over:
        with pytest.raises(Forbidden):
            await admit(endpoint, token)
    else:
        await admit(endpoint, token)


def remove_pod(cluster: Cluster, name: str = "bert-node-0-0-abcde") -> None:
    del cluster.objects[f"/api/v1/namespaces/team-a/pods/{name}"]


async def test_a_new_job_of_the_same_name_is_another_job(endpoint: Endpoint, cluster: Cluster) -> None:
    await admit(endpoint)
    job = cluster.jobs["team-a", "bert"]
    cluster.jobs["team-a", "bert"] = replace(job, ref=structs.replace(job.ref, uid="another"))
    with pytest.raises(Forbidden):
        await admit(endpoint)


async def test_whoever_holds_no_token_learns_nothing_of_what_exists(endpoint: Endpoint) -> None:
    for name in ("bert", "absent"):
        with pytest.raises(Forbidden) as caught:
            await admit(endpoint, "made-up", name=name)
        assert caught.value.message == (
            "the token is not accepted: it must be valid, and have this path's audience"
        )


async def test_a_job_that_is_not_there_is_not_found(endpoint: Endpoint, cluster: Cluster) -> None:
    del cluster.jobs["team-a", "bert"]
    with pytest.raises(NotFound):
        await admit(endpoint)
    endpoint.is_synced = False
    with pytest.raises(Unavailable):
        await admit(endpoint)


@pytest.mark.parametrize("error", [ApiError(403, "Forbidden"), ApiError(500), Unreachable("no")])
async def test_a_push_is_never_refused_for_our_own_trouble(
    endpoint: Endpoint, cluster: Cluster, error: Exception
) -> None:
    cluster.away = error
    with pytest.raises(InternalError):
        await admit(endpoint)
    cluster.away = None
    await admit(endpoint)


async def test_each_fault_of_ours_is_logged_once_in_a_while_whatever_comes_between(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    with structlog.testing.capture_logs() as logged:
        for told in (2, 4):
            for number in range(10):
                cluster.away = (ApiError(403, "Forbidden"), ApiError(500))[number % 2]
                with pytest.raises(InternalError):
                    await admit(endpoint)
            assert [each["event"] for each in logged] == ["push could not be authenticated"] * told
            cluster.away = None
            endpoint.time += LOG_AGAIN_S
            await admit(endpoint)
            endpoint.time += GRANT_TTL_S


async def test_a_missing_right_to_read_owners_is_our_own_trouble(
    endpoint: Endpoint, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(*_: Any, **__: Any) -> bytes:
        raise ApiError(403, "Forbidden", "cannot get pods")

    monkeypatch.setattr(cluster, "get", forbidden)
    with pytest.raises(InternalError) as caught:
        await admit(endpoint)
    assert "pods" not in caught.value.message


async def test_a_pod_may_push_so_often_whatever_its_tokens(endpoint: Endpoint, cluster: Cluster) -> None:
    cluster.tokens["second"] = cluster.tokens[POD0]
    for number in range(int(PUSHES.burst)):
        await admit(endpoint, ("second", POD0)[number % 2])
    for token in ("second", POD0):
        with pytest.raises(TooManyRequests):
            await admit(endpoint, token)
    await admit(endpoint, POD1)  # another pod of the job is not held up
    endpoint.time += 1 / PUSHES.per_s
    await admit(endpoint)


async def test_all_processes_of_a_big_node_may_push_as_the_sdk_does(endpoint: Endpoint) -> None:
    """It looks at no rank, waits 5 s after a success, and tries again at the next step after a refusal."""
    pushed_at = [-5.0] * 64
    for step in range(600):  # of 0.1 s
        for process, at in enumerate(pushed_at):
            if step / 10 - at >= 5:
                await admit(endpoint)
                pushed_at[process] = step / 10
        endpoint.time += 0.1


async def test_no_refusal_carries_the_token(endpoint: Endpoint, cluster: Cluster) -> None:
    for path in (UPSTREAM, OURS):
        with pytest.raises(RequestError) as caught:
            await admit(endpoint, "s3cr3t", path=path)
        assert "s3cr3t" not in repr(caught.value)
        assert caught.value.__cause__ is None
    assert "s3cr3t" not in repr(endpoint.admission.__dict__)


async def test_a_token_is_one_however_its_header_is_spelt(endpoint: Endpoint) -> None:
    """Or one pod could fill the room for all tokens."""
    for authorization in ("Bearer {}", "bEARER {}", "Bearer \t {}", "  Bearer {}  "):
        await admit(endpoint, authorization=authorization.format(POD0))
    assert len(endpoint.admission._grants) == 1
    with pytest.raises(Forbidden):
        await admit(endpoint, authorization=f"Basic {POD0}")


async def test_a_token_that_is_refused_now_is_known_no_longer(endpoint: Endpoint, cluster: Cluster) -> None:
    await admit(endpoint)
    cluster.tokens.clear()
    endpoint.time = GRANT_TTL_S + 1
    with pytest.raises(Forbidden):
        await admit(endpoint)
    assert not endpoint.admission._grants
