"""What the Python client sends, when again, and what it makes of answers."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from apidocs.client_models import client_models, client_words
from tests.jobs import NOW
from trainjob_client import (
    ApiError,
    AsyncClient,
    Client,
    Connection,
    ForbiddenError,
    Job,
    JobEndedError,
    JobHistory,
    NotFoundError,
    UnreachableError,
)
from trainjob_client.ages import duration
from trainjob_client.kubeconfig import Context
from trainjob_client.models import ObjectMeta, ProgressStatus
from trainjob_client.notebook import html_of
from trainjob_client.requests import PREFIX, Answer, Call, Pause, find_resource, send
from trainjob_client.waiting import Waiting
from visibility_api.models.v1alpha1 import TrainJobProgress

ROOT = Path(__file__).parents[2]
Answerer = Callable[[httpx.Request], httpx.Response]


class FakeConnection(Connection):
    """To a server that is a function; it keeps what it was asked."""

    def __init__(self, answer: Answerer, user: dict[str, Any] | None = None) -> None:
        super().__init__(Context({"server": "https://example/behind/a/path"}, user or {}, "team-a"))
        self.asked: list[httpx.Request] = []
        self._answer = answer

    def arguments(self) -> dict[str, Any]:
        def handle(request: httpx.Request) -> httpx.Response:
            self.asked.append(request)
            return self._answer(request)  # an awaitable one will do for AsyncClient

        return {"base_url": self.context.cluster["server"], "transport": httpx.MockTransport(handle)}


def status(code: int, reason: str, message: str, **details: Any) -> bytes:
    found = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return json.dumps(found).encode()


def job(phase: str = "Running", *, loss: str | None = None, **more: Any) -> Job:
    conditions = [
        {"lastTransitionTime": NOW, "reason": "R", "message": "m", **each}
        for each in more.pop("conditions", ())
    ]
    metrics = [{"name": "loss", "value": loss}] if loss is not None else []
    return Job.model_validate(
        {
            "kind": "TrainJobProgress",
            "metadata": {"name": "bert", "namespace": "team-a", "uid": "u", "resourceVersion": "1"},
            "status": {"phase": phase, "conditions": conditions, "metrics": metrics, **more},
        }
    )


# --- one description


def test_the_models_are_made_of_the_servers() -> None:
    """`make openapi` writes them."""
    for name, made in (("models.py", client_models()), ("words.py", client_words())):
        assert (ROOT / "reporter/trainjob_client" / name).read_bytes() == made


def test_what_a_newer_server_adds_is_no_error() -> None:
    found = job("Dreaming", progressPercentage=150, invented={"a": 1})
    assert (found.phase, found.progress) == ("Dreaming", 150)
    assert "make openapi" in (inspect.getdoc(inspect.getmodule(ProgressStatus)) or "")
    assert ObjectMeta.model_validate({"name": "a", "uid": "u", "resourceVersion": "1"}).namespace is None


def test_training_does_not_import_the_client() -> None:
    program = (
        "import sys, trainjob_progress; print({'trainjob_client', 'httpx', 'pydantic'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


# --- what is sent, and when again


def drive(answers: list[Answer | UnreachableError]) -> tuple[Any, list[float]]:
    """What `send` makes of these, one after the other, and how long it pauses."""
    flow, pauses, received = send(Call("/x")), [], None
    try:
        while True:
            step = flow.send(received)  # type: ignore[arg-type]
            received = None
            if isinstance(step, Pause):
                pauses.append(step.seconds)
            else:
                received = answers.pop(0)  # type: ignore[assignment]
    except StopIteration as end:
        return end.value, pauses
    except (ApiError, UnreachableError) as error:
        return error, pauses


def test_a_request_is_sent_again_as_late_as_the_server_says() -> None:
    busy = Answer(429, status(429, "TooManyRequests", "later"), {"retry-after": "7"})
    answer, pauses = drive(
        [busy, Answer(503, status(503, "ServiceUnavailable", "x", retryAfterSeconds=3)), Answer(200, b"{}")]
    )
    assert answer.code == 200
    assert 7.0 <= pauses[0] <= 7.7
    assert 3.0 <= pauses[1] <= 3.3


def test_without_an_answer_the_pauses_grow_until_it_gives_up() -> None:
    error, pauses = drive([UnreachableError("no route")] * 6)
    assert isinstance(error, UnreachableError)
    assert len(pauses) == 5
    assert all(later > earlier / 2 for earlier, later in itertools.pairwise(pauses))
    assert pauses[-1] > 1.5


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Answer(403, status(403, "Forbidden", "jane cannot list")), ForbiddenError, "jane cannot list"),
        (Answer(404, status(404, "NotFound", "no bert", name="bert")), NotFoundError, "no bert"),
        (
            Answer(404, status(404, "NotFound", "the server could not find the requested resource")),
            NotFoundError,
            "is trainjob-visibility installed?",
        ),
        (Answer(400, b"<html>a proxy</html>"), ApiError, "<html>a proxy</html>"),
    ],
)
def test_what_another_try_does_not_change_is_raised_at_once(
    answer: Answer, kind: type[Exception], message: str
) -> None:
    error, pauses = drive([answer])
    assert (type(error), pauses) == (kind, [])
    assert message in str(error)


DISCOVERED = [
    {
        "name": "trainjobs",
        "singularName": "trainjobprogress",
        "shortNames": ["tjp"],
        "kind": "TrainJobProgress",
    },
    {
        "name": "pytorchjobs",
        "singularName": "pytorchjobprogress",
        "shortNames": ["ptjp"],
        "kind": "PyTorchJobProgress",
    },
    {"name": "pytorchjobs/history", "singularName": "", "kind": "PyTorchJobProgressHistory"},
]


@pytest.mark.parametrize(
    "name", ["PyTorchJob", "pytorchjob", "pytorchjobs", "ptjp", "pytorchjobs.visibility"]
)
def test_every_name_of_a_kind_leads_to_its_resource(name: str) -> None:
    assert find_resource(name, DISCOVERED) == "pytorchjobs"


RECORD = {
    "metadata": {"name": "bert-u", "namespace": "team-a", "uid": "u", "resourceVersion": "1"},
    "jobRef": {"kind": "TrainJob", "resource": "trainjobs", "name": "bert", "uid": "u"},
    "summary": {"phase": "Failed", "cause": "OOMKilled", "metrics": [{"name": "loss", "value": "0.25"}]},
}


async def test_both_clients_ask_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/v1alpha1"):
            return httpx.Response(200, json={"resources": DISCOVERED})
        if request.url.path.endswith("/jobrecords"):
            metadata = {} if "continue" in request.url.params else {"continue": "more"}
            return httpx.Response(200, json={"items": [RECORD], "metadata": metadata})
        if request.url.path.endswith("/jobrecords/bert-u"):
            return httpx.Response(200, json=RECORD)
        if request.url.path.endswith("/history"):
            found: dict[str, Any] = {"attempts": [], "progress": [], "series": []}
            return httpx.Response(
                200, json={**found, "metadata": {"name": "b", "uid": "u", "resourceVersion": "1"}}
            )
        if request.url.path.endswith("/log-tail"):
            tail = {"podName": "p", "previous": False, "truncated": False, "lines": ["a", "b"]}
            return httpx.Response(
                200, json={**tail, "metadata": {"name": "b", "uid": "u", "resourceVersion": "1"}}
            )
        one = TrainJobProgress.model_validate_json(job().model_dump_json(exclude_none=True))
        body = one.model_dump(mode="json", exclude_none=True)
        return httpx.Response(200, json=body if request.url.path.endswith("/bert") else {"items": [body]})

    first, second = FakeConnection(answer, {"token": "t"}), FakeConnection(answer, {"token": "t"})
    with Client(connection=first) as client:
        client.list_jobs(
            label_selector={"a": "b"}, field_selector="status.phase=Running", all_namespaces=True
        )
        client.get_job("bert", "PyTorchJob", namespace="team-b")
        client.get_job_history("bert", metrics=["loss", "lr"], since="1h", max_points=50, attempt=0)
        assert list(client.get_job_logs("bert", lines=5, previous=True)) == ["a", "b"]
        client.wait_for_job_status("bert", "Running")
        records = client.list_job_records(label_selector="a=b", since="720h")
        assert client.get_job_record("bert-u").metric("loss") == 0.25
        client.get_job_record_history("bert-u")
    async with AsyncClient(connection=second) as other:
        await other.list_jobs(
            label_selector="a=b", field_selector="status.phase=Running", all_namespaces=True
        )
        await other.get_job("bert", "PyTorchJob", namespace="team-b")
        await other.get_job_history("bert", metrics=["loss", "lr"], since="1h", max_points=50, attempt=0)
        assert list(await other.get_job_logs("bert", lines=5, previous=True)) == ["a", "b"]
        await other.wait_for_job_status("bert", {"Running"})
        assert await other.list_job_records(label_selector="a=b", since="720h") == records
        assert (await other.get_job_record("bert-u")).job == "bert"
        await other.get_job_record_history("bert-u")
    asked = [str(each.url).removeprefix(f"https://example/behind/a/path{PREFIX}") for each in first.asked]
    assert asked == [
        "/trainingjobs?labelSelector=a%3Db&fieldSelector=status.phase%3DRunning",
        "",
        "/namespaces/team-b/pytorchjobs/bert",
        "/namespaces/team-a/trainjobs/bert/history?metric=loss&metric=lr&since=1h&maxPoints=50&attempt=0",
        "/namespaces/team-a/trainjobs/bert/log-tail?lines=5&previous=true",
        "/namespaces/team-a/trainjobs/bert",
        "/namespaces/team-a/jobrecords?labelSelector=a%3Db&since=720h",
        "/namespaces/team-a/jobrecords?labelSelector=a%3Db&since=720h&continue=more",
        "/namespaces/team-a/jobrecords/bert-u",
        "/namespaces/team-a/jobrecords/bert-u/history",
    ]
    columns = records.columns()
    assert (columns["job"], columns["cause"], columns["metric.loss"]) == (
        ["bert"] * 2,
        ["OOMKilled"] * 2,
        [0.25] * 2,
    )
    assert [each.url for each in second.asked] == [each.url for each in first.asked]
    assert {each.headers["Authorization"] for each in (*first.asked, *second.asked)} == {"Bearer t"}


def test_both_clients_have_the_same_methods() -> None:
    def signatures(client: type) -> dict[str, str]:
        public = {
            name: each for name, each in vars(client).items() if not name.startswith("_") and callable(each)
        }
        return {name: str(inspect.signature(each)).split(" -> ")[0] for name, each in public.items()}

    plain, other = signatures(Client), signatures(AsyncClient)
    assert {**other, "show_job": plain["show_job"]} == plain


def test_a_token_that_is_refused_is_renewed_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    def answer(request: httpx.Request) -> httpx.Response:
        token.write_text("new")
        is_new = request.headers["Authorization"] == "Bearer new"
        return httpx.Response(200, json={"items": []}) if is_new else httpx.Response(401)

    connection = FakeConnection(answer, {"tokenFile": str(token)})
    with Client(connection=connection) as client:
        assert client.list_jobs() == []
    assert len(connection.asked) == 2


async def test_requests_at_the_same_time_run_a_plugin_once(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    printed = json.dumps({"status": {"token": "t"}})
    plugin.write_text(
        f"#!{sys.executable}\n"
        f"with open({str(tmp_path / 'runs')!r}, 'a') as runs: runs.write('.')\n"
        f"print({printed!r})\n"
    )
    plugin.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    connection = FakeConnection(lambda _: httpx.Response(200, json={"items": []}), user)
    async with AsyncClient(connection=connection) as client:
        await asyncio.gather(*(client.list_jobs() for _ in range(6)))
    assert (tmp_path / "runs").read_text() == "."


async def test_a_refusal_that_comes_late_ends_no_token_that_was_made_since(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    late, go = asyncio.Event(), asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        is_new = request.headers["Authorization"] == "Bearer new"
        if not is_new and "/late/" in request.url.path:
            late.set()
            await go.wait()
        return httpx.Response(200 if is_new else 401, json={"items": []})

    connection = FakeConnection(answer, {"tokenFile": str(token)})  # type: ignore[arg-type]
    async with AsyncClient(connection=connection) as client:
        waits = asyncio.create_task(client.list_jobs(namespace="late"))
        await late.wait()
        token.write_text("new")
        await client.list_jobs()
        made = connection.credentials.current()
        go.set()
        assert await waits == []
    assert connection.credentials.current() is made


class Renewing(FakeConnection):
    """Each request has a certificate of its own; the first one is answered when `go` is set."""

    def __init__(self) -> None:
        super().__init__(lambda _: httpx.Response(200, json={"items": []}))
        self.begun, self.go, self.closed = asyncio.Event(), asyncio.Event(), 0

    is_due = True

    def prepare(self) -> bool:
        return True

    def arguments(self) -> dict[str, Any]:
        connection = self

        class Transport(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                connection.asked.append(request)
                if len(connection.asked) == 1:
                    connection.begun.set()
                    await connection.go.wait()
                return connection._answer(request)

            async def aclose(self) -> None:
                connection.closed += 1

        return {"base_url": self.context.cluster["server"], "transport": Transport()}


async def test_a_new_certificate_ends_no_request_that_is_under_way() -> None:
    connection = Renewing()
    async with AsyncClient(connection=connection) as client:
        first = asyncio.create_task(client.list_jobs())
        await connection.begun.wait()
        await client.list_jobs()
        assert connection.closed == 0
        connection.go.set()
        await first
        assert connection.closed == 1
    assert connection.closed == 2


# --- waiting


@pytest.mark.parametrize(
    ("status_", "found", "is_over"),
    [
        ("Complete", job(), False),
        ({"Complete"}, job("Succeeded"), True),
        ({"Failed", "Complete"}, job("Failed"), True),
        ("Created", job("Pending"), True),
        ("Stalled", job(conditions=[{"type": "Stalled", "status": "True"}]), True),
        ("Stalled", job(conditions=[{"type": "Stalled", "status": "False"}]), False),
        (lambda job: job.metric("loss") < 0.3, job(loss="0.2"), True),
    ],
)
def test_a_status_is_a_phase_a_condition_or_a_function(status_: Any, found: Job, is_over: bool) -> None:
    assert Waiting(status_).is_over(found) is is_over


def test_a_job_that_ended_otherwise_ends_the_wait_at_the_second_look() -> None:
    waiting = Waiting("Complete")
    failed = job("Failed", failure={"time": NOW, "message": "OOMKilled on node-3"})
    assert waiting.is_over(failed) is False
    with pytest.raises(JobEndedError, match="team-a/bert has ended: Failed: OOMKilled on node-3") as raised:
        waiting.is_over(failed)
    assert raised.value.job is failed
    assert isinstance(raised.value, RuntimeError)


def test_a_wait_outlives_a_restart_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    answers = [job(), *[None] * 8, job("Succeeded")]

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.pop(0)
        if found is None:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, content=found.model_dump_json(exclude_none=True))

    with Client(connection=FakeConnection(answer)) as client:
        assert client.wait_for_job_status("bert").phase == "Succeeded"
        answers[:] = [None] * 6
        with pytest.raises(UnreachableError, match="does not answer: refused"):
            client.wait_for_job_status("bert")


def test_a_wait_ends_in_time_whatever_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("time.monotonic", lambda: sum(slept))
    busy = httpx.Response(429, headers={"retry-after": "60"})
    connection = FakeConnection(lambda _: busy)
    with Client(connection=connection) as client, pytest.raises(TimeoutError, match="HTTP status 429"):
        client.wait_for_job_status("bert", timeout=10)
    assert round(sum(slept)) == 10
    assert max(connection.asked[0].extensions["timeout"].values()) <= 10.0


def test_a_login_page_is_no_answer() -> None:
    client = Client(connection=FakeConnection(lambda _: httpx.Response(200, text="<html>")))
    with client, pytest.raises(ApiError, match="is this the address of an API server"):
        client.list_jobs()


def test_a_word_that_is_no_status_is_refused() -> None:
    with pytest.raises(ValueError, match="'Completed'; there are AcceleratorsIdle, AtRisk, Complete"):
        Waiting("Completed")


# --- history, and what a notebook shows


HISTORY = JobHistory.model_validate(
    {
        "metadata": {"name": "bert", "uid": "u", "resourceVersion": "1"},
        "attempts": [{"number": 0}, {"number": 1}],
        "progress": [
            {"attempt": 0, "times": [1.0, 2.0], "steps": [1, 2]},
            {"attempt": 1, "times": [5.0], "epochs": [0.5]},
        ],
        "series": [
            {"metric": "loss", "attempt": 0, "times": [1.0, 2.0], "steps": [1, 2], "values": ["2.5", "NaN"]},
            {"metric": "lr", "attempt": 0, "times": [1.5], "values": ["0.1"]},
        ],
    }
)


def test_a_history_has_a_row_for_each_point() -> None:
    columns = HISTORY.columns()
    assert [each.timestamp() for each in columns["time"]] == [1.0, 1.5, 2.0, 5.0]
    assert columns["attempt"] == [0, 0, 0, 1]
    assert columns["step"] == [1, None, 2, None]
    assert columns["metric"] == ["loss", "lr", "loss", "epoch"]
    assert [each for each in columns["value"] if not math.isnan(each)] == [2.5, 0.1, 0.5]
    assert HISTORY.metric("loss")[0] == [1.0, 2.0]
    assert HISTORY.metric("lr") == ([1.5], [0.1])
    assert HISTORY.metrics == ["loss", "lr"]


def test_what_a_run_says_is_escaped_in_a_notebook() -> None:
    evil = "<script>alert(1)</script>"
    found = job(
        "Failed",
        progressPercentage=40,
        steps={"current": 1000, "total": 2500},
        metrics=[{"name": evil, "value": evil}],
        failure={"time": NOW, "message": evil},
        conditions=[{"type": "Stalled", "status": "True", "message": evil}],
    )
    shown = html_of(found, HISTORY)
    assert evil not in shown
    for part in ("40 %", "step 1,000 of 2,500", "<b>Stalled</b>", "&lt;script&gt;"):
        assert part in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5s"),
        (65, "65s"),
        (125, "2m5s"),
        (1800, "30m"),
        (12_000, "3h20m"),
        (442_800, "5d3h"),
        (2_592_000, "30d"),
    ],
)
def test_durations_are_as_kubectl_shows_ages(seconds: float, text: str) -> None:
    assert duration(seconds) == text
