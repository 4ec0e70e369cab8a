"""Who is next of those that wait, by namespace and node."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from visibility_api.flowcontrol.fair_queue import FairQueue


def filled(*keys: tuple[str, int], node: str | None = None, per_node: int = 8) -> FairQueue[tuple[str, int]]:
    queue: FairQueue[tuple[str, int]] = FairQueue(at_a_time=100, per_node=per_node)
    for key in keys:
        queue.push(key, namespace=key[0], node=node)
    return queue


def drain(queue: FairQueue[tuple[str, int]]) -> list[tuple[str, int]]:
    found = []
    while (key := queue.pop()) is not None:
        found.append(key)
        queue.release(key)
    return found


def test_namespaces_take_turns_and_each_keeps_its_order() -> None:
    queue = filled(("big", 1), ("big", 2), ("big", 3), ("small", 1))
    assert drain(queue) == [("big", 1), ("small", 1), ("big", 2), ("big", 3)]


def test_a_namespace_that_comes_later_waits_for_one_round_only() -> None:
    queue = filled(*(("big", n) for n in range(5000)))
    queue.pop()
    queue.push(("small", 1), namespace="small", node=None)
    assert queue.pop() == ("big", 1)
    assert queue.pop() == ("small", 1)


def test_an_urgent_one_goes_ahead_in_its_own_namespace_only() -> None:
    queue = filled(("a", 1), ("a", 2), ("b", 1))
    queue.push(("b", 2), namespace="b", node=None, is_urgent=True)
    queue.push(("a", 2), namespace="a", node=None, is_urgent=True)
    assert drain(queue) == [("a", 2), ("b", 2), ("a", 1), ("b", 1)]


def test_a_full_node_lets_others_pass_and_its_own_come_back_in_order() -> None:
    queue = filled(("a", 1), ("a", 2), ("a", 3), node="full", per_node=1)
    queue.push(("a", 9), namespace="a", node="free")
    assert queue.pop() == ("a", 1)
    assert queue.pop() == ("a", 9)
    assert queue.pop() is None
    assert len(queue) == 2
    queue.release(("a", 1))
    queue.push(("b", 1), namespace="b", node="full")  # nobody who comes later takes what was given back
    assert queue.pop() == ("a", 2)
    assert queue.pop() is None
    queue.remove(("a", 3))
    queue.release(("a", 2))
    assert queue.pop() == ("b", 1)


def test_a_slot_goes_to_the_namespaces_in_turn_however_many_jobs_of_one_wait_for_it() -> None:
    queue = filled(*(("big", n) for n in range(100)), node="full", per_node=1)
    assert queue.pop() == ("big", 0)
    assert queue.pop() is None
    queue.push(("small", 1), namespace="small", node="full")
    assert queue.pop() is None
    queue.release(("big", 0))
    queue.release(queue.pop() or ("", 0))
    assert queue.pop() == ("small", 1)


@pytest.mark.parametrize("node", ["gpu-1", None])
def test_a_namespace_holds_no_more_slots_than_it_leaves_free(node: str | None) -> None:
    """Of a node and of the server alike: whoever comes next finds one, however slow those before are."""
    per_node, at_a_time = (8, 100) if node else (1, 8)
    queue: FairQueue[tuple[str, int]] = FairQueue(at_a_time=at_a_time, per_node=per_node)
    taken = []
    for namespace in ("big", "large", "great", "small"):
        for number in range(100):
            queue.push((namespace, number), namespace=namespace, node=node)
        while (key := queue.pop()) is not None:
            taken.append(key)
    assert [key[0] for key in taken] == ["big"] * 4 + ["large"] * 2 + ["great", "small"]
    for key in taken[:2]:
        queue.release(key)
    assert (queue.pop(), queue.pop()) == (("great", 1), None)  # so one is free again


def test_one_that_is_removed_while_it_holds_a_place_of_its_node_gives_it_back() -> None:
    queue = filled(("a", 1), ("a", 2), ("b", 1), node="full", per_node=1)
    assert queue.pop() == ("a", 1)
    assert queue.pop() is None
    queue.release(("a", 1))
    queue.remove(("a", 2))  # or ("b", 1): whichever came back first
    assert drain(queue) == [("b", 1)]


def test_a_node_that_is_not_known_is_not_bounded() -> None:
    queue = filled(*(("a", n) for n in range(20)), node=None, per_node=2)
    assert sum(queue.pop() is not None for _ in range(20)) == 20


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "urgent", "pop", "release", "remove"]),
            st.integers(0, 11),
        ),
        max_size=120,
    )
)
def test_whatever_happens_no_node_is_overrun_and_nobody_is_lost(events: list[tuple[str, int]]) -> None:
    queue: FairQueue[int] = FairQueue(at_a_time=100, per_node=2)
    waiting: set[int] = set()
    out: set[int] = set()
    node = {n: f"node-{n % 3}" if n % 4 else None for n in range(12)}
    for event, n in events:
        if event in ("push", "urgent") and n not in out:
            queue.push(n, namespace=f"ns-{n % 2}", node=node[n], is_urgent=event == "urgent")
            waiting.add(n)
        elif event == "pop":
            key = queue.pop()
            if key is None:
                full = Counter(node[k] for k in out)
                held = Counter((node[k], k % 2) for k in out)
                assert all(node[k] and held[node[k], k % 2] >= 2 - full[node[k]] for k in waiting)
                continue
            assert key in waiting
            waiting.discard(key)
            out.add(key)
            assert all(count <= 2 for name, count in Counter(node[k] for k in out).items() if name)
        elif event == "release" and n in out:
            queue.release(n)
            out.discard(n)
        elif event == "remove":
            queue.remove(n)
            waiting.discard(n)
        assert len(queue) == len(waiting)
    for n in out:
        queue.release(n)
    rest = []
    while (key := queue.pop()) is not None:
        rest.append(key)
        queue.release(key)
    assert sorted(rest) == sorted(waiting)
    assert not queue._nodes
    assert not queue._lines
