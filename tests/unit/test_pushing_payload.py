"""What a push says: everything well-behaved clients send, and everything else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from visibility_api.errors.status import Invalid
from visibility_api.pushing.payload import Payload, read_payload
from visibility_api.reports.document import Progress
from visibility_api.reports.trainer_status import MAX_INT32

TIME, ECHOED = "2026-01-23T10:30:45.123456+00:00", "2026-01-23T10:30:45Z"  # as metav1.Time writes it


def push(**status: Any) -> Payload:
    body = {"trainerStatus": {"lastUpdatedTime": TIME, **status}}
    return read_payload(json.dumps(body).encode())


def echo(payload: Payload) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload.echo)
    return found


def report(payload: Payload) -> Progress:
    assert payload.report is not None
    return payload.report


def test_what_upstreams_clients_send_is_taken_as_it_is_and_given_back() -> None:
    metrics = [{"name": "loss", "value": "0.2347"}, {"name": "rewards/margins", "value": "nan"}]
    found = push(progressPercentage=45, estimatedRemainingSeconds=795, metrics=metrics)
    assert echo(found) == {
        "trainerStatus": {
            "progressPercentage": 45,
            "estimatedRemainingSeconds": 795,
            "metrics": metrics,
            "lastUpdatedTime": ECHOED,
        }
    }
    assert found.echo.endswith(b"}\n")
    assert report(found) == Progress(
        timestamp=datetime(2026, 1, 23, 10, 30, 45, 123456, tzinfo=UTC),
        progress_percentage=45,
        remaining_s=795,
        metrics=(("loss", "0.2347"), ("rewards/margins", "nan")),
    )


@pytest.mark.parametrize(
    "written",
    [
        "2026-01-23T10:30:45Z",
        "2026-01-23t10:30:45z",
        "2026-01-23 10:30:45.0000000001+00:00",
        "2026-01-23T16:00:45+05:30",
        "2026-01-23T10:30:44.99999999Z",
        "2026-01-23T10:29:60Z",
    ],
)
def test_a_time_may_be_in_any_zone_and_any_precision(written: str) -> None:
    taken = report(push(lastUpdatedTime=written)).timestamp
    assert taken is not None
    assert taken.tzinfo is UTC
    if "29:60" in written:
        assert taken == datetime(2026, 1, 23, 10, 30, tzinfo=UTC)
    else:
        assert abs((taken - datetime(2026, 1, 23, 10, 30, 45, tzinfo=UTC)).total_seconds()) <= 1e-6


def test_steps_and_epochs_among_the_metrics_are_what_they_say() -> None:
    names = {"current_step": "450", "total_steps": "1000", "current_epoch": "1.35", "loss": "0.5"}
    found = push(metrics=[{"name": name, "value": value} for name, value in names.items()])
    said = report(found)
    assert (said.step, said.total_steps, said.epoch) == (450, 1000, 1.35)
    assert said.metrics == (("loss", "0.5"),)
    assert len(echo(found)["trainerStatus"]["metrics"]) == 4


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"trainerStatus":null}', b"null", b'{"trainerStatus":null,"more":1}', b'{"step":5}', b" {} "],
)
def test_a_push_that_says_nothing_is_accepted_and_changes_nothing(body: bytes) -> None:
    assert read_payload(body) == Payload(echo=b"{}\n", report=None)


def test_unknown_fields_are_dropped() -> None:
    found = read_payload(
        json.dumps(
            {"kind": "x", "trainerStatus": {"lastUpdatedTime": TIME, "phase": "y", "progressPercentage": 3}}
        ).encode()
    )
    assert echo(found) == {"trainerStatus": {"progressPercentage": 3, "lastUpdatedTime": ECHOED}}


def test_names_are_known_in_any_case_as_gos_json_knows_them() -> None:
    """Whoever writes Go structs without tags sends such names, and upstream takes them."""
    body = {
        "TrainerStatus": {
            "LastUpdatedTime": TIME,
            "ProgressPercentage": 45,
            "ESTIMATEDREMAININGSECONDS": 7,
            "Metrics": [{"Name": "loss", "Value": "0.5"}],
        }
    }
    found = read_payload(json.dumps(body).encode())
    assert found == push(
        progressPercentage=45, estimatedRemainingSeconds=7, metrics=[{"name": "loss", "value": "0.5"}]
    )
    assert push(ProgressPercentage=45) == push(progressPercentage=45)
    assert push(metrics=[{"name": "loss", "Value": "1"}]) == push(metrics=[{"name": "loss", "value": "1"}])


def test_the_echo_is_written_as_upstream_writes_it() -> None:
    assert push(metrics=[]).echo == b'{"trainerStatus":{"lastUpdatedTime":"%s"}}\n' % ECHOED.encode()
    in_another_zone = push(lastUpdatedTime="2026-01-23T16:00:45.9+05:30")
    assert echo(in_another_zone)["trainerStatus"]["lastUpdatedTime"] == ECHOED


@pytest.mark.parametrize("rest", [b"\n", b" trailing", b"{}", b"\x00\xff", b"}}"])
def test_bytes_after_the_first_value_are_ignored(rest: bytes) -> None:
    body = json.dumps({"trainerStatus": {"lastUpdatedTime": TIME, "progressPercentage": 7}}).encode()
    assert report(read_payload(body + rest)).progress_percentage == 7
    assert read_payload(b" \n{}" + rest).report is None


def test_bytes_that_are_no_utf8_are_mended_as_upstream_mends_them() -> None:
    body = b'{"trainerStatus":{"lastUpdatedTime":"%s","metrics":[{"name":"lo\xffss","value":"1"}]}}'
    assert report(read_payload(body % TIME.encode())).metrics == (("lo\ufffdss", "1"),)


def test_half_a_surrogate_pair_is_mended() -> None:
    body = b'{"trainerStatus":{"lastUpdatedTime":"%s","metrics":[{"name":"\\ud800","value":"\\udc00"}]}}'
    assert report(read_payload(body % TIME.encode())).metrics == (("?", "?"),)


@pytest.mark.parametrize(
    ("given_", "taken"),
    [
        (45.5, 46),
        (44.4, 44),
        (-3, 0),
        (250, 100),
        (100.4, 100),
        (1e300, 100),
        (10**400, 100),
        (0, 0),
        (-0.2, 0),
    ],
)
def test_a_percentage_is_rounded_and_clamped(given_: float, taken: int) -> None:
    found = push(progressPercentage=given_)
    assert report(found).progress_percentage == taken
    assert echo(found)["trainerStatus"]["progressPercentage"] == taken


@pytest.mark.parametrize(
    ("given_", "taken"), [(-1, 0), (12.7, 13), (2**31, MAX_INT32), (2**63, MAX_INT32), (10**400, MAX_INT32)]
)
def test_a_remaining_time_is_rounded_and_clamped(given_: float, taken: int) -> None:
    found = push(estimatedRemainingSeconds=given_)
    assert report(found).remaining_s == taken
    assert echo(found)["trainerStatus"]["estimatedRemainingSeconds"] == taken


def test_long_and_many_metrics_are_cut_not_refused() -> None:
    many = [{"name": f"{number:03}" + "n" * 100, "value": "v" * 1000} for number in range(300)]
    found = push(metrics=many, progressPercentage=1)
    kept = echo(found)["trainerStatus"]["metrics"]
    assert len(kept) == 256
    assert {(len(metric["name"]), len(metric["value"])) for metric in kept} == {(64, 64)}
    assert len(report(found).metrics) == 256


@pytest.mark.parametrize(
    ("metric", "kept"),
    [
        ({"name": "loss", "value": 0.5}, {"name": "loss", "value": "0.5"}),
        ({"name": "step", "value": 3}, {"name": "step", "value": "3"}),
        ({"name": "", "value": "1"}, None),
        ({"name": "loss", "value": ""}, None),
        ({"name": "loss"}, None),
        ({"value": "1"}, None),
        ({"name": "loss", "value": None}, None),
    ],
)
def test_a_metric_without_name_or_value_is_left_out_and_a_number_is_written_out(
    metric: dict[str, Any], kept: dict[str, str] | None
) -> None:
    found = push(metrics=[metric, {"name": "other", "value": "1"}])
    expected = [each for each in (kept, {"name": "other", "value": "1"}) if each]
    assert echo(found)["trainerStatus"]["metrics"] == expected


def test_our_own_document_is_taken_too() -> None:
    body = {"schemaVersion": 1, "step": 5, "totalSteps": 10, "timestamp": TIME, "metrics": {"loss": 0.5}}
    found = read_payload(json.dumps(body).encode())
    assert (report(found).step, report(found).total_steps) == (5, 10)
    assert found.echo == b"{}\n"  # what upstream would have understood of it


def test_upstreams_form_counts_where_both_are_sent() -> None:
    body = {"timestamp": TIME, "step": 5, "trainerStatus": {"lastUpdatedTime": TIME, "progressPercentage": 9}}
    assert report(read_payload(json.dumps(body).encode())).progress_percentage == 9


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is not JSON"),
        (b"not json", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b"\xef\xbb\xbf{}", "the body is not JSON"),
        (b"[]", "the body must be an object"),
        (b'"text"', "the body must be an object"),
        (b"5", "the body must be an object"),
        (b"[" * 60_000, "the body has more than 6144 commas, colons and opening brackets"),
        (b"[" * 6_000, "the body is nested more than 200 levels deep"),
        (b"\xff" + b"[" * 6_000, "the body is not JSON"),
        (b'["\xff",' + b"[" * 6_000, "the body is nested more than 200 levels deep"),
        (b'{"a":' * 3_000, "the body is nested more than 200 levels deep"),
        (b'{"trainerStatus":' + b"1" * 4000 + b"}", "trainerStatus must be an object"),
        (b'{"trainerStatus":' + b"1" * 5000 + b"}", "the body has a number of more than 4300 digits"),
        (b'{"trainerStatus":[]}', "trainerStatus must be an object"),
        (b'{"trainerStatus":"x"}', "trainerStatus must be an object"),
        (b'{"trainerStatus":{}}', "trainerStatus.lastUpdatedTime is required"),
        (b'{"schemaVersion":1,"step":1}', "timestamp is required"),
        (b'{"timestamp":"2026-01-23T10:30:45Z","step":"x"}', "step must be a number"),
    ],
)
def test_a_body_that_cannot_be_taken_is_refused_in_our_own_words(body: bytes, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_payload(body)
    assert caught.value.message.startswith(says)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("lastUpdatedTime", "0001-01-01T00:00:00Z", "trainerStatus.lastUpdatedTime"),
        ("lastUpdatedTime", "0001-01-01T00:00:00+14:00", "trainerStatus.lastUpdatedTime"),
        ("lastUpdatedTime", "9999-12-31T23:59:59-14:00", "trainerStatus.lastUpdatedTime"),
        ("lastUpdatedTime", "2026-01-23T10:30:45", "trainerStatus.lastUpdatedTime"),
        ("lastUpdatedTime", None, "trainerStatus.lastUpdatedTime"),
        ("lastUpdatedTime", "yesterday", "trainerStatus.lastUpdatedTime"),
        ("lastUpdatedTime", "2026-01-23 ", "trainerStatus.lastUpdatedTime"),
        ("lastUpdatedTime", 1769164245, "trainerStatus.lastUpdatedTime"),
        ("progressPercentage", "45", "trainerStatus.progressPercentage"),
        ("progressPercentage", True, "trainerStatus.progressPercentage"),
        ("progressPercentage", [], "trainerStatus.progressPercentage"),
        ("estimatedRemainingSeconds", {}, "trainerStatus.estimatedRemainingSeconds"),
        ("metrics", {}, "trainerStatus.metrics"),
        ("metrics", ["loss"], "trainerStatus.metrics"),
        ("metrics", [{"name": 5, "value": "1"}], "trainerStatus.metrics.name"),
        ("metrics", [{"name": "loss", "value": [1]}], "trainerStatus.metrics.value"),
        ("metrics", [{"name": "loss", "value": True}], "trainerStatus.metrics.value"),
    ],
)
def test_a_type_that_cannot_be_clamped_is_refused_and_named(field: str, value: Any, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        push(**{"progressPercentage": 1, field: value})
    assert caught.value.message.startswith(says)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_a_number_that_is_none_is_refused(number: bytes) -> None:
    body = b'{"trainerStatus":{"lastUpdatedTime":"%s","progressPercentage":%s}}'
    with pytest.raises(Invalid):
        read_payload(body % (TIME.encode(), number))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
_status = st.fixed_dictionaries(
    {"lastUpdatedTime": st.just(TIME) | _json},
    optional={
        "progressPercentage": _json,
        "estimatedRemainingSeconds": _json,
        "metrics": _json
        | st.lists(st.fixed_dictionaries({}, optional={"name": _json, "value": _json}), max_size=4),
    },
)


@given(st.binary(max_size=200) | _json.map(lambda v: json.dumps(v).encode()))
@example(b"\x00" * 65536)
@example(b'{"a":"' + b"\\ud800" * 10_000 + b'"}')
def test_any_bytes_are_a_payload_or_a_refusal(body: bytes) -> None:
    check(body)


@given(_status)
def test_any_status_is_a_payload_or_a_refusal_and_an_echo_is_taken_again(status: Any) -> None:
    check(json.dumps({"trainerStatus": status}).encode())


def check(body: bytes) -> None:
    """The sentences of refusals are tested above: each is a constant with a field's name in it."""
    try:
        found = read_payload(body)
    except Invalid:
        return
    again = read_payload(found.echo)
    assert again.echo == found.echo
    if found.echo != b"{}\n":
        said = report(found)
        assert said.timestamp is not None
        assert again.report == msgspec.structs.replace(said, timestamp=said.timestamp.replace(microsecond=0))
