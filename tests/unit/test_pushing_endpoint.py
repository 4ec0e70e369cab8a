"""The push endpoint as a client meets it: which requests it takes, and what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from msgspec.structs import replace

from tests.asgi import Answer, http_scope
from tests.jobs import T0, rank0
from tests.pushing import BODY, OURS, UPSTREAM, Cluster, Endpoint
from tests.reviews import until
from tests.unit.virtual_time import in_virtual_time
from visibility_api.app import Limits
from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.review_admission import KNOWN_RUNNING_PER_CLIENT
from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.report_shares import OTHER_RANKS, POD, REFUSALS, UNIT_MS
from visibility_api.jobs.job import ProbeHints
from visibility_api.kube.errors import ApiError
from visibility_api.pushing.admission import GRANT_TTL_S, POD_SEEN_FOR_S, RENEWED_S
from visibility_api.pushing.body import Bodies
from visibility_api.pushing.paths import is_push
from visibility_api.reports.document import Progress

POD0, POD1 = "team-a-bert-job-pod0", "team-a-bert-job-pod1"
JOB = ("team-a", "bert")


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add_job("bert")
    return found


@pytest.fixture
def endpoint(cluster: Cluster) -> Endpoint:
    return Endpoint(cluster)


async def post(
    endpoint: Endpoint,
    body: bytes | Sequence[bytes] = BODY,
    *,
    token: str | None = POD0,
    path: str = UPSTREAM,
    method: str = "POST",
    headers: Sequence[tuple[str, str]] = (),
    receive: Callable[[], Awaitable[dict[str, Any]]] | None = None,
    peer: Peer | None = None,
) -> Answer:
    """`body` in pieces comes chunked. `peer`: of the connection."""
    answer = Answer()
    pieces = [body] if isinstance(body, bytes) else list(body)
    sent = list(headers)
    if token is not None:
        sent.append(("Authorization", f"Bearer {token}"))
    if isinstance(body, bytes):
        sent.append(("Content-Length", str(len(body))))

    async def next_piece() -> dict[str, Any]:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert answer.status == 0
            answer.status = message["status"]
            answer.headers = [(k.decode(), v.decode()) for k, v in message["headers"]]
        else:
            answer.chunks.append(message["body"])
            answer.is_complete = True

    scope = http_scope(method, path.format(*JOB), sent)
    if peer is not None:
        scope["state"][PEER] = peer
    assert endpoint.pushes.takes(scope["method"], scope["path"])
    await endpoint.app(scope, receive or next_piece, send)
    return answer


def status_of(answer: Answer) -> tuple[int, str]:
    found = answer.json()
    assert (found["kind"], found["status"], found["code"]) == ("Status", "Failure", answer.status)
    assert answer.header("content-type") == "application/json"
    assert answer.header("content-length") == str(len(answer.body))
    return answer.status, found["reason"]


@pytest.mark.parametrize(
    ("method", "path", "is_taken"),
    [
        ("POST", UPSTREAM, True),
        ("POST", OURS, True),
        ("GET", UPSTREAM, True),
        ("PUT", UPSTREAM, True),
        ("GET", OURS, False),
        ("PATCH", OURS, False),
        ("POST", UPSTREAM + "/", False),
        ("POST", "/" + UPSTREAM, False),
        ("POST", UPSTREAM.removesuffix("/status"), False),
        ("POST", OURS.replace("/status", "/progress"), False),
        ("POST", OURS.replace("v1alpha1", "v1"), False),
        ("POST", OURS.replace("visibility.trainer", "visibility-trainer"), False),
        ("GET", UPSTREAM.replace("trainjobs", "trainingruntimes"), False),
    ],
)
def test_only_two_paths_are_taken_and_the_rest_is_left_to_the_api(
    method: str, path: str, is_taken: bool
) -> None:
    assert is_push(method, path.format(*JOB)) is is_taken


@pytest.mark.parametrize("name", ["Bert", "a.b", "-a", "a" * 64, "%2e%2e", "a%2Fb", "", "ä"])
def test_what_can_be_no_name_is_left_to_the_api(name: str) -> None:
    assert not is_push("POST", unquote(UPSTREAM.format("team-a", name)))
    assert not is_push("POST", unquote(UPSTREAM.format(name, "bert")))


@pytest.mark.parametrize("path", [UPSTREAM, OURS])
async def test_a_push_is_answered_with_its_echo_and_handed_on(endpoint: Endpoint, path: str) -> None:
    answer = await post(endpoint, path=path)
    assert (answer.status, answer.is_complete) == (200, True)
    assert answer.json() == json.loads(BODY)
    assert answer.header("content-length") == str(len(answer.body))
    (seen,) = endpoint.seen
    job = endpoint.cluster.jobs[JOB]
    assert job.rank0 is not None
    assert (seen.ref, seen.attempt, seen.source) == (job.ref, job.rank0.attempt, "push")
    assert not seen.is_other_rank
    assert isinstance(seen.outcome, Progress)
    assert seen.outcome.progress_percentage == 45
    assert endpoint.pushed == [job.ref]
    assert endpoint.outcomes == ["Taken"]


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", ""])
async def test_the_content_type_is_never_looked_at(endpoint: Endpoint, content_type: str) -> None:
    answer = await post(endpoint, headers=[("Content-Type", content_type)])
    assert answer.status == 200


@pytest.mark.parametrize("path", [UPSTREAM, OURS])
async def test_no_header_but_the_token_is_identity(endpoint: Endpoint, path: str) -> None:
    """As the aggregator would send it: never 401, and no word of a front proxy counts."""
    named = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]
    answer = await post(endpoint, token=None, path=path, headers=named)
    assert status_of(answer) == (403, "Forbidden")
    assert answer.header("www-authenticate") is None
    assert endpoint.outcomes == ["Forbidden"]


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_any_other_method_on_upstreams_path_is_not_found(endpoint: Endpoint, method: str) -> None:
    assert status_of(await post(endpoint, method=method)) == (404, "NotFound")


async def test_a_job_that_is_not_there_is_not_found(endpoint: Endpoint) -> None:
    del endpoint.cluster.jobs[JOB]
    assert status_of(await post(endpoint)) == (404, "NotFound")


async def test_a_body_that_says_it_is_too_long_is_not_waited_for(endpoint: Endpoint) -> None:
    async def never() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    for length in ("65537", "9" * 4000):
        answer = await post(endpoint, [], headers=[("Content-Length", length)], receive=never)
        assert status_of(answer) == (413, "RequestEntityTooLarge")
    assert endpoint.cluster.asked == []


async def test_a_body_at_the_limit_is_read(endpoint: Endpoint) -> None:
    answer = await post(endpoint, BODY + b" " * (65536 - len(BODY)))
    assert answer.status == 200


async def test_a_body_that_grows_too_long_is_invalid(endpoint: Endpoint) -> None:
    """As upstream: 413 only by Content-Length."""
    assert status_of(await post(endpoint, [b" " * 30_000] * 3)) == (422, "Invalid")
    assert status_of(await post(endpoint, [b" " * 65_537])) == (422, "Invalid")
    assert endpoint.seen == []


async def test_an_invalid_body_is_refused_without_a_byte_of_it(endpoint: Endpoint) -> None:
    answer = await post(endpoint, b'{"trainerStatus":{"progressPercentage":"s3cr3t"}}')
    assert status_of(answer) == (422, "Invalid")
    assert "s3cr3t" not in answer.text
    assert endpoint.outcomes == ["Invalid"]


@pytest.mark.parametrize("body", [b"{}", b'{"trainerStatus":null}'])
async def test_a_push_that_says_nothing_changes_nothing(endpoint: Endpoint, body: bytes) -> None:
    answer = await post(endpoint, body)
    assert (answer.status, answer.body) == (200, b"{}\n")
    assert (endpoint.seen, endpoint.pushed, endpoint.outcomes) == ([], [], ["PassedOver"])


@pytest.mark.parametrize(
    ("held", "refused", "taken"),
    [
        ({("team-a", "bert"): 10}, ("team-a", "bert"), ("team-a", "gpt")),
        ({("team-a", f"job-{n}"): 5 for n in range(5)}, ("team-a", "gpt"), ("team-b", "bert")),
        ({(f"team-{n}", f"job-{m}"): 5 for n in range(4) for m in range(5)}, ("team-9", "bert"), None),
    ],
    ids=["a job", "a namespace", "all"],
)
async def test_slow_bodies_of_one_job_or_namespace_leave_room_for_those_of_another(
    held: dict[tuple[str, str], int], refused: tuple[str, str], taken: tuple[str, str] | None
) -> None:
    """A tenth of the places and a quarter of them."""
    bodies = Bodies(places=100)
    with contextlib.ExitStack() as under_way:
        for whose, number in held.items():
            for _ in range(number):
                under_way.enter_context(bodies.place(*whose))
        with pytest.raises(TooManyRequests, match="too many pushes are under way"), bodies.place(*refused):
            pass
        if taken is not None:
            under_way.enter_context(bodies.place(*taken))
    assert not bodies._held
    with bodies.place(*refused):
        pass


async def test_a_body_has_its_place_while_it_comes(cluster: Cluster) -> None:
    endpoint = Endpoint(cluster, bodies=Bodies(places=1))
    come = asyncio.Event()

    async def late() -> dict[str, Any]:
        await come.wait()
        return {"type": "http.request", "body": BODY, "more_body": False}

    first = asyncio.create_task(post(endpoint, receive=late))
    await until(lambda: len(cluster.asked) == 4)
    await asyncio.sleep(0)
    refused = await post(endpoint, token=POD1)
    assert status_of(refused) == (429, "TooManyRequests")
    assert refused.header("retry-after") == "1"
    come.set()
    assert (await first).status == 200
    assert (await post(endpoint, token=POD1)).status == 200


@in_virtual_time
async def test_a_push_without_a_place_for_its_body_is_refused_in_its_turn(cluster: Cluster) -> None:
    """A thousand pods of one namespace were refused 6,400 times a second, and everybody else waited."""
    loop = asyncio.get_running_loop()
    bodies = Bodies(places=1)
    endpoint = Endpoint(cluster, bodies=bodies, clock=loop.time)
    assert (await post(endpoint)).status == 200
    refusals = endpoint.admission._budgets.find("team-a", "any job", "any pod").refusals
    refusals.charge(REFUSALS.burst + 2 * REFUSALS.per_s)  # those of two seconds wait
    began = loop.time()
    with bodies.place("team-a", "another"):
        assert (await post(endpoint)).status == 429
    assert loop.time() - began == pytest.approx(2.0, abs=0.1)


# --- whose word counts


async def test_another_pod_of_the_job_stands_in_for_rank_0(endpoint: Endpoint) -> None:
    answer = await post(endpoint, token=POD1)
    assert answer.status == 200
    (seen,) = endpoint.seen
    job = endpoint.cluster.jobs[JOB]
    assert job.rank0 is not None
    assert (seen.is_other_rank, seen.attempt) == (True, job.rank0.attempt)
    assert endpoint.pushed == []  # rank 0 is still asked
    endpoint.is_counted = False
    await post(endpoint, token=POD1)
    await post(endpoint)
    assert len(endpoint.seen) == 2  # of rank 0 now
    assert [(ref, pod) for ref, pod, _ in endpoint.noted] == 2 * [(job.ref, "bert-node-0-1-abcde")]


# --- a token ends with its pod

PODS = "/api/v1/namespaces/team-a/pods"
POD0_PATH, POD1_PATH = f"{PODS}/bert-node-0-0-abcde", f"{PODS}/bert-node-0-1-abcde"


def delete(cluster: Cluster, path: str) -> None:
    del cluster.objects[path]


def succeed(cluster: Cluster, path: str) -> None:
    cluster.objects[path]["status"] = {"phase": "Succeeded"}


def fail(cluster: Cluster, path: str) -> None:
    cluster.objects[path]["status"] = {"phase": "Failed"}


def hang(cluster: Cluster, path: str) -> None:
    """Its grace period ended 51 s ago, and a finalizer keeps it."""
    ended_at = T0 - timedelta(seconds=51)
    cluster.objects[path]["metadata"]["deletionTimestamp"] = ended_at.isoformat()


def of_another_rank(endpoint: Endpoint) -> None:
    """It is not watched."""


def of_rank_0_while_the_watch_fails(endpoint: Endpoint) -> None:
    endpoint.is_watched = False


def of_rank_0_that_terminates(endpoint: Endpoint) -> None:
    endpoint.cluster.restart(endpoint.cluster.jobs[JOB], is_terminating=True)


def of_rank_0_that_does_not_run(endpoint: Endpoint) -> None:
    endpoint.cluster.restart(endpoint.cluster.jobs[JOB], is_running=False)


@pytest.mark.parametrize("ends", [delete, succeed, fail, hang])
@pytest.mark.parametrize(
    "whose",
    [
        of_another_rank,
        of_rank_0_while_the_watch_fails,
        of_rank_0_that_terminates,
        of_rank_0_that_does_not_run,
    ],
)
async def test_a_pod_that_has_ended_changes_nothing_after_10_s(
    endpoint: Endpoint,
    cluster: Cluster,
    whose: Callable[[Endpoint], None],
    ends: Callable[[Cluster, str], None],
) -> None:
    """A review of its token counts for two minutes, and kube-apiserver caches its own for 10 s."""
    token = POD1 if whose is of_another_rank else POD0
    assert (await post(endpoint, token=token)).status == 200
    whose(endpoint)
    ends(cluster, POD1_PATH if token == POD1 else POD0_PATH)
    endpoint.time = POD_SEEN_FOR_S
    for _ in range(2):
        assert status_of(await post(endpoint, token=token)) == (403, "Forbidden")
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("ends", [delete, succeed, fail, hang])
async def test_a_pod_that_was_replaced_before_it_pushed_is_refused_once_it_has_ended(
    endpoint: Endpoint, cluster: Cluster, ends: Callable[[Cluster, str], None]
) -> None:
    """Its reports have no effect, but 200 would say that its token is valid."""
    cluster.restart(cluster.jobs[JOB], pod_name="bert-node-0-0-later", pod_uid="later")
    assert (await post(endpoint, token=POD0)).status == 200
    ends(cluster, POD0_PATH)
    endpoint.time = POD_SEEN_FOR_S
    assert status_of(await post(endpoint, token=POD0)) == (403, "Forbidden")
    assert endpoint.seen == []


async def test_a_pod_may_report_until_a_minute_after_its_grace_period(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    """So long kube-apiserver accepts its token. The last report often comes within the grace period."""
    of_rank_0_that_terminates(endpoint)
    cluster.objects[POD0_PATH]["metadata"]["deletionTimestamp"] = T0.isoformat()
    for endpoint.time, status in ((0.0, 200), (59.0, 200), (70.0, 403)):
        assert (await post(endpoint)).status == status
    assert len(endpoint.seen) == 2


async def test_rank_0_is_not_read_while_the_watch_shows_that_it_runs(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    await post(endpoint)
    asked = len(cluster.asked)
    for endpoint.time in (30.0, 60.0, 90.0):
        await post(endpoint)
    assert (len(endpoint.seen), len(cluster.asked)) == (4, asked)
    endpoint.is_watched = False  # what it has shown counts for 10 s
    for endpoint.time, reads in ((99.0, 0), (100.0, 1), (105.0, 1), (110.0, 2)):
        await post(endpoint)
        assert cluster.asked[asked:] == [POD0_PATH] * reads


async def test_what_changes_while_a_body_comes_counts_for_it(endpoint: Endpoint, cluster: Cluster) -> None:
    job = cluster.jobs[JOB]

    def another_job() -> None:
        cluster.jobs[JOB] = replace(job, ref=replace(job.ref, uid="another"))

    def no_job() -> None:
        del cluster.jobs[JOB]

    def successor() -> None:
        cluster.restart(job, pod_name="bert-node-0-0-fghij", pod_uid="newer")

    def next_run() -> None:
        cluster.restart(job, restart_count=1)

    for change, status, seen in (
        (another_job, 404, 0),
        (no_job, 404, 0),
        (successor, 200, 0),
        (next_run, 200, 1),
    ):
        cluster.jobs[JOB] = job
        pieces = [BODY[:10], BODY[10:]]

        async def receive(
            change: Callable[[], None] = change, pieces: list[bytes] = pieces
        ) -> dict[str, Any]:
            piece = pieces.pop(0)
            if not pieces:
                change()
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        assert (await post(endpoint, receive=receive)).status == status
        assert len(endpoint.seen) == seen
    assert job.rank0 is not None
    assert endpoint.seen[0].attempt == replace(job.rank0, restart_count=1).attempt


async def test_a_stand_in_is_not_read_while_rank_0_reports(endpoint: Endpoint, cluster: Cluster) -> None:
    await post(endpoint, token=POD1)
    asked = len(cluster.asked)
    endpoint.is_counted = False
    endpoint.time = POD_SEEN_FOR_S
    assert (await post(endpoint, token=POD1)).status == 200
    assert (len(endpoint.seen), len(cluster.asked)) == (1, asked)


async def test_of_many_pods_whose_turn_comes_at_one_moment_a_few_are_read_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, jobs = Endpoint(cluster, bodies=Bodies()), ("bert", "gpt", "t5")
    for name in jobs[1:]:
        cluster.add_job(name)
    pods = [
        partial(post, endpoint, token=f"team-a-{name}-job-pod1", path=UPSTREAM.format("team-a", name))
        for name in jobs
    ]
    for push in pods:
        await push()
    endpoint.time = POD_SEEN_FOR_S
    read, reading, most = cluster.get, 0, 0
    as_many_as_may, answered = asyncio.Event(), asyncio.Event()

    async def get(path: str, **limits: Any) -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        if reading == KNOWN_RUNNING_PER_CLIENT:
            as_many_as_may.set()
        await answered.wait()
        reading -= 1
        return await read(path, **limits)

    monkeypatch.setattr(cluster, "get", get)
    pushes = asyncio.gather(*(push() for push in pods for _ in range(10)))
    await as_many_as_may.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    answered.set()
    await pushes
    assert most == KNOWN_RUNNING_PER_CLIENT


async def test_a_stand_in_that_cannot_be_read_is_not_taken(endpoint: Endpoint, cluster: Cluster) -> None:
    await post(endpoint, token=POD1)
    cluster.away = ApiError(500)
    endpoint.time = POD_SEEN_FOR_S
    assert status_of(await post(endpoint, token=POD1)) == (500, "InternalError")
    assert len(endpoint.seen) == 1


async def test_a_pod_that_is_nested_very_deep_may_push(
    endpoint: Endpoint, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-apiserver takes `managedFields` so from whoever may create pods."""
    read, name = cluster.get, b'"metadata": {'
    deep = name + b'"managedFields": ' + b'{"f:x":' * 2000 + b"{}" + b"}" * 2000 + b", "

    async def get(path: str, **limits: Any) -> bytes:
        return (await read(path, **limits)).replace(name, deep)

    monkeypatch.setattr(cluster, "get", get)
    assert (await post(endpoint)).status == 200
    assert (await post(endpoint, token=POD1)).status == 200


async def test_who_takes_much_time_is_refused_and_nobody_else(
    endpoint: Endpoint, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_job("bert", "team-b")
    monkeypatch.setattr(
        "visibility_api.flowcontrol.report_shares.MS_PER_BYTE", POD.burst * UNIT_MS / len(BODY)
    )
    monkeypatch.setattr("visibility_api.flowcontrol.report_shares.HOLD_S", 0.0)
    assert (await post(endpoint)).status == 200
    refused = await post(endpoint)
    assert status_of(refused) == (429, "TooManyRequests")
    assert refused.header("retry-after") == "1"
    assert "this pod's 20 ms of CPU time a second" in refused.json()["message"]
    assert (
        await post(endpoint, token="team-b-bert-job-pod0", path=UPSTREAM.format("team-b", "bert"))
    ).status == 200
    endpoint.time += 20.0
    assert (await post(endpoint)).status == 200


async def test_a_wait_for_the_core_is_not_charged_to_the_pod(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy node, or under a CPU limit: time passes while the push is handled, and it uses none."""
    passing = itertools.count(0.0, 60.0)
    clocks = SimpleNamespace(
        monotonic=passing.__next__, perf_counter=passing.__next__, thread_time=time.thread_time
    )
    monkeypatch.setattr("visibility_api.pushing.endpoint.time", clocks)
    monkeypatch.setattr("visibility_api.flowcontrol.report_shares.HOLD_S", 0.0)
    for _ in range(3):
        assert (await post(endpoint)).status == 200


async def test_rank_0_is_probed_beside_pushes_that_bring_nothing_new(endpoint: Endpoint) -> None:
    await post(endpoint)
    assert len(endpoint.pushed) == 1
    endpoint.is_news = False  # its time stands still, say
    assert (await post(endpoint)).status == 200
    assert len(endpoint.pushed) == 1
    assert endpoint.outcomes == ["Taken", "PassedOver"]


async def test_rank_0_is_probed_beside_pushes_that_do_not_tell_how_far_it_has_come(
    endpoint: Endpoint,
) -> None:
    await post(endpoint, b'{"trainerStatus":{"lastUpdatedTime":"2026-01-23T10:30:45Z"}}')
    assert len(endpoint.seen) == 1
    assert endpoint.pushed == []


async def test_stand_ins_beyond_a_few_a_second_are_answered_and_passed_over(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    """The Kubeflow SDK pushes from every process and tries again at once when it is refused."""
    for number in range(40):
        uid = f"pod{number}"
        cluster.add_pod(f"bert-node-0-{number + 2}-abcde", uid, "team-a-bert-job-batch", "bert-node-0")
        assert (await post(endpoint, token=uid)).status == 200
    assert len(endpoint.seen) == OTHER_RANKS.burst
    await post(endpoint)
    assert not endpoint.seen[-1].is_other_rank  # rank 0 itself is never passed over


async def test_the_other_pod_that_may_hold_rank_0_speaks_for_itself(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    other = rank0(pod_name="bert-node-0-1-abcde", pod_uid=POD1)
    cluster.jobs[JOB] = replace(cluster.jobs[JOB], alternates=(other,))
    await post(endpoint, token=POD1)
    assert (endpoint.seen[0].attempt, endpoint.seen[0].is_other_rank) == (other.attempt, False)


async def test_the_attempt_is_the_one_that_runs_now(endpoint: Endpoint, cluster: Cluster) -> None:
    await post(endpoint)
    job = cluster.restart(cluster.jobs[JOB], restart_count=1)
    await post(endpoint)
    assert job.rank0 is not None
    assert endpoint.seen[1].attempt == job.rank0.attempt != endpoint.seen[0].attempt


async def test_a_pod_whose_successor_is_there_already_changes_nothing(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    cluster.restart(cluster.jobs[JOB], pod_name="bert-node-0-0-fghij", pod_uid="newer")
    answer = await post(endpoint)
    assert (answer.status, answer.json()) == (200, json.loads(BODY))
    assert (endpoint.seen, endpoint.outcomes) == ([], ["PassedOver"])


async def test_a_second_pod_of_index_0_reports_in_vain(endpoint: Endpoint, cluster: Cluster) -> None:
    """Until the Job controller deletes one of the two, both are the Job's; rank 0 is the older."""
    cluster.add_pod("bert-node-0-0-zzzzz", "forged", "team-a-bert-job-batch", "bert-node-0")
    assert (await post(endpoint, token="forged")).status == 200
    assert (endpoint.seen, endpoint.outcomes) == ([], ["PassedOver"])


async def test_a_pod_of_an_earlier_attempt_of_the_jobset_changes_nothing(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    cluster.restart(cluster.jobs[JOB], pod_name="bert-node-0-0-fghij", pod_uid="newer", restart_attempt=1)
    assert (await post(endpoint, token=POD1)).status == 200
    assert endpoint.seen == []


async def test_a_job_that_an_annotation_switches_off_pushes_in_vain(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    cluster.jobs[JOB] = replace(cluster.jobs[JOB], hints=ProbeHints(source="none"))
    assert (await post(endpoint)).status == 200
    assert (endpoint.seen, endpoint.outcomes) == ([], ["PassedOver"])


async def test_without_a_rank_0_a_push_changes_nothing(endpoint: Endpoint, cluster: Cluster) -> None:
    cluster.jobs[JOB] = replace(cluster.jobs[JOB], rank0=None)
    assert (await post(endpoint)).status == 200
    assert endpoint.seen == []


async def test_a_fault_of_ours_is_one_jobs_own_and_names_no_byte(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError(f"s3cr3t {BODY!r}")

    monkeypatch.setattr(endpoint.endpoint, "_record", fail)
    answer = await post(endpoint)
    assert status_of(answer) == (500, "InternalError")
    assert endpoint.outcomes == ["InternalError"]
    logged = "".join(capsys.readouterr())
    assert "request failed" in logged
    assert "s3cr3t" not in answer.text + logged


@in_virtual_time
async def test_a_connection_that_tries_tokens_without_end_is_answered_ever_more_slowly() -> None:
    """One of a pod that was admitted is not: its training may wait for the response."""
    loop = asyncio.get_running_loop()
    cluster = Cluster()
    cluster.add_job("bert")
    endpoint = Endpoint(cluster, clock=loop.time)
    stranger, pod = Peer(), Peer()

    async def took_s(token: str, peer: Peer) -> float:
        began = loop.time()
        await post(endpoint, token=token, peer=peer)
        return loop.time() - began

    tries = int(Limits().unknown_burst) + 3
    assert (await post(endpoint, peer=pod)).status == 200
    assert [await took_s("made-up", pod) for _ in range(tries)] == [0.0] * tries
    took = [await took_s("made-up", stranger) for _ in range(tries)]
    assert took == pytest.approx([0.0] * (tries - 3) + [1 / Limits().unknown_per_s] * 3)


async def test_a_token_that_goes_on_pushing_is_reviewed_again_while_its_pushes_are_taken(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    await post(endpoint)
    endpoint.time = GRANT_TTL_S - RENEWED_S
    await post(endpoint)
    assert len(cluster.reviewed) == 1
    endpoint.time = GRANT_TTL_S - 1
    cluster.held.clear()
    first, *others = [asyncio.create_task(post(endpoint)) for _ in range(3)]
    async with asyncio.timeout(5):
        assert [answer.status for answer in await asyncio.gather(*others)] == [200, 200]
    assert (first.done(), len(cluster.reviewed), len(endpoint.seen)) == (False, 2, 5)
    endpoint.time = GRANT_TTL_S
    cluster.held.set()
    assert (await first).status == 200
    assert (await post(endpoint)).status == 200
    assert len(cluster.reviewed) == 2


async def test_a_token_that_is_refused_before_its_time_is_over_ends_then(
    endpoint: Endpoint, cluster: Cluster
) -> None:
    await post(endpoint)
    cluster.tokens.clear()
    endpoint.time = GRANT_TTL_S - 1
    assert (await post(endpoint)).status == 200
    assert (await post(endpoint)).status == 403
