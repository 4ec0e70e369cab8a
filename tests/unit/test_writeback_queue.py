"""The write-back queue's memory of namespaces in which it may not write."""

from __future__ import annotations

from visibility_api.writeback.queue import FORGOTTEN_S, WriteQueue


def test_a_namespace_that_is_held_again_is_no_news_and_one_that_is_gone_is_forgotten() -> None:
    queue = WriteQueue()
    assert queue.hold("gone", until=300.0)
    assert queue.hold("there", until=300.0)
    for day in range(1, 4):
        assert not queue.hold("there", until=300.0 + day * FORGOTTEN_S / 2)
    assert queue.hold("gone", until=300.0 + 2 * FORGOTTEN_S)
