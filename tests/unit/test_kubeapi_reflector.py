"""A reflector that is cut at random while documents change ends with exactly the server's state.

It does what client-go's does: list, watch from the list's revision, resume from the last revision after a
cut, list anew on Expired; or streams its list (W7, W8).
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.asgi import http_scope
from tests.unit.resource_server import ALL, BASE_REVISION, ResourceServer, WatchClient

CUTS = 250  # of each of four reflectors

Key = tuple[str, str]


def key(shown: dict[str, Any]) -> Key:
    return shown["metadata"]["namespace"], shown["metadata"]["name"]


class Reflector:
    """Holds what it was told. Every event it is given must be possible after what it holds."""

    def __init__(self, server: ResourceServer, *, streams_lists: bool, selector: str = "") -> None:
        self.held: dict[Key, dict[str, Any]] = {}
        self.revision = ""
        self.lists = 0
        self._server = server
        self._streams_lists = streams_lists
        self._selector = selector
        self._fresh: dict[Key, dict[str, Any]] | None = None  # of a streamed list, until its bookmark

    async def list(self) -> None:
        self.lists += 1
        self.held, target = {}, f"{ALL}?limit=5{self._selector}"
        token = ""
        while True:
            answer = await self._server.get(target + (f"&continue={token}" if token else ""))
            body = answer.json()
            if answer.status == 410:
                self.held, token = {}, ""
                continue
            self.held |= {key(item): item for item in body["items"]}
            self.revision = body["metadata"]["resourceVersion"]
            token = body["metadata"].get("continue", "")
            if not token:
                return

    def target(self) -> str:
        asked = f"{ALL}?watch=1&allowWatchBookmarks=true{self._selector}"
        if self.revision:
            return f"{asked}&resourceVersion={self.revision}"
        self.lists += 1
        self._fresh = {}
        return f"{asked}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

    async def prepare(self) -> None:
        if not self.revision and not self._streams_lists:
            await self.list()

    def take(self, event: dict[str, Any]) -> None:
        shown, type_ = event["object"], event["type"]
        if type_ == "ERROR":
            assert shown["reason"] == "Expired"
            self.revision = ""
            return
        revision = shown["metadata"]["resourceVersion"]
        if self._fresh is not None:
            if type_ == "BOOKMARK":
                assert shown["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
                self.held, self._fresh, self.revision = self._fresh, None, revision
                return
            assert type_ == "ADDED"
            assert key(shown) not in self._fresh
            self._fresh[key(shown)] = shown
            return
        assert int(revision) >= int(self.revision)
        if type_ == "BOOKMARK":
            assert "annotations" not in shown["metadata"]
        else:
            assert int(revision) > int(self.revision), "an event came twice, or out of order"
            assert (key(shown) in self.held) is (type_ != "ADDED"), "a line was missed or doubled"
            if type_ == "DELETED":
                del self.held[key(shown)]
            else:
                self.held[key(shown)] = shown
        self.revision = revision

    async def follow(self, cut_after: int, until: int | None = None) -> None:
        """Watches until so many chunks have come or the revision `until` is reached, then drops the line."""
        await self.prepare()
        client = WatchClient()
        task = asyncio.create_task(
            self._server.app(http_scope("GET", self.target()), client.receive, client.send)
        )
        seen = 0
        async with asyncio.timeout(90):
            while seen < cut_after and not (client.is_ended and seen == len(client.chunks)):
                if seen < len(client.chunks):
                    for line in client.chunks[seen].splitlines():
                        self.take(json.loads(line))
                    seen += 1
                elif until is not None and self.revision and int(self.revision) >= until:
                    break
                else:
                    await asyncio.sleep(0)
            client.disconnect()
            await task
        self._fresh = None


class World:
    """Documents that come, change and go at random."""

    def __init__(self, server: ResourceServer, source: random.Random) -> None:
        self._server = server
        self._source = source
        self._step = 0

    def change(self) -> None:
        self._step += 1
        name, namespace = self._source.choice("abcdefgh"), self._source.choice(("team-a", "team-b"))
        entry = self._server.store.get("trainjobs", namespace, name)
        match self._source.random():
            case chance if chance < 0.15 and entry is not None:
                self._server.delete(name, namespace=namespace)
            case chance if chance < 0.25:
                self._server.put(name, namespace=namespace, uid=f"uid-{self._step}", step=self._step)
            case _:
                uid = entry.document.job.ref.uid if entry is not None else f"uid-{self._step}"
                labels = {"app": self._source.choice("xy")}
                self._server.put(name, namespace=namespace, uid=uid, labels=labels, step=self._step)


@pytest.mark.parametrize("streams_lists", [False, True])
@pytest.mark.parametrize("selector", ["", "&labelSelector=app%3Dx"])
async def test_a_reflector_cut_at_random_ends_with_the_servers_state(
    streams_lists: bool, selector: str
) -> None:
    """Issue 3: cut 1,000 times in all while documents change. The history is short: some cuts expire."""
    source = random.Random(f"{streams_lists}{selector}")
    server = ResourceServer(max_changes=64)
    world = World(server, source)
    reflector = Reflector(server, streams_lists=streams_lists, selector=selector)
    stopping = asyncio.Event()

    async def live() -> None:
        while not stopping.is_set():
            for _ in range(source.randrange(1, 6)):
                world.change()
            for _ in range(source.randrange(1, 12)):
                await asyncio.sleep(0)

    living = asyncio.create_task(live())
    for _ in range(CUTS):
        await reflector.follow(cut_after=source.randrange(0, 4))
        if source.random() < 0.02:
            for _ in range(100):  # away for longer than the history reaches
                world.change()
    stopping.set()
    await living
    server.put("last", labels={"app": "x"})
    for _ in range(2):  # its place may have expired: then the first of them is only told so
        await reflector.follow(cut_after=10_000, until=server.store.revision)
    state = (await server.get(f"{ALL}?x=y{selector}")).json()["items"]
    assert {key(item): item for item in state} == reflector.held
    assert reflector.lists > 3


class StoreMachine(RuleBasedStateMachine):
    """List, watch and continue against plain dictionaries: one for each revision there ever was."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.server = ResourceServer(max_changes=20)
        self.states: dict[int, dict[Key, int]] = {BASE_REVISION: {}}
        self.held: dict[Key, int] = {}
        self.watched_from: int | None = None
        self.tokens: list[tuple[str, int, Key]] = []

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()

    def _note(self) -> None:
        self.states.setdefault(self.server.store.revision, dict(self.held))

    @rule(name=st.sampled_from("abcde"), namespace=st.sampled_from("xy"), step=st.integers(0, 3))
    def put(self, name: str, namespace: str, step: int) -> None:
        before = self.server.store.revision
        self.server.put(name, namespace=namespace, step=step)
        changed = self.held.get((namespace, name)) != step
        assert self.server.store.revision == before + changed  # L3
        self.held[namespace, name] = step
        self._note()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        namespace, name = data.draw(st.sampled_from(sorted(self.held)))
        self.server.delete(name, namespace=namespace)
        del self.held[namespace, name]
        self._note()

    @rule(limit=st.integers(1, 3))
    def first_page(self, limit: int) -> None:
        body = self._get(f"{ALL}?limit={limit}")
        at = int(body["metadata"]["resourceVersion"])
        assert at == self.server.store.revision
        self._check_page(body, at, after=("", ""), limit=limit)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), limit=st.integers(1, 3))
    def next_page(self, data: st.DataObject, limit: int) -> None:
        token, at, after = data.draw(st.sampled_from(self.tokens))
        body = self._get(f"{ALL}?limit={limit}&continue={token}")
        if body["kind"] == "Status":
            assert body["reason"] == "Expired"
            assert at < self.server.store.base_revision
            return
        assert int(body["metadata"]["resourceVersion"]) == at
        self._check_page(body, at, after=after, limit=limit)

    def _check_page(self, body: dict[str, Any], at: int, *, after: Key, limit: int) -> None:
        following = sorted(k for k in self.states[at] if k > after)
        assert [key(item) for item in body["items"]] == following[:limit]
        for item in body["items"]:
            assert item["status"]["steps"]["current"] == self.states[at][key(item)]
        token = body["metadata"].get("continue")
        assert (token is not None) is (len(following) > limit)
        if token is not None:
            assert body["metadata"]["remainingItemCount"] == len(following) - limit
            self.tokens.append((token, at, following[limit - 1]))

    @rule(data=st.data())
    def exact(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from(sorted(self.states)))
        body = self._get(f"{ALL}?resourceVersion={at}&resourceVersionMatch=Exact")
        if body["kind"] == "Status":
            assert (body["reason"], at < self.server.store.base_revision) == ("Expired", True)
            return
        assert {key(i): i["status"]["steps"]["current"] for i in body["items"]} == self.states[at]

    @rule(data=st.data())
    def watch(self, data: st.DataObject) -> None:
        """From any revision there was, the changes lead to the present state, or it has expired."""
        since = data.draw(st.sampled_from(sorted(self.states)))
        reflector = Reflector(self.server, streams_lists=False)
        reflector.held = {k: {"status": {"steps": {"current": v}}} for k, v in self.states[since].items()}
        reflector.revision = str(since)
        is_held = since >= self.server.store.base_revision
        self.runner.run(
            reflector.follow(cut_after=100, until=self.server.store.revision if is_held else None)
        )
        if is_held:
            assert {k: v["status"]["steps"]["current"] for k, v in reflector.held.items()} == self.held
        else:
            assert reflector.revision == ""  # told that it has expired

    @invariant()
    def lists_are_the_model(self) -> None:
        if hasattr(self, "server"):
            body = self._get(ALL)
            assert [key(item) for item in body["items"]] == sorted(self.held)

    def _get(self, target: str) -> dict[str, Any]:
        answer = self.runner.run(self.server.get(target))
        assert answer.status in (200, 410)
        body = answer.json()
        assert isinstance(body, dict)
        return body


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
