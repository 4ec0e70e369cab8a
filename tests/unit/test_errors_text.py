"""No text of a stranger leaves us with what a terminal obeys or what hides other text, by any way out."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import structlog
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter

from tests.jobs import JOB, RANK0
from visibility_api.app.routers.metrics import metrics
from visibility_api.errors.status import Invalid, InvalidListOptions, NotFound, cause, encode_status
from visibility_api.errors.text import REPLACEMENT, harmless, harmless_lines
from visibility_api.jobs.job import Phase, ProbeHints, Replica, Termination, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.kubeapi.columns import leading_cells, trailing_cells
from visibility_api.kubeapi.v1alpha1 import status_of
from visibility_api.reports.document import Progress, Refused
from visibility_api.telemetry import set_up_logs
from visibility_api.workloads.annotations import PREFIX, read_annotations

AT = datetime(2026, 1, 23, 10, tzinfo=UTC)
ODD = [
    "\x1b[2J", "\x07", "\x9b31m", "\x9d0;title\x9c", "\u202eevil", "\u2066x\u2069", "a\u200bb", "\ufeff",
    "\r", "\u061c", "\x00", "\u2028", "\xad", "\u034f", "\u3164", "\ufe0f", "\U000e0041", "\ud800", "\x7f",
    "\u180e",
]  # fmt: skip
# Text with at least one of them in it.
TEXTS = st.builds(
    lambda a, odd, b: a + odd + b, st.text(max_size=8), st.sampled_from(ODD), st.text(max_size=8)
)


def assert_harmless(text: str) -> None:
    """By the Unicode database, not by the code under test."""
    for character in text:
        assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), ascii(text)
        assert character not in "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe0f", ascii(text)


@given(st.text())
def test_whatever_the_text_is_what_remains_is_harmless(text: str) -> None:
    made = harmless(text)
    assert_harmless(made)
    assert harmless(made) == made
    assert len(made) == len(text)


@pytest.mark.parametrize("odd", ODD)
def test_every_known_trick_is_replaced(odd: str) -> None:
    assert_harmless(harmless(f"a{odd}b"))


@pytest.mark.parametrize(
    "text", ["", "loss 0.5", "Verlust: 0,5 für épochs", "損失 0.5", "потеря", "🎉", "e\u0301", "a � b"]
)
def test_what_can_be_read_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_white_space_becomes_a_space_and_lines_stay_where_there_may_be_some() -> None:
    assert harmless("a\nb\tc\u2003d") == "a b c d"
    assert harmless_lines("a\tb\n\x1b[c") == f"a b\n{REPLACEMENT}[c"


def shown(job: TrainingJob, *outcomes: Progress | Refused) -> JobProgress:
    published: list[JobProgress] = []
    tracker = Tracker(publish=published.append, retract=lambda _: None, now=lambda: AT, interval_s=15)
    tracker.job_changed(job)
    for outcome in outcomes:
        tracker.observed(
            Observation(ref=job.ref, attempt=RANK0.attempt, source="exec", at=AT, outcome=outcome, why="Why.")
        )
    return published[-1]


@settings(max_examples=30)
@given(TEXTS, st.sampled_from(list(Phase)), st.booleans())
def test_tables_conditions_and_observations_are_harmless(text: str, phase: Phase, is_refused: bool) -> None:
    rank0 = replace(
        RANK0,
        container_name=text,
        waiting_reason=text,
        is_running=phase is Phase.RUNNING,
        progress_path=text,
        last_termination=Termination(exit_code=1, signal=None, reason=text, finished_at=None),
    )
    job = replace(
        JOB,
        phase=phase,
        reason=text,
        message=text,
        rank0=rank0,
        is_suspended=phase is Phase.SUSPENDED,
        replicas=(Replica(name=text),),
        hints=ProbeHints(faults=(text,)),
    )
    report = Progress(timestamp=AT, step=1, metrics=((text, text), ("loss", text)), message=text)
    refusal = Refused(reason="NoProgressFile", message=text)
    document = shown(job, refusal if is_refused else report)
    for cell in (*leading_cells(document), *trailing_cells(document)):
        assert_harmless(cell or "")
    for condition in document.conditions:
        assert_harmless(condition.reason + condition.message)
    assert document.observation is not None
    assert_harmless(document.observation.reason + document.observation.message)


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=8).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
def test_the_json_of_a_document_keeps_what_was_reported(text: str) -> None:
    report = Progress(timestamp=AT, step=1, metrics=((text, text),), message=text)
    status = json.loads(msgspec.json.encode(status_of(shown(JOB, report))))
    assert (status["message"], status["metrics"]) == (text, [{"name": text, "value": text}])


@given(TEXTS)
def test_no_annotation_brings_it_into_a_message(text: str) -> None:
    found = read_annotations({PREFIX + "path": "/tmp/" + text, PREFIX + "container": text})
    assert found.path is None
    assert_harmless("".join(found.hints.faults))


@given(TEXTS)
def test_errors_are_harmless(text: str) -> None:
    for error in (
        NotFound(text),
        Invalid(text),
        InvalidListOptions([cause("FieldValueInvalid", text, text)]),
    ):
        status = json.loads(encode_status(error))
        assert_harmless(status["message"] + str(error.message))
        for each in status.get("details", {}).get("causes", ()):
            assert_harmless(each["message"] + each["field"])


@contextlib.contextmanager
def logs(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool = False) -> Iterator[io.StringIO]:
    """What is logged meanwhile."""
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr", written)
    before = structlog.get_config()
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], []
    try:
        set_up_logs(0)
        yield written
    finally:
        structlog.configure(**before)
        root.handlers[:] = handlers


@pytest.mark.parametrize("is_terminal", [True, False])
def test_logs_are_harmless(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with logs(monkeypatch, is_terminal=is_terminal) as written:
        log = structlog.get_logger("test")
        for odd in ODD:
            log.warning("told", text=odd, several=[odd], by_name={odd: odd})
            logging.getLogger("asyncio").error("told %s", odd)
        try:
            raise ValueError("\x1b[2J\u202e")
        except ValueError:
            log.exception("failed")
            logging.getLogger("asyncio").exception("failed")
    lines = written.getvalue().split("\n")
    assert len(lines) > 2 * len(ODD)
    for line in lines:
        assert_harmless(line)


def test_libraries_log_in_the_form_of_the_server_s_own_events(monkeypatch: pytest.MonkeyPatch) -> None:
    with logs(monkeypatch) as written:
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("asyncio").exception("task %s failed", 7)
        logging.getLogger("asyncio").info("debugging")
    (line,) = written.getvalue().splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"], told["event"]) == ("error", "asyncio", "task 7 failed")
    assert "ValueError: no" in told["exception"]


def test_a_connection_that_was_closed_before_a_write_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with logs(monkeypatch) as written:
        for why in ("unable to perform operation on <TCPTransport>; the handler is closed", "another"):
            try:
                raise RuntimeError(why)
            except RuntimeError:
                logging.getLogger("asyncio").exception("Fatal error on SSL protocol")
    (line,) = written.getvalue().splitlines()
    assert "RuntimeError: another" in line


def test_uvicorn_does_not_repeat_that_a_response_ended_early(monkeypatch: pytest.MonkeyPatch) -> None:
    with logs(monkeypatch) as written:
        logging.getLogger("uvicorn.error").error("ASGI callable returned without completing response.")
        logging.getLogger("uvicorn.error").error("Exception in ASGI application")
    assert [json.loads(line)["event"] for line in written.getvalue().splitlines()] == [
        "Exception in ASGI application"
    ]


class Scrape:
    def __init__(self) -> None:
        self.headers: dict[str, str] = {}


@pytest.mark.parametrize("odd", [each for each in ODD if each != "\ud800"])
async def test_metrics_are_harmless_labels_included(odd: str) -> None:
    registry = CollectorRegistry()
    Counter("told", f"Help {odd}.", ["label"], registry=registry).labels(odd).inc()
    scrape: Any = Scrape()
    body = bytes((await metrics(scrape, registry)).body).decode()
    assert "told_total" in body
    for line in body.split("\n"):
        assert_harmless(line)
