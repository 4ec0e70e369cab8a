"""What is news is published at once, and what is none once a minute."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, T0
from visibility_api.jobs.job import ProbeHints
from visibility_api.reports.document import Progress, Refused

from .bench import Bench


@pytest.mark.parametrize(
    "said",
    [Progress(timestamp=T0, step=40, total_steps=1000), Refused(reason="NoProgressFile", message="none")],
)
def test_probes_that_bring_nothing_new_are_published_once_a_minute(
    bench: Bench, said: Progress | Refused
) -> None:
    bench.observe(said)
    before = len(bench.published)
    for _ in range(12):
        bench.advance(10)
        bench.observe(said)
    assert len(bench.published) - before == 2  # a report is no longer fresh at the first of them
    assert bench.observation.last_probe_at is not None
    assert bench.now - bench.observation.last_probe_at < timedelta(seconds=60)
    assert bench.observation.consecutive_failures == (13 if isinstance(said, Refused) else 0)


def test_when_our_own_clock_is_set_back_probes_are_shown_no_later_than_else(bench: Bench) -> None:
    silent = Refused(reason="NoProgressFile", message="none")
    bench.observe(silent)
    bench.advance(-3600)
    for _ in range(20):
        bench.advance(15)
        bench.observe(silent)
    assert bench.observation.last_probe_at is not None
    assert abs(bench.now - bench.observation.last_probe_at) <= timedelta(seconds=60)


def test_a_zero_width_character_of_an_annotation_makes_no_new_conditions() -> None:
    """The stored message is made harmless; it was compared with the one that was not."""
    bench = Bench()
    job = replace(JOB, hints=ProbeHints(faults=("Annotation a\u200bb is not a number.",)))
    bench.job(job)
    record = bench.tracker._records[job.ref]
    before = record.conditions
    assert "a\ufffdb" in before[0].message
    bench.review()
    assert record.conditions is before
