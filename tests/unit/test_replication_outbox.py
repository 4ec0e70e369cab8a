"""What a member of replicas that share the jobs has found out and not reported yet."""

from __future__ import annotations

from tests.jobs import document
from visibility_api.replication.frames import Advanced, Changed, FrameReader, Gone
from visibility_api.replication.member import Outbox
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore

BERT, GPT = (document(name).job.ref for name in ("bert", "gpt"))


def outbox(*, max_changes: int = 100, max_bytes: int = 2**20) -> Outbox:
    return Outbox(
        JobLog(MemoryStore(base_revision=1)), lambda _ref: b"", max_changes=max_changes, max_bytes=max_bytes
    )


def taken(box: Outbox) -> list[tuple[str, int | str | None]]:
    """What would be reported: of each job the step of its document, and what else is said of it."""
    found: list[tuple[str, int | str | None]] = []
    for frame in FrameReader().feed(box.take()):
        match frame:
            case Changed():
                found.append((frame.document.job.ref.name, frame.document.step))
            case Gone() | Advanced():
                found.append((frame.ref.name, type(frame).__name__))
    return found


def put(box: Outbox, *changes: tuple[str, int]) -> None:
    for name, step in changes:
        box.put(document(name, step=step))


def test_each_change_is_reported_in_the_order_in_which_it_was_found_out() -> None:
    box = outbox()
    put(box, ("bert", 1), ("gpt", 1), ("bert", 2))
    box.kept(BERT, ())
    box.kept(GPT, ())
    box.delete(GPT)
    put(box, ("bert", 3))
    assert taken(box) == [
        ("bert", 1), ("gpt", 1), ("bert", 2), ("gpt", "Gone"), ("bert", 3), ("bert", "Advanced")
    ]  # fmt: skip
    assert taken(box) == []


def test_beyond_the_limit_each_jobs_last_change_is_kept() -> None:
    for box in (outbox(max_changes=3), outbox(max_bytes=1)):
        put(box, *(("bert", step) for step in range(1, 1000)), ("gpt", 1), ("gpt", 2), ("bert", 1000))
        assert taken(box)[-2:] == [("gpt", 2), ("bert", 1000)]
        put(box, *(("bert", step) for step in range(1, 1000)))
        assert len(taken(box)) <= 3


def test_a_job_that_was_deleted_beyond_the_limit_ends_with_its_last_change() -> None:
    box = outbox(max_changes=2)
    put(box, ("bert", 1), ("bert", 2), ("bert", 3))
    box.kept(BERT, ())
    box.delete(BERT)
    put(box, ("gpt", 1), ("gpt", 2))
    assert taken(box) == [("bert", 1), ("bert", 3), ("bert", "Gone"), ("gpt", 2)]


def test_what_is_known_of_a_job_that_is_given_up_is_reported_as_it_was_then() -> None:
    box = outbox()
    put(box, ("bert", 1))
    box.kept(BERT, ())
    box.seal()
    put(box, ("gpt", 1))
    assert taken(box) == [("bert", 1), ("bert", "Advanced"), ("gpt", 1)]
