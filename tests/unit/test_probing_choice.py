"""Which source is probed, and why, by what a job declares and what it has brought so far."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, T0
from visibility_api.jobs.job import JobRef, ProbeHints, Rank0, TrainingJob
from visibility_api.probing.choice import REOPEN_S, RIGHT_REOPEN_S, Candidate, Choice, member_of, options_for
from visibility_api.probing.probe import Source, probe as probe_once
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

REPORT = Progress(timestamp=T0, step=1)
ALL = frozenset({"exec", "http", "logs", "push", "status"})
PORT = ("http", "annotation visibility.trainer.kubeflow.org/port")
FILE = ("exec", "environment variable TRAINJOB_PROGRESS_FILE")
LOG = ("logs", "environment variable TRAINJOB_PROGRESS_LOG")


def refused(reason: str, retry: RetryClass) -> Outcome:
    return Refused(reason=reason, message="said", retry=retry)


SILENT = refused("NoProgressFile", RetryClass.LATER)
FORBIDDEN = refused("ExecForbidden", RetryClass.FORBIDDEN)
NO_CAT = refused("NoCatInImage", RetryClass.RARELY)
SLOW = refused("ProbeTimeout", RetryClass.RARELY)
TROUBLE = refused("PodUnreachable", RetryClass.SOON)


def job(*declared: tuple[str, str], source: str | None = None, **rank0: object) -> TrainingJob:
    port = {"http_port": 8080} if PORT in declared else {}
    return replace(
        JOB,
        rank0=replace(RANK0, declared=declared, **{**port, **rank0}),  # type: ignore[arg-type]
        hints=ProbeHints(source=source),
    )


def choice_of(of: TrainingJob, enabled: frozenset[str] = ALL) -> Choice:
    return Choice(options=options_for(of, enabled))


def next_of(choice: Choice, now: float = 0.0) -> Candidate:
    candidate = choice.next(now)
    assert candidate is not None
    return candidate


def probe(choice: Choice, outcome: Outcome, now: float = 0.0) -> str:
    """The source that was its turn, which then brought this answer."""
    candidate = next_of(choice, now)
    choice.take(candidate, outcome, now)
    return candidate.source


def test_the_source_that_answered_another_process_stays() -> None:
    choice = choice_of(job())
    choice.recall("logs")
    assert probe(choice, REPORT) == probe(choice, SILENT) == "logs"


def test_a_log_that_answered_another_process_and_was_rotated_stays() -> None:
    choice = choice_of(job())
    choice.recall("logs")
    rotated = refused("NoProgressInLog", RetryClass.LATER)
    assert {probe(choice, rotated) for _ in range(9)} == {"logs"}


async def test_a_probe_of_a_log_that_was_rotated_away_tells_what_it_met() -> None:
    rotated = refused("NoProgressInLog", RetryClass.LATER)

    async def read(_ref: JobRef, _rank0: Rank0) -> Outcome:
        return rotated

    choice = choice_of(job())
    choice.recall("logs")
    observation = await probe_once(
        job(),
        choice,
        sources={"logs": cast(Source, SimpleNamespace(name="logs", probe=read))},
        now=lambda: T0,
        deadline_s=5,
        is_cheap=True,
        on_probe=lambda *_: None,
        lateness_s=0,
    )
    assert (observation.source, observation.outcome) == ("logs", rotated)


def test_what_answers_another_process_later_is_preferred_to_what_was_refused_here() -> None:
    choice = choice_of(job())
    probe(choice, SILENT)
    assert choice.refused == SILENT
    assert choice.recall("logs")
    assert choice.refused is None
    assert probe(choice, refused("NoProgressInLog", RetryClass.LATER)) == "logs"
    assert choice.refused is None


@pytest.mark.parametrize("source", ["", "push", "termination"])
def test_of_one_that_is_not_probed_nothing_is_recalled(source: str) -> None:
    choice = choice_of(job())
    choice.recall(source)
    assert probe(choice, REPORT) == "exec"


@pytest.mark.parametrize(
    ("declared", "enabled", "source", "why"),
    [
        ((PORT, FILE), ALL, "http", f"Declared by {PORT[1]}."),
        ((FILE, PORT), ALL, "exec", f"Declared by {FILE[1]}."),
        ((LOG,), ALL, "logs", f"Declared by {LOG[1]}."),
        ((), ALL, "exec", "The job declares no source: trying the default file, then the log."),
        ((), {"logs", "push"}, "logs", "The job declares no source: trying the log."),
        (
            (PORT,),
            {"exec"},
            "exec",
            f"The {PORT[1]} names http, which this server has not enabled: trying the default file.",
        ),
    ],
)
def test_what_is_declared_comes_first_and_the_reason_names_it(
    declared: tuple[tuple[str, str], ...], enabled: set[str], source: str, why: str
) -> None:
    choice = choice_of(job(*declared), frozenset(enabled))
    candidate = next_of(choice)
    assert (candidate.source, choice.why(candidate)) == (source, why)


def test_a_port_in_a_nodes_own_network_is_not_probed() -> None:
    choice = choice_of(job(PORT, host_network=True))
    assert next_of(choice).source == "exec"
    assert "node's own network" in next_of(choice).why


def test_the_annotation_leaves_one_source_only() -> None:
    choice = choice_of(job(FILE, source="logs"))
    assert {probe(choice, answer) for answer in (SILENT, FORBIDDEN, SILENT, SLOW, TROUBLE)} == {"logs"}
    assert next_of(choice).why == "Declared by annotation visibility.trainer.kubeflow.org/source."


@pytest.mark.parametrize("source", ["push", "status", "none"])
def test_a_job_that_is_to_be_left_alone_is_not_probed(source: str) -> None:
    choice = choice_of(job(FILE, source=source))
    assert choice.next(0.0) is None
    assert choice.options.refusal is None


def test_an_annotation_that_names_what_is_not_enabled_is_refused_with_what_is() -> None:
    options = options_for(job(source="logs"), frozenset({"exec", "status"}))
    assert not options.first
    assert options.refusal is not None
    assert options.refusal.reason == "SourceNotEnabled"
    assert "names logs" in options.refusal.message
    assert "exec, status" in options.refusal.message


def test_a_server_without_sources_to_probe_through_probes_nothing() -> None:
    assert choice_of(job(), frozenset({"push"})).next(0.0) is None


def test_the_source_that_answered_stays() -> None:
    choice = choice_of(job())
    assert [probe(choice, a) for a in (SILENT, REPORT, SILENT, TROUBLE, REPORT)] == [
        "exec", "logs", "logs", "logs", "logs",
    ]  # fmt: skip


def test_after_three_failures_in_a_row_the_next_one_is_tried() -> None:
    choice = choice_of(job())
    probe(choice, REPORT)
    assert [probe(choice, a) for a in (SILENT, SLOW, TROUBLE, SILENT, SILENT)] == [
        "exec", "exec", "exec", "logs", "exec",
    ]  # fmt: skip


def test_two_failures_and_a_report_are_no_reason_to_leave() -> None:
    choice = choice_of(job())
    probe(choice, REPORT)
    assert {probe(choice, a) for a in (SILENT, SILENT, REPORT) * 3} == {"exec"}


def test_a_permanent_refusal_ends_it_at_once_and_is_reported() -> None:
    choice = choice_of(job())
    probe(choice, REPORT)
    probe(choice, FORBIDDEN)
    now = next_of(choice)
    assert now.source == "logs"
    assert choice.why(now).endswith(" Not used: exec failed with ExecForbidden.")


def test_a_declared_job_is_not_probed_otherwise_while_its_source_may_answer_yet() -> None:
    choice = choice_of(job(FILE))
    assert {probe(choice, a) for a in (SILENT, SLOW, TROUBLE, TROUBLE, TROUBLE, SILENT)} == {"exec"}
    probe(choice, NO_CAT)
    assert next_of(choice).source == "logs"


def test_two_declared_sources_take_turns_until_one_answers() -> None:
    choice = choice_of(job(PORT, FILE))
    assert [probe(choice, a) for a in (SILENT, SILENT, SILENT, REPORT, REPORT)] == [
        "http", "exec", "http", "exec", "exec",
    ]  # fmt: skip


def test_connection_trouble_does_not_count_against_the_source_unless_it_lasts() -> None:
    choice = choice_of(job())
    assert [probe(choice, TROUBLE) for _ in range(4)] == ["exec", "exec", "exec", "logs"]


def test_when_all_are_refused_they_are_tried_again_in_turn() -> None:
    choice = choice_of(job())
    assert [probe(choice, FORBIDDEN) for _ in range(2)] == ["exec", "logs"]
    assert choice.is_closed
    assert {probe(choice, FORBIDDEN) for _ in range(2)} == {"exec", "logs"}
    while next_of(choice).source != "exec":
        probe(choice, FORBIDDEN)
    probe(choice, SILENT)  # the right was granted
    assert not choice.is_closed


def test_a_refused_source_is_tried_again_after_a_while_where_none_answers() -> None:
    choice = choice_of(job())
    probe(choice, FORBIDDEN, now=0.0)
    assert probe(choice, SILENT, now=10.0) == "logs"
    assert "exec" in {probe(choice, SILENT, now=REOPEN_S + n) for n in (1.0, 2.0)}


def test_of_several_that_have_nothing_the_likeliest_is_shown_all_the_time() -> None:
    choice = choice_of(job())
    shown = []
    for _ in range(3):
        probe(choice, SILENT)
        shown.append((choice.refused_by, choice.refused))
        probe(choice, refused("NoProgressInLog", RetryClass.LATER))
        shown.append((choice.refused_by, choice.refused))
    assert len(set(shown)) == 1
    assert choice.refused_by is not None
    assert choice.refused_by.source == "exec"


def test_another_source_is_probed_in_the_same_probe_only_while_none_answers() -> None:
    choice = choice_of(job())
    assert choice.take(next_of(choice), SILENT, 0.0)
    choice = choice_of(job())
    assert not choice.take(next_of(choice), TROUBLE, 0.0)
    choice = choice_of(job())
    assert not choice.take(next_of(choice), REPORT, 0.0)
    assert not choice.take(next_of(choice), SILENT, 0.0)


def test_under_mpi_each_pod_that_may_hold_rank_0_is_tried_and_the_one_that_answers_stays() -> None:
    other = replace(RANK0, pod_uid="p2", pod_name="other")
    of = replace(job(FILE), alternates=(replace(other, is_running=False), other))
    choice = choice_of(of)
    first = next_of(choice)
    assert member_of(of, first) == of.rank0
    choice.take(first, SILENT, 0.0)
    second = next_of(choice)
    assert member_of(of, second) == other
    choice.take(second, REPORT, 0.0)
    choice.take(next_of(choice), SILENT, 0.0)
    assert next_of(choice) == second
    assert member_of(replace(of, alternates=()), second) is None


def test_other_declarations_within_an_attempt_keep_what_answers() -> None:
    choice = choice_of(job(FILE))
    probe(choice, REPORT)
    assert not choice.change(options_for(job(PORT, FILE), ALL))
    assert next_of(choice).source == "exec"
    assert choice.change(options_for(job(FILE, source="logs"), ALL))
    assert next_of(choice).source == "logs"


@given(
    st.lists(st.sampled_from([SILENT, FORBIDDEN, NO_CAT, SLOW, TROUBLE, REPORT]), max_size=40),
    st.lists(st.sampled_from([PORT, FILE, LOG]), max_size=3, unique=True),
    st.sets(st.sampled_from(sorted(ALL))),
    st.integers(0, 2),
)
def test_whatever_answers_come_there_is_a_next_one_that_is_enabled(
    answers: list[Outcome], declared: list[tuple[str, str]], enabled: set[str], alternates: int
) -> None:
    of = replace(job(*declared), alternates=(RANK0,) * alternates)
    choice = choice_of(of, frozenset(enabled))
    for now, answer in enumerate(answers):
        candidate = choice.next(float(now))
        assert (candidate is None) == (not enabled & {"exec", "logs"} and not choice.options.first)
        if candidate is None:
            return
        assert candidate.source in enabled
        assert member_of(of, candidate) is not None
        goes_on = choice.take(candidate, answer, float(now))
        if answer is REPORT:
            assert choice.next(float(now)) == candidate
        else:
            assert choice.refused is not None
            assert choice.refused_by is not None
            assert not (goes_on and choice.answered)
        assert choice.why(candidate)


def test_a_source_without_its_right_is_tried_again_before_long_though_another_answers() -> None:
    choice = choice_of(job())
    assert [probe(choice, FORBIDDEN), probe(choice, REPORT)] == ["exec", "logs"]
    assert probe(choice, REPORT, now=RIGHT_REOPEN_S) == "logs"
    late = RIGHT_REOPEN_S + 1
    assert [probe(choice, FORBIDDEN, now=late), probe(choice, REPORT, now=late)] == ["exec", "logs"]
    assert probe(choice, REPORT, now=2 * late) == "exec"
    assert probe(choice, REPORT, now=9 * late) == "exec"


def test_one_that_is_refused_for_another_reason_leaves_the_one_that_answers_alone() -> None:
    choice = choice_of(job())
    assert [probe(choice, NO_CAT), probe(choice, REPORT)] == ["exec", "logs"]
    assert probe(choice, REPORT, now=2 * REOPEN_S) == "logs"
