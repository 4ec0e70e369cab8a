"""Hostile JSON is cut at a depth, and nothing else of it changes. Events are read in one pass."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import timeit
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from visibility_api.kube.decoding import truncate_depth
from visibility_api.kube.object_reader import ObjectReader
from visibility_api.workloads.objects import AnyObject, Pod, mark_unread

JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def cut(value: Any, depth: int) -> Any:
    """The same by plain recursion."""
    if isinstance(value, (dict, list)) and depth == 0:
        return None
    if isinstance(value, dict):
        return {key: cut(inner, depth - 1) for key, inner in value.items()}
    return [cut(inner, depth - 1) for inner in value] if isinstance(value, list) else value


@given(JSON, st.integers(1, 5), st.booleans())
async def test_what_lies_deeper_is_null_and_the_rest_is_as_it_was(
    value: Any, depth: int, is_ascii: bool
) -> None:
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    assert json.loads(await truncate_depth(body, max_depth=depth)) == cut(value, depth)


@given(st.binary())
@example(b"\0\0\0\0[{")  # never closed
async def test_bytes_that_are_no_json_do_no_harm(body: bytes) -> None:
    assert len(await truncate_depth(body, max_depth=1)) <= len(body) + 4 * (
        body.count(b"{") + body.count(b"[")
    )


async def test_nesting_costs_no_recursion() -> None:
    assert await truncate_depth(b"[" * 100_000 + b"]" * 100_000, max_depth=2) == b"[[null]]"


def events() -> list[bytes]:
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "bert-node-0-0-abcde",
            "namespace": "team-a",
            "uid": "uid",
            "resourceVersion": "17",
            "labels": {"jobset.sigs.k8s.io/restart-attempt": "2"},
            "annotations": {"resourceVersion": "99", "visibility.trainer.kubeflow.org/path": "/tmp/x"},
        },
        "spec": {
            "containers": [{"name": "node", "env": [{"name": "TRAINJOB_PROGRESS_FILE", "value": "/a"}]}]
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return [msgspec.json.encode({"type": type_, "object": pod}) for type_ in ("ADDED", "MODIFIED", "DELETED")]


async def test_an_event_is_read_in_one_pass_as_in_two() -> None:
    reader = ObjectReader("/pods", Pod, mark=mark_unread, count=lambda _reason: None)
    for line in events():
        head, body = await reader.head(line), await reader.body(line)
        meta = head.object.metadata
        assert await reader.event(line) == (head.type, body, meta.resourceVersion, meta.namespace)
        assert meta.resourceVersion == "17"


WENT_ON = threading.Event()


class Part(msgspec.Struct):
    def __post_init__(self) -> None:
        WENT_ON.wait(5)


class Made(AnyObject, frozen=True):
    parts: tuple[Part, ...] = ()


async def test_others_go_on_while_an_event_with_thousands_of_parts_is_read() -> None:
    """A JobSet of 700 replicated jobs with accelerators takes 5 ms, each time that anything of it changes."""
    reader = ObjectReader("/made", Made, mark=mark_unread, count=lambda _reason: None)
    made = {"metadata": {"name": "bert"}, "x": "x" * 48 * 1024, "parts": [{}] * 3}
    reading = asyncio.create_task(reader.event(msgspec.json.encode({"type": "ADDED", "object": made})))
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, WENT_ON.set)
    assert len((await reading).object.parts) == 3
    assert WENT_ON.is_set()


async def test_values_of_variables_that_are_not_ours_are_not_decoded() -> None:
    """One may have nine megabytes. This one is no text at all, and costs its pod nothing."""
    reader = ObjectReader("/pods", Pod, mark=mark_unread, count=lambda _reason: None)
    line = events()[0].replace(b'"env":[', b'"env":[{"name":"X","value":"\\\\ud800"},')
    (container,) = (await reader.event(line)).object.spec.containers
    assert [(variable.name, variable.text) for variable in container.env or ()] == [
        ("TRAINJOB_PROGRESS_FILE", "/a")
    ]


class Described(AnyObject, frozen=True):
    """As a kind that a file describes is read: expressions may read any field."""

    spec: Any = None


@pytest.mark.parametrize("number", ["1e308", "5e-324", "1e23"])
def test_no_number_of_an_object_costs_many_times_what_another_does(number: str) -> None:
    """An object of 108 KB took 300 ms of the event loop, each time that it changed."""
    reader = ObjectReader("/made", Described, mark=mark_unread, count=lambda _reason: None)

    def cpu_s(each: str) -> float:
        line = b'{"type":"MODIFIED","object":{"metadata":{"name":"bert"},"spec":[%s]}}'
        line %= ",".join([each] * 3000).encode()
        return min(timeit.repeat(lambda: asyncio.run(reader.event(line)), timer=time.thread_time, number=1))

    assert cpu_s(number) < 10 * cpu_s("0.5")


@pytest.mark.parametrize("place", ["variables", "labels"])
async def test_an_object_of_very_many_parts_is_not_read_and_has_a_name(place: str) -> None:
    """A pod of 220,000 variables kept the loop for 54 ms at each change: its decoder lets no thread go on."""
    reasons = list[str]()
    reader = ObjectReader("/pods", Pod, mark=mark_unread, count=reasons.append)
    pod = {"metadata": {"name": "bert", "namespace": "team-a", "uid": "u", "resourceVersion": "17"}}
    if place == "labels":
        pod["metadata"]["labels"] = {f"{number}": "" for number in range(70_000)}  # type: ignore[assignment]
    else:
        pod["spec"] = {"containers": [{"name": "node", "env": [{"name": "a"}] * 70_000}]}
    line = msgspec.json.encode({"type": "MODIFIED", "object": pod})
    with pytest.raises(msgspec.ValidationError, match="65536 commas"):
        await reader.event(line)
    assert (await reader.head(line)).object.metadata.resourceVersion == "17"
    _, listed = await reader.page(msgspec.json.encode({"metadata": {}, "items": [pod]}))
    for read in (await reader.body(line), *listed):
        assert read is not None
        assert (read.metadata.name, read.metadata.uid, read.metadata.unread) == (
            "bert",
            "u",
            "ObjectTooLarge",
        )
    assert reasons == ["ObjectTooLarge"] * 2
