"""The last lines of a log: whose, of which run, and for whom."""

from __future__ import annotations

import asyncio
import json
import time
import timeit
from collections.abc import Sequence
from typing import cast

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from tests.jobs import NOW, document, rank0
from tests.unit.api_shell import JANE, ONE, Shell
from visibility_api.app.dependencies import LogTails
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Phase
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, TooLarge, Unreachable
from visibility_api.models.served import GROUP_VERSION
from visibility_api.models.subresources import TrainJobLogTail
from visibility_api.probing.causes import FailureLogs
from visibility_api.probing.log_end import MAX_BYTES, MAX_LINE_CHARACTERS, LogEnds, Place
from visibility_api.reports.log_records import show_record
from visibility_api.store import Entry

FAILURE = Failure(
    at=NOW,
    replica="node-3",
    pod_name="bert-node-0-3-x",
    container_name="node",
    exit_code=1,
    message="It failed.",
)
TAIL = f"{ONE}/log-tail"


def job(phase: Phase = Phase.RUNNING, failure: Failure | None = None, *, has_pod: bool = True) -> JobProgress:
    made = document(phase=phase, failure=failure)
    return msgspec.structs.replace(made, job=replace(made.job, rank0=rank0() if has_pod else None))


class Kubelet:
    """Answers requests for logs, by run; as kube-apiserver hands them on."""

    def __init__(self, now: bytes | Exception = b"now\n", before: bytes | Exception = b"before\n") -> None:
        self.now, self.before = now, before
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def get(
        self, path: str, *, query: Sequence[tuple[str, str]], timeout_s: float, max_bytes: int
    ) -> bytes:
        asked = dict(query)
        self.asked.append((path, asked))
        found = self.before if asked.get("previous") == "true" else self.now
        if isinstance(found, Exception):
            raise found
        lines = found.splitlines(keepends=True)[-int(asked["tailLines"]) :]
        return b"".join(lines)[: int(asked["limitBytes"])]


class Rights:
    """Of whoever asks; of the log itself, beside those of the resource."""

    def __init__(self, *, may_read: bool = True) -> None:
        self.may_read = may_read
        self.asked: list[Attributes] = []

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        assert identity == JANE
        self.asked.append(attributes)
        if not self.may_read:
            raise AccessDenied(identity, attributes, "")


def shell(
    shown: JobProgress | None,
    kubelet: Kubelet | None = None,
    rights: Rights | None = None,
    *,
    on: bool = True,
) -> Shell:
    logs = LogEnds(cast(KubeClient, kubelet or Kubelet()), timeout_s=5)
    entry = Entry(document=shown, revision=7) if shown is not None else None
    return Shell(
        log_tails=LogTails(
            find=lambda *key: entry if key == ("trainjobs", "team-a", "bert") else None,
            authorizer=rights or Rights(),
            logs=logs if on else None,
        )
    )


async def test_it_is_the_log_of_what_failed_first() -> None:
    kubelet = Kubelet(before=b"loading\nout of memory\n")
    answer = await shell(job(failure=FAILURE), kubelet).get(TAIL)
    assert answer.status == 200
    shown = answer.json()
    TrainJobLogTail.model_validate_json(answer.body)
    assert (shown["kind"], shown["apiVersion"]) == ("TrainJobLogTail", GROUP_VERSION)
    assert (shown["metadata"]["name"], shown["metadata"]["namespace"]) == ("bert", "team-a")
    assert (shown["podName"], shown["containerName"], shown["replica"]) == (
        "bert-node-0-3-x",
        "node",
        "node-3",
    )
    assert (shown["previous"], shown["truncated"]) == (True, False)
    assert shown["lines"] == ["loading", "out of memory"]
    ((path, query),) = kubelet.asked
    assert path == "/api/v1/namespaces/team-a/pods/bert-node-0-3-x/log"
    assert query == {"tailLines": "50", "limitBytes": str(MAX_BYTES), "container": "node", "previous": "true"}


async def test_the_line_that_says_why_is_named() -> None:
    said = b'Traceback (most recent call last):\n  File "x.py", line 1, in f\nMemoryError: secret\nbye\n'
    answer = await shell(job(failure=FAILURE), Kubelet(before=said)).get(TAIL)
    assert answer.json()["causeLine"] == "MemoryError: secret"
    goes_on = await shell(job(), Kubelet(now=said)).get(TAIL)
    assert "causeLine" not in goes_on.json()


@pytest.mark.parametrize("name", ["../../team-b/pods/victim", "..", "a/log?x=", "a%2f..", "A", ""])
async def test_a_made_up_pod_leads_to_no_other_path(name: str) -> None:
    """Whoever may write the data directory may make up failures."""
    kubelet, rights = Kubelet(), Rights()
    made_up = msgspec.structs.replace(FAILURE, pod_name=name)
    answer = await shell(job(failure=made_up), kubelet, rights).get(TAIL)
    assert answer.json()["podName"] == rank0().pod_name
    assert {each.name for each in rights.asked} == {rank0().pod_name}
    assert {path for path, _ in kubelet.asked} == {f"/api/v1/namespaces/team-a/pods/{rank0().pod_name}/log"}
    assert (await shell(job(failure=made_up, has_pod=False)).get(TAIL)).status == 404


@pytest.mark.parametrize(
    ("shown", "query", "kubelet", "lines", "previous"),
    [
        (job(), "", Kubelet(), ["now"], False),
        (job(), "?previous=true", Kubelet(), ["before"], True),
        (job(failure=FAILURE), "", Kubelet(), ["before"], True),
        (job(failure=FAILURE), "?previous=false", Kubelet(), ["now"], False),
        # It was not started again.
        (job(failure=FAILURE), "", Kubelet(before=ApiError(400, "", "")), ["now"], False),
        (job(Phase.FAILED, FAILURE), "", Kubelet(), ["now"], False),
        (job(Phase.FAILED, FAILURE), "?previous=true", Kubelet(), ["before"], True),
        (job(Phase.FAILED, Failure(at=NOW, is_of_job=True)), "", Kubelet(), ["now"], False),
        (job(), "?lines=2", Kubelet(b"1\n2\n3\n"), ["2", "3"], False),
        (job(), "", Kubelet(b""), [], False),
    ],
)  # fmt: skip
async def test_the_run_is_the_one_that_failed_or_the_one_wished_for(
    shown: JobProgress, query: str, kubelet: Kubelet, lines: list[str], previous: bool
) -> None:
    answer = await shell(shown, kubelet).get(TAIL + query)
    assert answer.status == 200
    assert (answer.json()["lines"], answer.json()["previous"]) == (lines, previous)


async def test_the_right_to_the_pod_s_log_is_asked_for_as_well() -> None:
    rights, kubelet = Rights(), Kubelet()
    made = shell(job(failure=FAILURE), kubelet, rights)
    await made.get(TAIL)
    (ours,) = made.asked
    assert (ours.verb, ours.resource, ours.subresource, ours.name) == ("get", "trainjobs", "log-tail", "bert")
    (asked,) = rights.asked
    assert (asked.verb, asked.group, asked.version) == ("get", "", "v1")
    assert (asked.resource, asked.subresource) == ("pods", "log")
    assert (asked.namespace, asked.name) == ("team-a", "bert-node-0-3-x")
    refused = await shell(job(failure=FAILURE), kubelet, Rights(may_read=False)).get(TAIL)
    assert refused.status == 403
    assert 'cannot get resource "pods/log"' in refused.json()["message"]
    assert len(kubelet.asked) == 1


@pytest.mark.parametrize("failure", [None, FAILURE])
@pytest.mark.parametrize(("cluster", "where"), [("west", "cluster west"), ("", "another cluster")])
async def test_of_a_job_that_runs_elsewhere_it_says_where_and_reads_no_pod_of_that_name_here(
    failure: Failure | None, cluster: str, where: str
) -> None:
    kubelet = Kubelet()
    made = job(failure=failure, has_pod=False)
    there = replace(made, job=replace(made.job, runs_elsewhere=True, cluster=cluster))
    answer = await shell(there, kubelet).get(TAIL)
    assert answer.status == 404
    says = f"The job runs in {where}, and its log is there."
    command = f"With a kubeconfig of that cluster: kubectl get --raw {TAIL}"
    assert answer.json()["message"] == f"{says} {command}"
    assert not kubelet.asked


@pytest.mark.parametrize(
    ("made", "status", "says"),
    [
        (shell(None), 404, '"bert" not found'),
        (shell(job(has_pod=False)), 404, "The job has had no pod yet"),
        (shell(job(), on=False), 403, "switch on its source logs"),
        (shell(job(), Kubelet(ApiError(403, "", "s3cr3t"))), 403, "no right to read logs in namespace"),
        (shell(job(), Kubelet(ApiError(404, "NotFound", "s3cr3t"))), 404, "record may have its end"),
        (shell(job(), Kubelet(ApiError(400, "BadRequest", "s3cr3t"))), 404, "has no log yet"),
        (shell(job(), Kubelet(ApiError(500, "", "s3cr3t"))), 503, "try again"),
        (shell(job(), Kubelet(Unreachable("10.0.0.1 s3cr3t"))), 503, "try again"),
    ],
    ids=["no job", "no pod", "switched off", "no right", "gone", "not started", "fault", "unreachable"],
)  # fmt: skip
async def test_what_is_wrong_is_said_and_nothing_else(made: Shell, status: int, says: str) -> None:
    answer = await made.get(TAIL)
    assert answer.status == status
    assert says in answer.json()["message"]
    assert "s3cr3t" not in answer.text


@pytest.mark.parametrize(
    "query", ["lines=0", "lines=501", "lines=x", "lines=", "lines=%D9%A1", "previous=maybe"]
)
async def test_a_parameter_that_is_out_of_bounds_is_named(query: str) -> None:
    answer = await shell(job()).get(f"{TAIL}?{query}")
    assert answer.status == 400
    assert query.partition("=")[0] in answer.json()["message"]


async def test_text_is_harmless_for_terminals_in_every_form() -> None:
    hostile = Kubelet(b"\x1b]0;owned\x07red\x1b[31m\nnot utf-8 \xff\xe2\x80\xae\n")
    safe = ["\ufffd]0;owned\ufffdred\ufffd[31m", "not utf-8 \ufffd\ufffd"]
    assert (await shell(job(), hostile).get(TAIL)).json()["lines"] == safe
    as_text = await shell(job(), hostile).get(TAIL, ("Accept", "text/plain"))
    assert as_text.text == "".join(f"{line}\n" for line in safe)
    assert as_text.header("content-type").startswith("text/plain")
    as_yaml = await shell(job(), hostile).get(TAIL, ("Accept", "application/yaml"))
    assert yaml.safe_load(as_yaml.body)["lines"] == safe
    assert (await shell(job()).get(TAIL, ("Accept", "image/png"))).status == 406


async def test_long_lines_and_large_answers_are_cut_and_say_so() -> None:
    long = Kubelet(b"x" * 5000 + b"\nlast\n")
    shown = (await shell(job(), long).get(TAIL)).json()
    assert shown["truncated"]
    assert [len(line) for line in shown["lines"]] == [MAX_LINE_CHARACTERS, 4]
    # kube-apiserver keeps the beginning of the lines asked for: the newest must not be lost.
    many = Kubelet(b"".join(b"%05d %s\n" % (n, b"y" * 4000) for n in range(100)))
    shown = (await shell(job(), many).get(TAIL)).json()
    assert shown["truncated"]
    assert len(shown["lines"]) == 5
    assert [asked["tailLines"] for _, asked in many.asked] == ["50", "5"]
    huge = Kubelet(b"z" * (2 * MAX_BYTES))
    shown = (await shell(job(), huge).get(TAIL)).json()
    assert shown["truncated"]
    assert len(shown["lines"]) == 1


async def test_a_server_that_ignores_the_limit_is_not_read_to_its_end() -> None:
    answer = await shell(job(), Kubelet(TooLarge("too large"))).get(TAIL)
    assert (answer.status, answer.json()["lines"]) == (200, [])
    assert answer.json()["truncated"]


async def test_no_user_has_many_logs_read_at_one_time() -> None:
    gate = asyncio.Event()

    class Slow(Kubelet):
        async def get(self, path: str, **more: object) -> bytes:  # type: ignore[override]
            self.asked.append((path, {}))
            await gate.wait()
            return b""

    kubelet = Slow()
    made = shell(job(), kubelet)
    requests = [asyncio.create_task(made.get(TAIL)) for _ in range(10)]
    async with asyncio.timeout(60):
        while len(kubelet.asked) < 4:  # noqa: ASYNC110 - all in memory: one of the next turns brings it
            await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(*requests)
    assert {answer.status for answer in answers} == {200}
    assert len(kubelet.asked) == 10


RECORD = {
    "timestamp": "2026-11-25T18:00:00.000000Z", "level": "ERROR", "logger": "train", "message": "failed",
    "job": "bert", "kind": "TrainJob", "namespace": "team-a", "replica": "node-0-0", "rank": 0, "step": 450,
    "loss": 0.5, "exception.type": "ValueError", "exception.message": "ValueError: x",
    "exception.stacktrace": "  File a\nValueError: x",
}  # fmt: skip


async def test_structured_log_lines_are_shown_as_text() -> None:
    line = json.dumps(RECORD)
    others = ['{"timestamp": "x"}', '{"timestamp": "x", "logger": "y"', line[:-1]]
    log = "\n".join([line, *others, ""]).encode()
    text = [
        "2026-11-25T18:00:00.000000Z ERROR train: failed rank=0 step=450 loss=0.5",
        "  File a",
        "ValueError: x",
    ]
    assert await lines_of(log, lines=9) == ([*text, *others], False)
    assert await lines_of(log, lines=4) == ([text[-1], *others], True)


@pytest.mark.parametrize(
    "value",
    [
        "9" * 30,
        "9" * 5000,
        "1e999",
        "NaN",
        '"\\ud800"',
        "[" * 500 + "]" * 500,
        "[" * 50_000 + "]" * 50_000,
        "{",
    ],
    ids=range(8),
)
async def test_a_hostile_log_line_is_shown_one_way_or_the_other(value: str) -> None:
    line = json.dumps(RECORD | {"value": 0})[:-2] + value + "}"
    assert len((await lines_of(line.encode(), lines=9))[0]) in (1, 3)


async def lines_of(log: bytes, lines: int) -> tuple[list[str], bool]:
    tails = LogEnds(cast("KubeClient", Kubelet(log)), timeout_s=1)
    found = await tails.read(Place(namespace="team-a", pod_name="bert", container_name=""), lines)
    return list(found.lines), found.is_cut


class Pods:
    """Answers requests for logs, by pod; one that is not here is gone."""

    def __init__(self, **logs: bytes) -> None:
        self.logs = logs

    async def get(self, path: str, **_: object) -> bytes:
        if (found := self.logs.get(path.split("/")[6])) is None:
            raise ApiError(404, "NotFound")
        return found


@pytest.mark.parametrize("number", ["1e308", "5e-324", "1e23"])
def test_no_number_in_a_structured_line_costs_many_times_what_another_does(number: str) -> None:
    """A line of 60 KB took 167 ms of the event loop."""

    def cpu_s(each: str) -> float:
        line = json.dumps({**RECORD, "a": "@"}).replace('"@"', f"[{','.join([each] * 3000)}]")
        assert len(show_record(line)) > 1
        return min(timeit.repeat(lambda: show_record(line), timer=time.thread_time, number=3, repeat=5))

    assert cpu_s(number) < 10 * cpu_s("0.5")


async def test_of_a_failure_whose_pod_is_gone_that_pod_s_end_is_archived_and_no_other_s() -> None:
    pods = Pods(first=b"CUDA out of memory\n", second=b"NCCL error: remote process exited\n")
    logs = FailureLogs(cast(KubeClient, pods), 1.0, kept_bytes=10_000)
    failures = [replace(FAILURE, pod_name=name) for name in ("first", "second")]
    shown = job(Phase.FAILED, failures[0])
    for each in failures:
        await logs.explain(shown.job.ref, each)
    pods.logs.clear()
    found = await logs.last_lines(shown)
    assert found is not None
    assert found[0].lines == ("CUDA out of memory",)
    assert await logs.last_lines(job(Phase.SUCCEEDED)) is None  # what an earlier run has printed


async def test_a_pod_that_is_there_is_read_anew_for_the_archive() -> None:
    pods = Pods(**{rank0().pod_name: b"CUDA out of memory\n"})
    logs = FailureLogs(cast(KubeClient, pods), 1.0, kept_bytes=10_000)
    failure = replace(FAILURE, pod_name=rank0().pod_name)
    await logs.explain(job().job.ref, failure)
    pods.logs[rank0().pod_name] = b"done\n"
    found = await logs.last_lines(job(Phase.SUCCEEDED))
    assert found is not None
    assert found[0].lines == ("done",)
