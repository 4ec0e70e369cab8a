"""The published schema and the encoder say the same: R18, L1, field by field."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from apidocs.__main__ import v3_document
from apidocs.schemas import PREFIX
from tests.jobs import RANK0, rank0, spent
from tests.past import Past
from tests.unit.api_shell import ONE, Shell
from tests.unit.test_app_diagnose import DIAGNOSE, shell as diagnose_shell
from tests.unit.test_app_log_tail import FAILURE, TAIL, Kubelet, job as failed_job, shell as log_shell
from tests.unit.test_kubeapi_replicas import Api
from visibility_api.diagnosis.result import Diagnosis, Group, Suspect
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Phase, Replica, Termination, TrainingJob
from visibility_api.jobs.ledger import KINDS
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary, Resources
from visibility_api.kinds import RESOURCES
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.message import ResourceRequest, ResourceResponse
from visibility_api.reports.ranks import RankRow, Ranks
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads.replicas import ReplicaStatus

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REF = JobRef(resource="trainjobs", namespace="team-a", name="bert", uid="u-1")

FULL = JobProgress(
    job=TrainingJob(
        ref=REF,
        labels={"team": "a"},
        created_at=NOW,
        phase=Phase.RUNNING,
        reason="TrainerReady",
        message="All pods are ready.",
        rank0=rank0(
            restart_count=1,
            last_termination=Termination(exit_code=143, signal=15, reason="Error", finished_at=NOW),
        ),
        replicas=(Replica(name="node", desired=2, ready=2, active=2, succeeded=0, failed=0),),
    ),
    phase=Phase.RUNNING,
    progress_percentage=45,
    remaining_s=795,
    completion_at=NOW,
    completion_range=(NOW, NOW),
    started_at=NOW,
    ended_at=NOW,
    ran_s=3600,
    attempts=2,
    resources=Resources(accelerators=16, by_name=(("nvidia.com/gpu", 16),), held_s=57600, wasted_s=160),
    checkpoint=(400, NOW),
    goodput=spent(dict.fromkeys(KINDS, 9000.0)),
    failure=Failure(
        at=NOW,
        replica="node-1",
        pod_name="bert-node-0-1-abcde",
        node_name="gpu-2",
        container_name="node",
        exit_code=137,
        signal=9,
        reason="OOMKilled",
        message="It was killed.",
        is_retryable=False,
        cause_class="AcceleratorOutOfMemory",
        cause="the accelerator's memory was full.",
        hint="Use a smaller batch.",
        rank=1,
    ),
    diagnosis=Diagnosis(
        at=NOW,
        reason="InDataLoader",
        message="Rank 1 is in the data loader.",
        hint="Check its data.",
        groups=(Group(count=7, ranks="0,2-7", where="is in all_reduce", frames=("train:step:7",)),),
        suspects=(
            Suspect(pod_name="bert-node-0-1-x", reason="InDataLoader", rank=1, node_name="gpu-2", step=449),
        ),
        read=8,
        others=1,
        unread=1,
        is_requested=True,
    ),
    updated_at=NOW,
    step=450,
    total_steps=1000,
    steps_per_s=5.41,
    epoch=0.5,
    total_epochs=3.0,
    metrics=(("loss", "0.2347"),),
    message="warming up",
    conditions=(Condition(type="Fresh", status="True", reason="RecentReport", message="", since=NOW),),
    observation=ObservationSummary(
        source="exec",
        last_probe_at=NOW,
        next_probe_at=NOW,
        latency_s=0.012,
        consecutive_failures=2,
        reason="Timeout",
        message="no answer in time",
    ),
    seen_at=NOW,
)
BARE = JobProgress(job=TrainingJob(ref=REF, created_at=None, phase=Phase.UNKNOWN), phase=Phase.UNKNOWN)


async def served(document: JobProgress, target: str = ONE) -> dict[str, Any]:
    """What a client gets, from the store to the wire."""
    store = MemoryStore(base_revision=1000)
    store.put(document)
    documents = Collection(TrainJobKind.served, store, now=lambda: NOW)

    async def handler(request: ResourceRequest) -> ResourceResponse:
        return await (documents.get if request.attributes.verb == "get" else documents.list)(request)

    answer = await Shell(handler=handler).get(target)
    assert answer.status == 200
    return dict(answer.json())


def names_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {name for inner in value.values() for name in names_in(inner)}
    if isinstance(value, list):
        return {name for inner in value for name in names_in(inner)}
    return set()


async def test_no_field_is_published_that_is_never_sent() -> None:
    schemas = v3_document(RESOURCES)["components"]["schemas"]
    published = {
        name
        for schema, body in schemas.items()
        if schema.startswith(PREFIX) and not schema.endswith("List")
        for name in body["properties"]
    }
    sent = names_in(await served(FULL)) | names_in((await Past().get()).json())
    log = Kubelet(before=b"/bin/sh: 1: torchrun: not found\n")
    tail = (await log_shell(failed_job(failure=FAILURE), log).get(TAIL)).json()
    sent |= names_in(tail)
    sent |= names_in((await diagnose_shell(FULL).get(DIAGNOSE)).json())
    first = ReplicaStatus(name="node-0", pod_name=RANK0.pod_name, state="Failed", reason="Evicted")
    others = ReplicaStatus(name="node-1", pod_name="bert-1", state="Running")
    replicas = Api(first, others, step=1, updated_at=NOW)
    replicas.ranks = Ranks(1, NOW, (RankRow(0, "", 1, 0.5),))
    sent |= names_in(json.loads(await replicas.get(replicas="all", limit="1")))
    assert published - sent == set()
