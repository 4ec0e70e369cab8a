"""`jobrecords`: lists by page, time and selector, tables, one record, its history, and its removal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs import NOW, document, spent
from tests.unit.test_archive import Past
from visibility_api.archive.bucket import Unavailable
from visibility_api.archive.index import Line
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes
from visibility_api.errors import status as errors
from visibility_api.history.best import better_of
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import Phase
from visibility_api.jobs.summary import Resources
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse
from visibility_api.reports.document import Progress

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def never() -> MutableMapping[str, Any]:
    return await asyncio.Future()  # nobody disconnects


class Client:
    """Asks for the records of an archive."""

    def __init__(self, past: Past) -> None:
        self.past = past

    async def ask(
        self,
        verb: str,
        name: str = "",
        *,
        accept: str = "application/json",
        namespace: str = "team-a",
        **query: str,
    ) -> bytes:
        handlers: dict[str, Callable[[ResourceRequest], Awaitable[ResourceResponse]]] = {
            "get": self.past.records.get,
            "list": self.past.records.list,
            "history": self.past.records.history,
            "log-tail": self.past.records.log_tail,
            "delete": self.past.records.delete,
        }
        attributes = Attributes(
            is_resource=True,
            verb=verb,
            namespace="team-a",
            group="visibility.trainer.kubeflow.org",
            version="v1alpha1",
            resource="jobrecords",
            name=name,
            path="",
        )
        response = await handlers[verb](
            ResourceRequest(
                query=list(query.items()),
                headers=[(b"accept", accept.encode())],
                attributes=attributes,
                receive=never,
            )
        )
        return response.body if isinstance(response.body, bytes) else b"".join(response.body)

    async def list(self, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.ask("list", **query))
        return found


def names(found: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in found["items"]]


@pytest.fixture
async def client(tmp_path: Path) -> Client:
    past = Past(tmp_path)
    for number in range(5):
        past.show(
            name=f"job-{number}",
            uid=f"{number}" * 36,
            phase=Phase.FAILED if number == 3 else Phase.SUCCEEDED,
            labels={"team": "vision" if number % 2 else "text", "history": "x"},
            ended_at=NOW - timedelta(hours=number),
            ran_s=90,
            progress_percentage=100,
            metrics=(("loss", "0.25"), ("acc", "\x1b[31m1")),
            goodput=spent({"Productive": 75, "Stalled": 25}),
            resources=Resources(accelerators=8, by_name=(), held_s=720, wasted_s=0),
        )
    await past.settle()
    return Client(past)


async def test_pages_show_each_record_once_the_latest_first(client: Client) -> None:
    seen, token = [], ""
    for _ in range(3):
        page = await client.list(limit="2", **({"continue": token} if token else {}))
        seen += names(page)
        token = page["metadata"].get("continue", "")
    assert seen == [f"job-{number}-{str(number) * 8}" for number in range(5)]
    assert token == ""


async def test_lists_are_narrowed_by_label_field_and_time(client: Client) -> None:
    asked: list[tuple[dict[str, str], list[int]]] = [
        ({"labelSelector": "team=vision"}, [1, 3]),
        ({"fieldSelector": "status.phase=Failed"}, [3]),
        ({"fieldSelector": "metadata.name!=job-0-00000000"}, [1, 2, 3, 4]),
        ({"since": "90m"}, [0, 1]),
        ({"until": (NOW - timedelta(hours=3)).isoformat()}, [3, 4]),
        ({"since": "3h", "until": "2h", "labelSelector": "team in (text)"}, [2]),
    ]
    for query, numbers in asked:
        assert [int(name[4]) for name in names(await client.list(**query))] == numbers, query


@pytest.mark.parametrize(
    "query",
    [{"since": "soon"}, {"continue": "x"}, {"continue": "e30"}, {"labelSelector": "a=b=c"}, {"limit": "x"}],
)
async def test_a_query_that_cannot_be_read_is_refused(client: Client, query: dict[str, str]) -> None:
    with pytest.raises(errors.BadRequest):
        await client.list(**query)


async def test_a_table_says_how_it_ended_and_what_it_was_worth(client: Client) -> None:
    table = await client.list(accept=TABLE, limit="1")
    cells = dict(
        zip([each["name"] for each in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True)
    )
    assert cells == {
        "Name": "job-0-00000000",
        "Kind": "TrainJob",
        "Phase": "Succeeded",
        "Progress": "100%",
        "Duration": "90s",
        "Goodput": "75%",
        "Cause": None,
        "Ended": "0s",
        "Metrics": "loss=0.25 acc=\ufffd[31m1",
    }
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    metadata = await client.list(accept=METADATA)
    assert metadata["kind"] == "PartialObjectMetadataList"
    assert names(metadata)[0] == "job-0-00000000"


@pytest.mark.parametrize(
    "query",
    [
        {"accept": "application/yaml"},
        {"accept": "application/json", "pretty": "true"},
        {"accept": TABLE},
        {"accept": METADATA},
        {"fieldSelector": "metadata.name=none," + ",".join(f"metadata.name!={n}" for n in range(200))},
    ],
    ids=["YAML", "indented", "Table", "metadata", "200 terms"],
)
async def test_others_have_many_turns_while_a_long_list_is_made(
    client: Client, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 records as YAML kept the event loop for 2.7 s."""
    found = await client.past.shelf.newest("team-a", 1000)

    async def newest(_namespace: str | None, most: int, choose: Any) -> list[Line]:
        chosen: list[Line] = await choose(found * 80)
        return chosen[:most]

    monkeypatch.setattr(client.past.shelf, "newest", newest)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(other())
        assert await client.ask("list", **query)
        task.cancel()
    assert turns >= 6


async def test_one_record_has_the_last_document_and_its_history_is_apart(client: Client) -> None:
    record = json.loads(await client.ask("get", "job-3-33333333"))
    assert record["jobRef"] == {
        "kind": "TrainJob", "resource": "trainjobs", "name": "job-3", "uid": "3" * 36
    }  # fmt: skip
    assert record["summary"]["acceleratorSeconds"] == 720
    assert record["progress"]["phase"] == "Failed"
    assert ("history" in record, record["events"]) == (False, [])
    history = json.loads(await client.ask("history", "job-3-33333333"))
    assert (history["kind"], history["metadata"]["name"]) == ("JobRecordHistory", "job-3")
    assert yaml.safe_load(await client.ask("get", "job-3-33333333", accept="application/yaml")) == record


async def test_a_summary_has_the_best_values_of_all_attempts(client: Client) -> None:
    shown = document(
        name="best", uid="b" * 36, phase=Phase.SUCCEEDED, ended_at=NOW,
        metrics=(("loss", "0.40000001"), ("eval_accuracy", "0.5"), ("lr", "0.1"), ("val_loss", "nan")),
    )  # fmt: skip
    history = client.past.histories[shown.job.ref] = JobHistory()
    for attempt, step, loss, accuracy in (
        ("a", 1, "0.7", "0.9"),
        ("b", 1, "0.4", "0.6"),
        ("b", 2, "inf", "0.5"),
    ):
        metrics = (("loss", loss), ("eval_accuracy", accuracy), ("lr", "0.1"))
        report = Progress(timestamp=NOW + timedelta(seconds=step), step=step, metrics=metrics)
        history.add(attempt, report, continues=False, reported_at=NOW, ahead_s=0.0)
    client.past.jobs[shown.job.ref] = shown
    client.past.keeper.changed(shown)
    await client.past.settle()
    summary = json.loads(await client.ask("get", "best-bbbbbbbb"))["summary"]
    assert summary["best"] == [
        {"name": "loss", "value": "0.40000001"},
        {"name": "eval_accuracy", "value": "0.9"},
    ]


def test_the_best_of_a_metric_is_told_as_the_page_and_the_plugin_tell_it() -> None:
    cases = json.loads(Path(__file__).with_name("best_values.json").read_text())
    means = {"lowest": min, "highest": max, None: None}
    assert {name: better_of(name) for name, _ in cases} == {name: means[best] for name, best in cases}


async def test_a_record_is_removed_on_request(client: Client) -> None:
    await client.ask("delete", "job-1-11111111", dryRun="All")
    assert len(names(await client.list())) == 5
    gone = json.loads(await client.ask("delete", "job-1-11111111"))
    assert (gone["status"], gone["details"]["uid"]) == ("Success", "1" * 36)
    assert len(names(await client.list())) == 4
    for verb in ("get", "history", "delete"):
        with pytest.raises(errors.ObjectNotFound, match=r'jobrecords.* "job-1-11111111" not found'):
            await client.ask(verb, "job-1-11111111")


async def test_an_archive_that_cannot_be_read_is_a_503_and_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_prefix: str) -> list[Any]:
        raise Unavailable("connection refused")

    monkeypatch.setattr(client.past.bucket, "objects", fail)
    client.past.now += 60
    with pytest.raises(errors.Unavailable, match="the archive cannot be read now: connection refused"):
        await client.list()


async def test_the_end_of_a_log_is_for_those_who_may_read_logs(client: Client) -> None:
    with pytest.raises(errors.NotFound, match="No log of this job is kept"):
        await client.ask("log-tail", "job-0-00000000")
    client.past.log = b'{"podName":"bert-0","previous":false,"truncated":false,"lines":["the end"]}'
    client.past.show(name="job-5", uid="5" * 36, phase=Phase.FAILED, ended_at=NOW)
    await client.past.settle()
    found = json.loads(await client.ask("log-tail", "job-5-55555555"))
    assert (found["kind"], found["metadata"]["name"]) == ("JobRecordLogTail", "job-5-55555555")
    assert found["lines"] == ["the end"]
    client.past.may_read_logs = False
    with pytest.raises(AccessDenied):
        await client.ask("log-tail", "job-5-55555555")
