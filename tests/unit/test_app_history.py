"""`trainjobs/NAME/history`: its forms, its parameters, and how it refuses."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json

import pytest
import yaml

from tests.jobs import T0
from tests.past import Past, add, progress
from tests.unit.api_shell import ONE
from visibility_api.auth.identity import Identity

T0_S = T0.timestamp()
CSV, NDJSON = ("Accept", "text/csv"), ("Accept", "application/x-ndjson")


async def test_the_columns_of_each_attempt() -> None:
    answer = await Past().get()
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    assert answer.header("cache-control") == "no-cache, private"
    found = answer.json()
    assert (found["kind"], found["apiVersion"]) == (
        "TrainJobProgressHistory",
        "visibility.trainer.kubeflow.org/v1alpha1",
    )
    assert (
        found["metadata"].items()
        >= {"name": "bert", "namespace": "team-a", "uid": "uid-of-team-a-bert"}.items()
    )
    assert "items" not in found
    assert found["attempts"] == [
        {
            "number": 0,
            "startTime": "2026-01-23T10:00:00Z",
            "firstStep": 0,
            "lastStep": 90,
            "lastTime": "2026-01-23T10:09:59Z",
        },
        {
            "number": 1,
            "startTime": "2026-01-23T11:00:00Z",
            "firstStep": 80,
            "lastStep": 120,
            "lastTime": "2026-01-23T11:04:00Z",
        },
    ]
    first, second = found["progress"]
    assert first["times"] == [T0_S + 60 * minute for minute in range(10)] + [T0_S + 599]
    assert first["steps"] == [10 * minute for minute in range(10)] + [None]
    assert first["epochs"] == [minute / 10 for minute in range(10)] + [None]
    assert second.keys() == {"attempt", "times", "steps"}
    assert [(each["metric"], each["attempt"]) for each in found["series"]] == [
        ("loss", 0), ("lr", 0), ("eval_loss", 0), ("loss", 1),
    ]  # fmt: skip
    loss, lr, eval_loss, again = found["series"]
    assert loss["values"] == ["2.5", "2.4", "2.3", "2.2", "2.1", "2", "1.9", "1.8", "1.7", "1.6"]
    assert lr["values"] == ["1e-05"] * 10
    assert eval_loss == {"metric": "eval_loss", "attempt": 0, "times": [T0_S + 599], "values": ["NaN"]}
    assert again["steps"] == [80, 90, 100, 110, 120]


async def test_only_what_is_asked_for() -> None:
    past = Past()
    found = (await past.get("metric=eval_loss&metric=lr&attempt=0&since=2026-01-23T10:08:00Z")).json()
    assert [(each["metric"], len(each["values"])) for each in found["series"]] == [
        ("lr", 2),
        ("eval_loss", 1),
    ]
    assert [len(each["times"]) for each in found["progress"]] == [3]
    assert len(found["attempts"]) == 2
    found = (await past.get("since=1h&until=57m&metric=loss")).json()  # from 11:00 to 11:03
    assert [each["steps"] for each in found["series"]] == [[80, 90, 100, 110]]
    assert [
        (await past.get(query)).json()["series"] for query in ("metric=none", "attempt=7", "since=1m")
    ] == [[]] * 3


async def test_no_more_points_than_asked_for() -> None:
    past = Past()
    for each in range(2000):
        loss = 50 if each == 777 else "nan" if each == 778 else -3 if each == 1300 else each % 7
        add(past.history, progress(7200 + each, each, metrics={"loss": loss}), "p3/0/0")
    [series] = (await past.get("attempt=2&maxPoints=50")).json()["series"]
    assert len(series["values"]) <= 50
    assert {"50", "NaN", "-3"} <= set(series["values"])


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("maxPoints=0", 'maxPoints must be a whole number from 2 to 10000, not "0"'),
        ("maxPoints=-5", "maxPoints"),
        ("maxPoints=1e3", "maxPoints"),
        ("maxPoints=", "maxPoints"),
        ("maxPoints=99999999999999999999", "maxPoints"),
        ("attempt=first", "attempt must be a whole number from 0"),
        ("attempt=-1", "attempt"),
        ("attempt=%D9%A1", "attempt"),
        ("since=yesterday", "since must be a time such as 2026-01-31T12:00:00Z or a duration such as 1h30m"),
        ("since=2026-01-23", "since"),
        ("until=" + "9" * 5000, "until"),
        ("since=5m&until=10m", "since must not be later than until"),
        ("metric=", "metric"),
        ("&".join(["metric=a"] * 65), "metric"),
    ],
)
async def test_a_parameter_that_cannot_be_read_is_a_400_that_names_it(query: str, named: str) -> None:
    answer = await Past().get(query)
    status = answer.json()
    assert (answer.status, status["kind"], status["reason"], status["code"]) == (
        400,
        "Status",
        "BadRequest",
        400,
    )
    assert named in status["message"]
    assert len(status["message"]) < 250


async def test_a_job_without_a_report_has_an_empty_history() -> None:
    found = (await Past().get(of=ONE.replace("bert", "new"))).json()
    assert (found["attempts"], found["progress"], found["series"]) == ([], [], [])
    assert (
        await Past().get("", CSV, of=ONE.replace("bert", "new"))
    ).text == "time,attempt,step,metric,value\r\n"


async def test_an_unknown_job_is_not_found() -> None:
    answer = await Past().get(of=ONE.replace("bert", "none"))
    assert (answer.status, answer.json()["message"]) == (
        404,
        'trainjobs.visibility.trainer.kubeflow.org "none" not found',
    )


# --- other forms


async def test_csv_has_a_row_for_each_point() -> None:
    answer = await Past().get("attempt=0", CSV)
    assert answer.header("content-type") == "text/csv; charset=utf-8; header=present"
    assert answer.header("x-content-type-options") == "nosniff"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 21
    assert rows[1] == {
        "time": "2026-01-23T10:01:00.000Z", "attempt": "0", "step": "10", "metric": "loss", "value": "2.4",
    }  # fmt: skip
    assert rows[-1]["value"] == "NaN"
    assert rows[-1]["step"] == ""


async def test_ndjson_has_an_object_for_each_point() -> None:
    answer = await Past().get("attempt=1", NDJSON)
    assert answer.header("content-type") == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[0] == {
        "time": "2026-01-23T11:00:00.000Z", "attempt": 1, "step": 80, "metric": "loss", "value": "2",
    }  # fmt: skip
    assert len(lines) == 5


async def test_an_attempt_without_metrics_has_a_row_for_each_step() -> None:
    past = Past()
    for each in range(3):
        add(past.history, progress(7190 + each, 10 * each), "p3/0/0")
    rows = list(csv.reader(io.StringIO((await past.get("attempt=2", CSV)).text)))
    assert rows[1:] == [[f"2026-01-23T11:59:5{each}.000Z", "2", str(10 * each), "", ""] for each in range(3)]
    lines = [json.loads(line) for line in (await past.get("attempt=2", NDJSON)).text.splitlines()]
    assert [(line["step"], line["metric"], line["value"]) for line in lines] == [
        (10 * each, None, None) for each in range(3)
    ]
    assert (await past.get("attempt=2&metric=loss", NDJSON)).text == ""
    add(past.history, progress(7199, epoch=0.5), "p4/0/0")
    rows = list(csv.reader(io.StringIO((await past.get("attempt=3", CSV)).text)))
    assert rows[1:] == [["2026-01-23T11:59:59.000Z", "3", "", "epoch", "0.5"]]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "' =1"),
        (" =1", "' =1"),
        ("\r\n=1", "'  =1"),
        ("a,b\n=1", "a,b =1"),
        ('a"b', 'a"b'),
        ("loss\x1b[2J", "loss\N{REPLACEMENT CHARACTER}[2J"),
    ],
)
async def test_a_name_in_csv_is_no_formula_and_no_new_row(name: str, cell: str) -> None:
    past = Past()
    add(past.history, progress(7200, 1, metrics={name: -0.5}), "p3/0/0")
    rows = list(csv.reader(io.StringIO((await past.get("attempt=2", CSV)).text)))
    assert rows[1:] == [["2026-01-23T12:00:00.000Z", "2", "1", cell, "-0.5"]]
    line = json.loads((await past.get("attempt=2", NDJSON)).text)
    assert line["metric"] == name


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("*/*", "application/json"),
        ("application/json, */*", "application/json"),  # kubectl get --raw
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json"),
        ("application/yaml", "application/yaml"),
        ("text/csv;q=0.5, application/json", "application/json"),
        ("text/csv, application/json;q=0.5", "text/csv; charset=utf-8; header=present"),
        ("application/vnd.kubernetes.protobuf, application/x-ndjson", "application/x-ndjson"),
    ],
)
async def test_the_form_is_what_the_client_accepts(accept: str, media_type: str) -> None:
    answer = await Past().get("", ("Accept", accept))
    assert (answer.status, answer.header("content-type")) == (200, media_type)
    if media_type == "application/yaml":
        assert yaml.safe_load(answer.text) == (await Past().get()).json()


async def test_a_form_that_is_not_served_is_a_406() -> None:
    answer = await Past().get("", ("Accept", "text/html"))
    assert answer.status == 406
    assert "text/csv" in answer.json()["message"]


async def test_a_large_answer_is_compressed_for_whoever_takes_it() -> None:
    past = Past()
    for each in range(2500):
        add(
            past.history, progress(7200 + each, each, metrics={"\N{GRINNING FACE}" * 120: each % 5}), "p3/0/0"
        )
    plain = await past.get("", NDJSON)
    packed = await past.get("", NDJSON, ("Accept-Encoding", "gzip"))
    assert len(plain.body) > 128 * 1024
    assert (plain.header("content-encoding"), packed.header("content-encoding")) == (None, "gzip")
    assert gzip.decompress(packed.body) == plain.body


async def test_one_history_is_made_in_each_turn_of_the_loop_and_users_take_turns() -> None:
    """A hundred of them, or one as YAML, must not hold up whoever asks for one document."""
    past, answered = Past(), []

    async def ask(user: str) -> None:
        past.shell.identity = Identity(user=user)
        await past.get("", ("Accept", "application/yaml"))
        answered.append(user)

    crowd = [asyncio.create_task(ask("crowd")) for _ in range(20)]
    await asyncio.sleep(0)
    other = asyncio.create_task(ask("jane"))
    turns = 0
    while not all(each.done() for each in (*crowd, other)):
        before = len(answered)
        await asyncio.sleep(0)
        turns += 1
        assert len(answered) <= before + 1
    assert turns > len(crowd)
    assert answered.index("jane") <= 3
