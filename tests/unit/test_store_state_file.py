"""The state file: what was written is read again, and what is not ours is put aside, never read."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings, strategies as st

from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import SavedJob
from visibility_api.store import state_file
from visibility_api.store.state_file import (
    APPLICATION_ID,
    ASIDE,
    FILE,
    MAX_STATE_BYTES,
    SCHEMA_VERSION,
    Bounds,
    StateFile,
    Unavailable,
)

BOUNDS = Bounds(max_bytes=16 * 1024 * 1024, max_age_s=3600.0)


def job(name: str, state: bytes = b"state", *, format_: int = 1, namespace: str = "team-a") -> SavedJob:
    ref = JobRef(resource="trainjobs", namespace=namespace, name=name, uid=f"uid-of-{name}")
    return SavedJob(ref=ref, format=format_, state=state)


@contextlib.contextmanager
def opened(directory: Path, bounds: Bounds = BOUNDS) -> Iterator[StateFile]:
    file = StateFile(directory, bounds)
    try:
        yield file
    finally:
        file.close()


def written(directory: Path, *jobs: SavedJob) -> Path:
    """A directory whose file has these jobs."""
    with opened(directory) as file:
        file.write(jobs, [])
    return directory


def loaded(directory: Path) -> list[SavedJob]:
    with opened(directory) as file:
        return file.load()


def names(directory: Path) -> set[str]:
    return {each.ref.name for each in loaded(directory)}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    directory = written(tmp_path / "made" / "when-needed", job("a", b"1"), job("b", b"\0\xff", format_=2))
    assert loaded(directory) == [job("a", b"1"), job("b", b"\0\xff", format_=2)]
    assert (directory / FILE).stat().st_mode & 0o077 == 0


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.binary(max_size=3000))), max_size=30)
)
def test_it_holds_what_a_dict_would(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[str, bytes | None]]
) -> None:
    directory, expected = tmp_path_factory.mktemp("state"), dict[str, bytes]()
    for name, state in steps:
        with opened(directory) as file:
            if state is None:
                file.write([], [job(name).ref])
                expected.pop(name, None)
            else:
                file.write([job(name, state)], [])
                expected[name] = state
    assert {each.ref.name: each.state for each in loaded(directory)} == expected


def test_a_job_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    again = job("a", b"2")
    ref = JobRef(resource="trainjobs", namespace="team-a", name="a", uid="another")
    again = SavedJob(ref=ref, format=1, state=b"2")
    written(tmp_path, job("a", b"1"), again)
    with opened(tmp_path) as file:
        file.write([], [job("a").ref])
    assert loaded(tmp_path) == [again]


# --- files that are not ours


def spoil(damage: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        content = bytearray(path.read_bytes())
        damage(content)
        path.write_bytes(content)

    return apply


def execute(*statements: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return apply


def overwrite_middle(content: bytearray) -> None:
    content[2048:] = b"\xa5" * (len(content) - 2048)


def shorten(content: bytearray) -> None:
    del content[len(content) // 2 :]


def fill(content: bytearray) -> None:
    content[:] = b"not a database at all, " * 1000


FOREIGN = {
    "text": spoil(fill),
    "cut short": spoil(shorten),
    "overwritten": spoil(overwrite_middle),
    "of another application": execute("PRAGMA application_id = 7"),
    "of no application, with tables": execute("PRAGMA application_id = 0"),
    "of a newer version": execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}"),
    "of a version before the first": execute("PRAGMA user_version = 0"),
    "with other tables": execute("DROP TABLE jobs", "CREATE TABLE jobs (id, what)"),
    "without tables": execute("DROP TABLE jobs"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_not_ours_is_set_aside_whole_and_said_so(kind: str, tmp_path: Path) -> None:
    written(tmp_path, *(job(f"job-{number}", b"x" * 500) for number in range(50)))
    FOREIGN[kind](tmp_path / FILE)
    spoilt = (tmp_path / FILE).read_bytes()
    with structlog.testing.capture_logs() as logged:
        assert loaded(tmp_path) == []
    (event,) = logged
    assert event["event"] == "state file set aside, starting with an empty one"
    assert event["reason"].startswith("it ")
    (aside,) = tmp_path.glob(f"{ASIDE}*")
    assert event["moved_to"] == str(aside)
    assert (aside / FILE).read_bytes() == spoilt
    assert names(written(tmp_path, job("new"))) == {"new"}


def test_a_log_that_is_left_of_another_file_is_never_applied(tmp_path: Path) -> None:
    with opened(tmp_path) as file:
        file.write([job("a")], [])
        log = (tmp_path / f"{FILE}-wal").read_bytes()
    assert log
    (tmp_path / FILE).unlink()
    (tmp_path / f"{FILE}-wal").write_bytes(log)
    assert loaded(tmp_path) == []


def test_what_histories_have_gained_comes_in_order_and_goes_with_the_whole_history_and_with_the_job(
    tmp_path: Path,
) -> None:
    a, b = job("a").ref.uid, job("b").ref.uid
    with opened(tmp_path) as file:
        file.write([job("a"), job("b")], [], points=[(a, b"1"), (b, b"1")])
        file.write([], [], points=[(a, b"2")])
        assert file.load_points() == [(a, b"1"), (b, b"1"), (a, b"2")]
        file.write([], [], [job("a", b"past")], [(b, b"2")])
        assert file.load_points() == [(b, b"1"), (b, b"2")]
        file.write([], [job("b").ref])
        assert file.load_points() == []


def test_a_history_goes_with_its_job_and_with_age(tmp_path: Path) -> None:
    with opened(tmp_path) as file:
        file.write([job("a"), job("b")], [], [job("a", b"past"), job("b", b"past")])
        file.write([], [job("a").ref])
        assert file.load_histories() == [job("b", b"past")]
        file._connection.execute("UPDATE histories SET updated = 0")
        assert file.prune() == 1
        assert (file.load(), file.load_histories()) == ([job("b")], [])


def test_histories_make_room_before_jobs_do(tmp_path: Path) -> None:
    bounds = Bounds(max_bytes=512 * 1024, max_age_s=3600.0)
    with opened(tmp_path, bounds) as file:
        file.write([job(f"j{n}") for n in range(50)], [])
        for n in range(50):
            file.write([], [], [job(f"j{n}", bytes(12 * 1024))])
        assert len(file.load()) == 50
        assert 10 < len(file.load_histories()) < 50


def test_the_last_few_that_were_set_aside_are_kept(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / FILE).write_bytes(b"not a database %d" % number)
        assert loaded(tmp_path) == []
    kept = sorted(tmp_path.glob(f"{ASIDE}*"))
    assert [(each / FILE).read_bytes() for each in kept] == [b"not a database 3", b"not a database 4"]


def test_rows_of_other_types_are_passed_over(tmp_path: Path) -> None:
    written(tmp_path, job("a"), job("b"))
    execute("UPDATE jobs SET state = 'text' WHERE name = 'a'")(tmp_path / FILE)
    assert names(tmp_path) == {"b"}


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with structlog.testing.capture_logs() as logged:
        written(tmp_path, job("a"))
    assert (names(tmp_path), logged) == ({"a"}, [])
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


# --- bounds


def test_rows_that_are_too_old_are_removed(tmp_path: Path) -> None:
    written(tmp_path, job("old"), job("new"))
    old = int(time.time() - BOUNDS.max_age_s - 10)
    execute(f"UPDATE jobs SET updated = {old} WHERE name = 'old'")(tmp_path / FILE)
    with opened(tmp_path) as file:
        assert file.prune() == 1
        assert file.prune() == 0
    assert names(tmp_path) == {"new"}


def test_at_its_size_limit_large_states_go_first_then_the_oldest(tmp_path: Path) -> None:
    bounds = Bounds(max_bytes=1024 * 1024, max_age_s=3600.0)
    large = b"x" * state_file.LARGE_STATE_BYTES * 2
    with opened(tmp_path, bounds) as file:
        file.write([job(f"large-{number}", large) for number in range(2)], [])
        for number in range(2000):
            file.write([job(f"job-{number}", b"x" * 900)], [])
    assert (tmp_path / FILE).stat().st_size <= bounds.max_bytes
    kept = names(tmp_path)
    assert not {"large-0", "large-1"} & kept
    assert "job-1999" in kept
    assert "job-0" not in kept
    assert len(kept) > 500


def test_at_its_size_limit_the_namespace_that_has_most_loses_its_oldest(tmp_path: Path) -> None:
    bounds = Bounds(max_bytes=1024 * 1024, max_age_s=3600.0)
    with opened(tmp_path, bounds) as file:
        file.write([], [], [job(f"other-{number}", b"x" * 900, namespace="b") for number in range(50)])
        for number in range(2000):
            file.write([], [], [job(f"flood-{number}", b"x" * 900)])
        kept = {each.ref.name for each in file.load_histories()}
    assert {f"other-{number}" for number in range(50)} <= kept
    assert "flood-1999" in kept
    assert "flood-0" not in kept


def test_one_state_has_a_limit_and_a_larger_one_keeps_no_other_out(tmp_path: Path) -> None:
    written(tmp_path, job("a", b"x" * (MAX_STATE_BYTES + 1)), job("b", b"x" * MAX_STATE_BYTES))
    assert names(tmp_path) == {"b"}


# --- directories that cannot be used


def test_a_second_process_is_told_that_the_directory_is_in_use(tmp_path: Path) -> None:
    with opened(tmp_path) as file:
        file.write([job("a")], [])
        with pytest.raises(Unavailable, match=r"^another process uses it$"):
            StateFile(tmp_path, BOUNDS)
    assert names(tmp_path) == {"a"}


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As on a full disk: no file may become larger. Python ignores the signal."""
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_fails_the_write_and_harms_nothing(tmp_path: Path) -> None:
    many = [job(f"more-{number}", b"x" * 900) for number in range(2000)]
    with opened(tmp_path) as file:
        file.write([job("a")], [])
        with largest_file(512 * 1024), pytest.raises(Unavailable, match=r"disk is full|input/output error"):
            file.write(many, [])
        file.write([job("b")], [])
    assert names(tmp_path) == {"a", "b"}


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_directory_that_cannot_be_written_is_not_used(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o500)
    with unprivileged(), pytest.raises(Unavailable, match=r"^Permission denied$"):
        StateFile(directory, BOUNDS)


@pytest.mark.parametrize("name", ["", FILE, "lock"])
def test_something_else_in_its_place_is_named(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    if name:
        (directory / name).mkdir(parents=True)
    else:
        directory.write_text("a file")
    with pytest.raises(Unavailable, match=r"^(Is a directory|File exists)$"):
        StateFile(directory, BOUNDS)


VIEW = """CREATE VIEW jobs AS
    WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)
    SELECT n AS id, n AS uid, n AS resource, n AS namespace, n AS name, 0 AS updated, 1 AS format,
        x'00' AS state FROM r"""
HOSTILE = {
    "a view without end": ("DROP TABLE jobs", VIEW),
    "a trigger": ("CREATE TRIGGER t AFTER INSERT ON jobs BEGIN DELETE FROM jobs; END",),
    "a virtual table": ("DROP TABLE jobs", "CREATE VIRTUAL TABLE jobs USING fts5(uid)"),
    "a name of a megabyte": ("UPDATE jobs SET name = hex(zeroblob(1000000))",),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_with_our_mark_that_holds_what_we_never_write_is_set_aside(kind: str, tmp_path: Path) -> None:
    written(tmp_path, job("bert"))
    execute(*HOSTILE[kind])(tmp_path / FILE)
    assert loaded(tmp_path) == []
    assert len(list(tmp_path.glob(f"{ASIDE}*"))) == 1


def test_rows_that_are_too_large_are_passed_over_and_all_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, *(job(f"job-{number}", b"x" * 1000) for number in range(20)))
    execute(
        f"UPDATE jobs SET state = zeroblob({MAX_STATE_BYTES + 1}) WHERE name = 'job-0'",
        "UPDATE jobs SET name = hex(zeroblob(1000)) WHERE name = 'job-1'",
    )(tmp_path / FILE)
    assert names(tmp_path) == {f"job-{number}" for number in range(2, 20)}
    monkeypatch.setattr(state_file, "MAX_LOADED_BYTES", 5000)
    assert len(loaded(tmp_path)) == 5


def test_a_file_that_is_many_times_too_large_is_set_aside_unread(tmp_path: Path) -> None:
    written(tmp_path, job("bert"))
    os.truncate(tmp_path / FILE, 5 * BOUNDS.max_bytes)
    assert loaded(tmp_path) == []
    assert len(list(tmp_path.glob(f"{ASIDE}*"))) == 1


@pytest.mark.parametrize("name", [FILE, "lock"])
def test_a_link_in_its_place_is_not_followed(name: str, tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    directory.mkdir()
    (directory / name).symlink_to(elsewhere)
    with pytest.raises(Unavailable, match=r"^Too many levels of symbolic links$"):
        StateFile(directory, BOUNDS)
    assert not elsewhere.exists()


def test_a_pipe_in_its_place_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(Unavailable, match=r"^Invalid argument$"):
        StateFile(tmp_path, BOUNDS)


def test_a_name_that_the_disk_has_damaged_keeps_no_other_job_out(tmp_path: Path) -> None:
    written(tmp_path, *(job(f"job-{number}") for number in range(20)))
    damaged = bytearray((tmp_path / FILE).read_bytes())
    damaged[damaged.index(b"team-ajob-7") + 10] ^= 0x80
    (tmp_path / FILE).write_bytes(damaged)
    assert names(tmp_path) >= {f"job-{number}" for number in range(20) if number != 7}
