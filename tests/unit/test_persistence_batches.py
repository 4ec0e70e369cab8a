"""States are appended in batches, and the state file holds what a table of one row a job would."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import structlog
from hypothesis import given, settings, strategies as st

from visibility_api.jobs.job import JobRef
from visibility_api.jobs.saved import SavedJob
from visibility_api.persistence import batches
from visibility_api.persistence.batches import Row
from visibility_api.persistence.state_file import ASIDE, FILE, Bounds, StateFile

BOUNDS = Bounds(max_bytes=16 * 1024 * 1024, max_age_s=3600.0)


def job(name: str, state: bytes = b"state") -> SavedJob:
    ref = JobRef(resource="trainjobs", namespace="team-a", name=name, uid=f"uid-of-{name}")
    return SavedJob(ref=ref, format=1, state=state)


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[StateFile]:
    file = StateFile(directory, BOUNDS)
    try:
        yield file
    finally:
        file.close()


def states(file: StateFile) -> dict[str, bytes]:
    loaded = file.load()
    found = {each.ref.name: each.state for each in loaded}
    assert len(found) == len(loaded)
    return found


@contextlib.contextmanager
def looking_into(directory: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(directory / FILE, isolation_level=None)) as connection:
        yield connection


def count(directory: Path, table: str) -> int:
    with looking_into(directory) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few jobs make several batches, and the oldest goes soon."""
    monkeypatch.setattr(batches, "BATCH_ROWS", 2)
    monkeypatch.setattr(batches, "MAX_ROWS", 5)


Change = tuple[str, bytes | None]  # None: the job is gone


@pytest.mark.usefixtures("small")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.lists(st.tuples(st.sampled_from("abcdefg"), st.none() | st.binary(max_size=40)), max_size=5),
            max_size=8,
        ),
        max_size=4,
    )
)
def test_it_holds_what_a_dict_would_over_many_writes_and_processes(
    tmp_path_factory: pytest.TempPathFactory, processes: Sequence[Sequence[Sequence[Change]]]
) -> None:
    directory, expected = tmp_path_factory.mktemp("state"), dict[str, bytes]()
    for writes in processes:
        with opened(directory) as file:
            assert states(file) == expected
            for write in writes:
                changed = {name: state for name, state in write if state is not None}
                gone = {name for name, state in write if state is None} - set(changed)
                expected = {name: state for name, state in expected.items() if name not in gone} | changed
                file.write([job(*each) for each in changed.items()], [job(name).ref for name in gone])
            assert states(file) == expected
    with opened(directory) as file:
        assert states(file) == expected


@pytest.mark.usefixtures("small")
def test_a_job_that_reports_often_stays_in_the_batches_and_one_that_does_not_gets_a_row(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as file:
        file.write([job("quiet")], [])
        for number in range(20):
            file.write([job("busy", b"%d" % number)], [])
        assert states(file) == {"quiet": b"state", "busy": b"19"}
    assert count(tmp_path, "jobs") == 1
    assert count(tmp_path, "batches") == batches.MAX_ROWS


def test_batches_take_a_sixteenth_of_the_file_at_most(tmp_path: Path) -> None:
    with opened(tmp_path) as file:
        for number in range(60):
            file.write([job(f"job-{number}", bytes(100_000))], [])
        assert len(file.load()) == 60
    with looking_into(tmp_path) as connection:
        (size,) = connection.execute("SELECT sum(length(states)) FROM batches").fetchone()
    assert 800_000 < size <= BOUNDS.max_bytes // 16


def test_what_is_not_a_batch_is_passed_over_and_an_older_state_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as file:
        file.write([job("a", b"older"), job("b")], [])
        file.write([job("a", b"newer")], [])
    with looking_into(tmp_path) as connection:
        connection.execute("UPDATE batches SET states = 'text' WHERE id = 2")
        connection.execute("INSERT INTO batches (updated, states) VALUES ('x', x'9301')")
    with structlog.testing.capture_logs() as logged, opened(tmp_path) as file:
        assert states(file) == {"a": b"older", "b": b"state"}
    assert {each["event"] for each in logged} == {
        "states in the data directory cannot be read and are passed over"
    }


NUMBERS = st.integers(-(2**63), 2**64 - 1)
TEXTS = st.text(max_size=10)


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=60)
    | st.lists(
        st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, NUMBERS, NUMBERS, st.none() | st.binary(max_size=20)),
        max_size=4,
    ).map(msgspec.msgpack.encode)
)
def test_no_bytes_in_a_batch_fail_a_start_or_a_write(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("state")
    with opened(directory) as file:
        file.write([job("a")], [])
    with looking_into(directory) as connection:
        connection.execute("INSERT INTO batches (updated, states) VALUES (?, ?)", (int(time.time()), content))
    with opened(directory) as file, pytest.MonkeyPatch.context() as patch:
        assert "uid-of-a" in {each.ref.uid for each in file.load()}
        patch.setattr(batches, "MAX_ROWS", 0)  # all of them get rows
        file.write([job("b")], [])
        file.prune()
        assert job("b") in file.load()


def test_more_than_this_server_writes_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as file:
        for number in range(9):
            file.write([job(f"job-{number}")], [])
    monkeypatch.setattr(batches, "MAX_ROWS", 4)
    with structlog.testing.capture_logs() as logged, opened(tmp_path) as file:
        assert states(file) == {}
        file.write([job("new")], [])
        assert states(file) == {"new": b"state"}
    assert [each["reason"] for each in logged] == ["it has more states than this server writes"]
    assert len(list(tmp_path.glob(f"{ASIDE}*"))) == 1


def test_batches_that_are_too_old_are_removed_with_what_only_they_have(tmp_path: Path) -> None:
    with opened(tmp_path) as file:
        file.write([job("old"), job("new", b"older")], [])
        file.write([job("new", b"newer")], [])
    with looking_into(tmp_path) as connection:
        old = int(time.time() - BOUNDS.max_age_s - 10)
        connection.execute("UPDATE batches SET updated = ? WHERE id = 1", (old,))
        rows = msgspec.msgpack.Decoder(list[Row]).decode(
            connection.execute("SELECT states FROM batches WHERE id = 1").fetchone()[0]
        )
        aged = msgspec.msgpack.encode([msgspec.structs.replace(row, updated=old) for row in rows])
        connection.execute("UPDATE batches SET states = ? WHERE id = 1", (aged,))
    with opened(tmp_path) as file:
        assert file.prune() == 1
        assert states(file) == {"new": b"newer"}


@pytest.mark.usefixtures("small")
def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as file:
        file.write([job(name, b"1") for name in "abcd"], [])
        before = states(file)

        def interrupted(_table: str, _rows: object) -> None:
            raise sqlite3.OperationalError("interrupted")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file, "_put", interrupted)
            with pytest.raises(Exception, match="OperationalError"):
                file.write([job(name, b"2") for name in "efgh"], [job("a").ref])
        assert states(file) == before
        file.write([job("a", b"3")], [job("b").ref])
        assert states(file) == {"a": b"3", "c": b"1", "d": b"1"}


@pytest.mark.parametrize(
    ("names", "state_bytes"), [([253] * 1100, [170] * 1100), ([8, 8, 253], [255 * 1024, 1000, 256 * 1024])]
)
def test_long_names_and_large_states_are_written_together(
    tmp_path: Path, names: list[int], state_bytes: list[int]
) -> None:
    """A row that is longer than SQLite may make one would keep all others from being written as well."""
    jobs = [
        job(f"{number:06}".ljust(length, "x"), b"s" * size)
        for number, (length, size) in enumerate(zip(names, state_bytes, strict=True))
    ]
    with opened(tmp_path) as file:
        file.write(jobs, [])
    with opened(tmp_path) as file:
        assert len(states(file)) == len(jobs)
