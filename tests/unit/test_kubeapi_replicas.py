"""`progress?replicas=all`: a status for each replica, in pages, with what the document knows itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.jobs import KILLED, NOW, RANK0, T0, document
from visibility_api.auth.identity import Attributes
from visibility_api.errors.status import BadRequest, ObjectNotFound
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Rank0
from visibility_api.kinds import BY_RESOURCE
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse
from visibility_api.kubeapi.replicas import MOST, MOST_AS_YAML, ProgressWithReplicas
from visibility_api.models.v1alpha1 import TrainJobProgress
from visibility_api.reports.ranks import NO_RANKS, RankRow, Ranks
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads.replicas import Pushed, ReplicaStatus, ReplicaStatuses


def running(name: str, pod_name: str = "", state: str = "Running") -> ReplicaStatus:
    return ReplicaStatus(name=name, pod_name=pod_name or f"bert-{name}-x", state=state, node_name="gpu-1")


RANK0_STATUS = running("node-0", RANK0.pod_name)


class Api:
    def __init__(self, *items: ReplicaStatus, rank0: Rank0 | None = RANK0, **more: Any) -> None:
        self.items = items
        self.ranks = NO_RANKS
        self.pushed: dict[str, Pushed] = {}
        self.asked: list[tuple[JobRef, str]] = []
        store = MemoryStore(base_revision=1)
        made = document(**more)
        store.put(replace(made, job=replace(made.job, rank0=rank0)))
        kind = BY_RESOURCE["trainjobs"].served
        self.handler = ProgressWithReplicas(kind, store, self._read, self._plain)

    async def _read(self, ref: JobRef, client: str) -> ReplicaStatuses:
        self.asked.append((ref, client))
        return ReplicaStatuses(at=T0, items=tuple(self.items), ranks=self.ranks, pushed=self.pushed)

    async def _plain(self, _request: ResourceRequest) -> ResourceResponse:
        return ResourceResponse(body=b"plain")

    async def get(self, name: str = "bert", accept: str = "application/json", **query: str) -> bytes:
        async def receive() -> dict[str, Any]:
            raise AssertionError

        request = ResourceRequest(
            query=[(key.rstrip("_"), value) for key, value in query.items()],
            headers=[(b"accept", accept.encode())],
            attributes=Attributes(verb="get", path="", namespace="team-a", name=name),
            receive=receive,
            client="user jane",
        )
        answer = await self.handler.get(request)
        assert isinstance(answer.body, bytes)
        return answer.body

    async def rows(self, **query: str) -> Sequence[dict[str, Any]]:
        """Each status of a whole object that its model takes."""
        shown = TrainJobProgress.model_validate_json(
            await self.get(replicas="all", **query), strict=True, extra="forbid"
        ).status
        self.after = shown.replica_statuses_continue
        assert shown.replica_statuses is not None
        return [each.model_dump(exclude_none=True, by_alias=False) for each in shown.replica_statuses]


async def test_without_the_parameter_nothing_is_read() -> None:
    api = Api()
    assert await api.get() == await api.get(pretty="true") == b"plain"
    assert api.asked == []


async def test_each_replica_is_shown_with_what_its_pod_shows_and_rank_0_with_its_report() -> None:
    worker = ReplicaStatus(
        name="node-1", pod_name="bert-1", state="Failed", node_name="gpu-2", reason="Evicted",
        restart_count=2, last_termination=KILLED,
    )  # fmt: skip
    api = Api(RANK0_STATUS, worker, step=450, updated_at=NOW)
    first, second = await api.rows()
    assert first == {
        "name": "node-0", "rank": 0, "pod_name": RANK0.pod_name, "node_name": "gpu-1", "state": "Running",
        "restart_count": 0, "last_report_time": NOW, "step": 450,
    }  # fmt: skip
    ended = second.pop("last_termination")
    assert (ended["exit_code"], ended["reason"]) == (137, "OOMKilled")
    assert second == {
        "name": "node-1", "rank": 1, "pod_name": "bert-1", "node_name": "gpu-2", "state": "Failed",
        "reason": "Evicted", "restart_count": 2,
    }  # fmt: skip
    ((ref, client),) = api.asked
    assert (ref.name, client) == ("bert", "user jane")
    shown = yaml.safe_load(await api.get(replicas="all", accept="application/yaml"))
    assert shown["kind"] == "TrainJobProgress"
    assert shown["status"]["replicaStatusesTime"] == T0.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("names", [("bert-node-0-0", "bert-node-0-1-x"), ("", "")])
async def test_what_rank_0_says_of_other_ranks_is_shown_with_their_pods(names: tuple[str, str]) -> None:
    """By the name of a pod or of its host, else by rank. Of two processes in a pod the slower one."""
    other = running("node-1", "bert-node-0-1-x")
    api = Api(RANK0_STATUS, other, step=450, updated_at=NOW)
    rows = [RankRow(0, names[0], 440, 0.5), RankRow(1, names[1], 439, 0.75)]
    if names[1]:
        rows.append(RankRow(2, names[1], 438, 0.25))
    api.ranks = Ranks(1, T0, tuple(rows))
    first, second = await api.rows()
    assert (first["step"], first["step_seconds"], first["last_report_time"]) == (450, 0.5, NOW)
    assert (second["step"], second["step_seconds"], second["last_report_time"]) == (439, 0.75, T0)


async def test_what_another_rank_pushed_is_shown_if_it_is_newer_than_rank_0s_account() -> None:
    """Its rank is that of its place, else the one that it says."""
    items = (RANK0_STATUS, running("node-1"), running("other-1"))
    api = Api(*items, step=450, updated_at=NOW)
    api.ranks = Ranks(1, T0, (RankRow(1, "", 439, 0.75),))
    api.pushed = {each.pod_name: Pushed(at=T0 + timedelta(seconds=1), step=441, rank=7) for each in items}
    first, second, third = await api.rows()
    assert (first["step"], first["last_report_time"]) == (450, NOW)
    assert (second["rank"], second["step"], second["step_seconds"]) == (1, 441, 0.75)
    assert (third["rank"], third["step"], third["last_report_time"]) == (7, 441, T0 + timedelta(seconds=1))
    api.pushed = {items[1].pod_name: Pushed(at=T0 - timedelta(seconds=1), step=400, rank=None)}
    assert [row.get("step") for row in await api.rows()] == [450, 439, None]


@pytest.mark.parametrize("query", [{}, {"limit": "1000"}], ids=["no limit", "a limit"])
async def test_a_page_as_yaml_is_shorter_and_says_where_the_next_begins(query: dict[str, str]) -> None:
    """1,000 replicas kept the event loop for 117 ms."""
    api = Api(*[running(f"node-{index}") for index in range(1500)], rank0=None)
    status = yaml.safe_load(await api.get(replicas="all", accept="application/yaml", **query))["status"]
    assert len(status["replicaStatuses"]) == MOST_AS_YAML
    assert status["replicaStatusesContinue"] == f"node-{MOST_AS_YAML - 1}"


async def test_pages_show_each_replica_once_also_when_some_have_gone_between_them() -> None:
    api = Api(*[running(f"node-{index}") for index in range(1500)], rank0=None)
    assert len(await api.rows()) == MOST
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await api.rows(limit="7", **({"continue_": after} if after else {}))
        assert len(page) <= 7
        names += [row["name"] for row in page]
        after = api.after
        api.items = tuple(each for each in api.items if each.name != after)
    assert names == [f"node-{index}" for index in range(1500)]


@pytest.mark.parametrize(
    "query",
    [
        {"replicas": "some"},
        {"replicas": ""},
        *({"replicas": "all", "limit": n} for n in ("0", "-1", "x", "")),
    ],
)
async def test_a_parameter_that_means_nothing_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        await Api().get(**query)


async def test_a_job_that_is_not_there_is_not_found() -> None:
    with pytest.raises(ObjectNotFound):
        await Api().get("absent", replicas="all")


@pytest.mark.parametrize(
    ("rank0_of", "names", "ranks"),
    [
        ("master-0", ("master-0", "worker-0", "worker-1"), (0, 1, 2)),
        ("worker-0", ("worker-0", "worker-1"), (0, 1)),
        ("node-0", ("dataset-initializer", "node-0", "node-1"), (None, 0, 1)),
        ("launcher-0", ("launcher-0", "worker-0"), (0, None)),
        ("leader-0", ("leader-0", "leader-1", "worker-0-1", "worker-1-1"), (0, None, 1, None)),
        ("node-0-0", ("node-0-0", "node-0-1", "node-1-0"), (0, 1, None)),
        ("", ("node-0", "node-1"), (None, None)),
    ],
)
async def test_ranks_are_those_of_rank_0s_group(
    rank0_of: str, names: tuple[str, ...], ranks: tuple[int | None, ...]
) -> None:
    items = [running(name, RANK0.pod_name if name == rank0_of else "") for name in names]
    api = Api(*items, rank0=RANK0 if rank0_of else None)
    expected = list(zip(names, ranks, strict=True))
    assert [(row["name"], row.get("rank")) for row in await api.rows()] == expected
    rest = await api.rows(continue_=names[0])
    assert [(row["name"], row.get("rank")) for row in rest] == expected[1:]  # rank 0 was on another page


async def test_rank_0_and_what_failed_are_shown_when_no_pod_was_ever_listed() -> None:
    """After a restart of the server, of a job whose pods are gone."""
    failure = Failure(at=NOW, replica="node-3", pod_name="bert-3", node_name="gpu-3", reason="Evicted")
    last = replace(RANK0, is_running=False, last_termination=KILLED)
    api = Api(rank0=last, failure=failure)
    rows = {row["name"]: row for row in await api.rows()}
    assert rows.keys() == {"bert-node-0-0-abcde", "node-3"}
    assert rows["bert-node-0-0-abcde"]["state"] == "Gone"
    assert (rows["node-3"]["state"], rows["node-3"]["reason"]) == ("Failed", "Evicted")
    api.items = (RANK0_STATUS, running("node-3", "bert-3", "Failed"))
    assert [row["name"] for row in await api.rows()] == ["node-0", "node-3"]
