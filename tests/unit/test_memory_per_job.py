"""What a job keeps in memory: bounded, and the same whatever fills its objects that nobody reads."""

from __future__ import annotations

import subprocess
import sys

MAX_KIB = 9.0  # of Python objects, its first document and the change that brought it included


def kib_a_job(*how: str) -> float:
    """In a process of its own: whatever else runs in this one allocates, too."""
    command = [sys.executable, "-m", "tests.unit.memory_per_job", *how]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_a_job_with_its_document_takes_less_than_nine_kib() -> None:
    assert kib_a_job() < MAX_KIB


def test_what_nobody_reads_of_an_object_is_not_kept() -> None:
    assert kib_a_job("filled") < kib_a_job() + 0.5
