"""What outlives a job: written once it has ended or is deleted, found later, removed by age and size."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import tracemalloc
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.jobs import NOW, RANK0, document
from visibility_api.archive.backlog import MAX_WAITING_BYTES, Backlog, Encoded, Waiting
from visibility_api.archive.bucket import MAX_OBJECT_BYTES, Bucket, Unavailable
from visibility_api.archive.index import MAX_INDEX_BYTES, Line, place_of, read_lines, write_lines
from visibility_api.archive.keeper import AT_ONCE, DROPPED, SETTLED_S, Keeper, Retention
from visibility_api.archive.kubernetes_events import MAX_EVENTS, KubernetesEvents
from visibility_api.archive.namespaces import Namespaces
from visibility_api.archive.shelf import LISTED_S, Shelf
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import JobRef, Phase
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.errors import ApiError
from visibility_api.kubeapi.job_records import JobRecords
from visibility_api.kubeapi.record_encoding import encode_record

YEAR = Retention(age=timedelta(days=365), bytes_of_namespace=2**30)


REFUSED: list[dict[str, Any]] = [{"refused": True}]


class Cluster:
    """Answers for namespaces."""

    def __init__(self) -> None:
        self.uids = {"team-a": "ns-1", "team-b": "ns-2"}
        self.made_at: str | None = None

    async def get(self, path: str) -> bytes:
        if (uid := self.uids.get(path.rpartition("/")[2])) is None:
            raise ApiError(404, "NotFound")
        return json.dumps({"metadata": {"uid": uid, "creationTimestamp": self.made_at}}).encode()


class Past:
    """An archive in a directory, the jobs that exist, and a clock."""

    def __init__(self, directory: Path, retention: Retention = YEAR) -> None:
        self.directory = directory
        self.now = 0.0
        self.jobs: dict[JobRef, JobProgress] = {}
        self.counted: dict[str, int] = {}
        self.cluster = Cluster()
        self.bucket = Bucket(str(directory))
        self.is_owner = True
        self.deleted = Backlog()
        self.keeper = self.new_keeper(retention, deleted=self.deleted)
        namespaces = Namespaces(self.cluster, clock=lambda: self.now)
        self.shelf = Shelf(self.bucket, namespaces, clock=lambda: self.now)
        self.log: bytes | None = None  # what is read of each job's
        self.histories: dict[JobRef, JobHistory] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}  # of Kubernetes, by selector
        self.may_read_logs = True
        self.records = JobRecords(self.shelf, self, now=lambda: NOW)

    def new_keeper(self, retention: Retention = YEAR, *, deleted: Backlog | None = None) -> Keeper:
        def count(outcome: str, jobs: int) -> None:
            self.counted[outcome] = self.counted.get(outcome, 0) + jobs

        return Keeper(
            self.bucket,
            Namespaces(self.cluster, clock=lambda: self.now),
            retention,
            encode=lambda each, history, gone: encode_record(each, history, gone, "TrainJob"),
            read_log=self.read_log,
            find=self.jobs.get,
            read_events=KubernetesEvents(cast(Any, self)).read,
            history=lambda ref: self.histories.get(ref, JobHistory()),
            may_write=lambda: self.is_owner,
            deleted=deleted,
            count=count,
            clock=lambda: self.now,
        )

    async def get(self, path: str, *, query: Sequence[tuple[str, str]], **_limits: float) -> bytes:
        """As a Kubernetes client, for Events."""
        assert path.endswith("/events")
        if (found := self.events.get(dict(query)["fieldSelector"], [])) == REFUSED:
            raise ApiError(403, "Forbidden")
        return json.dumps({"items": found}).encode()

    async def read_log(self, _document: JobProgress) -> bytes | None:
        return self.log

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        assert (attributes.resource, attributes.subresource, attributes.name) == ("pods", "log", "bert-0")
        if not self.may_read_logs:
            raise AccessDenied(identity, attributes)

    def show(self, **changes: Any) -> JobProgress:
        shown = document(**changes)
        self.jobs[shown.job.ref] = shown
        self.keeper.changed(shown)
        return shown

    def delete(self, shown: JobProgress) -> None:
        self.keeper.gone(shown.job.ref)
        del self.jobs[shown.job.ref]

    async def settle(self) -> None:
        self.now += max(SETTLED_S, LISTED_S) + 1
        await self.keeper.write()

    def files(self) -> list[str]:
        return sorted(str(each.relative_to(self.directory)) for each in self.directory.rglob("*.gz"))

    async def names(self, namespace: str | None = "team-a") -> list[str]:
        return [line.name for line in await self.shelf.newest(namespace, 1000)]


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


async def test_a_job_that_has_ended_is_found_when_it_is_gone(past: Past) -> None:
    shown = past.show(uid="0123456789", phase=Phase.SUCCEEDED, ended_at=NOW, metrics=(("loss", "0.5"),))
    await past.settle()
    past.delete(shown)
    await past.settle()
    assert await past.names() == ["bert-01234567"]
    found = await past.shelf.find("team-a", "bert-01234567")
    assert found is not None
    record = json.loads(await past.shelf.record(*found) or b"")
    assert record["summary"]["endTime"] == "2026-01-02T03:04:05Z"
    assert record["progress"]["metrics"] == [{"name": "loss", "value": "0.5"}]
    assert record["history"]["kind"] == "JobRecordHistory"
    assert past.counted == {"Written": 1}


async def test_a_running_job_is_kept_when_it_is_deleted_or_begins_a_new_attempt(past: Past) -> None:
    shown = past.show(attempts=1)
    await past.settle()
    assert past.files() == []
    past.delete(shown)
    again = past.show(name="again", attempts=1)
    past.show(name="again", attempts=2)
    await past.settle()
    lines = {line.name: json.loads(line.content) for line in await past.shelf.newest("team-a", 1000)}
    assert lines["bert-uid-of-t"]["summary"]["deleted"] is True
    assert lines["again-uid-of-t"]["summary"]["attempts"] == 2
    assert again.job.ref in past.jobs


async def test_what_is_there_already_is_not_written_again_by_the_next_owner(past: Past) -> None:
    shown = past.show(phase=Phase.FAILED, ended_at=NOW)
    await past.settle()
    before = {name: (past.directory / name).stat().st_mtime_ns for name in past.files()}
    past.keeper = past.new_keeper()
    past.keeper.changed(shown)
    await past.settle()
    assert {name: (past.directory / name).stat().st_mtime_ns for name in past.files()} == before
    assert past.counted == {"Written": 1, "Unchanged": 1}


async def test_a_namespace_made_anew_does_not_show_the_former_ones_jobs(past: Past) -> None:
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    past.cluster.uids["team-a"] = "ns-9"
    past.now += 60
    assert await past.names() == []
    assert await past.names(None) == ["bert-uid-of-t"]
    del past.cluster.uids["team-a"]
    past.now += 60
    assert await past.names() == ["bert-uid-of-t"]  # whoever may still read it has rights in all


async def test_jobs_wait_while_the_archive_cannot_be_used(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = past.bucket.put

    async def fail(_path: str, _content: bytes) -> None:
        raise Unavailable("no space left")

    monkeypatch.setattr(past.bucket, "put", fail)
    ended = past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    past.delete(past.show(name="deleted"))
    await past.settle()
    assert past.keeper.fault == "no space left"
    assert len(past.keeper) == 2
    past.delete(ended)
    monkeypatch.setattr(past.bucket, "put", put)
    await past.settle()
    assert past.keeper.fault is None
    assert sorted(await past.names()) == ["bert-uid-of-t", "deleted-uid-of-t"]


async def test_a_job_that_is_deleted_before_its_line_is_written_is_written_once_more(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, shown = past.bucket.put, past.show(phase=Phase.SUCCEEDED, ended_at=NOW)

    async def fail(path: str, content: bytes) -> None:
        if "index" in path:
            raise Unavailable("busy")
        await put(path, content)

    monkeypatch.setattr(past.bucket, "put", fail)
    await past.settle()
    past.delete(shown)
    monkeypatch.setattr(past.bucket, "put", put)
    await past.settle()
    assert await past.names() == ["bert-uid-of-t"]


async def test_a_day_that_cannot_be_read_holds_up_no_other(past: Past) -> None:
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    (index,) = [each for each in past.files() if "index" in each]
    (past.directory / index).write_bytes(b"this is no gzip at all")
    past.show(name="late", phase=Phase.SUCCEEDED, ended_at=NOW)
    past.show(name="other", namespace="team-b", phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    assert past.keeper.fault is not None
    assert await past.names(None) == ["other-uid-of-t"]  # the damaged day is left out


async def test_a_job_of_a_former_namespace_is_not_kept_below_the_new_one(past: Past) -> None:
    past.cluster.made_at = NOW.isoformat()  # after the job was
    past.delete(past.show())
    await past.settle()
    assert await past.names() == []
    assert await past.names(None) == ["bert-uid-of-t"]


async def test_a_slow_archive_ends_no_term(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def hang(_path: str) -> bytes | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(past.bucket, "get", hang)
    monkeypatch.setattr("visibility_api.archive.keeper.ROUND_S", 0.01)
    past.delete(past.show())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(past.keeper.run())
        await asked.wait()
        running.cancel()
    assert running.cancelled()
    assert len(past.new_keeper(deleted=past.deleted)) == 1  # it waits for the next term


def test_an_index_has_the_jobs_that_ended_last_and_a_record_few_labels() -> None:
    lines = [Line(f"2026-01-{day:02}", "n", f"u{day}", b"x" * 1024 * 1024) for day in range(1, 31)]
    content = write_lines(lines)
    assert MAX_INDEX_BYTES - 2 * 1024 * 1024 < len(content) <= MAX_INDEX_BYTES
    shown = document(labels={f"label-{number}": "x" * 60 for number in range(1000)})
    assert len(encode_record(shown, None, False, "TrainJob").line) < 8192


async def test_of_deleted_jobs_a_bounded_number_of_bytes_waits_and_who_has_most_loses_first(
    past: Past,
) -> None:
    past.delete(past.show(namespace="team-b"))  # the oldest
    large = (("m", "1" * 60),) * 256
    count = 0
    while past.counted.get(DROPPED, 0) == 0:
        count += 1
        message = "x" * (1024 * 1024)
        past.delete(past.show(name=f"job-{count}", message=message, metrics=large))
    assert len(past.keeper) == count >= MAX_WAITING_BYTES // (2 * 1024 * 1024)
    await past.settle()
    assert len(await past.names("team-b")) == 1
    assert "job-1-uid-of-t" not in await past.names()


def test_a_job_that_is_deleted_in_two_terms_counts_once() -> None:
    backlog, job = Backlog(), document().job
    kept = Waiting(job.ref, job.created_at, Encoded(b"{}", bytes(MAX_WAITING_BYTES // 2 + 1)))
    assert backlog.add(kept) == backlog.add(kept) == []
    assert backlog.take(job.ref) == kept


async def test_a_flood_of_one_namespace_holds_up_no_record_of_another(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store takes 50 ms for each, so 20 a second are written."""
    put, written = past.bucket.put, list[str]()

    async def noting(path: str, content: bytes) -> None:
        written.append(path)
        await put(path, content)

    monkeypatch.setattr(past.bucket, "put", noting)
    for number in range(2 * AT_ONCE):
        past.delete(past.show(name=f"job-{number}", namespace="team-b"))
    past.delete(past.show(name="deleted"))
    past.show(name="ended", phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    mine = [number for number, path in enumerate(written) if "records/team-a" in path]
    assert len(mine) == 2
    assert mine[-1] <= AT_ONCE  # and one index
    assert len(past.keeper) == 0


async def test_a_namespace_whose_index_takes_long_waits_and_others_do_not(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of 50,000 jobs takes a fifth of a second each time; Python can do nothing else meanwhile."""

    def slow(content: bytes) -> dict[str, Line]:
        past.now += 0.25
        return read_lines(content)

    monkeypatch.setattr("visibility_api.archive.keeper.read_lines", slow)
    past.delete(past.show())
    await past.keeper.write()
    past.delete(past.show(name="next"))
    past.delete(past.show(namespace="team-b"))
    await past.keeper.write()
    assert len(past.keeper) == 1
    past.now += 2.5
    await past.keeper.write()
    assert len(past.keeper) == 0


def _age(past: Past, days: int) -> Callable[[str], None]:
    def age(name: str) -> None:
        moment = (datetime.now(UTC) - timedelta(days=days)).timestamp()
        os.utime(past.directory / name, (moment, moment))

    return age


async def test_days_that_are_too_old_are_removed_whole(past: Past) -> None:
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    past.show(name="later", namespace="team-b", phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    for name in past.files():
        _age(past, 366 if "team-a" in name else 364)(name)
    past.now += 3600
    await past.settle()
    assert await past.names(None) == ["later-uid-of-t"]
    assert all("team-b" in name for name in past.files())


async def test_of_a_namespace_that_is_too_large_the_oldest_days_are_removed(tmp_path: Path) -> None:
    past = Past(tmp_path, Retention(age=timedelta(days=365), bytes_of_namespace=1))
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    past.now += 3600
    await past.settle()
    assert past.files() == []


def test_only_paths_of_the_archive_are_taken_for_its_own() -> None:
    found = place_of("v1/index/team-a/ns-1/2026-01-02.ndjson.gz")
    assert found is not None
    assert found.day == "2026-01-02"
    assert place_of("v1/records/team-a/ns-1/2026-01-02/u1.json.gz") == found
    for other in ("v1/index/team-a/2026.gz", "v2/index/a/b/c", "v1/index/../b/c", "v1/index/a//c", ""):
        assert place_of(other) is None, other


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"this is no gzip at all", "damaged"),
        (gzip.compress(b"x" * 100)[:-10], "cut"),
        (gzip.compress(b"\0" * (MAX_OBJECT_BYTES + 1), 1), "larger"),
    ],
    ids=["damaged", "cut", "bomb"],
)
async def test_an_object_that_cannot_be_read_is_named(past: Past, content: bytes, what: str) -> None:
    (past.directory / "x.gz").write_bytes(content)
    with pytest.raises(Unavailable, match=rf"x\.gz is .*{what}"):
        await past.bucket.get("x.gz")


async def test_a_line_of_the_index_that_cannot_be_read_costs_itself(past: Past) -> None:
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    (name,) = [each for each in past.files() if "index" in each]
    file = past.directory / name
    file.write_bytes(gzip.compress(b"{}\n\xff\n" + gzip.decompress(file.read_bytes()) + b'{"metadata":'))
    past.now += LISTED_S + 1
    assert await past.names() == ["bert-uid-of-t"]


async def test_a_log_stays_when_its_pod_is_gone_and_goes_with_its_record(past: Past) -> None:
    past.log = b'{"podName":"bert-0","lines":["the end"]}'
    past.show(name="bert", uid="0123456789", phase=Phase.FAILED, ended_at=NOW)
    await past.settle()
    past.log = None
    past.show(name="bert", uid="0123456789", phase=Phase.FAILED, ended_at=NOW, attempts=2)
    await past.settle()
    found = await past.shelf.find("team-a", "bert-01234567")
    assert found is not None
    assert b"the end" in (await past.shelf.log(*found) or b"")
    await past.shelf.remove(*found)
    assert [each for each in past.files() if "0123456789" in each] == []


async def test_a_log_that_does_not_come_holds_up_no_record_of_the_round(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never(_document: JobProgress) -> bytes | None:
        asked.set()
        return await asyncio.Future()

    monkeypatch.setattr("visibility_api.archive.keeper.LOGS_S", 3600.0)
    monkeypatch.setattr(past.keeper, "_read_log", never)
    past.show(name="bert", uid="0123456789", phase=Phase.FAILED, ended_at=NOW)
    past.delete(past.show(name="gone", uid="9876543210", namespace="team-b"))
    past.now += SETTLED_S + 1
    round_ = asyncio.create_task(past.keeper.write())
    await asked.wait()
    round_.cancel()
    assert await past.names() == ["bert-01234567"]
    assert await past.names("team-b") == ["gone-98765432"]


async def test_slow_logs_of_one_namespace_cost_another_none(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = asyncio.Event()

    async def read_log(document: JobProgress) -> bytes | None:
        if document.job.ref.namespace == "team-a":
            read.set()
            return None
        return await asyncio.Future()

    monkeypatch.setattr("visibility_api.archive.keeper.LOGS_S", 3600.0)
    monkeypatch.setattr(past.keeper, "_read_log", read_log)
    for number in range(50):
        past.show(name=f"slow-{number}", namespace="team-b", phase=Phase.FAILED, ended_at=NOW)
    past.show(phase=Phase.FAILED, ended_at=NOW)
    past.now += SETTLED_S + 1
    round_ = asyncio.create_task(past.keeper.write())
    async with asyncio.timeout(5):
        await read.wait()
    round_.cancel()


async def test_the_next_owner_reads_no_log_of_a_job_that_is_there(past: Past) -> None:
    past.show(name="bert", uid="0123456789", phase=Phase.FAILED, ended_at=NOW)
    await past.settle()
    past.log = b'{"podName":"bert-0","lines":[]}'
    past.keeper = past.new_keeper()
    past.keeper.changed(past.jobs[next(iter(past.jobs))])
    await past.settle()
    assert [each for each in past.files() if "/logs/" in each] == []


async def test_removing_a_record_removes_its_line(past: Past) -> None:
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    past.show(name="other", phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    found = await past.shelf.find("team-a", "bert-uid-of-t")
    assert found is not None
    await past.shelf.remove(*found)
    assert await past.names() == ["other-uid-of-t"]
    assert len(past.files()) == 2


async def test_the_last_to_end_comes_first_over_days_and_namespaces(past: Past) -> None:
    for number, namespace in enumerate(("team-a", "team-b", "team-a", "team-b")):
        ended = NOW + timedelta(hours=[3, 1, 2, 4][number])
        past.show(
            name=f"j{number}", namespace=namespace, uid=f"{number}" * 8, phase=Phase.SUCCEEDED, ended_at=ended
        )
    await past.settle()
    found = await past.names(None)
    assert [name[:2] for name in found] == ["j3", "j0", "j2", "j1"]


async def test_an_index_is_read_once_while_it_does_not_change(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    reads: list[str] = []
    get = past.bucket.get

    async def counting(path: str) -> bytes | None:
        reads.append(path)
        return await get(path)

    monkeypatch.setattr(past.bucket, "get", counting)
    for _ in range(3):
        past.now += LISTED_S + 1
        await past.names()
    assert len(reads) == 1


async def test_an_index_is_in_memory_once_however_many_ask_for_it(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of 50,000 jobs takes 24 MiB, and as much again for its lines."""
    past.show(phase=Phase.SUCCEEDED, ended_at=NOW)
    await past.settle()
    get, reads = past.bucket.get, 0

    async def counting(path: str) -> bytes | None:
        nonlocal reads
        reads += 1
        return await get(path)

    monkeypatch.setattr(past.bucket, "get", counting)
    await asyncio.gather(*(past.names() for _ in range(20)))
    assert reads == 1


async def test_of_large_indexes_of_a_namespace_one_is_read_at_a_time(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(4):
        shown = document(name=f"j{day}", phase=Phase.FAILED, ended_at=NOW)
        made = replace(shown, job=replace(shown.job, created_at=NOW + timedelta(days=day)))
        past.jobs[made.job.ref] = made
        past.keeper.changed(made)
    await past.settle()
    get, now_read, most = past.bucket.get, 0, 0

    async def counting(path: str) -> bytes | None:
        nonlocal now_read, most
        now_read += 1
        most = max(most, now_read)
        found = await get(path)
        now_read -= 1
        return found

    monkeypatch.setattr(past.bucket, "get", counting)
    monkeypatch.setattr("visibility_api.archive.shelf.LARGE_BYTES", 1)
    assert len(await past.names()) == 4
    assert most == 1


async def test_a_list_looks_through_so_many_bytes_of_records(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long their lines are: labels of a job are of its author's choice."""
    shown = document(phase=Phase.FAILED, ended_at=NOW)
    past.jobs[shown.job.ref] = shown
    past.keeper.changed(shown)
    await past.settle()
    assert len(await past.names()) == 1
    monkeypatch.setattr("visibility_api.archive.shelf.MAX_LIST_BYTES", 500)
    with pytest.raises(Unavailable, match="ask by namespace"):
        await past.names()


async def _write_days(past: Past, days: int) -> None:
    """Of 1 MiB each, of few bytes when they are compressed."""
    for day in range(1, days + 1):
        date = f"2026-01-{day:02}"
        line = {"metadata": {"name": date, "uid": date, "labels": {"a": "x" * (1 << 20)}}}
        line["summary"] = {"endTime": f"{date}T00:00:00Z"}
        path = f"v1/index/team-a/ns-1/{date}.ndjson.gz"
        await past.bucket.put(path, json.dumps(line).encode() + b"\n")


async def test_a_list_holds_few_of_the_days_that_it_looks_through(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visibility_api.archive.shelf.MAX_CACHED_BYTES", 0)
    monkeypatch.setattr("visibility_api.archive.shelf.LARGE_BYTES", 1)
    await _write_days(past, 12)
    tracemalloc.start()
    try:
        found = await past.shelf.newest("team-a", 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [line.name for line in found] == ["2026-01-12", "2026-01-11"]
    assert peak < 8 << 20


async def test_a_list_that_is_too_long_is_refused_unread_when_it_is_known(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused lists of 500 MB kept a thread at work all the time."""
    monkeypatch.setattr("visibility_api.archive.shelf.MAX_CACHED_BYTES", 0)
    monkeypatch.setattr("visibility_api.archive.shelf.MAX_LIST_BYTES", 5 << 20)
    await _write_days(past, 12)
    reads = 0
    get = past.bucket.get

    async def counting(path: str) -> bytes | None:
        nonlocal reads
        reads += 1
        return await get(path)

    monkeypatch.setattr(past.bucket, "get", counting)
    for _ in range(2):
        with pytest.raises(Unavailable, match="ask by namespace"):
            await past.names()
        assert 5 < reads <= 12


def _event(second: int, **more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "bert-node-0-0-abcde", "namespace": "team-a"}
    at = f"2026-01-23T10:00:{second:02}Z"
    return {"involvedObject": about, "reason": "BackOff", "message": f"{second}", "lastTimestamp": at, **more}


async def test_a_record_has_the_last_events_about_its_job_and_pods(past: Past) -> None:
    def kept(uid: str) -> list[dict[str, Any]]:
        (file,) = past.directory.rglob(f"records/**/{uid}.json.gz")
        found: list[dict[str, Any]] = json.loads(gzip.decompress(file.read_bytes())).get("events", [])
        return found

    def show(**changes: Any) -> JobProgress:
        shown = document(**changes)
        made = replace(shown, job=replace(shown.job, rank0=RANK0))
        past.jobs[made.job.ref] = made
        past.keeper.changed(made)
        return made

    past.events["involvedObject.kind=Pod,involvedObject.name=bert-node-0-0-abcde"] = [
        _event(second, type="Warning", count=3, series={"count": 7}) for second in range(59, 0, -1)
    ]
    past.events["involvedObject.uid=0123"] = [
        _event(
            0, message="m" * 2000, lastTimestamp=None, eventTime="2026-01-23T11:00:00.123456Z", type="\x1b[2J"
        )
    ]
    show(uid="0123", phase=Phase.FAILED, ended_at=NOW)
    await past.settle()
    *_, before, last = kept("0123")
    assert len(kept("0123")) == MAX_EVENTS
    assert before == {
        "type": "Warning",
        "reason": "BackOff",
        "message": "59",
        "count": 7,
        "object": {"kind": "Pod", "name": "bert-node-0-0-abcde"},
        "firstTime": "2026-01-23T10:00:59Z",
        "lastTime": "2026-01-23T10:00:59Z",
    }
    assert (len(last["message"]), last["type"], last["count"]) == (1024, "\ufffd[2J", 1)
    past.delete(show(uid="4567"))  # what is deleted has those of its pods, too
    await past.settle()
    assert len(kept("4567")) == MAX_EVENTS
    past.events["involvedObject.uid=89ab"] = REFUSED
    show(uid="89ab", phase=Phase.FAILED, ended_at=NOW)
    await past.settle()
    assert kept("89ab") == []  # and it is written all the same
