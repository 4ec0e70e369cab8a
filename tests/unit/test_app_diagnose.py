"""The last diagnosis with its stacks, and requests for another: for whom, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.jobs import NOW, document, rank0
from tests.unit.api_shell import JANE, ONE, Shell
from tests.unit.test_app_log_tail import Rights
from visibility_api.app.dependencies import Diagnoses
from visibility_api.diagnosis.result import Diagnosis, Group, Suspect
from visibility_api.jobs.job import JobRef, Phase, ProbeHints
from visibility_api.jobs.summary import JobProgress
from visibility_api.models.served import GROUP_VERSION
from visibility_api.models.subresources import TrainJobDiagnosis
from visibility_api.store import Entry

DIAGNOSE = f"{ONE}/diagnose"
DIAGNOSIS = Diagnosis(
    at=NOW,
    reason="InDataLoader",
    message="Rank 1 (gpu-2) is in the data loader for 6 min; 7 ranks wait for it in all_reduce.",
    groups=(Group(count=7, ranks="0,2-7", where="is in all_reduce", frames=("train:step:7",)),),
    suspects=(Suspect(pod_name="bert-node-0-1-x", reason="InDataLoader", rank=1, node_name="gpu-2"),),
    read=8,
)


class Ranks:
    """Counts requests; the job has to wait so long."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        self.requested: list[JobRef] = []

    async def request(self, ref: JobRef) -> float:
        self.requested.append(ref)
        return self.wait_s


def shell(
    shown: JobProgress | None, ranks: Ranks | None = None, rights: Rights | None = None, *, on: bool = True
) -> Shell:
    entry = Entry(document=shown, revision=7) if shown is not None else None
    return Shell(
        diagnoses=Diagnoses(
            find=lambda *key: entry if key == ("trainjobs", "team-a", "bert") else None,
            authorizer=rights or Rights(),
            request=(ranks or Ranks()).request,
            is_on=on,
        )
    )


async def test_whoever_may_read_the_logs_of_the_namespace_sees_the_stacks() -> None:
    rights = Rights()
    asked = shell(document(diagnosis=DIAGNOSIS), rights=rights)
    answer = await asked.get(DIAGNOSE)
    shown = TrainJobDiagnosis.model_validate_json(answer.body)
    assert answer.status == 200
    assert (shown.kind, shown.api_version) == ("TrainJobDiagnosis", GROUP_VERSION)
    assert shown.diagnosis.groups is not None
    assert shown.diagnosis.groups[0].frames == ("train:step:7",)
    ((log,), (ours,)) = (rights.asked, asked.asked)
    assert (log.verb, log.resource, log.subresource, log.namespace, log.name) == (
        "get",
        "pods",
        "log",
        "team-a",
        "",
    )
    assert (ours.verb, ours.resource, ours.subresource, ours.name) == ("get", "trainjobs", "diagnose", "bert")


async def test_without_the_right_to_the_logs_there_are_no_stacks() -> None:
    answer = await shell(document(diagnosis=DIAGNOSIS), rights=Rights(may_read=False)).get(DIAGNOSE)
    assert answer.status == 403
    assert b"train" not in answer.body.replace(b"trainjob", b"").replace(b"trainer", b"")


async def test_a_request_has_the_ranks_read_and_needs_a_right_of_its_own() -> None:
    ranks, shown = Ranks(), document()
    asked = shell(shown, ranks)
    answer = await asked.get(DIAGNOSE, method="POST")
    assert (answer.status, answer.json()["status"]) == (202, "Success")
    assert ranks.requested == [shown.job.ref]
    (right,) = asked.asked
    assert (right.verb, right.subresource, right.name) == ("create", "diagnose", "bert")


def of_job(**changed: Any) -> JobProgress:
    shown = document()
    return replace(shown, phase=changed.get("phase", shown.phase), job=replace(shown.job, **changed))


@pytest.mark.parametrize(
    ("shown", "on", "status"),
    [
        pytest.param(None, True, 404, id="no such job"),
        pytest.param(document(), False, 403, id="no source may exec"),
        pytest.param(of_job(hints=ProbeHints(source="none")), True, 403, id="its annotation forbids probing"),
        pytest.param(of_job(phase=Phase.FAILED), True, 409, id="it has ended"),
        pytest.param(of_job(phase=Phase.SUSPENDED), True, 409, id="it is suspended"),
        pytest.param(of_job(phase=Phase.PENDING, rank0=None), True, 409, id="it has no pod yet"),
        pytest.param(of_job(phase=Phase.PENDING, rank0=rank0()), True, 202, id="its pod waits"),
        pytest.param(of_job(runs_elsewhere=True), True, 409, id="its pods are in another cluster"),
    ],
)
async def test_what_is_refused_is_not_read(shown: JobProgress | None, on: bool, status: int) -> None:
    ranks = Ranks()
    answer = await shell(shown, ranks, on=on).get(DIAGNOSE, method="POST")
    assert answer.status == status
    assert bool(ranks.requested) is (status == 202)


async def test_a_job_that_was_just_read_has_to_wait() -> None:
    answer = await shell(document(), Ranks(wait_s=41.2)).get(DIAGNOSE, method="POST")
    assert answer.status == 429
    assert ("retry-after", "42") in answer.headers


@pytest.mark.parametrize(
    ("query", "accept", "status"),
    [
        ("", "text/csv", 406),
        ("?dryRun=All", "application/json", 202),
        ("?dryRun=All&dryRun=bogus", "application/json", 422),
        ("?dryRun=", "application/json", 422),
    ],
)
async def test_what_is_not_acceptable_and_what_is_tried_out_has_no_effect(
    query: str, accept: str, status: int
) -> None:
    ranks = Ranks()
    answer = await shell(document(), ranks).get(DIAGNOSE + query, ("Accept", accept), method="POST")
    assert (answer.status, ranks.requested) == (status, [])
    if status == 422:
        assert 'supported values: "All"' in answer.json()["message"]


async def test_what_was_never_read_is_not_found() -> None:
    answer = await shell(document()).get(DIAGNOSE)
    assert answer.status == 404
    assert "POST" in answer.json()["message"]
    assert JANE.user not in answer.body.decode()
